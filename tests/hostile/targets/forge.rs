//! What somebody can do who knows the format: checksums are no signatures.

use std::collections::BTreeMap;

use pitstop::Checksum;
use pitstop::format::{MANIFEST, Manifest, Place, Stretch, checksum};

/// The files of a checkpoint, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Length of the first line of a manifest, in bytes.
pub(crate) const FIRST_LINE: usize = 48;

/// A manifest of a first line that vouches for the `rest`.
pub(crate) fn signed(rest: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{{\"checksum\":\"{}\",\n", checksum::of(rest)).into_bytes();
    bytes.extend(rest);
    bytes
}

/// Has the manifest vouch for itself.
pub(crate) fn sign(files: &mut Files) {
    if let Some(manifest) = files.get_mut(MANIFEST) {
        *manifest = signed(manifest.get(FIRST_LINE..).unwrap_or_default());
    }
}

/// Has the manifest vouch for the files as they are, as far as it can be read.
pub(crate) fn vouch(files: &mut Files) {
    sign(files);
    let Some(Ok(mut manifest)) = files.get(MANIFEST).map(|bytes| Manifest::parse(bytes)) else {
        return;
    };
    let mut stretches: BTreeMap<String, Vec<(u64, u64, Checksum)>> = BTreeMap::new();
    for tensor in &mut manifest.tensors {
        let sizes: Vec<u64> = tensor.stretches().map(|(nbytes, _)| nbytes).collect();
        for (nbytes, stretch) in sizes.into_iter().zip(stretches_mut(&mut tensor.place)) {
            let file = files.get(&*stretch.file);
            let end = stretch.start + nbytes;
            let bytes = file.and_then(|bytes| bytes.get(stretch.start as usize..end as usize));
            stretch.checksum = checksum::of(bytes.unwrap_or_default());
            let of_file = stretches.entry(stretch.file.to_string()).or_default();
            of_file.push((stretch.start, nbytes, stretch.checksum));
        }
    }
    for (name, entry) in &mut manifest.files {
        let Some(bytes) = files.get(name) else {
            continue;
        };
        let head = entry.data_start.unwrap_or(entry.size) as usize;
        let head = checksum::of(bytes.get(..head).unwrap_or_default());
        entry.checksum = if entry.data_start.is_some() {
            let mut tensors = stretches.remove(name).unwrap_or_default();
            tensors.sort_by_key(|(start, nbytes, _)| (*start, *nbytes));
            let tensors = tensors.into_iter().map(|(_, _, checksum)| checksum);
            checksum::of_file(std::iter::once(head).chain(tensors), entry.size)
        } else {
            head
        };
    }
    if let Ok(bytes) = manifest.to_bytes() {
        files.insert(MANIFEST.to_owned(), bytes);
    }
}

fn stretches_mut(place: &mut Place) -> Vec<&mut Stretch> {
    match place {
        Place::Whole(stretch) => vec![stretch],
        Place::Pieces(parts) => parts.iter_mut().map(|part| &mut part.stretch).collect(),
    }
}
