//! Writing one checkpoint: staged under a hidden name, synced, then published.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{CheckpointInfo, SaveOptions, Ticket};
use crate::commit::{Bin, Change, publish, remove_tree, stage};
use crate::format::{
    FormatError, MANIFEST, Manifest, Plan, PlanOptions, PlannedFile, Source, plan,
};
use crate::snapshot::{Arena, capture, fill_checksums};
use crate::state::{Data, State, Tensor};
use crate::storage::{Fill, Storage, fill};

/// Where a checkpoint goes.
pub(super) struct Site<'a> {
    pub(super) storage: &'a dyn Storage,
    /// The directory that it appears in.
    pub(super) parent: &'a Path,
    /// Its name there.
    pub(super) name: &'a str,
    /// Old files to write over.
    pub(super) bin: &'a Bin,
}

/// A checkpoint whose unchanged files may be linked: where it is, and what it holds.
pub(super) type Previous<'a> = Option<(&'a Path, &'a Manifest)>;

/// Why an attempt to write the files did not succeed.
enum Attempt {
    /// A file of the previous checkpoint could not be linked; it must be written.
    LinkFailed(io::Error),
    Failed(io::Error),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Attempt {
        Attempt::Failed(error)
    }
}

/// Writes and publishes a checkpoint. On return it is durable. On an error, whatever was there before is as
/// it was, and nothing visible is left behind.
pub(super) fn write(
    site: &Site<'_>,
    step: u64,
    state: State,
    options: &SaveOptions,
    previous: Previous<'_>,
    ticket: &Ticket,
) -> io::Result<Manifest> {
    let state = settle(state)?;
    let staged = stage(site.storage, site.parent, site.name)?;
    let prepared = prepare(site, &staged, step, &state, options, previous, ticket);
    let (manifest, replaces) = prepared.inspect_err(|_| discard(site, &staged))?;
    let (staged_name, name) = (staged.as_str(), site.name);
    let change = if replaces {
        Change::Replace {
            staged: staged_name,
            name,
        }
    } else {
        Change::Appear {
            staged: staged_name,
            name,
        }
    };
    publish(site.storage, site.parent, change).map_err(|error| {
        // Where names may have changed already, the next sweep decides by what it finds.
        if error.unchanged {
            discard(site, &staged);
        }
        io::Error::from(error)
    })?;
    if replaces {
        // The old checkpoint now has the staged name.
        discard(site, &staged);
    }
    ticket.finish(CheckpointInfo::new(&manifest, site.parent.join(site.name)));
    Ok(manifest)
}

/// All tensors in memory as they are stored, with their checksums. Owned and borrowed memory stays where it
/// is; what has gaps, or lies in a file, is copied.
fn settle(mut state: State) -> io::Result<State> {
    let in_memory = |tensor: &Tensor| tensor.bytes().is_some();
    let settled = state.tensors.iter().all(|tensor| match &tensor.data {
        Data::Pieces(pieces) => pieces.iter().all(|piece| in_memory(&piece.tensor)),
        _ => in_memory(tensor),
    });
    if !settled {
        state = capture(state, &Arena::default())?;
    }
    fill_checksums(&mut state)?;
    Ok(state)
}

/// Fills the staged directory; says whether there is a checkpoint of that name to replace.
fn prepare(
    site: &Site<'_>,
    staged: &str,
    step: u64,
    state: &State,
    options: &SaveOptions,
    previous: Previous<'_>,
    ticket: &Ticket,
) -> io::Result<(Manifest, bool)> {
    let plan = match write_files(site, staged, state, previous, ticket) {
        Err(Attempt::LinkFailed(error)) => {
            log::info!("unchanged files are written anew, since one could not be linked: {error}");
            clear(site, staged)?;
            write_files(site, staged, state, None, ticket)
        }
        other => other,
    };
    let plan = plan.map_err(|(Attempt::LinkFailed(error) | Attempt::Failed(error))| error)?;
    let manifest = manifest(step, state, options, plan);
    let bytes = manifest.to_bytes().map_err(invalid)?;
    write_file(
        site,
        &site.parent.join(staged).join(MANIFEST),
        &[&bytes],
        &|_| (),
    )?;
    let replaces = options.overwrite && is_checkpoint(site)?;
    Ok((manifest, replaces))
}

/// Only a checkpoint is ever replaced. Whatever else has its name belongs to somebody else.
fn is_checkpoint(site: &Site<'_>) -> io::Result<bool> {
    match site
        .storage
        .kind(&site.parent.join(site.name).join(MANIFEST))
    {
        Ok(kind) => Ok(kind.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

fn invalid(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn write_files(
    site: &Site<'_>,
    staged: &str,
    state: &State,
    previous: Previous<'_>,
    ticket: &Ticket,
) -> Result<Plan, Attempt> {
    let plan = plan(
        state,
        previous.map(|(_, manifest)| manifest),
        &PlanOptions::default(),
    );
    let to_write = |file: &PlannedFile| matches!(file.source, Source::Write { .. });
    let sizes = || {
        let files = plan.files.iter().filter(|file| to_write(file));
        files.map(|file| file.entry.size)
    };
    ticket.start(sizes().sum());
    site.bin.sort(site.storage, sizes());
    for file in &plan.files {
        let path = site.parent.join(staged).join(&file.name);
        match (&file.source, previous) {
            (Source::Write { head, parts }, _) => {
                let bytes = |&(tensor, piece): &(usize, Option<usize>)| {
                    stored_bytes(&state.tensors[tensor], piece)
                };
                let tensors = parts.iter().map(bytes).collect::<io::Result<Vec<_>>>()?;
                let segments: Vec<&[u8]> =
                    std::iter::once(head.as_slice()).chain(tensors).collect();
                write_file(site, &path, &segments, &|bytes| ticket.advance(bytes))?;
            }
            (Source::Link { previous }, Some((at, _))) => {
                link_file(site, &at.join(previous), &path, file.entry.size)
                    .map_err(Attempt::LinkFailed)?;
            }
            (Source::Link { .. }, None) => {
                return Err(Attempt::LinkFailed(io::ErrorKind::NotFound.into()));
            }
        }
    }
    Ok(plan)
}

fn stored_bytes(tensor: &Tensor, piece: Option<usize>) -> io::Result<&[u8]> {
    let part = match (&tensor.data, piece) {
        (Data::Pieces(pieces), Some(piece)) => &pieces[piece].tensor,
        _ => tensor,
    };
    part.bytes()
        .ok_or_else(|| io::Error::other("a tensor does not lie in memory as it is stored"))
}

fn write_file(
    site: &Site<'_>,
    path: &Path,
    segments: &[&[u8]],
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let nbytes = segments.iter().map(|segment| segment.len() as u64).sum();
    let file = site.bin.create(site.storage, path, nbytes)?;
    let segments = segments.to_vec();
    let file = file.as_ref();
    fill(&[Fill { file, segments }], progress).map(drop)
}

/// Links a file of the previous checkpoint, if it still is as long as it was.
fn link_file(site: &Site<'_>, from: &Path, to: &Path, nbytes: u64) -> io::Result<()> {
    if site.storage.open(from)?.len() != nbytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} was cut off", from.display()),
        ));
    }
    site.storage.hard_link(from, to)
}

fn manifest(step: u64, state: &State, options: &SaveOptions, plan: Plan) -> Manifest {
    Manifest {
        step,
        created: now(),
        writer: concat!("pitstop ", env!("CARGO_PKG_VERSION")).to_owned(),
        metrics: options.metrics.clone(),
        metadata: options.metadata.clone(),
        root: state.root.clone(),
        files: plan
            .files
            .into_iter()
            .map(|file| (file.name, file.entry))
            .collect::<BTreeMap<_, _>>(),
        tensors: plan.tensors,
    }
}

/// The time to the millisecond, as the manifest keeps it.
fn now() -> SystemTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UNIX_EPOCH + Duration::from_millis(since.as_millis() as u64)
}

/// Empties the staged directory.
fn clear(site: &Site<'_>, staged: &str) -> io::Result<()> {
    let staged = site.parent.join(staged);
    remove_tree(site.storage, &staged)?;
    site.storage.create_dir(&staged)
}

/// Removes a directory that nobody can see; if that fails, the next sweep does it.
fn discard(site: &Site<'_>, staged: &str) {
    let staged: PathBuf = site.parent.join(staged);
    if let Err(error) = remove_tree(site.storage, &staged) {
        log::warn!(
            "{} is left behind until the directory is opened again: {error}",
            staged.display()
        );
    }
}
