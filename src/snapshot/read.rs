//! The reading engine: brings stored tensors from their files into memory and compares them on the way.
//!
//! Files are read in the order of their bytes, as their disk likes it, by a few threads at once. Small
//! tensors that lie side by side are read together. Each stretch is compared while it is in cache.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::Watch;
use super::load::ReadError;
use crate::format::checksum::{self, BLOCK};
use crate::state::{Checksum, ReadAt, Stored, Tensor};

/// Large tensors are cut into tasks of this many bytes, a whole number of checksum blocks.
const TASK: usize = 64 * BLOCK;
/// Bytes of one read: few enough to be in cache still when they are compared.
const STRIDE: usize = 4 * BLOCK;
/// Below this many bytes in all, starting threads costs more than it saves.
const WORTH_THREADS: u64 = 2 << 20;
/// More threads than this do not read faster: memory is the limit, or the disk.
const THREADS: usize = 4;

/// A stored tensor and where its bytes go; without a destination they are only compared.
pub(super) struct Job<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) stored: &'a Stored,
    pub(super) into: Option<&'a mut [u8]>,
}

/// What one thread does at one go. Jobs are known by their place in the list that came in.
enum Task<'a> {
    Part(Part<'a>),
    Batch(Batch<'a>),
}

/// A part of a tensor.
struct Part<'a> {
    job: usize,
    tensor: &'a Tensor,
    source: &'a dyn ReadAt,
    offset: u64,
    len: usize,
    into: Option<&'a mut [u8]>,
    /// One for each block of the part; none if there is nothing to compare with.
    digests: &'a mut [Checksum],
}

/// Small tensors that lie side by side, `len` bytes from `offset` on.
struct Batch<'a> {
    source: &'a Arc<dyn ReadAt>,
    offset: u64,
    len: usize,
    jobs: Vec<(usize, Job<'a>)>,
}

/// Runs all jobs, unless `stop` is set meanwhile: then what is left is not read, and says `Interrupted`.
///
/// # Errors
///
/// The first of them, in order, that is damaged or cannot be read.
pub(super) fn run(jobs: Vec<Job<'_>>, stop: &AtomicBool) -> Result<(), ReadError> {
    let watch = Watch {
        stop,
        ..Watch::nobody()
    };
    let first = run_all(jobs, watch).into_iter().min_by_key(|(job, _)| *job);
    first.map_or(Ok(()), |(_, error)| Err(error))
}

/// As [`run`], but goes on after an error; returns all of them, each with the number of its job.
pub(super) fn run_all(jobs: Vec<Job<'_>>, watch: Watch<'_>) -> HashMap<usize, ReadError> {
    let tensors: Vec<(&Tensor, &Stored)> =
        jobs.iter().map(|job| (job.tensor, job.stored)).collect();
    let total = tensors.iter().map(|(tensor, _)| tensor.nbytes()).sum();
    let mut digests: Vec<Vec<Checksum>> = tensors
        .iter()
        .map(|(tensor, _)| match tensor.checksum {
            Some(_) if !is_small(tensor) => {
                vec![Checksum(0); (tensor.nbytes() as usize).div_ceil(BLOCK)]
            }
            _ => Vec::new(),
        })
        .collect();
    let mut failures = run_tasks(plan(jobs, &mut digests), total, watch);
    for (job, (digests, (tensor, stored))) in digests.iter().zip(&tensors).enumerate() {
        let compared = !digests.is_empty() && !failures.contains_key(&job);
        if compared && tensor.checksum != Some(checksum::from_blocks(digests, tensor.nbytes())) {
            failures.insert(job, damaged(tensor, stored));
        }
    }
    failures
}

/// Small tensors have no more than one block, and are read together with their neighbours.
fn is_small(tensor: &Tensor) -> bool {
    tensor.nbytes() <= BLOCK as u64
}

fn damaged(tensor: &Tensor, stored: &Stored) -> ReadError {
    ReadError::Damaged {
        tensor: tensor.name.clone(),
        file: Some(stored.source.name().to_owned()),
    }
}

/// Cuts the jobs into tasks, in the order of the files and of the bytes in each.
fn plan<'a>(jobs: Vec<Job<'a>>, digests: &'a mut [Vec<Checksum>]) -> Vec<Task<'a>> {
    let mut files = HashMap::new();
    for job in &jobs {
        let next = files.len();
        files.entry(address(job)).or_insert(next);
    }
    let mut jobs: Vec<_> = jobs.into_iter().zip(digests).enumerate().collect();
    jobs.sort_by_key(|(_, (job, _))| (files[&address(job)], job.stored.offset));
    let mut tasks = Vec::new();
    for (index, (job, digests)) in jobs {
        if !is_small(job.tensor) {
            cut(index, job, digests, &mut tasks);
            continue;
        }
        match tasks.last_mut() {
            Some(Task::Batch(batch)) if batch.is_followed_by(&job) => batch.push(index, job),
            _ => tasks.push(Task::Batch(Batch::of(index, job))),
        }
    }
    tasks
}

fn address(job: &Job<'_>) -> usize {
    Arc::as_ptr(&job.stored.source).addr()
}

fn cut<'a>(index: usize, job: Job<'a>, digests: &'a mut [Checksum], tasks: &mut Vec<Task<'a>>) {
    let Job {
        tensor,
        stored,
        mut into,
    } = job;
    let total = tensor.nbytes() as usize;
    let mut digests = digests.chunks_mut(TASK / BLOCK);
    for start in (0..total).step_by(TASK) {
        let len = (total - start).min(TASK);
        let part = into.take().map(|rest| {
            let (part, rest) = rest.split_at_mut(len);
            into = Some(rest);
            part
        });
        tasks.push(Task::Part(Part {
            job: index,
            tensor,
            source: stored.source.as_ref(),
            offset: stored.offset + start as u64,
            len,
            into: part,
            digests: digests.next().unwrap_or_default(),
        }));
    }
}

fn run_tasks(tasks: Vec<Task<'_>>, total: u64, watch: Watch<'_>) -> HashMap<usize, ReadError> {
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
    let failures = Mutex::new(HashMap::new());
    let fail = |job: usize, error: ReadError| {
        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.entry(job).or_insert(error);
    };
    let work = || {
        let mut bounce = vec![0; STRIDE];
        while let Some(slot) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            match task {
                Some(task) if watch.check().is_err() => task.give_up(&fail),
                Some(Task::Part(part)) => part.run(&mut bounce, &fail, watch),
                Some(Task::Batch(batch)) => batch.run(&mut bounce, &fail, watch),
                None => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be had, the others do its share.
            let _ = thread::Builder::new()
                .name("pitstop-read".into())
                .spawn_scoped(scope, work);
        }
        work();
    });
    failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

impl Task<'_> {
    fn give_up(self, fail: &impl Fn(usize, ReadError)) {
        let interrupted = |tensor| unreadable(tensor, io::ErrorKind::Interrupted.into());
        match self {
            Task::Part(part) => fail(part.job, interrupted(part.tensor)),
            Task::Batch(batch) => {
                for (index, job) in batch.jobs {
                    fail(index, interrupted(job.tensor));
                }
            }
        }
    }
}

impl Part<'_> {
    fn run(self, bounce: &mut [u8], fail: &impl Fn(usize, ReadError), watch: Watch<'_>) {
        let (job, tensor) = (self.job, self.tensor);
        if let Err(source) = self.read(bounce, watch) {
            fail(job, unreadable(tensor, source));
        }
    }

    fn read(self, bounce: &mut [u8], watch: Watch<'_>) -> io::Result<()> {
        let mut into = self.into;
        let mut digests = self.digests.chunks_mut(STRIDE / BLOCK);
        for start in (0..self.len).step_by(STRIDE) {
            let len = (self.len - start).min(STRIDE);
            let stretch = match into.take() {
                Some(rest) => {
                    let (stretch, rest) = rest.split_at_mut(len);
                    into = Some(rest);
                    stretch
                }
                None => &mut bounce[..len],
            };
            self.source.read_at(self.offset + start as u64, stretch)?;
            let digests = digests.next().unwrap_or_default();
            for (digest, block) in digests.iter_mut().zip(stretch.chunks(BLOCK)) {
                *digest = checksum::block(block);
            }
            (watch.progress)(len as u64);
        }
        Ok(())
    }
}

impl<'a> Batch<'a> {
    fn of(index: usize, job: Job<'a>) -> Batch<'a> {
        Batch {
            source: &job.stored.source,
            offset: job.stored.offset,
            len: job.tensor.nbytes() as usize,
            jobs: vec![(index, job)],
        }
    }

    /// Whether the job lies right behind, and still fits into one read.
    fn is_followed_by(&self, job: &Job<'_>) -> bool {
        Arc::ptr_eq(self.source, &job.stored.source)
            && self.offset + self.len as u64 == job.stored.offset
            && self.len + job.tensor.nbytes() as usize <= STRIDE
    }

    fn push(&mut self, index: usize, job: Job<'a>) {
        self.len += job.tensor.nbytes() as usize;
        self.jobs.push((index, job));
    }

    fn run(self, bounce: &mut [u8], fail: &impl Fn(usize, ReadError), watch: Watch<'_>) {
        let read = self.source.read_at(self.offset, &mut bounce[..self.len]);
        match (read, self.jobs.as_slice()) {
            (Ok(()), _) => {
                let len = self.len as u64;
                self.hand_out(bounce, fail);
                (watch.progress)(len);
            }
            (Err(error), [(index, job)]) => fail(*index, unreadable(job.tensor, error)),
            // Each by itself, so that no tensor is blamed for its neighbour.
            (Err(_), _) => {
                for (index, job) in self.jobs {
                    Batch::of(index, job).run(bounce, fail, watch);
                }
            }
        }
    }

    fn hand_out(self, mut bytes: &[u8], fail: &impl Fn(usize, ReadError)) {
        for (index, job) in self.jobs {
            let (own, rest) = bytes.split_at(job.tensor.nbytes() as usize);
            bytes = rest;
            if job
                .tensor
                .checksum
                .is_some_and(|known| known != checksum::block(own))
            {
                fail(index, damaged(job.tensor, job.stored));
            }
            if let Some(into) = job.into {
                into.copy_from_slice(own);
            }
        }
    }
}

fn unreadable(tensor: &Tensor, source: io::Error) -> ReadError {
    ReadError::Io {
        tensor: tensor.name.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{DType, Data};

    /// A file in memory that notes what is read of it; what reaches into `broken` cannot be read.
    #[derive(Default)]
    struct File {
        bytes: Vec<u8>,
        broken: Option<u64>,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    impl ReadAt for File {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            self.reads.lock().unwrap().push((offset, into.len()));
            let end = offset + into.len() as u64;
            if self.broken.is_some_and(|at| (offset..end).contains(&at)) {
                return Err(io::Error::other("a bad sector"));
            }
            into.copy_from_slice(&self.bytes[offset as usize..end as usize]);
            Ok(())
        }

        fn name(&self) -> &'static str {
            "a file"
        }
    }

    impl File {
        fn of(len: usize) -> File {
            File {
                bytes: (0..len).map(|i| (i % 251) as u8).collect(),
                ..File::default()
            }
        }
    }

    /// Tensors of the given offsets and lengths; each name is its offset.
    fn tensors(file: &Arc<File>, places: &[(usize, usize)]) -> Vec<Tensor> {
        let tensor = |&(offset, len): &(usize, usize)| {
            let data = Data::Stored(Stored {
                source: file.clone(),
                offset: offset as u64,
            });
            Tensor {
                name: offset.to_string(),
                checksum: Some(checksum::of(&file.bytes[offset..offset + len])),
                ..Tensor::new(DType::U8, &[len as u64], data).unwrap()
            }
        };
        places.iter().map(tensor).collect()
    }

    fn read(tensors: &[Tensor]) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut buffers: Vec<Vec<u8>> = tensors
            .iter()
            .map(|tensor| vec![0; tensor.nbytes() as usize])
            .collect();
        run(jobs(tensors, &mut buffers), &AtomicBool::new(false)).map(|()| buffers)
    }

    fn jobs<'a>(tensors: &'a [Tensor], buffers: &'a mut [Vec<u8>]) -> Vec<Job<'a>> {
        let job = |(tensor, into): (&'a Tensor, &'a mut Vec<u8>)| {
            let Data::Stored(stored) = &tensor.data else {
                panic!("not stored")
            };
            Job {
                tensor,
                stored,
                into: Some(into.as_mut_slice()),
            }
        };
        tensors.iter().zip(buffers).map(job).collect()
    }

    fn name(error: ReadError) -> String {
        match error {
            ReadError::Damaged { tensor, .. } | ReadError::Io { tensor, .. } => tensor,
        }
    }

    #[test]
    fn neighbours_are_read_together_and_nothing_else_is_read() {
        let file = Arc::new(File::of(1000));
        let places = [(300, 100), (100, 50), (150, 0), (150, 50), (900, 1)];
        let read = read(&tensors(&file, &places)).unwrap();
        for (bytes, (offset, len)) in read.iter().zip(places) {
            assert_eq!(bytes, &file.bytes[offset..offset + len]);
        }
        let reads = file.reads.lock().unwrap().clone();
        assert_eq!(reads, [(100, 100), (300, 100), (900, 1)]);
    }

    #[test]
    fn every_part_of_a_large_tensor_is_read_and_compared() {
        let len = 2 * TASK + STRIDE + 17;
        let mut file = File::of(len + 100);
        let tensor = tensors(&Arc::new(File::of(len + 100)), &[(100, len)]).remove(0);
        for at in [100, 100 + TASK, 100 + 2 * TASK, len + 99] {
            file.bytes[at] ^= 1;
            let source = Arc::new(file);
            let damaged = Tensor {
                data: Data::Stored(Stored {
                    source: source.clone(),
                    offset: 100,
                }),
                ..tensor.clone()
            };
            assert_eq!(name(read(&[damaged]).unwrap_err()), "100");
            file = Arc::into_inner(source).unwrap();
            file.bytes[at] ^= 1;
        }
        assert_eq!(read(&[tensor]).unwrap()[0], file.bytes[100..]);
    }

    #[test]
    fn a_tensor_that_cannot_be_read_does_not_blame_its_neighbours() {
        let mut file = File::of(100);
        file.broken = Some(25);
        let file = Arc::new(file);
        let error = read(&tensors(&file, &[(0, 10), (10, 10), (20, 10), (30, 10)])).unwrap_err();
        assert_eq!(name(error), "20");
    }

    #[test]
    fn the_first_in_order_is_named_wherever_it_lies() {
        let file = Arc::new(File::of(100));
        let mut tensors = tensors(&file, &[(50, 10), (0, 10), (10, 10)]);
        for tensor in &mut tensors[..2] {
            tensor.checksum = Some(Checksum(0));
        }
        assert_eq!(name(read(&tensors).unwrap_err()), "50");
    }

    #[test]
    fn without_a_checksum_nothing_is_compared() {
        let file = Arc::new(File::of(BLOCK * 3));
        let mut tensors = tensors(&file, &[(0, 10), (10, BLOCK + 10)]);
        for tensor in &mut tensors {
            tensor.checksum = None;
        }
        assert_eq!(read(&tensors).unwrap()[1], file.bytes[10..BLOCK + 20]);
    }

    #[test]
    fn what_is_stopped_reads_no_further_and_says_so() {
        let file = Arc::new(File::of(2 * TASK));
        let tensors = tensors(&file, &[(0, 10), (10, TASK)]);
        let mut buffers = vec![vec![0; 10], vec![0; TASK]];
        let error = run(jobs(&tensors, &mut buffers), &AtomicBool::new(true)).unwrap_err();
        assert!(
            matches!(error, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted)
        );
        assert!(file.reads.lock().unwrap().is_empty());
    }
}
