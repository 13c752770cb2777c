//! Accidents: each byte of each file, each length, each file of a checkpoint.

use std::path::Path;
use std::sync::Arc;

use pitstop::format::{MANIFEST, Manifest};
use pitstop::{
    Checkpointer, FileCheckpointer, Node, Opened, Options, RestoreError, Run, State, Tensor,
};

use crate::targets::checkpoint::shelved;
use crate::targets::forge::Files;
use crate::targets::sample::{STEP, fingerprint, sample};

fn load(files: &Files) -> Result<State, RestoreError> {
    shelved(files).open(STEP, true)?.load()
}

/// The file and the tensor that an error blames.
fn blamed(error: RestoreError) -> (String, Option<String>) {
    match error {
        RestoreError::Corrupt { path, tensor, .. } => {
            let name = path.file_name().expect("it is a file");
            (name.to_string_lossy().into_owned(), tensor)
        }
        other => panic!("not called damage: {other}"),
    }
}

/// The tensor that a byte of a file belongs to.
fn owner(manifest: &Manifest, file: &str, at: u64) -> Option<String> {
    let covers = |(nbytes, start): (u64, u64)| (start..start + nbytes).contains(&at);
    let tensor = manifest.tensors.iter().find(|tensor| {
        let mut stretches = tensor.stretches().filter(|(_, s)| &*s.file == file);
        stretches.any(|(nbytes, stretch)| covers((nbytes, stretch.start)))
    });
    tensor.map(|tensor| tensor.key.clone())
}

#[test]
fn what_is_intact_comes_back() {
    let state = load(&sample().files).expect("nobody has touched it");
    assert_eq!(fingerprint(&state), fingerprint(&sample().state));
}

/// Damages each byte of each file, one by one, and looks at what comes of it.
fn each_byte(damage: impl Fn(u8, usize) -> u8) {
    let manifest = Manifest::parse(&sample().files[MANIFEST]).expect("it is intact");
    let mut files = sample().files.clone();
    let mut count = 0;
    for (name, bytes) in &sample().files {
        for (at, &byte) in bytes.iter().enumerate() {
            let damaged = damage(byte, at);
            if damaged == byte {
                continue;
            }
            files.get_mut(name).expect("it is there")[at] = damaged;
            let error = load(&files).expect_err(&format!("byte {at} of {name}"));
            let expected = (name.clone(), owner(&manifest, name, at as u64));
            assert_eq!(blamed(error), expected, "byte {at} of {name}");
            files.get_mut(name).expect("it is there")[at] = byte;
            count += 1;
        }
    }
    assert!(count > 1000, "only {count} bytes");
}

#[test]
fn a_flipped_bit_in_any_byte_is_found_and_named() {
    each_byte(|byte, at| byte ^ 1 << (at % 8));
}

#[test]
fn any_byte_that_became_zero_is_found_and_named() {
    each_byte(|_, _| 0);
}

#[test]
fn a_file_of_any_other_length_is_found_and_named() {
    for (name, bytes) in &sample().files {
        for length in 0..bytes.len() + 40 {
            if length == bytes.len() {
                continue;
            }
            let mut files = sample().files.clone();
            files
                .get_mut(name)
                .expect("it is there")
                .resize(length, b' ');
            let error = load(&files).expect_err(&format!("{name} of {length} bytes"));
            assert_eq!(blamed(error).0, *name, "{length} bytes");
        }
    }
}

#[test]
fn files_that_were_swapped_lost_or_zeroed_from_somewhere_on_are_found() {
    let names: Vec<&String> = sample().files.keys().collect();
    for &one in &names {
        for &other in names.iter().filter(|&&other| other != one) {
            let mut files = sample().files.clone();
            let content = files.insert(one.clone(), files[other].clone());
            let copied = load(&files).expect_err("a copy of another file");
            assert_eq!(blamed(copied).0, *one);
            files.insert(other.clone(), content.expect("it was there"));
            assert!(load(&files).expect_err("two swapped files").is_damage());
        }
        let bytes = &sample().files[one];
        for start in (0..bytes.len()).step_by(97) {
            let mut files = sample().files.clone();
            let zeroed = &mut files.get_mut(one).expect("it is there")[start..];
            if zeroed.iter().any(|&byte| byte != 0) {
                zeroed.fill(0);
                let error = load(&files).expect_err("zeroes");
                assert_eq!(blamed(error).0, *one, "from {start} on");
            }
        }
        let mut files = sample().files.clone();
        files.remove(one);
        let lost = load(&files).expect_err("a lost file");
        match lost {
            RestoreError::NotFound { .. } => assert_eq!(one, MANIFEST, "then it is no checkpoint"),
            damaged => assert_eq!(blamed(damaged).0, *one),
        }
    }
}

/// A run of three checkpoints on a real disk. The last is in two shards with an index: one holds what has not
/// changed.
fn run_on_disk() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let options = Options {
        fsync: false,
        ..Options::default()
    };
    let files = FileCheckpointer::open(directory.path(), options).expect("it is empty");
    for step in 1..=3 {
        files
            .save(step, state_of(step as u8))
            .expect("there is room");
    }
    directory
}

fn state_of(step: u8) -> State {
    let mut state = State::default();
    let mut leaf = |fill: u8, nbytes: u64| {
        let values = vec![fill; nbytes as usize];
        state.push(Tensor::from_vec(values, &[nbytes]).expect("as many as the shape says"))
    };
    let frozen = leaf(100, 1_100_000);
    let trained = leaf(step, 200_000);
    let small = leaf(step, 5);
    let model = Node::dict([("frozen", frozen), ("trained", trained), ("small", small)]);
    state.root = Node::dict([("model", model), ("step", Node::Int(i64::from(step)))]);
    state
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).expect("it is there");
    bytes[at as usize] ^= 1 << (at % 8);
    std::fs::write(path, bytes).expect("there is room");
}

#[test]
fn every_way_to_restore_finds_damage_and_falls_back_where_it_may() {
    let directory = run_on_disk();
    let names: Vec<String> = crate::targets::sample::read(&directory.path().join("step-3"))
        .into_keys()
        .collect();
    assert!(
        names.iter().any(|name| name.ends_with(".index.json")),
        "{names:?}"
    );
    assert_eq!(names.len(), 4, "{names:?}");
    let options = Options {
        fsync: false,
        ..Options::default()
    };
    let run = Run::new(Arc::new(pitstop::Local::new()), directory.path());
    for name in &names {
        let path = directory.path().join("step-3").join(name);
        let length = path.metadata().expect("it is there").len();
        // A file that has not changed is one with that of the step before, and damaged there too.
        let shared = names.iter().position(|n| n == name) == Some(1);
        let intact = if shared { 1 } else { 2 };
        for sample in 0..25 {
            let at = sample * (length - 1) / 24;
            flip(&path, at);
            let opened = run.open(3, true);
            let verified = opened
                .as_ref()
                .map_or_else(RestoreError::is_damage, |opened: &Opened| {
                    opened.verify().is_err_and(|error| error.is_damage())
                });
            assert!(verified, "byte {at} of {name}");
            let loaded = opened.and_then(|opened| opened.load());
            assert_eq!(blamed(loaded.expect_err("it is damaged")).0, *name);
            let newest = run.newest_intact(|step| run.open(step, true)?.load().map(|_| step));
            let (found, damaged) = newest.expect("there are others");
            assert_eq!(found, Some(intact), "byte {at} of {name}");
            assert_eq!(damaged[0].step, 3);
            if sample % 8 == 0 {
                let files = FileCheckpointer::open(directory.path(), options.clone());
                let files = files.expect("nobody else is there");
                let asked: Result<State, _> = files.restore(3);
                assert!(asked.is_err());
                let (step, state) = files
                    .restore_newest()
                    .expect("there are others")
                    .expect("one");
                assert_eq!(step, intact);
                assert_eq!(fingerprint(&state), fingerprint(&state_of(intact as u8)));
            }
            flip(&path, at);
        }
    }
    assert_eq!(
        run.newest_intact(|step| run.open(step, true)?.load())
            .expect("all")
            .1
            .len(),
        0
    );
}
