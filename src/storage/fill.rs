use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::NewFile;

/// The most that one write takes, in bytes: large enough for full speed, small enough for progress to move,
/// and for threads to share a file evenly.
const WINDOW: usize = 4 << 20;
/// Offsets of writes are multiples of this.
const BLOCK: usize = 4096;
/// From this length on, copying a part of a segment costs more than the extra write it saves.
const LARGE: usize = 1 << 20;
/// Threads that write at the same time, the caller among them.
const THREADS: usize = 2;
/// Below this many windows, the caller is done before another thread has started.
const WORTH_A_THREAD: usize = 3;

/// A stretch of bytes of a file.
#[derive(Clone, Copy)]
pub enum Segment<'a> {
    /// Lies in memory as it is to be written.
    Bytes(&'a [u8]),
    /// Has to be fetched.
    Content(&'a dyn Content),
}

impl Segment<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Content(content) => content.len(),
        }
    }

    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that are fetched when they are written, such as those of an array with gaps.
pub trait Content: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// There are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset` (bytes) on.
    ///
    /// # Errors
    ///
    /// Whatever stands in the way; then the file is not filled.
    fn read_at(&self, offset: usize, into: &mut [u8]) -> io::Result<()>;
}

/// A new file, and all that is to be in it: `segments`, back to back from its start.
pub struct Fill<'a> {
    /// Created with the size that the segments have together.
    pub file: &'a dyn NewFile,
    /// What it will hold.
    pub segments: Vec<Segment<'a>>,
}

/// How long [`fill`] took, by the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Until the last byte was written. Files that were complete before were synced meanwhile.
    pub write: Duration,
    /// From then on, until all was durable.
    pub sync: Duration,
}

/// Fills several new files and syncs each of them once. On return all of them are durable, though not yet
/// their names.
///
/// Files are written in windows of 4 MiB, from a few threads; little is written by the caller alone, file by
/// file, in order. A large segment is written from where it lies if its address suits the file (see
/// [`NewFile::alignment`]: its offset in the file and its address should be congruent modulo 4096); small and
/// badly aligned ones are gathered in a buffer, 4 MiB for each thread. `progress` is told the bytes of each
/// write once it is done.
///
/// # Errors
///
/// The first error of a write or a sync. No other write or sync begins after it.
///
/// # Panics
///
/// If `progress` does, or a file.
///
/// # Example
///
/// ```
/// use pitstop::storage::{fill, Fill, Local, Segment, Storage};
///
/// let dir = tempfile::tempdir()?;
/// let file = Local::new().create(&dir.path().join("a"), 6)?;
/// let segments = vec![Segment::Bytes(b"abc"), Segment::Bytes(b"def")];
/// fill(&[Fill { file: &*file, segments }], &|_| ())?;
/// assert_eq!(std::fs::read(dir.path().join("a"))?, b"abcdef");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fill(files: &[Fill<'_>], progress: &(dyn Fn(u64) + Sync)) -> io::Result<Timing> {
    fill_with(THREADS, files, progress)
}

fn fill_with(
    threads: usize,
    files: &[Fill<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Timing> {
    let work = Work::new(files, progress);
    thread::scope(|scope| {
        let helpers = match work.windows() {
            ..WORTH_A_THREAD => 0,
            windows => threads.min(windows) - 1,
        };
        let start = |_| {
            let builder = thread::Builder::new().name("pitstop-write".into());
            // Where no thread can be had, those that there are do its share.
            builder.spawn_scoped(scope, || work.run()).ok()
        };
        let helpers: Vec<_> = (0..helpers).filter_map(start).collect();
        work.run();
        for helper in helpers {
            helper.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    work.finish()
}

/// What the threads share.
struct Work<'a> {
    files: Vec<Target<'a>>,
    progress: &'a (dyn Fn(u64) + Sync),
    start: Instant,
    /// The next window to be taken, counted over all files.
    next: AtomicUsize,
    /// When the last write so far was done, in nanoseconds from the start.
    written: AtomicU64,
    /// The first error: nothing more is begun.
    error: Mutex<Option<io::Error>>,
}

impl<'a> Work<'a> {
    fn new(files: &'a [Fill<'a>], progress: &'a (dyn Fn(u64) + Sync)) -> Work<'a> {
        let mut first_window = 0;
        let mut prepare = |fill: &'a Fill<'a>| {
            let file = Target::new(fill, first_window);
            first_window += file.windows;
            file
        };
        Work {
            files: files.iter().map(&mut prepare).collect(),
            progress,
            start: Instant::now(),
            next: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            error: Mutex::new(None),
        }
    }

    fn windows(&self) -> usize {
        self.files
            .last()
            .map_or(0, |file| file.first_window + file.windows)
    }

    fn run(&self) {
        let mut buffer = Buffer::default();
        while !self.failed() {
            let window = self.next.fetch_add(1, Ordering::Relaxed);
            if window >= self.windows() {
                break;
            }
            if let Err(error) = self.write(window, &mut buffer) {
                self.first_error().get_or_insert(error);
            }
        }
    }

    /// Writes one window; whoever writes the last one of a file syncs it.
    fn write(&self, window: usize, buffer: &mut Buffer) -> io::Result<()> {
        let after = self
            .files
            .partition_point(|file| file.first_window <= window);
        let file = &self.files[after - 1];
        let from = (window - file.first_window) * WINDOW;
        file.write(from..file.size.min(from + WINDOW), buffer, self.progress)?;
        let now = self.start.elapsed().as_nanos() as u64;
        self.written.fetch_max(now, Ordering::Relaxed);
        // Acquire and release: the sync comes after the writes of all other threads.
        if file.missing.fetch_sub(1, Ordering::AcqRel) == 1 && !self.failed() {
            file.file.sync()?;
        }
        Ok(())
    }

    fn failed(&self) -> bool {
        self.first_error().is_some()
    }

    fn first_error(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(self) -> io::Result<Timing> {
        let all = self.start.elapsed();
        let write = Duration::from_nanos(self.written.into_inner());
        match self
            .error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
        {
            Some(error) => Err(error),
            None => Ok(Timing {
                write,
                sync: all.saturating_sub(write),
            }),
        }
    }
}

/// One file, cut into windows.
struct Target<'a> {
    file: &'a dyn NewFile,
    segments: &'a [Segment<'a>],
    /// Where each segment ends in the file.
    ends: Vec<usize>,
    size: usize,
    /// The number of its first window among those of all files.
    first_window: usize,
    /// At least one, if need be an empty one: there is a sync to be made.
    windows: usize,
    /// Windows that are not written yet.
    missing: AtomicUsize,
}

impl<'a> Target<'a> {
    fn new(fill: &'a Fill<'a>, first_window: usize) -> Target<'a> {
        let mut size = 0;
        let end = |segment: &Segment<'_>| {
            size += segment.len();
            size
        };
        let ends: Vec<usize> = fill.segments.iter().map(end).collect();
        let windows = size.div_ceil(WINDOW).max(1);
        Target {
            file: fill.file,
            segments: &fill.segments,
            ends,
            size,
            first_window,
            windows,
            missing: AtomicUsize::new(windows),
        }
    }

    /// Writes a window: what can be taken from where it lies, and in between what has to be gathered.
    fn write(
        &self,
        window: Range<usize>,
        buffer: &mut Buffer,
        progress: &(dyn Fn(u64) + Sync),
    ) -> io::Result<()> {
        let mut at = window.start;
        while at < window.end {
            let straight = self.next_straight(at..window.end);
            let gathered = at..straight.start;
            if !gathered.is_empty() {
                let bytes = buffer.collect(self.parts(gathered.clone()))?;
                self.file.write_at(gathered.start as u64, bytes)?;
                progress(bytes.len() as u64);
            }
            if let Some(Part::Bytes(bytes)) = self.parts(straight.clone()).next() {
                self.file.write_at(straight.start as u64, bytes)?;
                progress(bytes.len() as u64);
            }
            at = straight.end;
        }
        Ok(())
    }

    /// The first stretch that one segment covers and that is written from where it lies; it is empty, at the
    /// end of `range`, if there is none.
    fn next_straight(&self, range: Range<usize>) -> Range<usize> {
        let alignment = self.file.alignment();
        for index in self.segment_at(range.start)..self.segments.len() {
            let begin = self.begin(index);
            if begin >= range.end {
                break;
            }
            let from = begin.max(range.start).next_multiple_of(BLOCK);
            let to = match self.ends[index] {
                end if end >= range.end => range.end,
                end => end / BLOCK * BLOCK,
            };
            let long = to >= from + LARGE || (from..to) == range;
            let suits = || match self.segments[index] {
                Segment::Bytes(bytes) => bytes[from - begin..]
                    .as_ptr()
                    .addr()
                    .is_multiple_of(alignment),
                Segment::Content(_) => false,
            };
            if long && suits() {
                return from..to;
            }
        }
        range.end..range.end
    }

    /// The bytes of a range of the file, segment by segment.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Part<'a>> {
        let segments = self.segment_at(range.start)..self.segments.len();
        let Range { start, end } = range;
        segments
            .take_while(move |&index| self.begin(index) < end)
            .map(move |index| {
                let begin = self.begin(index);
                let range = start.max(begin) - begin..end.min(self.ends[index]) - begin;
                (self.segments[index], range)
            })
            .filter(|(_, range)| !range.is_empty())
            .map(|(segment, range)| match segment {
                Segment::Bytes(bytes) => Part::Bytes(&bytes[range]),
                Segment::Content(content) => Part::Content(content, range),
            })
    }

    /// The segment that holds the byte at `offset`.
    fn segment_at(&self, offset: usize) -> usize {
        self.ends.partition_point(|&end| end <= offset)
    }

    fn begin(&self, segment: usize) -> usize {
        self.ends[segment] - self.segments[segment].len()
    }
}

/// A part of a segment.
enum Part<'a> {
    Bytes(&'a [u8]),
    Content(&'a dyn Content, Range<usize>),
}

/// Room for one window at an address that is a multiple of `BLOCK`; takes no memory until it is used.
#[derive(Default)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn collect<'a>(&mut self, parts: impl Iterator<Item = Part<'a>>) -> io::Result<&[u8]> {
        if self.memory.is_empty() {
            self.memory = vec![0; WINDOW + BLOCK];
            self.start = self.memory.as_ptr().align_offset(BLOCK);
        }
        let mut end = self.start;
        for part in parts {
            let begin = end;
            match part {
                Part::Bytes(bytes) => {
                    end += bytes.len();
                    self.memory[begin..end].copy_from_slice(bytes);
                }
                Part::Content(content, range) => {
                    end += range.len();
                    content.read_at(range.start, &mut self.memory[begin..end])?;
                }
            }
        }
        Ok(&self.memory[self.start..end])
    }
}

#[cfg(test)]
mod tests;
