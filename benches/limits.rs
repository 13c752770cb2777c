//! What memory and disk of this machine can do at best, as one line of JSON; `benches/compare.py` measures
//! everything against it.
//!
//! ```text
//! cargo run --release --example limits -- BYTES DIRECTORY REPETITIONS
//! ```
//!
//! Each figure is a list with the seconds of every repetition; a figure that cannot be had here is left out.
//!
//! - `copy`: one thread copies BYTES with stores that bypass the cache, between buffers whose pages are there
//!   already and huge.
//! - `write_new`: BYTES go into a new file, 4 MiB after 4 MiB, past the page cache (`O_DIRECT`), then one fsync.
//! - `write_over`: the same onto the blocks that the file has by then.
//! - `read_buffered`, `read_direct`: the file is read from its start to its end, cold.
//! - `fsync_small`: a new file of 4 KiB and its fsync.

#![expect(
    unsafe_code,
    reason = "streaming stores and aligned buffers, in a program that only measures"
)]

use std::env;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use memmap2::MmapMut;
use serde_json::{Map, Value, json};

/// Size of one write or read, in bytes.
const BLOCK: usize = 4 << 20;
/// `O_DIRECT` moves whole blocks of the disk, in bytes.
const SECTOR: usize = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [bytes, directory, repetitions] = &arguments[..] else {
        return Err("usage: limits BYTES DIRECTORY REPETITIONS".into());
    };
    let bytes = bytes.parse::<usize>()?.next_multiple_of(SECTOR);
    let path = Path::new(directory).join("limits.bin");
    let measured = measure(bytes, &path, repetitions.parse()?);
    let _ = fs::remove_file(&path);
    let line = json!({ "bytes": bytes, "copy_with": copy_name(), "seconds": measured? });
    writeln!(io::stdout(), "{line}")?;
    Ok(())
}

fn measure(bytes: usize, path: &Path, repetitions: usize) -> Result<Map<String, Value>> {
    let mut seconds = Map::new();
    let mut add = |figure: &str, value: Option<f64>| {
        if let (Some(value), Some(list)) = (
            value,
            seconds
                .entry(figure)
                .or_insert_with(|| json!([]))
                .as_array_mut(),
        ) {
            list.push(json!(value));
        }
    };
    let from = filled(bytes)?;
    let mut into = filled(bytes)?;
    copy(&from, &mut into);
    for _ in 0..repetitions {
        add("copy", Some(timed(|| copy(&from, &mut into)).1));
    }
    drop(into);
    for _ in 0..repetitions {
        let _ = fs::remove_file(path);
        add("write_new", write(path, &from)?);
        add("write_over", write(path, &from)?);
        if fs::metadata(path).is_err() {
            fs::write(path, &from[..])?; // no `O_DIRECT` here; reads still need a file
        }
        for (figure, direct) in [("read_buffered", false), ("read_direct", true)] {
            forget(path)?;
            // The page cache takes these pages, which a virtual machine's host has not taken back yet.
            drop(touched(bytes)?);
            add(figure, read(path, direct)?);
        }
        add("fsync_small", Some(fsync_small(path)?));
    }
    seconds.retain(|_, list| list.as_array().is_some_and(|list| !list.is_empty()));
    Ok(seconds)
}

/// Memory on huge pages that is there already.
fn touched(bytes: usize) -> io::Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.iter_mut().step_by(SECTOR).for_each(|byte| *byte = 1);
    Ok(memory)
}

/// As [`touched`], with bytes that do not compress.
fn filled(bytes: usize) -> io::Result<MmapMut> {
    let mut memory = touched(bytes)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in memory.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
    Ok(memory)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

fn copy_name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        return "streaming stores";
    }
    "memcpy"
}

/// Copies with stores that bypass the cache, where the processor has them. Lengths are equal.
fn copy(from: &[u8], into: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        unsafe { stream(from, into) };
        black_box(into);
        return;
    }
    into.copy_from_slice(from);
    black_box(into);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn stream(from: &[u8], into: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_stream_si256};
    // SAFETY: any bytes are a lane.
    let (whole, rest) = unsafe {
        let (head, lanes, rest) = from.align_to::<__m256i>();
        assert!(head.is_empty(), "maps start at a page");
        (lanes, rest)
    };
    // SAFETY: any bytes are a lane, and any lane is bytes.
    let (head, lanes, after) = unsafe { into.align_to_mut::<__m256i>() };
    assert!(head.is_empty(), "maps start at a page");
    let (fours, left) = lanes.as_chunks_mut::<4>();
    let (sources, over) = whole.as_chunks::<4>();
    for (targets, values) in fours.iter_mut().zip(sources.iter().copied()) {
        for (target, value) in targets.iter_mut().zip(values) {
            // SAFETY: it is a reference, hence valid and aligned.
            unsafe { _mm256_stream_si256(target, value) };
        }
    }
    left.copy_from_slice(over);
    _mm_sfence();
    after.copy_from_slice(rest);
}

/// Seconds to write the file and make it durable; `None` where `O_DIRECT` is not to be had.
fn write(path: &Path, bytes: &[u8]) -> io::Result<Option<f64>> {
    let start = Instant::now();
    let mut options = OpenOptions::new();
    let Some(mut file) = open_direct(options.write(true).create(true), path)? else {
        let _ = fs::remove_file(path);
        return Ok(None);
    };
    for block in bytes.chunks(BLOCK) {
        file.write_all(block)?;
    }
    file.sync_all()?;
    Ok(Some(start.elapsed().as_secs_f64()))
}

/// Seconds to read the file once; `None` where `O_DIRECT` was asked for and is not to be had.
fn read(path: &Path, direct: bool) -> io::Result<Option<f64>> {
    let mut buffer = MmapMut::map_anon(BLOCK)?;
    buffer.fill(1);
    let start = Instant::now();
    let mut options = OpenOptions::new();
    let file = if direct {
        open_direct(options.read(true), path)?
    } else {
        Some(options.read(true).open(path)?)
    };
    let Some(mut file) = file else {
        return Ok(None);
    };
    while io::Read::read(&mut file, &mut buffer)? > 0 {
        black_box(&buffer[..]);
    }
    Ok(Some(start.elapsed().as_secs_f64()))
}

#[cfg(target_os = "linux")]
fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    match options.custom_flags(direct).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_options: &mut OpenOptions, _path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Drops the file from the page cache, so that the next read is cold.
fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

fn fsync_small(path: &Path) -> io::Result<f64> {
    let path = path.with_extension("small");
    let _ = fs::remove_file(&path);
    let (result, seconds) = timed(|| {
        let mut file = File::create(&path)?;
        file.write_all(&[1; SECTOR])?;
        file.sync_all()
    });
    let _ = fs::remove_file(&path);
    result.map(|()| seconds)
}
