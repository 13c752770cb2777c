use std::env;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pitstop::Local;
use pitstop::storage::{Fill, NewFile, Segment, Storage, Timing, fill};
use rustix::fs::OFlags;

const BLOCK: usize = 4096;
const WINDOW: usize = 4 << 20;
const OLD: [&str; 2] = ["old one", "old other"];
const NEW: [&str; 2] = ["new one", "new other"];

pub(super) fn main() {
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let mib: usize = arguments.next().map_or(1490, |mib| mib.parse().unwrap());
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().unwrap());
    let place = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(place).unwrap();
    let bench = Bench::new(dir.path(), mib << 20);
    let ways: [(&str, &dyn Fn() -> Timing); 10] = [
        ("limit, 1 thread", &|| bench.limit(1, false)),
        ("limit, 2 threads", &|| bench.limit(2, false)),
        ("limit, 4 threads", &|| bench.limit(4, false)),
        ("fill", &|| bench.fill(&Local::new(), &bench.tensors())),
        ("fill, two segments", &|| {
            bench.fill(&Local::new(), &bench.images())
        }),
        ("fill, small segments", &|| {
            bench.fill(&Local::new(), &bench.crumbs())
        }),
        ("fill, through the page cache", &|| {
            bench.fill(&Local::new().direct_io(false), &bench.tensors())
        }),
        ("over old blocks, 1 thread", &|| bench.limit(1, true)),
        ("over old blocks, 2 threads", &|| bench.limit(2, true)),
        ("fill, recycled files", &|| bench.recycle(&bench.tensors())),
    ];
    bench.limit(1, true);
    // Left for the first round to recycle.
    bench.create(&Local::new(), OLD, &bench.images());
    let mut taken: Vec<Vec<(Duration, Duration, Duration)>> = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (index, (_, way)) in ways.iter().enumerate() {
            let before = cpu();
            let Timing { write, sync } = way();
            // The first round is a warm-up.
            if round > 0 {
                let used = cpu().saturating_sub(before);
                taken[index].push((write + sync, sync, used));
            }
        }
    }
    println!("{mib} MiB in two files, medians of {rounds} rounds");
    let limit = median(&taken[0], |it| it.0);
    for ((name, _), taken) in ways.iter().zip(&taken) {
        let total = median(taken, |it| it.0);
        println!(
            "{name:30} {total:6.3} s {:5.2} GB/s {:5.2} x limit   sync {:.3} s   CPU {:.3} s",
            (mib << 20) as f64 / total / 1e9,
            total / limit,
            median(taken, |it| it.1),
            median(taken, |it| it.2),
        );
    }
}

fn median<T>(all: &[T], value: impl Fn(&T) -> Duration) -> f64 {
    let mut values: Vec<f64> = all.iter().map(|it| value(it).as_secs_f64()).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What this process has used so far.
fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Makes the files, fills them, and adds the time of the first to that of the second.
fn timed(contents: &[Vec<&[u8]>; 2], make: impl FnOnce() -> [Box<dyn NewFile>; 2]) -> Timing {
    let begin = Instant::now();
    let files = make();
    let pairs = files.iter().zip(contents);
    let work: Vec<Fill<'_>> = pairs
        .map(|(file, segments)| Fill {
            file: file.as_ref(),
            segments: segments.iter().copied().map(Segment::Bytes).collect(),
        })
        .collect();
    let creating = begin.elapsed();
    let mut timing = fill(&work, &|_| ()).unwrap();
    timing.write += creating;
    timing
}

struct Bench<'a> {
    dir: &'a Path,
    memory: Vec<u8>,
    /// Where the first whole block of the memory begins.
    start: usize,
    half: usize,
}

impl Bench<'_> {
    fn new(dir: &Path, size: usize) -> Bench<'_> {
        let half = (size / 2).next_multiple_of(BLOCK);
        let mut memory = vec![0; 2 * half + BLOCK];
        // Nothing that a disk could leave out.
        let mut noise = 1u64;
        for word in memory.chunks_exact_mut(8) {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            word.copy_from_slice(&noise.to_le_bytes());
        }
        let start = memory.as_ptr().align_offset(BLOCK);
        Bench {
            dir,
            memory,
            start,
            half,
        }
    }

    /// What is to be in the two files.
    fn halves(&self) -> [&[u8]; 2] {
        let bytes = &self.memory[self.start..][..2 * self.half];
        let (one, other) = bytes.split_at(self.half);
        [one, other]
    }

    fn images(&self) -> [Vec<&[u8]>; 2] {
        self.halves().map(|half| vec![half])
    }

    /// A header of one block, then 75 tensors back to back, none of them a whole number of blocks long.
    fn tensors(&self) -> [Vec<&[u8]>; 2] {
        self.halves().map(|half| {
            let (header, tensors) = half.split_at(BLOCK);
            let each = (tensors.len() / 75).next_multiple_of(64);
            let mut segments = vec![header];
            segments.extend(tensors.chunks(each));
            segments
        })
    }

    fn crumbs(&self) -> [Vec<&[u8]>; 2] {
        self.halves().map(|half| half.chunks(2500).collect())
    }

    fn fill(&self, disk: &Local, contents: &[Vec<&[u8]>; 2]) -> Timing {
        let timing = self.create(disk, NEW, contents);
        for name in NEW {
            fs::remove_file(self.dir.join(name)).unwrap();
        }
        timing
    }

    fn create(&self, disk: &Local, names: [&str; 2], contents: &[Vec<&[u8]>; 2]) -> Timing {
        timed(contents, || {
            let size = self.half as u64;
            names.map(|name| disk.create(&self.dir.join(name), size).unwrap())
        })
    }

    /// Over the files that the last round left.
    fn recycle(&self, contents: &[Vec<&[u8]>; 2]) -> Timing {
        let disk = Local::new();
        let pairs = [0, 1].map(|i| (self.dir.join(OLD[i]), self.dir.join(NEW[i])));
        let timing = timed(contents, || {
            let recycle = |(old, new): &(PathBuf, PathBuf)| {
                let file = disk.recycle(old, new, self.half as u64).unwrap();
                file.expect("a file system that writes in place")
            };
            pairs.each_ref().map(recycle)
        });
        for (old, new) in &pairs {
            disk.rename(new, old).unwrap();
        }
        timing
    }

    /// Direct writes of 4 MiB in order and one sync, with nothing else: into one new file, or over an old one.
    fn limit(&self, threads: usize, over_old: bool) -> Timing {
        let begin = Instant::now();
        let path = self.dir.join(if over_old { "old" } else { "new" });
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&path)
            .unwrap();
        self.write_all(&file, threads);
        let write = begin.elapsed();
        file.sync_data().unwrap();
        let sync = begin.elapsed().saturating_sub(write);
        if !over_old {
            fs::remove_file(path).unwrap();
        }
        Timing { write, sync }
    }

    fn write_all(&self, file: &File, threads: usize) {
        let bytes = &self.memory[self.start..][..2 * self.half];
        let next = AtomicUsize::new(0);
        let write = || {
            loop {
                let from = next.fetch_add(WINDOW, Ordering::Relaxed);
                let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                let window = &rest[..rest.len().min(WINDOW)];
                file.write_all_at(window, from as u64).unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(write);
            }
            write();
        });
    }
}
