//! The engine: moves the bytes of many tensors at once, and computes their checksums on the way where they are
//! wanted.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::{Layout, stream};
use crate::format::checksum::{self, BLOCK};
use crate::state::{Checksum, Data, Tensor};
use crate::sync::{Mutex, MutexGuard, PoisonError, thread};

/// A thread takes about this many bytes at a time: a part of a large tensor, or many small ones. A whole
/// number of checksum blocks.
const BATCH: usize = 64 * BLOCK;
/// Below this many bytes in all, starting threads costs more than it saves.
const WORTH_THREADS: usize = 2 << 20;
/// More threads than this do not copy faster: memory is the limit.
const THREADS: usize = 4;

/// A tensor, not in pieces, and where its stored form goes; without a destination it is only read.
pub(super) struct Job<'a> {
    pub(super) tensor: &'a Tensor,
    /// Size of its stored form, in bytes.
    pub(super) len: usize,
    pub(super) into: Option<&'a mut [u8]>,
    /// Whether its checksum is wanted.
    pub(super) digest: Digest,
}

/// Whether the checksum of a job is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Digest {
    No,
    /// Unless somebody waits by then, see [`Crew::Beside`].
    OnTheWay,
    Yes,
}

impl Job<'_> {
    /// Digests that its checksum is made of.
    fn blocks(&self) -> usize {
        usize::from(self.digest != Digest::No) * self.len.div_ceil(BLOCK).max(1)
    }
}

/// A part of a job that one thread does at one go.
struct Part<'a> {
    job: usize,
    tensor: &'a Tensor,
    /// Size of the whole tensor, in bytes.
    total: usize,
    /// First byte, in the stored form.
    start: usize,
    len: usize,
    into: Option<&'a mut [u8]>,
    /// One for each block; none if they are not wanted.
    digests: &'a mut [Checksum],
    /// They are left out if somebody waits.
    on_the_way: bool,
}

/// How many threads share the work.
#[derive(Clone, Copy)]
pub(super) enum Crew<'a> {
    /// As many as copy fastest: somebody waits.
    Full,
    /// At most half of the cores, so that the training has the others, until this says that it waits: then as many
    /// as copy fastest, and they do nothing but copy.
    Beside(&'a (dyn Fn() -> bool + Sync)),
}

impl Crew<'_> {
    fn threads(self) -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match self {
            Crew::Full => cores.min(THREADS),
            Crew::Beside(_) => (cores / 2).clamp(1, THREADS),
        }
    }

    /// Whether somebody has come to wait who did not before.
    fn is_awaited(self) -> bool {
        match self {
            Crew::Full => false,
            Crew::Beside(is_awaited) => is_awaited(),
        }
    }
}

/// Runs all jobs; returns, in order, the checksum of each stored form if it was wanted, and not left out.
pub(super) fn run(jobs: Vec<Job<'_>>, crew: Crew<'_>) -> Vec<io::Result<Option<Checksum>>> {
    let wanted: Vec<(usize, usize)> = jobs.iter().map(|job| (job.len, job.blocks())).collect();
    let mut digests = vec![Checksum(0); wanted.iter().map(|(_, blocks)| blocks).sum()];
    let outcome = {
        let mut rest = digests.as_mut_slice();
        let mut batches = Batches::default();
        for (index, job) in jobs.into_iter().enumerate() {
            let (digests, others) = std::mem::take(&mut rest).split_at_mut(job.blocks());
            rest = others;
            batches.cut(index, job, digests);
        }
        let total = wanted.iter().map(|(len, _)| len).sum();
        run_batches(batches.full, total, crew)
    };
    let mut rest = digests.as_slice();
    let mut results: Vec<io::Result<Option<Checksum>>> = wanted
        .iter()
        .map(|&(len, blocks)| {
            let (digests, others) = rest.split_at(blocks);
            rest = others;
            Ok((blocks > 0).then(|| checksum::from_blocks(digests, len as u64)))
        })
        .collect();
    for job in outcome.undigested {
        results[job] = Ok(None);
    }
    for (job, error) in outcome.failures {
        results[job] = Err(error);
    }
    results
}

/// What became of the jobs, by their index, where it is not what was wanted.
#[derive(Default)]
struct Outcome {
    failures: Vec<(usize, io::Error)>,
    /// Their checksums were left out.
    undigested: BTreeSet<usize>,
}

#[derive(Default)]
struct Batches<'a> {
    full: Vec<Vec<Part<'a>>>,
    /// Bytes in the last one.
    bytes: usize,
}

impl<'a> Batches<'a> {
    fn cut(&mut self, job: usize, whole: Job<'a>, digests: &'a mut [Checksum]) {
        let Job {
            tensor,
            len: total,
            mut into,
            digest,
        } = whole;
        let mut digests = digests.chunks_mut(BATCH / BLOCK);
        // An empty tensor has one part too: its checksum is that of nothing.
        for start in (0..total.max(1)).step_by(BATCH) {
            let len = (total - start).min(BATCH);
            let piece = into.take().map(|rest| {
                let (piece, rest) = rest.split_at_mut(len);
                into = Some(rest);
                piece
            });
            self.push(Part {
                job,
                tensor,
                total,
                start,
                len,
                into: piece,
                digests: digests.next().unwrap_or_default(),
                on_the_way: digest == Digest::OnTheWay,
            });
        }
    }

    fn push(&mut self, part: Part<'a>) {
        self.bytes += part.len;
        match self.full.last_mut() {
            Some(batch) if self.bytes <= BATCH => batch.push(part),
            _ => {
                self.bytes = part.len;
                self.full.push(vec![part]);
            }
        }
    }
}

fn run_batches(batches: Vec<Vec<Part<'_>>>, total: usize, crew: Crew<'_>) -> Outcome {
    let threads = |crew: Crew<'_>| {
        if total < WORTH_THREADS {
            1
        } else {
            crew.threads().min(batches.len())
        }
    };
    let (mut at_work, all) = (threads(crew), threads(Crew::Full));
    let queue = Mutex::new(batches.into_iter());
    let outcome = Mutex::new(Outcome::default());
    let next = || lock(&queue).next();
    let work = |batch: Vec<Part<'_>>, scratch: &mut Vec<u8>| {
        for part in batch {
            run_part(part, scratch, crew, &outcome);
        }
    };
    thread::scope(|scope| {
        let send_for = |more| {
            for _ in 0..more {
                // If no thread can be had, the others do its share.
                let _ = thread::Builder::new()
                    .name("pitstop-copy".into())
                    .spawn_scoped(scope, || {
                        let mut scratch = Vec::new();
                        while let Some(batch) = next() {
                            work(batch, &mut scratch);
                        }
                    });
            }
        };
        send_for(at_work.saturating_sub(1));
        let mut scratch = Vec::new();
        while let Some(batch) = next() {
            if at_work < all && crew.is_awaited() {
                send_for(all - at_work);
                at_work = all;
            }
            work(batch, &mut scratch);
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_part(mut part: Part<'_>, scratch: &mut Vec<u8>, crew: Crew<'_>, outcome: &Mutex<Outcome>) {
    let job = part.job;
    if part.on_the_way && crew.is_awaited() {
        part.digests = &mut [];
        lock(outcome).undigested.insert(job);
    }
    if let Err(error) = move_part(part, scratch) {
        lock(outcome).failures.push((job, error));
    }
}

fn move_part(part: Part<'_>, scratch: &mut Vec<u8>) -> io::Result<()> {
    let Part {
        tensor,
        total,
        start,
        len,
        into,
        digests,
        ..
    } = part;
    if len == 0 {
        // An empty tensor has one digest, that of nothing.
        digests.fill(checksum::block(&[]));
    }
    let range = start..start + len;
    match &tensor.data {
        Data::Memory(memory) => match (memory.contiguous(total), into) {
            (Some(bytes), None) => digest_blocks(&bytes[range], digests),
            (Some(bytes), Some(into)) if digests.is_empty() => stream::copy(&bytes[range], into),
            (Some(bytes), into) => copy_blocks(range, into, digests, scratch, |from, block| {
                block.copy_from_slice(&bytes[from]);
            }),
            (None, into) => {
                let layout = Layout::of(tensor, memory);
                copy_blocks(range, into, digests, scratch, |from, block| {
                    layout.gather(memory.region.bytes(), from, block);
                });
            }
        },
        Data::Stored(stored) => {
            let into = into.unwrap_or_else(|| room(scratch, len));
            stored.source.read_at(stored.offset + start as u64, into)?;
            digest_blocks(into, digests);
        }
        Data::Pieces(_) => return Err(in_pieces()),
    }
    Ok(())
}

/// Copies block by block: into scratch memory that stays in cache, and from there past the caches to where
/// the block goes. So the checksum is that of the copy, whatever others do to the original meanwhile.
fn copy_blocks(
    range: Range<usize>,
    mut into: Option<&mut [u8]>,
    digests: &mut [Checksum],
    scratch: &mut Vec<u8>,
    fetch: impl Fn(Range<usize>, &mut [u8]),
) {
    let mut digests = digests.iter_mut();
    for start in range.clone().step_by(BLOCK) {
        let end = (start + BLOCK).min(range.end);
        let block = room(scratch, end - start);
        fetch(start..end, block);
        if let Some(digest) = digests.next() {
            *digest = checksum::block(block);
        }
        if let Some(into) = &mut into {
            stream::copy(block, &mut into[start - range.start..end - range.start]);
        }
    }
}

/// Copies the bytes of the stored form of a tensor, not in pieces, from `start` on.
///
/// # Errors
///
/// If the tensor lies in a file that cannot be read.
pub fn read_at(tensor: &Tensor, start: u64, into: &mut [u8]) -> io::Result<()> {
    match &tensor.data {
        Data::Memory(memory) => {
            let range = start as usize..start as usize + into.len();
            match memory.contiguous(tensor.nbytes() as usize) {
                Some(bytes) => into.copy_from_slice(&bytes[range]),
                None => Layout::of(tensor, memory).gather(memory.region.bytes(), range, into),
            }
            Ok(())
        }
        Data::Stored(stored) => stored.source.read_at(stored.offset + start, into),
        Data::Pieces(_) => Err(in_pieces()),
    }
}

fn in_pieces() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a tensor in pieces is moved piece by piece",
    )
}

fn room(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    scratch.resize(len.max(scratch.len()), 0);
    &mut scratch[..len]
}

fn digest_blocks(bytes: &[u8], digests: &mut [Checksum]) {
    for (block, digest) in bytes.chunks(BLOCK).zip(digests) {
        *digest = checksum::block(block);
    }
}
