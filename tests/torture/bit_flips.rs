//! A bit that has flipped anywhere in a checkpoint of 50 MB is found, and the file and the tensor are named.
//!
//! `PITSTOP_FLIPS` says how many are tried, `PITSTOP_SEED` which; `make torture` tries ten thousand.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::disallowed_macros, reason = "what was tried is printed")]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pitstop::format::{MANIFEST, Manifest};
use pitstop::{
    Checkpointer, FileCheckpointer, Local, Node, Options, RestoreError, Run, State, Tensor, Watch,
};

/// As many as the tests of every day can afford.
const FEW: u64 = 60;
/// Of so many flips one is not in any byte, but in any file: tensors are nearly all of the bytes.
const ANY_FILE: u64 = 4;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }
}

/// Large and small tensors, frozen and trained ones, and a tree to go with them.
fn state(step: u64) -> State {
    let mut random = Random(step);
    let mut state = State::default();
    let mut entry = |frozen: bool, count: u64, elements: u64| {
        let mut seeded = Random(7);
        let tensors = (0..count).map(|i| {
            let random = if frozen { &mut seeded } else { &mut random };
            let values: Vec<u64> = (0..elements).map(|_| random.below(u64::MAX)).collect();
            (
                i.to_string(),
                state.push(Tensor::from_vec(values, &[elements]).unwrap()),
            )
        });
        Node::dict(tensors.collect::<Vec<_>>())
    };
    let layers = entry(false, 4, 1_000_000);
    let frozen = entry(true, 2, 1_000_000);
    let small = entry(false, 500, 300);
    let model = Node::dict([("layers", layers), ("frozen", frozen), ("small", small)]);
    state.root = Node::dict([("model", model), ("step", Node::Int(step as i64))]);
    state
}

struct Flip {
    name: String,
    size: u64,
}

impl Flip {
    /// The files of a checkpoint.
    fn all(step: &Path) -> Vec<Flip> {
        let entries = fs::read_dir(step).unwrap().map(|entry| entry.unwrap());
        let file = |entry: fs::DirEntry| Flip {
            name: entry.file_name().into_string().unwrap(),
            size: entry.metadata().unwrap().len(),
        };
        let mut files: Vec<Flip> = entries.map(file).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }
}

/// Flips one bit; again, and it is as it was.
fn flip(path: &Path, at: u64, bit: u64) {
    let mut file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    byte[0] ^= 1 << bit;
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&byte).unwrap();
}

/// The tensor that has this byte, if one does.
fn tensor_at(manifest: &Manifest, file: &str, at: u64) -> Option<String> {
    let has = |(nbytes, stretch): (u64, &pitstop::format::Stretch)| {
        *stretch.file == *file && (stretch.start..stretch.start + nbytes).contains(&at)
    };
    let found = manifest
        .tensors
        .iter()
        .find(|tensor| tensor.stretches().any(has));
    found.map(|tensor| tensor.key.clone())
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    let flips = number("PITSTOP_FLIPS").unwrap_or(FEW);
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64
    };
    let seed = number("PITSTOP_SEED").unwrap_or_else(now);
    println!("PITSTOP_SEED={seed}");
    let mut random = Random(seed);
    let directory = tempfile::tempdir().unwrap();
    let files = FileCheckpointer::open(directory.path(), Options::default()).unwrap();
    for step in 1..=3 {
        files.save(step, state(step as u64)).unwrap();
    }
    let run = Run::new(Arc::new(Local::new()), directory.path());
    let step: PathBuf = run.path(3);
    let manifest = Manifest::parse(&fs::read(step.join(MANIFEST)).unwrap()).unwrap();
    let files = Flip::all(&step);
    let total: u64 = files.iter().map(|file| file.size).sum();
    assert!(total > 49_000_000, "{total} bytes");
    assert_eq!(files.len(), 4, "two shards, an index, a manifest");
    let verify = || run.verify(3, Watch::nobody()).unwrap().damage;
    assert!(verify().is_empty());

    let mut found = 0;
    for _ in 0..flips {
        let (file, at) = if random.below(ANY_FILE) == 0 {
            let file = &files[random.below(files.len() as u64) as usize];
            // Where the headers are.
            (file, random.below(file.size.min(100_000)))
        } else {
            let mut at = random.below(total);
            let file = files.iter().find(|file| {
                let here = at < file.size;
                at -= if here { 0 } else { file.size };
                here
            });
            (file.unwrap(), at)
        };
        let (path, bit) = (step.join(&file.name), random.below(8));
        flip(&path, at, bit);
        let damage = verify();
        flip(&path, at, bit);
        let expected = tensor_at(&manifest, &file.name, at);
        match damage.as_slice() {
            [
                RestoreError::Corrupt {
                    path: named,
                    tensor,
                    ..
                },
            ] if *named == path && *tensor == expected => {
                found += 1;
            }
            other => panic!("bit {bit} of byte {at} of {}: {other:?}", file.name),
        }
    }
    assert!(verify().is_empty());
    println!("{found} of {flips} flipped bits found and named, in {total} bytes");
}
