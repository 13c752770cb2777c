//! A manifest as bytes.

use super::{
    FIRST_LINE, FileEntry, FormatError, MAX_DEPTH, Manifest, Part, Place, Stretch, TensorEntry,
    VERSION, first_line, malformed, view_fits,
};
use crate::format::json::Json;
use crate::format::order::sort_by_name;
use crate::format::tree::{self, Real};
use crate::state::{Checksum, TensorRef};

/// About so many bytes a tensor and its leaf take.
const USUAL: usize = 320;

impl Manifest {
    /// The bytes of `manifest.json`.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooDeep`] if the tree nests deeper than [`MAX_DEPTH`]; [`FormatError::Malformed`] if it
    /// holds what could not be read back, such as a key given twice.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        if tree::depth(&self.root).max(tree::depth(&self.metadata)) > MAX_DEPTH {
            return Err(FormatError::TooDeep);
        }
        let fits = |leaf: &TensorRef| match (self.tensors.get(leaf.index), &leaf.view) {
            (Some(tensor), Some(view)) => view_fits(view, tensor),
            (tensor, None) => tensor.is_some(),
            (None, Some(_)) => false,
        };
        tree::check(&self.root, &fits).map_err(malformed)?;
        tree::check(&self.metadata, &|_| false).map_err(malformed)?;
        let tensors = self.sorted_tensors()?;
        let keys: Vec<&str> = self.tensors.iter().map(|t| t.key.as_str()).collect();
        let mut json = Json(Vec::with_capacity(4096 + USUAL * self.tensors.len()));
        // The first line takes the place of the brace of the object.
        json.0.resize(FIRST_LINE, b' ');
        json.raw("\"format\":\"pitstop\",\"version\":");
        json.number(VERSION);
        json.raw(",\"step\":");
        json.number(self.step);
        json.raw(",\"created\":");
        json.text(&humantime::format_rfc3339_millis(self.created).to_string());
        json.raw(",\"writer\":");
        json.text(&self.writer);
        json.raw(",\"metrics\":");
        json.object(&self.metrics, |json, (name, value)| {
            json.text(name);
            json.raw(":");
            json.value(&Real(*value));
        });
        json.raw(",\"metadata\":");
        tree::write(&self.metadata, &[], &mut json);
        json.raw(",\"tree\":");
        tree::write(&self.root, &keys, &mut json);
        json.raw(",\"files\":");
        json.object(&self.files, |json, (name, file)| {
            write_file(name, file, json);
        });
        json.raw(",\"tensors\":");
        json.object(tensors, |json, tensor| write_tensor(tensor, json));
        json.raw("}");
        let mut bytes = json.0;
        let first = first_line(&bytes[FIRST_LINE..]);
        bytes[..FIRST_LINE].copy_from_slice(first.as_bytes());
        Ok(bytes)
    }

    fn sorted_tensors(&self) -> Result<Vec<&TensorEntry>, FormatError> {
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        sort_by_name(&mut tensors, |tensor| &tensor.key);
        match tensors.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(twins) => Err(malformed(format!(
                "two tensors are called {:?}",
                twins[0].key
            ))),
            None => Ok(tensors),
        }
    }
}

fn write_file(name: &str, file: &FileEntry, json: &mut Json) {
    json.text(name);
    json.raw(":{\"size\":");
    json.number(file.size);
    if let Some(data_start) = file.data_start {
        json.raw(",\"data_start\":");
        json.number(data_start);
    }
    if file.links > 0 {
        json.raw(",\"links\":");
        json.number(file.links);
    }
    write_checksum(file.checksum, json);
    json.raw("}");
}

fn write_tensor(tensor: &TensorEntry, json: &mut Json) {
    json.text(&tensor.key);
    json.raw(":{\"dtype\":");
    json.text(tensor.dtype.name());
    json.raw(",\"shape\":");
    json.numbers(&tensor.shape);
    match &tensor.place {
        Place::Whole(stretch) => write_stretch(stretch, json),
        Place::Pieces(parts) => {
            json.raw(",\"pieces\":");
            json.list(parts, |json, part| write_part(part, json));
        }
    }
    json.raw("}");
}

fn write_part(part: &Part, json: &mut Json) {
    json.raw("{\"offset\":");
    json.numbers(&part.offset);
    json.raw(",\"shape\":");
    json.numbers(&part.shape);
    write_stretch(&part.stretch, json);
    json.raw("}");
}

fn write_stretch(stretch: &Stretch, json: &mut Json) {
    json.raw(",\"file\":");
    json.text(&stretch.file);
    json.raw(",\"name\":");
    json.text(&stretch.name);
    json.raw(",\"start\":");
    json.number(stretch.start);
    write_checksum(stretch.checksum, json);
}

fn write_checksum(checksum: Checksum, json: &mut Json) {
    json.raw(",\"checksum\":\"");
    json.0.extend_from_slice(&checksum.digits());
    json.raw("\"");
}
