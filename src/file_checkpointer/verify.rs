//! All of a checkpoint compared with its manifest: every byte, and what the files say of each other.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::reader::{self, ByFile, Source};
use super::{RestoreError, Run};
use crate::format::{FileEntry, HeaderEntry, MANIFEST, Manifest, Place, Stretch, parse_header};
use crate::snapshot::{Watch, verify_all};
use crate::state::{DType, ReadAt as _};
use crate::storage::Storage;

/// The end of the name of an index.
const INDEX: &str = ".safetensors.index.json";

/// What was found in a checkpoint that was read from the first byte to the last.
#[derive(Debug)]
pub struct Verification {
    /// The checkpoint.
    pub path: PathBuf,
    /// Files that were to be there, the manifest among them.
    pub files: usize,
    /// Tensors that were to be there.
    pub tensors: usize,
    /// Bytes that were to be there.
    pub nbytes: u64,
    /// All that is wrong with it: what is damaged, missing, or cannot be read.
    pub damage: Vec<RestoreError>,
    /// Names in its directory that are none of its own. They do no harm.
    pub unexpected: Vec<PathBuf>,
}

impl Verification {
    /// Of a checkpoint with a manifest, of which nothing else is known yet.
    fn of(path: &Path) -> Verification {
        Verification {
            path: path.to_owned(),
            files: 1,
            tensors: 0,
            nbytes: 0,
            damage: Vec::new(),
            unexpected: Vec::new(),
        }
    }

    fn with(mut self, error: RestoreError) -> Verification {
        self.damage.push(error);
        self
    }
}

impl Run {
    /// Reads all of the checkpoint of a step, and tells everything that is wrong with it. Beyond what restoring
    /// compares, headers and indexes must say of the tensors what the manifest says.
    ///
    /// # Errors
    ///
    /// [`RestoreError::NotFound`] if there is nothing of that step, or no more; [`RestoreError::Io`] with `Interrupted`
    /// if `watch` ended it, and with `ResourceBusy` if the checkpoint is replaced at every look. Whatever else is
    /// wrong is part of the answer.
    pub fn verify(&self, step: u64, watch: Watch<'_>) -> Result<Verification, RestoreError> {
        let path = self.own_path(step)?;
        verify(self.storage().as_ref(), &path, Some(step), watch)
    }

    /// As [`verify`](Self::verify), for the directory itself as one checkpoint.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_here(&self, watch: Watch<'_>) -> Result<Verification, RestoreError> {
        verify(self.storage().as_ref(), self.directory(), None, watch)
    }
}

fn verify(
    storage: &dyn Storage,
    path: &Path,
    step: Option<u64>,
    watch: Watch<'_>,
) -> Result<Verification, RestoreError> {
    let mut missed = false;
    for _ in 0..reader::ATTEMPTS {
        let mut found = Verification::of(path);
        let bytes = match reader::read_manifest(storage, path) {
            Ok(bytes) => bytes,
            Err(error @ RestoreError::NotFound { .. }) => {
                if storage.kind(path)?.is_none() {
                    return Err(error);
                }
                // Where names cannot be exchanged, another may just have been on its way there.
                if !std::mem::replace(&mut missed, true) {
                    continue;
                }
                let why = "the file is missing";
                return Ok(found.with(RestoreError::corrupt(path.join(MANIFEST), why)));
            }
            Err(error) => return Ok(found.with(error)),
        };
        missed = false;
        found.nbytes = bytes.len() as u64;
        (watch.progress)(found.nbytes);
        match reader::parse(path, &bytes, Manifest::parse) {
            Ok(manifest) => look(storage, step, &manifest, watch, &mut found)?,
            Err(error) => found.damage.push(error),
        }
        watch.check()?;
        if found.damage.is_empty() {
            return Ok(found);
        }
        // Somebody may have replaced the checkpoint meanwhile; what was found then is of neither.
        match reader::is_still(storage, path, &bytes) {
            Ok(true) => return Ok(found),
            Ok(false) => {}
            Err(error) => return Ok(found.with(error)),
        }
    }
    Err(reader::replaced_too_often(path))
}

/// Looks at all that the manifest lists, and at what it does not.
fn look(
    storage: &dyn Storage,
    step: Option<u64>,
    manifest: &Manifest,
    watch: Watch<'_>,
    found: &mut Verification,
) -> Result<(), RestoreError> {
    let path = found.path.clone();
    if step.is_some_and(|step| step != manifest.step) {
        found.damage.push(RestoreError::Misplaced {
            path: path.clone(),
            found: manifest.step,
        });
    }
    found.files += manifest.files.len();
    found.tensors = manifest.tensors.len();
    found.nbytes = found.nbytes.saturating_add(manifest.nbytes());
    let mut files = HashMap::new();
    for (name, entry) in &manifest.files {
        match reader::open_file(storage, &path.join(name), entry) {
            Ok(file) => drop(files.insert(name.as_str(), file)),
            Err(error) => found.damage.push(error),
        }
    }
    let by_file = reader::stretches_by_file(manifest);
    let covered = reader::check_coverage(&path, manifest, &by_file);
    let is_covered = covered.is_ok();
    found.damage.extend(covered.err());
    let stored = stored(manifest);
    for (name, file) in files.iter().filter(|_| is_covered) {
        watch.check()?;
        let entry = &manifest.files[*name];
        let checked = check_head(&path, name, entry, &stored, &by_file, file);
        found.damage.extend(checked.err());
        (watch.progress)(entry.data_start.unwrap_or(entry.size));
    }
    check_tensors(manifest, &files, watch, found);
    match storage.list(&path) {
        Ok(entries) => {
            let known = |name: &str| name == MANIFEST || manifest.files.contains_key(name);
            let strange = |name: &OsString| !name.to_str().is_some_and(known);
            let names = entries.into_iter().map(|entry| entry.name).filter(strange);
            found.unexpected = names.map(|name| path.join(name)).collect();
        }
        Err(error) => found.damage.push(error.into()),
    }
    found.damage.sort_by_key(ToString::to_string);
    Ok(())
}

/// Compares every tensor whose files are there.
fn check_tensors(
    manifest: &Manifest,
    files: &HashMap<&str, Arc<Source>>,
    watch: Watch<'_>,
    found: &mut Verification,
) {
    let mut tensors = Vec::with_capacity(manifest.tensors.len());
    for entry in &manifest.tensors {
        let there = |file: &str| files.contains_key(file);
        if !entry.stretches().all(|(_, stretch)| there(&stretch.file)) {
            continue;
        }
        match reader::tensor(entry, files, true) {
            Ok(tensor) => tensors.push(tensor),
            Err(why) => {
                let manifest = found.path.join(MANIFEST);
                found.damage.push(RestoreError::corrupt(manifest, why));
            }
        }
    }
    for error in verify_all(&tensors, watch) {
        found.damage.push(RestoreError::reading(&found.path, error));
    }
}

/// Compares the bytes of a file that belong to no tensor with their checksum, and what they say with the manifest.
fn check_head(
    path: &Path,
    name: &str,
    entry: &FileEntry,
    stored: &Stored<'_>,
    by_file: &ByFile<'_>,
    file: &Source,
) -> Result<(), RestoreError> {
    let len = entry.data_start.unwrap_or(entry.size);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            RestoreError::corrupt(path.join(name), "the file is cut off")
        }
        _ => RestoreError::Io(error),
    };
    let head = reader::checksum_of_start(file, len).map_err(unreadable)?;
    reader::check_file(path, name, entry, by_file, head)?;
    if entry.data_start.is_none() && !name.ends_with(INDEX) {
        return Ok(());
    }
    let agrees = |head: &[u8]| match entry.data_start {
        Some(_) => {
            let stored = stored.get(name).map_or(&[][..], Vec::as_slice);
            header_agrees(stored, entry.size, head)
        }
        None => index_agrees(by_file, head),
    };
    // Neither has more to say than the manifest.
    let result = if len > reader::LARGEST_MANIFEST {
        Err("it is too large".into())
    } else {
        let mut head = vec![0; len as usize];
        file.read_at(0, &mut head).map_err(unreadable)?;
        agrees(&head)
    };
    result.map_err(|why| RestoreError::corrupt(path.join(name), why))
}

fn header_agrees(
    stored: &[(DType, &[u64], &Stretch)],
    size: u64,
    head: &[u8],
) -> Result<(), String> {
    let header = parse_header(head, size).map_err(|error| error.to_string())?;
    let said: BTreeMap<&str, &HeaderEntry> = header
        .entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    for &(dtype, shape, stretch) in stored {
        let same = said.get(stretch.name.as_str()).is_some_and(|said| {
            said.dtype == dtype && said.shape == shape && said.start == stretch.start
        });
        if !same {
            let local = &stretch.name;
            return Err(format!(
                "its header says something else of {local:?} than the manifest"
            ));
        }
    }
    if stored.len() != header.entries.len() {
        return Err("its header names tensors that the manifest does not know".into());
    }
    Ok(())
}

/// What is stored in each file: element type, shape, and where.
type Stored<'a> = HashMap<&'a str, Vec<(DType, &'a [u64], &'a Stretch)>>;

fn stored(manifest: &Manifest) -> Stored<'_> {
    let mut stored = Stored::new();
    for tensor in &manifest.tensors {
        let parts = match &tensor.place {
            Place::Whole(stretch) => vec![(tensor.shape.as_slice(), stretch)],
            Place::Pieces(parts) => parts
                .iter()
                .map(|it| (it.shape.as_slice(), &it.stretch))
                .collect(),
        };
        for (shape, stretch) in parts {
            let file = stored.entry(&*stretch.file).or_default();
            file.push((tensor.dtype, shape, stretch));
        }
    }
    stored
}

/// An index as loaders of sharded models read it.
#[derive(Deserialize)]
struct Index {
    metadata: IndexMetadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct IndexMetadata {
    total_size: u64,
}

/// An index must name the tensors of its shards, all of them and no others.
fn index_agrees(by_file: &ByFile<'_>, bytes: &[u8]) -> Result<(), String> {
    let index: Index = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut shards: Vec<&str> = index.weight_map.values().map(String::as_str).collect();
    shards.sort_unstable();
    shards.dedup();
    let (mut known, mut total) = (0, 0u64);
    for shard in shards {
        for (nbytes, stretch) in by_file.get(shard).into_iter().flatten() {
            (known, total) = (known + 1, total.saturating_add(*nbytes));
            if index.weight_map.get(&stretch.name).map(String::as_str) != Some(shard) {
                let local = &stretch.name;
                return Err(format!("it does not say that {local:?} lies in {shard:?}"));
            }
        }
    }
    if known != index.weight_map.len() {
        return Err("it names tensors that the manifest does not know".into());
    }
    if total != index.metadata.total_size {
        let said = index.metadata.total_size;
        return Err(format!(
            "it says that its tensors take {said} bytes, not {total}"
        ));
    }
    Ok(())
}
