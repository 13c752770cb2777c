//! A checkpoint as files that need no pitstop: one safetensors file, or a directory of them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Opened, RestoreError};
use crate::commit::{Change, publish, remove_tree, stage, sweep_target};
use crate::format::{Plan, PlanOptions, PlannedFile, Source, float_value, node_value, plan};
use crate::snapshot::{TensorReader, Watch};
use crate::state::{Checksum, Data, Memory, Node, State, Tensor, TensorRef};
use crate::storage::{EntryKind, NewFile, Storage, parent_of};

/// Name of the file, in an exported directory, that holds all but the tensors.
const INDEX: &str = "checkpoint.json";
/// How it starts.
const START: &[u8] = b"{\n  \"format\": \"pitstop-export\",\n";
/// So many bytes are in memory at a time.
const WINDOW: usize = 4 << 20;

/// Writes all tensors of a checkpoint into one safetensors file, under their names within the checkpoint; nothing
/// else of it. The file appears at `to` once all of it was read, compared, and is durable; with `replace`, in the
/// place of a file that is there. Returns its size in bytes.
///
/// # Errors
///
/// [`RestoreError::Corrupt`] if a tensor is damaged; [`RestoreError::Io`] if something cannot be read or written,
/// there is something at `to`, or `watch` ended it. Then nothing is left behind, and what was at `to` still is;
/// unless the disk fails once more while the change is taken back, which leaves both.
pub fn export_file(
    storage: &dyn Storage,
    from: &Opened,
    to: &Path,
    replace: bool,
    watch: Watch<'_>,
) -> Result<u64, RestoreError> {
    let plan = plan(&outline(&flat(&from.state)), None, &in_one_file());
    // A state without tensors is a file without tensors.
    let empty = empty_file();
    let size = match plan.files.first() {
        Some(file) => file.entry.size,
        None => empty.len() as u64,
    };
    let export = Export::new(storage, from, to, watch)?;
    let replaces = is_replaced(storage, to, EntryKind::File, replace)?;
    export.publish(
        |staged| {
            let path = staged.join(export.name);
            match plan.files.as_slice() {
                [] => write_bytes(storage, &path, &empty),
                [file] => export.write(&path, file),
                _ => Err(refused(
                    to,
                    "would hold too many tensors for one file; export a directory",
                )),
            }
        },
        |staged, name| Change::File {
            staged,
            name,
            replaces,
        },
    )?;
    Ok(size)
}

/// Writes a checkpoint as a plain directory: the tensors in safetensors files as loaders of models expect them, and
/// the rest in `checkpoint.json`. It appears at `to` once all of it was read, compared, and is durable; with
/// `replace`, in the place of an exported directory that is there. Returns the size of the tensor files in bytes.
///
/// # Errors
///
/// As [`export_file`]; also if what is at `to` was not exported.
pub fn export_directory(
    storage: &dyn Storage,
    from: &Opened,
    to: &Path,
    replace: bool,
    watch: Watch<'_>,
) -> Result<u64, RestoreError> {
    let plan = plan(&outline(&from.state), None, &PlanOptions::default());
    let size = plan.files.iter().map(|file| file.entry.size).sum();
    let export = Export::new(storage, from, to, watch)?;
    let replaces = is_replaced(storage, to, EntryKind::Dir, replace)?;
    if replaces && !is_export(storage, to)? {
        let why = "is not replaced, since it was not exported by pitstop";
        return Err(refused(to, why));
    }
    export.publish(
        |staged| {
            for file in &plan.files {
                export.write(&staged.join(&file.name), file)?;
            }
            write_bytes(storage, &staged.join(INDEX), &index(from, &plan))
        },
        |staged, name| {
            if replaces {
                Change::Replace { staged, name }
            } else {
                Change::Appear { staged, name }
            }
        },
    )?;
    Ok(size)
}

/// Whether something is to be replaced; only with something of its `kind` it may be.
fn is_replaced(
    storage: &dyn Storage,
    to: &Path,
    kind: EntryKind,
    replace: bool,
) -> Result<bool, RestoreError> {
    let why = match storage.kind(to)? {
        None => return Ok(false),
        Some(there) if there == kind && replace => return Ok(true),
        Some(there) if there == kind => {
            let why = format!("{} is there already", to.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why).into());
        }
        Some(_) if kind == EntryKind::Dir => "is there, and is no directory",
        Some(_) => "is there, and is no file",
    };
    Err(refused(to, why))
}

fn refused(to: &Path, why: &str) -> RestoreError {
    let why = format!("{} {why}", to.display());
    io::Error::new(io::ErrorKind::InvalidInput, why).into()
}

/// What is written, and where it goes.
struct Export<'a> {
    storage: &'a dyn Storage,
    from: &'a Opened,
    parent: &'a Path,
    name: &'a str,
    watch: Watch<'a>,
}

impl<'a> Export<'a> {
    /// First puts right what a process that died has left there: there may be something to replace only then.
    fn new(
        storage: &'a dyn Storage,
        from: &'a Opened,
        to: &'a Path,
        watch: Watch<'a>,
    ) -> Result<Export<'a>, RestoreError> {
        let name = to.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| refused(to, "has no name that is valid Unicode"))?;
        let parent = parent_of(to);
        sweep_target(storage, parent, name)?;
        Ok(Export {
            storage,
            from,
            parent,
            name,
            watch,
        })
    }

    /// Writes under a hidden name, then makes the change.
    fn publish(
        &self,
        write: impl FnOnce(&Path) -> Result<(), RestoreError>,
        change: impl for<'n> Fn(&'n str, &'n str) -> Change<'n>,
    ) -> Result<(), RestoreError> {
        let Export {
            storage,
            parent,
            name,
            ..
        } = *self;
        let directory = stage(storage, parent, name)?;
        let at = parent.join(&directory);
        let discard = || {
            if let Err(error) = remove_tree(storage, &at) {
                log::warn!("{} is left behind: {error}", at.display());
            }
        };
        write(&at).inspect_err(|_| discard())?;
        let staged = match change(&directory, name) {
            Change::File { .. } => format!("{directory}/{name}"),
            _ => directory.clone(),
        };
        publish(storage, parent, change(&staged, name)).map_err(|error| {
            // Where names may have changed already, a power cut may show what is there by its old name.
            if error.unchanged {
                discard();
            }
            io::Error::from(error)
        })?;
        // What was replaced, or held the file.
        discard();
        Ok(())
    }

    /// Writes and syncs one tensor file; every byte is compared on its way.
    fn write(&self, path: &Path, planned: &PlannedFile) -> Result<(), RestoreError> {
        let Source::Write { head, parts } = &planned.source else {
            return Err(refused(path, "cannot be linked"));
        };
        let file = self.storage.create(path, planned.entry.size)?;
        file.write_at(0, head)?;
        let (mut at, mut window) = (head.len() as u64, vec![0; WINDOW]);
        for &(tensor, _) in parts {
            let tensor = &self.from.state.tensors[tensor];
            self.copy(tensor, file.as_ref(), at, &mut window)?;
            at += tensor.nbytes();
        }
        Ok(file.sync()?)
    }

    fn copy(
        &self,
        tensor: &Tensor,
        file: &dyn NewFile,
        mut at: u64,
        window: &mut [u8],
    ) -> Result<(), RestoreError> {
        let reading = |error| RestoreError::reading(&self.from.info.path, error);
        let mut reader = TensorReader::new(tensor).map_err(reading)?;
        loop {
            self.watch.check()?;
            let bytes = reader.read(window).map_err(reading)?;
            if bytes.is_empty() {
                return Ok(());
            }
            file.write_at(at, bytes)?;
            at += bytes.len() as u64;
            (self.watch.progress)(bytes.len() as u64);
        }
    }
}

fn write_bytes(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<(), RestoreError> {
    let file = storage.create(path, bytes.len() as u64)?;
    file.write_at(0, bytes)?;
    Ok(file.sync()?)
}

fn empty_file() -> Vec<u8> {
    let header = br#"{"__metadata__":{"format":"np"}}"#;
    [&(header.len() as u64).to_le_bytes(), header.as_slice()].concat()
}

/// The same tensors, all of them in one dictionary under their names.
fn flat(state: &State) -> State {
    let mut kinds = vec![None; state.tensors.len()];
    state.root.for_each_tensor(&mut |leaf| {
        if let Some(kind) = kinds.get_mut(leaf.index) {
            kind.get_or_insert_with(|| leaf.kind.clone());
        }
    });
    let leaves = kinds.into_iter().enumerate().map(|(index, kind)| {
        let leaf = TensorRef {
            index,
            kind: kind.unwrap_or_default(),
            view: None,
        };
        (state.tensors[index].name.clone(), Node::Tensor(leaf))
    });
    State {
        root: Node::dict(leaves),
        tensors: state.tensors.clone(),
    }
}

/// The state with nothing in its tensors, each of them whole: all that a plan looks at.
fn outline(state: &State) -> State {
    let nothing: Arc<Vec<u8>> = Arc::default();
    let outline = |tensor: &Tensor| Tensor {
        data: Data::Memory(Memory::whole(nothing.clone())),
        checksum: Some(Checksum(0)),
        ..tensor.clone()
    };
    State {
        root: state.root.clone(),
        tensors: state.tensors.iter().map(outline).collect(),
    }
}

fn in_one_file() -> PlanOptions {
    PlanOptions {
        shard_bytes: u64::MAX,
        ..PlanOptions::default()
    }
}

/// `checkpoint.json`: what the manifest says, without its checksums.
fn index(from: &Opened, plan: &Plan) -> Vec<u8> {
    let keys: Vec<&str> = plan
        .tensors
        .iter()
        .map(|tensor| tensor.key.as_str())
        .collect();
    let metrics = from.info.metrics.iter();
    let metrics = metrics.map(|(name, &value)| (name.clone(), float_value(value)));
    let tensors = plan.tensors.iter().map(|tensor| {
        let mut entry = json!({"dtype": tensor.dtype.name(), "shape": tensor.shape});
        if let Some((_, stretch)) = tensor.stretches().next() {
            entry["file"] = Value::from(&*stretch.file);
            entry["name"] = Value::from(stretch.name.as_str());
        }
        (tensor.key.clone(), entry)
    });
    let index = json!({
        "format": "pitstop-export",
        "version": 1,
        "step": from.info.step,
        "created": humantime::format_rfc3339_millis(from.info.created).to_string(),
        "metrics": metrics.collect::<Map<_, _>>(),
        "metadata": node_value(&from.info.metadata, &[]),
        "tree": node_value(&from.state.root, &keys),
        "tensors": tensors.collect::<Map<_, _>>(),
    });
    format!("{index:#}\n").into_bytes()
}

/// Whether a directory was exported: only such a one is ever replaced.
fn is_export(storage: &dyn Storage, to: &Path) -> io::Result<bool> {
    let at = to.join(INDEX);
    if storage.kind(&at)? != Some(EntryKind::File) {
        return Ok(false);
    }
    let mut start = [0; START.len()];
    let read = storage.open(&at)?.read_at(0, &mut start);
    Ok(read.is_ok() && start == START)
}
