//! Writing one checkpoint: staged under a hidden name, synced, then published.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{CheckpointInfo, Reads, SaveOptions, Ticket, Transfer};
use crate::commit::{Bin, Change, publish, remove_tree, stage};
use crate::format::{
    Expected, FormatError, MANIFEST, Manifest, Plan, PlanOptions, PlannedFile, Source, plan,
    tensor_keys,
};
use crate::snapshot::{self, Arena, Capture, can_borrow, capture, fill_checksums, first_changed};
use crate::state::{Data, Memory, State, Tensor};
use crate::storage::{Content, FileVersion, Fill, NewFile, Segment, Storage, fill};

/// Where a checkpoint goes.
pub(super) struct Site<'a> {
    pub(super) storage: &'a dyn Storage,
    /// The directory that it appears in.
    pub(super) parent: &'a Path,
    /// Its name there.
    pub(super) name: &'a str,
    /// Old files to write over.
    pub(super) bin: &'a Bin,
    pub(super) links: &'a Links,
}

/// A save that is to find out who changes deferred tensors too early gives them so long to do it, unless the training
/// waits for the copy before.
const CHECK: Duration = Duration::from_secs(1);

/// After so many saves in a row that could not link a file, none is tried any more.
const ATTEMPTS: u32 = 3;

/// Whether files can be linked where a checkpointer saves.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// So many saves in a row could not link one.
    failures: AtomicU32,
}

impl Links {
    fn worked(&self) {
        self.failures.store(0, Relaxed);
    }

    /// Now and then it is news: somebody has changed a file. Each time, it is a file system without hard links, or
    /// whose files have another number at each look.
    fn failed(&self, error: &io::Error) {
        let what = "unchanged files are written anew";
        self.failures.fetch_add(1, Relaxed);
        if self.are_hopeless() {
            log::warn!("{what} from now on (`incremental`), since they cannot be linked: {error}");
        } else {
            log::info!("{what}, since one could not be linked: {error}");
        }
    }

    /// They are not to be tried any more: what is to be linked is not copied before, and each save would block until
    /// it is written after all.
    pub(super) fn are_hopeless(&self) -> bool {
        self.failures.load(Relaxed) >= ATTEMPTS
    }
}

/// Where the copies of a state go, and how many bytes they may take.
pub(super) type Room<'a> = (&'a Arena, usize);

/// A checkpoint, and what it lets the next one expect.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) manifest: Manifest,
    pub(super) expected: Vec<Option<Expected>>,
    /// Its files were synced here. One that was only read may be known to memory alone: it was copied there just
    /// now, or saved without syncs.
    pub(super) synced: bool,
    /// Its files as they were written or linked here, by name, where that is known: what has their names by now
    /// may be something else.
    pub(super) versions: Versions,
}

/// Files by name, as they were once.
pub(super) type Versions = HashMap<String, FileVersion>;

/// A checkpoint whose unchanged files may be linked, and where it is.
pub(super) type Previous<'a> = Option<(&'a Path, &'a Saved)>;

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
///
/// What may change is copied into `room` first, if there is any. What does not fit is written from where it lies,
/// and what has not changed since the previous checkpoint is not copied at all.
pub(super) fn write(
    site: &Site<'_>,
    step: u64,
    transfer: Transfer,
    room: Option<Room<'_>>,
    previous: Previous<'_>,
) -> io::Result<Saved> {
    let Transfer {
        state,
        deferred,
        options,
        ticket,
    } = transfer;
    let clock = Instant::now();
    let expected = previous.map_or(&[][..], |(_, saved)| &saved.expected);
    let state = settle(state, room, expected, &deferred, &ticket)?;
    ticket.timings.note_snapshot(clock.elapsed());
    let (options, ticket) = (&options, ticket.as_ref());
    let staged = stage(site.storage, site.parent, site.name)?;
    let prepared = prepare(site, &staged, step, &state, options, previous, ticket);
    let (saved, replaces) = prepared.inspect_err(|_| discard(site, &staged))?;
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
    let clock = Instant::now();
    publish(site.storage, site.parent, change).map_err(|error| {
        // Where names may have changed already, the next sweep decides by what it finds.
        if error.unchanged {
            discard(site, &staged);
        }
        io::Error::from(error)
    })?;
    ticket.timings.note_commit(clock.elapsed());
    if replaces {
        // The old checkpoint now has the staged name.
        discard(site, &staged);
    }
    let path = site.parent.join(site.name);
    ticket.finish(CheckpointInfo::new(&saved.manifest, path));
    Ok(saved)
}

/// All tensors with their checksums, and copied where they may change and there is room.
fn settle(
    mut state: State,
    room: Option<Room<'_>>,
    expected: &[Option<Expected>],
    deferred: &[bool],
    ticket: &Ticket,
) -> io::Result<State> {
    if let Some((arena, limit)) = room {
        // Their checksums were computed in the call that saves, to find out who changes them before he may.
        let are_checked = |(tensor, &deferred): (&Tensor, &bool)| {
            deferred && tensor.checksum.is_some() && matches!(tensor.data, Data::Memory(_))
        };
        let is_check = state.tensors.iter().zip(deferred).any(are_checked);
        let how = Capture {
            arena,
            limit,
            expected,
            deferred,
            rest_copied: &|| {
                ticket.reads_only(Reads::Deferred);
                if is_check {
                    ticket.wait_awaited(CHECK);
                }
            },
            is_awaited: &|| ticket.is_awaited(),
        };
        state = capture(state, how)?;
    }
    if state.tensors.iter().flat_map(Tensor::parts).all(can_borrow) {
        ticket.reads_only(Reads::Nothing);
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
) -> io::Result<(Saved, bool)> {
    let plan = match write_files(site, staged, state, previous, ticket) {
        Err(Attempt::LinkFailed(error)) => {
            clear(site, staged)?;
            let written = write_files(site, staged, state, None, ticket);
            if written.is_ok() {
                // What keeps a file from being written too says nothing about links.
                site.links.failed(&error);
            }
            written
        }
        other => other,
    };
    let plan = plan.map_err(|(Attempt::LinkFailed(error) | Attempt::Failed(error))| error)?;
    let expected = plan.expected(&PlanOptions::default());
    let versions = versions(site, staged, &plan);
    let manifest = manifest(step, state, options, plan);
    let bytes = manifest.to_bytes().map_err(invalid)?;
    let manifest_file = vec![(
        site.parent.join(staged).join(MANIFEST),
        vec![Segment::Bytes(&bytes)],
    )];
    write_all(site, manifest_file, &|_| (), ticket)?;
    let replaces = options.overwrite && is_checkpoint(site)?;
    let saved = Saved {
        manifest,
        expected,
        synced: true,
        versions,
    };
    Ok((saved, replaces))
}

/// What the files are, now that they are written and hidden: nobody else has had a hand in them.
fn versions(site: &Site<'_>, staged: &str, plan: &Plan) -> Versions {
    let version = |file: &PlannedFile| {
        let path = site.parent.join(staged).join(&file.name);
        let version = site.storage.version(&path).ok().flatten()?;
        Some((file.name.clone(), version))
    };
    plan.files.iter().filter_map(version).collect()
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
        previous.map(|(_, saved)| &saved.manifest),
        &PlanOptions::default(),
    );
    let to_write = |file: &PlannedFile| matches!(file.source, Source::Write { .. });
    let sizes = || {
        let files = plan.files.iter().filter(|file| to_write(file));
        files.map(|file| file.entry.size)
    };
    ticket.start(sizes().sum());
    site.bin.sort(site.storage, sizes());
    let at = |file: &PlannedFile| site.parent.join(staged).join(&file.name);
    // Links first: should one fail, all is written anew, and so must not have changed yet.
    for file in &plan.files {
        if let Source::Link { previous: name } = &file.source {
            let (old, saved) =
                previous.ok_or_else(|| Attempt::LinkFailed(io::ErrorKind::NotFound.into()))?;
            let nbytes = file.entry.size;
            link_file(site, (old, name.as_str()), &at(file), nbytes, saved)
                .map_err(Attempt::LinkFailed)?;
            ticket.timings.note_link(nbytes);
        }
    }
    if plan.files.iter().any(|file| !to_write(file)) {
        site.links.worked();
    }
    let (mut borrowed, mut still, mut exposed) = (Vec::new(), Vec::new(), Vec::new());
    for file in &plan.files {
        if let Source::Write { head, parts } = &file.source {
            let tensors: Vec<&Tensor> = parts.iter().map(|&part| part_of(state, part)).collect();
            let may_change = !tensors.iter().all(|tensor| can_borrow(tensor));
            let files = if may_change {
                exposed.extend_from_slice(parts);
                &mut borrowed
            } else {
                &mut still
            };
            files.push((at(file), segments(head, &tensors)));
        }
    }
    let progress = |bytes| ticket.advance(bytes);
    // What must not change meanwhile is written first.
    write_all(site, borrowed, &progress, ticket)?;
    check_unchanged(state, &exposed)?;
    ticket.reads_only(Reads::Nothing);
    write_all(site, still, &progress, ticket)?;
    Ok(plan)
}

/// What is written from where it lies is read twice: for its checksum, and for the file. If somebody changed it in
/// between, the file is not what the checksum says, and the memory most likely neither.
fn check_unchanged(state: &State, parts: &[(usize, Option<usize>)]) -> io::Result<()> {
    let tensors: Vec<&Tensor> = parts.iter().map(|&part| part_of(state, part)).collect();
    let Some(changed) = first_changed(&tensors) else {
        return Ok(());
    };
    let name = tensor_keys(state).swap_remove(parts[changed].0);
    let why = "it was changed while it was written; change nothing until the call that saves has returned";
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{name}: {why}"),
    ))
}

fn part_of(state: &State, (tensor, piece): (usize, Option<usize>)) -> &Tensor {
    let tensor = &state.tensors[tensor];
    match (&tensor.data, piece) {
        (Data::Pieces(pieces), Some(piece)) => &pieces[piece].tensor,
        _ => tensor,
    }
}

/// The bytes of a file: its header, then its tensors. Those that lie back to back in memory are one segment.
fn segments<'a>(head: &'a [u8], tensors: &[&'a Tensor]) -> Vec<Segment<'a>> {
    let mut segments = vec![Segment::Bytes(head)];
    let mut run: Option<(&Memory, usize)> = None;
    for &tensor in tensors {
        let len = tensor.nbytes() as usize;
        let next = match &tensor.data {
            Data::Memory(memory) if memory.contiguous(len).is_some() => Some(memory),
            _ => None,
        };
        run = match (run, next) {
            (Some((first, run)), Some(next))
                if Arc::ptr_eq(&first.region, &next.region)
                    && first.offset + run == next.offset =>
            {
                Some((first, run + len))
            }
            (before, next) => {
                segments.extend(before.and_then(joined));
                if next.is_none() {
                    segments.push(Segment::Content(tensor));
                }
                next.map(|next| (next, len))
            }
        };
    }
    segments.extend(run.and_then(joined));
    segments
}

fn joined((first, len): (&Memory, usize)) -> Option<Segment<'_>> {
    first.contiguous(len).map(Segment::Bytes)
}

/// A tensor that has gaps, or lies in a file.
impl Content for Tensor {
    fn len(&self) -> usize {
        self.nbytes() as usize
    }

    fn read_at(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        snapshot::read_at(self, offset as u64, into)
    }
}

/// Creates, fills and syncs these files.
fn write_all(
    site: &Site<'_>,
    files: Vec<(PathBuf, Vec<Segment<'_>>)>,
    progress: &(dyn Fn(u64) + Sync),
    ticket: &Ticket,
) -> io::Result<()> {
    let clock = Instant::now();
    let mut created: Vec<Box<dyn NewFile>> = Vec::with_capacity(files.len());
    let mut total = 0;
    for (path, segments) in &files {
        let nbytes = segments.iter().map(|segment| segment.len() as u64).sum();
        created.push(site.bin.create(site.storage, path, nbytes)?);
        total += nbytes;
    }
    let contents: Vec<Fill<'_>> = created
        .iter()
        .zip(files)
        .map(|(file, (_, segments))| Fill {
            file: file.as_ref(),
            segments,
        })
        .collect();
    let creating = clock.elapsed();
    let took = fill(&contents, progress)?;
    ticket.timings.note_write(total, creating + took.write);
    ticket.timings.note_sync(took.sync);
    Ok(())
}

/// Links a file of the previous checkpoint, if it still is the one that was written; where that is not known, if
/// it is as long as it was. As one that is written, it is durable on return.
fn link_file(
    site: &Site<'_>,
    (old, name): (&Path, &str),
    to: &Path,
    nbytes: u64,
    saved: &Saved,
) -> io::Result<()> {
    let from = old.join(name);
    let refuse = |why: &str| {
        let why = format!("{} {why}", from.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let file = site.storage.open(&from)?;
    if file.len() != nbytes {
        return Err(refuse("was cut off"));
    }
    if !saved.synced {
        file.sync()?;
    }
    site.storage.hard_link(&from, to)?;
    // Under its new name, which is hidden: the old one may stand for another file at any time.
    match saved.versions.get(name) {
        Some(&written) if site.storage.version(to)? != Some(written) => {
            Err(refuse("is not what was written"))
        }
        _ => Ok(()),
    }
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
