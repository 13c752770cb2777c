//! Opening a checkpoint: the manifest is read, every file it lists is opened and compared with it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{CheckpointInfo, RestoreError};
use crate::format::checksum::{self, BLOCK};
use crate::format::{
    FileEntry, FormatError, MANIFEST, Manifest, Part, Place, Stretch, TensorEntry,
};
use crate::snapshot::{self, ReadError};
use crate::state::{Checksum, Data, Piece, ReadAt, State, Stored, Tensor};
use crate::storage::{EntryKind, Storage, StoredFile};

/// No manifest is larger than this, in bytes: about ten million tensors.
pub(super) const LARGEST_MANIFEST: u64 = 4 << 30;

/// How often a directory is looked at that is there and has no manifest.
const LOOKS: usize = 4;

/// How often opening a checkpoint is begun that is replaced meanwhile. Each replacement is a whole save, so that the
/// second time is nearly always enough.
pub(super) const ATTEMPTS: usize = 100;

/// A checkpoint that was opened. Its files stay readable, whatever happens to the directory.
#[derive(Debug, Clone)]
pub struct Opened {
    /// What it is.
    pub info: CheckpointInfo,
    /// What it holds; the tensors lie in its files.
    pub state: State,
}

impl Opened {
    /// Reads every tensor and compares its checksum.
    ///
    /// # Errors
    ///
    /// [`RestoreError::Corrupt`] for the first that is damaged; [`RestoreError::Io`] if one cannot be read.
    pub fn verify(&self) -> Result<(), RestoreError> {
        snapshot::verify(&self.state.tensors).map_err(|error| self.reading(error))
    }

    /// The state with all tensors in memory, each compared with its checksum.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn load(&self) -> Result<State, RestoreError> {
        let tensors = snapshot::load(&self.state.tensors).map_err(|error| self.reading(error))?;
        Ok(State {
            root: self.state.root.clone(),
            tensors,
        })
    }

    fn reading(&self, error: ReadError) -> RestoreError {
        RestoreError::reading(&self.info.path, error)
    }
}

/// A file of a checkpoint, as what its tensors are read from.
pub(super) struct Source {
    file: Arc<dyn StoredFile>,
    path: String,
}

impl ReadAt for Source {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, into)
    }

    fn name(&self) -> &str {
        &self.path
    }

    fn file(&self) -> Option<&File> {
        self.file.file()
    }
}

/// Reads the manifest of the checkpoint at `path`, without its tree and tensors.
pub(super) fn read_head(storage: &dyn Storage, path: &Path) -> Result<Manifest, RestoreError> {
    parse(path, &read_manifest(storage, path)?, Manifest::parse_head)
}

/// Whether there is a checkpoint at `path` with all its files in their full length.
pub(super) fn has_all_files(storage: &dyn Storage, path: &Path) -> bool {
    read_head(storage, path).is_ok_and(|manifest| {
        let mut files = manifest.files.iter();
        files.all(|(name, entry)| open_file(storage, &path.join(name), entry).is_ok())
    })
}

/// Opens the checkpoint at `path`. With `verify`, everything but the tensors is compared here, and the
/// tensors when they are read. The tree is in the state then, and no more in the manifest.
pub(super) fn open(
    storage: &dyn Storage,
    path: &Path,
    verify: bool,
) -> Result<(Manifest, Opened), RestoreError> {
    for _ in 0..ATTEMPTS {
        if let Some(opened) = open_unless_replaced(storage, path, verify)? {
            return Ok(opened);
        }
    }
    Err(replaced_too_often(path))
}

pub(super) fn replaced_too_often(path: &Path) -> RestoreError {
    let why = format!("{} is replaced whenever it is opened", path.display());
    io::Error::new(io::ErrorKind::ResourceBusy, why).into()
}

/// As [`open`]; `None` if another checkpoint took its place meanwhile.
fn open_unless_replaced(
    storage: &dyn Storage,
    path: &Path,
    verify: bool,
) -> Result<Option<(Manifest, Opened)>, RestoreError> {
    let bytes = read_manifest(storage, path)?;
    let mut manifest = parse(path, &bytes, Manifest::parse)?;
    let mut files = HashMap::new();
    for (name, entry) in &manifest.files {
        match open_file(storage, &path.join(name), entry) {
            Ok(file) => files.insert(name.as_str(), file),
            Err(_) if !is_still(storage, path, &bytes)? => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    if !is_still(storage, path, &bytes)? {
        return Ok(None);
    }
    let by_file = stretches_by_file(&manifest);
    check_coverage(path, &manifest, &by_file)?;
    if verify {
        verify_files(path, &manifest, &by_file, &files)?;
    }
    let mut tensors = Vec::with_capacity(manifest.tensors.len());
    for entry in &manifest.tensors {
        tensors.push(
            tensor(entry, &files, verify)
                .map_err(|why| RestoreError::corrupt(path.join(MANIFEST), why))?,
        );
    }
    let info = CheckpointInfo::new(&manifest, path.to_owned());
    let state = State {
        root: std::mem::take(&mut manifest.root),
        tensors,
    };
    Ok(Some((manifest, Opened { info, state })))
}

/// Whether the checkpoint there is the one whose manifest was read, so that the files opened since are its
/// own. Only reading the same manifest again says so: one that cannot be found may be in the middle of being
/// replaced. Bytes are compared, and not what they mean: a NaN is not equal to itself.
///
/// # Errors
///
/// [`RestoreError::Io`] if the manifest cannot be opened, which tells nothing: there may be no file descriptor left.
pub(super) fn is_still(
    storage: &dyn Storage,
    path: &Path,
    manifest: &[u8],
) -> Result<bool, RestoreError> {
    let file = match open_manifest(storage, path) {
        Ok(file) => file,
        Err(error @ RestoreError::Io(_)) => return Err(error),
        Err(_) => return Ok(false),
    };
    let mut buffer = vec![0; manifest.len().min(BLOCK)];
    let same = |(i, expected): (usize, &[u8])| {
        let now = &mut buffer[..expected.len()];
        file.read_at((i * BLOCK) as u64, now).is_ok() && now == expected
    };
    Ok(file.len() == manifest.len() as u64 && manifest.chunks(BLOCK).enumerate().all(same))
}

pub(super) fn read_manifest(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>, RestoreError> {
    let file = open_manifest(storage, path)?;
    if file.len() > LARGEST_MANIFEST {
        return Err(RestoreError::corrupt(
            path.join(MANIFEST),
            "it is too large to be a manifest",
        ));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

fn open_manifest(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn StoredFile>, RestoreError> {
    let at = path.join(MANIFEST);
    let mut looks = 0;
    loop {
        looks += 1;
        match storage.open(&at) {
            Ok(file) => return Ok(file),
            Err(error) if !is_absence(&error) => return Err(unreadable(storage, &at, error)),
            // The system may have been on its way through a directory that was replaced and emptied meanwhile.
            Err(_) if looks < LOOKS && matches!(storage.kind(path), Ok(Some(_))) => {}
            Err(_) => {
                return Err(RestoreError::NotFound {
                    path: path.to_owned(),
                });
            }
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A file that is missing, or something else than a file, is damage. Any other error says nothing about the
/// checkpoint: with no file descriptors left, all would look damaged.
fn unreadable(storage: &dyn Storage, path: &Path, error: io::Error) -> RestoreError {
    let why = match (error.kind(), storage.kind(path)) {
        (io::ErrorKind::NotFound, _) => "the file is missing",
        (io::ErrorKind::InvalidInput, _) | (_, Ok(Some(EntryKind::Dir))) => "it is no regular file",
        // What the system says of those differs. They are not followed, waited for, or read.
        (_, Ok(Some(EntryKind::Other))) => "it is a symbolic link, a pipe or a device",
        _ => return RestoreError::Io(error),
    };
    RestoreError::corrupt(path, why)
}

pub(super) fn parse(
    path: &Path,
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<Manifest, FormatError>,
) -> Result<Manifest, RestoreError> {
    parse(bytes).map_err(|error| match error {
        FormatError::Version(version) => RestoreError::TooNew {
            path: path.to_owned(),
            version,
        },
        other => RestoreError::corrupt(path.join(MANIFEST), other.to_string()),
    })
}

pub(super) fn open_file(
    storage: &dyn Storage,
    path: &Path,
    entry: &FileEntry,
) -> Result<Arc<Source>, RestoreError> {
    let file = storage
        .open(path)
        .map_err(|error| unreadable(storage, path, error))?;
    if file.len() != entry.size {
        let why = format!("the file is {} bytes long, not {}", file.len(), entry.size);
        return Err(RestoreError::corrupt(path, why));
    }
    Ok(Arc::new(Source {
        file,
        path: path.display().to_string(),
    }))
}

/// The stretches that lie in each file, with their sizes in bytes, in the order of their bytes.
pub(super) type ByFile<'a> = HashMap<&'a str, Vec<(u64, &'a Stretch)>>;

pub(super) fn stretches_by_file(manifest: &Manifest) -> ByFile<'_> {
    let mut by_file = ByFile::new();
    for (nbytes, stretch) in manifest.tensors.iter().flat_map(TensorEntry::stretches) {
        by_file
            .entry(&stretch.file)
            .or_default()
            .push((nbytes, stretch));
    }
    for stretches in by_file.values_mut() {
        stretches.sort_by_key(|(nbytes, stretch)| (stretch.start, *nbytes));
    }
    by_file
}

/// Every byte of a tensor file belongs to its header or to one tensor, so that every byte is checked.
pub(super) fn check_coverage(
    path: &Path,
    manifest: &Manifest,
    by_file: &ByFile<'_>,
) -> Result<(), RestoreError> {
    for (name, entry) in &manifest.files {
        let Some(mut at) = entry.data_start else {
            continue;
        };
        for (nbytes, stretch) in by_file.get(name.as_str()).into_iter().flatten() {
            if stretch.start != at {
                return Err(RestoreError::corrupt(
                    path.join(MANIFEST),
                    format!("{name} has a hole or an overlap"),
                ));
            }
            at += nbytes;
        }
        if at != entry.size {
            return Err(RestoreError::corrupt(
                path.join(MANIFEST),
                format!("{name} is longer than its tensors"),
            ));
        }
    }
    Ok(())
}

/// Compares what no tensor covers: headers, and files without tensors.
fn verify_files(
    path: &Path,
    manifest: &Manifest,
    by_file: &ByFile<'_>,
    files: &HashMap<&str, Arc<Source>>,
) -> Result<(), RestoreError> {
    for (name, entry) in &manifest.files {
        let head = entry.data_start.unwrap_or(entry.size);
        let head = checksum_of_start(&files[name.as_str()], head)?;
        check_file(path, name, entry, by_file, head)?;
    }
    Ok(())
}

/// The checksum of the first `len` bytes.
pub(super) fn checksum_of_start(file: &Source, len: u64) -> io::Result<Checksum> {
    let mut buffer = vec![0; len.min(BLOCK as u64) as usize];
    let mut blocks = Vec::new();
    for start in (0..len).step_by(BLOCK) {
        let block = &mut buffer[..(len - start).min(BLOCK as u64) as usize];
        file.read_at(start, block)?;
        blocks.push(checksum::block(block));
    }
    Ok(checksum::from_blocks(&blocks, len))
}

/// Compares the checksum of what no tensor covers, with those of the tensors, with that of the file.
pub(super) fn check_file(
    path: &Path,
    name: &str,
    entry: &FileEntry,
    by_file: &ByFile<'_>,
    head: Checksum,
) -> Result<(), RestoreError> {
    let (whole, what) = if entry.data_start.is_some() {
        let stretches = by_file.get(name).into_iter().flatten();
        let tensors = stretches.map(|(_, stretch)| stretch.checksum);
        let digests = std::iter::once(head).chain(tensors);
        (checksum::of_file(digests, entry.size), "its header")
    } else {
        (head, "the file")
    };
    if whole == entry.checksum {
        return Ok(());
    }
    let why = format!("{what} is damaged: the bytes are not those that were written");
    Err(RestoreError::corrupt(path.join(name), why))
}

pub(super) fn tensor(
    entry: &TensorEntry,
    files: &HashMap<&str, Arc<Source>>,
    verify: bool,
) -> Result<Tensor, String> {
    let stored = |shape: &[u64], stretch: &Stretch| {
        let source: Arc<dyn ReadAt> = files[&*stretch.file].clone();
        let data = Data::Stored(Stored {
            source,
            offset: stretch.start,
        });
        let tensor = Tensor::new(entry.dtype, shape, data).map_err(|error| error.to_string())?;
        let checksum = verify.then_some(stretch.checksum);
        Ok::<_, String>(Tensor {
            name: entry.key.clone(),
            checksum,
            ..tensor
        })
    };
    match &entry.place {
        Place::Whole(stretch) => stored(&entry.shape, stretch),
        Place::Pieces(parts) => {
            let piece = |part: &Part| {
                Ok(Piece {
                    offset: part.offset.clone(),
                    tensor: stored(&part.shape, &part.stretch)?,
                })
            };
            let pieces = parts.iter().map(piece).collect::<Result<_, String>>()?;
            let whole = Tensor::new(entry.dtype, &entry.shape, Data::Pieces(pieces))
                .map_err(|e| e.to_string())?;
            Ok(Tensor {
                name: entry.key.clone(),
                ..whole
            })
        }
    }
}
