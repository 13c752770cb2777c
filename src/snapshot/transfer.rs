//! The engine: moves the bytes of many tensors at once and computes their checksums on the way.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::Layout;
use crate::format::checksum::{self, BLOCK};
use crate::state::{Checksum, Data, Tensor};

/// Large tensors are cut into tasks of this many bytes, a whole number of checksum blocks.
const TASK: usize = 64 * BLOCK;
/// Below this many bytes in all, starting threads costs more than it saves.
const WORTH_THREADS: usize = 2 << 20;
/// More threads than this do not copy faster: memory is the limit.
const THREADS: usize = 4;

/// A tensor, not in pieces, and where its stored form goes; without a destination it is only read.
pub(super) struct Job<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) into: Option<&'a mut [u8]>,
}

/// A part of a job that one thread does at one go.
struct Task<'a> {
    job: usize,
    tensor: &'a Tensor,
    /// First byte, in the stored form.
    start: usize,
    len: usize,
    into: Option<&'a mut [u8]>,
    digests: &'a mut [Checksum],
}

/// Runs all jobs; returns, in order, the checksum of each stored form.
pub(super) fn run(jobs: Vec<Job<'_>>) -> Vec<io::Result<Checksum>> {
    let lengths: Vec<u64> = jobs.iter().map(|job| job.tensor.nbytes()).collect();
    let mut digests: Vec<Vec<Checksum>> = lengths
        .iter()
        .map(|&len| vec![Checksum(0); (len as usize).div_ceil(BLOCK).max(1)])
        .collect();
    let mut tasks = Vec::new();
    for (index, (job, digests)) in jobs.into_iter().zip(&mut digests).enumerate() {
        cut(index, job, digests, &mut tasks);
    }
    let failures = run_tasks(tasks, lengths.iter().sum::<u64>() as usize);
    let mut results: Vec<io::Result<Checksum>> = digests
        .iter()
        .zip(&lengths)
        .map(|(digests, &len)| Ok(checksum::from_blocks(digests, len)))
        .collect();
    for (job, error) in failures {
        results[job] = Err(error);
    }
    results
}

fn cut<'a>(index: usize, job: Job<'a>, digests: &'a mut [Checksum], tasks: &mut Vec<Task<'a>>) {
    let Job { tensor, mut into } = job;
    let total = tensor.nbytes() as usize;
    let mut start = 0;
    for digests in digests.chunks_mut(TASK / BLOCK) {
        let len = (total - start).min(TASK);
        let piece = into.take().map(|rest| {
            let (piece, rest) = rest.split_at_mut(len);
            into = Some(rest);
            piece
        });
        tasks.push(Task {
            job: index,
            tensor,
            start,
            len,
            into: piece,
            digests,
        });
        start += len;
    }
}

fn run_tasks(tasks: Vec<Task<'_>>, total: usize) -> Vec<(usize, io::Error)> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = if total < WORTH_THREADS {
        1
    } else {
        cores.min(THREADS)
    };
    let tasks: Vec<Mutex<Option<Task<'_>>>> = tasks
        .into_iter()
        .map(|task| Mutex::new(Some(task)))
        .collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        let mut bounce = Vec::new();
        while let Some(slot) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                let job = task.job;
                if let Err(error) = run_task(task, &mut bounce) {
                    failures
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((job, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be had, the others do its share.
            let _ = thread::Builder::new()
                .name("pitstop-copy".into())
                .spawn_scoped(scope, work);
        }
        work();
    });
    failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn run_task(task: Task<'_>, bounce: &mut Vec<u8>) -> io::Result<()> {
    let Task {
        tensor,
        start,
        len,
        into,
        digests,
        ..
    } = task;
    match &tensor.data {
        Data::Memory(memory) => match (memory.contiguous(tensor.nbytes() as usize), into) {
            (Some(bytes), None) => digest_blocks(&bytes[start..start + len], digests),
            (contiguous, into) => {
                let into = destination(into, bounce, len);
                let layout = Layout::of(tensor, memory);
                for (i, (block, digest)) in
                    into.chunks_mut(BLOCK).zip(digests.iter_mut()).enumerate()
                {
                    let at = start + i * BLOCK;
                    let end = at + block.len();
                    match contiguous {
                        Some(bytes) => block.copy_from_slice(&bytes[at..end]),
                        None => layout.gather(memory.region.bytes(), at..end, block),
                    }
                    *digest = checksum::block(block);
                }
            }
        },
        Data::Stored(stored) => {
            let into = destination(into, bounce, len);
            stored.source.read_at(stored.offset + start as u64, into)?;
            digest_blocks(into, digests);
        }
        Data::Pieces(_) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a tensor in pieces is moved piece by piece",
            ));
        }
    }
    // An empty tensor has one digest, that of nothing.
    if len == 0 {
        digests[0] = checksum::block(&[]);
    }
    Ok(())
}

fn destination<'a>(
    into: Option<&'a mut [u8]>,
    bounce: &'a mut Vec<u8>,
    len: usize,
) -> &'a mut [u8] {
    into.unwrap_or_else(|| {
        bounce.resize(len.max(bounce.len()), 0);
        &mut bounce[..len]
    })
}

fn digest_blocks(bytes: &[u8], digests: &mut [Checksum]) {
    for (block, digest) in bytes.chunks(BLOCK).zip(digests) {
        *digest = checksum::block(block);
    }
}
