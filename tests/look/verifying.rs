use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use pitstop::format::{FileEntry, MANIFEST, Manifest, Place, Stretch, TensorEntry, checksum};
use pitstop::{
    Checkpointer, DType, FileCheckpointer, Node, Options, RestoreError, State, Tensor, Watch,
};

use super::{change, look, names, saved};

/// What is wrong with step 30, each as a text.
fn damage(directory: &Path) -> Vec<String> {
    let found = look(directory).verify(30, Watch::nobody()).unwrap();
    found.damage.iter().map(ToString::to_string).collect()
}

#[test]
fn an_intact_checkpoint_is_read_to_the_last_byte() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    for step in [10, 20, 30] {
        let read = std::sync::atomic::AtomicU64::new(0);
        let watch = Watch {
            progress: &|bytes| {
                read.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
            },
            ..Watch::nobody()
        };
        let found = run.verify(step, watch).unwrap();
        assert!(
            found.damage.is_empty() && found.unexpected.is_empty(),
            "{found:?}"
        );
        assert_eq!(found.tensors, 3);
        let files = names(&run.path(step));
        assert_eq!(found.files, files.len());
        let sizes = files
            .iter()
            .map(|name| fs::metadata(run.path(step).join(name)).unwrap().len());
        assert_eq!(found.nbytes, sizes.sum::<u64>());
        assert_eq!(read.into_inner(), found.nbytes);
    }
}

/// How a file is damaged.
type Way<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn every_damaged_file_is_named_whatever_happened_to_it() {
    let directory = tempfile::tempdir().unwrap();
    saved(directory.path());
    let step = directory.path().join("step-30");
    assert_eq!(
        names(&step).len(),
        4,
        "a manifest, two shards, an index: {:?}",
        names(&step)
    );
    for name in names(&step) {
        let path = step.join(&name);
        let whole = fs::read(&path).unwrap();
        let ways: [(&str, Way<'_>); 5] = [
            ("flipped at its start", &|bytes| bytes[0] ^= 1),
            ("flipped at its end", &|bytes| {
                *bytes.last_mut().unwrap() ^= 0x80;
            }),
            ("cut off", &|bytes| bytes.truncate(bytes.len() - 1)),
            ("longer", &|bytes| bytes.push(0)),
            ("emptied", &Vec::clear),
        ];
        for (what, way) in ways {
            change(&path, way);
            let found = damage(directory.path());
            assert!(
                !found.is_empty() && found.iter().all(|it| it.contains(&name)),
                "{name} {what}: {found:?}"
            );
        }
        fs::remove_file(&path).unwrap();
        let found = damage(directory.path());
        assert!(
            found.len() == 1 && found[0].contains(&name),
            "{name} removed: {found:?}"
        );
        fs::create_dir(&path).unwrap();
        let found = damage(directory.path());
        assert!(
            found.len() == 1 && found[0].contains(&name),
            "{name} a directory: {found:?}"
        );
        fs::remove_dir(&path).unwrap();
        #[cfg(unix)]
        {
            let elsewhere = directory.path().join("elsewhere");
            fs::write(&elsewhere, &whole).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
            let found = damage(directory.path());
            assert!(
                found.len() == 1 && found[0].contains(&name),
                "{name} a link: {found:?}"
            );
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, &whole).unwrap();
        assert!(damage(directory.path()).is_empty());
    }
}

#[test]
fn all_damage_is_named_at_once_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    saved(directory.path());
    let step = directory.path().join("step-30");
    for name in names(&step).iter().filter(|name| *name != MANIFEST) {
        change(&step.join(name), |bytes| *bytes.last_mut().unwrap() ^= 1);
    }
    let found = damage(directory.path());
    assert_eq!(found.len(), 3, "{found:?}");
    let frozen = found.iter().filter(|it| it.contains("\"model.frozen\""));
    assert_eq!(frozen.count(), 1, "{found:?}");
    assert!(
        !found.iter().any(|it| it.contains("\"model.trained\"")),
        "{found:?}"
    );
    // A linked file that was changed in place would show in each step that has it; these were changed apart.
    assert!(
        look(directory.path())
            .verify(20, Watch::nobody())
            .unwrap()
            .damage
            .is_empty()
    );
}

#[test]
fn no_bit_of_a_small_checkpoint_changes_unnoticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = State::default();
    let weight = state.push(Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3]).unwrap());
    state.root = Node::dict([("weight", weight)]);
    let files = FileCheckpointer::open(directory.path(), Options::default()).unwrap();
    files.save(30, state).unwrap();
    let step = directory.path().join("step-30");
    let mut tried = 0;
    for name in names(&step) {
        let mut bytes = fs::read(step.join(&name)).unwrap();
        for at in 0..bytes.len() {
            let bit = 1 << (at % 8);
            bytes[at] ^= bit;
            fs::write(step.join(&name), &bytes).unwrap();
            let found = damage(directory.path());
            assert!(
                found.iter().any(|it| it.contains(&name)),
                "byte {at} of {name}: {found:?}"
            );
            bytes[at] ^= bit;
            tried += 1;
        }
        fs::write(step.join(&name), &bytes).unwrap();
    }
    assert!(tried > 4096);
    assert!(damage(directory.path()).is_empty());
}

/// Puts other bytes into a file, and makes the manifest say that those were written.
fn forge(step: &Path, name: &str, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut manifest = Manifest::parse(&fs::read(step.join(MANIFEST)).unwrap()).unwrap();
    let entry = manifest.files.get_mut(name).unwrap();
    let mut bytes = fs::read(step.join(name)).unwrap();
    let head_len = entry.data_start.unwrap_or(entry.size) as usize;
    let head = String::from_utf8_lossy(&bytes[8..head_len]).into_owned();
    let at = 8 + head.find(from).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    let head = checksum::of(&bytes[..head_len]);
    entry.checksum = head;
    if entry.data_start.is_some() {
        let stretches = manifest.tensors.iter().flat_map(TensorEntry::stretches);
        let mut stretches: Vec<_> = stretches.filter(|(_, it)| *it.file == *name).collect();
        stretches.sort_by_key(|(_, stretch)| stretch.start);
        let digests = std::iter::once(head).chain(stretches.iter().map(|(_, it)| it.checksum));
        entry.checksum = checksum::of_file(digests, entry.size);
    }
    fs::remove_file(step.join(name)).unwrap();
    fs::write(step.join(name), bytes).unwrap();
    fs::write(step.join(MANIFEST), manifest.to_bytes().unwrap()).unwrap();
}

#[test]
fn headers_and_indexes_must_say_what_the_manifest_says() {
    let index = "model.safetensors.index.json";
    for (name, from, to, expected) in [
        (
            "model-00001-of-00002.safetensors",
            "frozen",
            "thawed",
            "something else of \"frozen\"",
        ),
        (
            "model-00001-of-00002.safetensors",
            "\"U8\"",
            "\"I8\"",
            "something else of \"frozen\"",
        ),
        (
            "model-00001-of-00002.safetensors",
            "[1048576]",
            "[1048577]",
            "an entry is malformed",
        ),
        (index, "frozen", "thawed", "does not say that \"frozen\""),
        (
            index,
            "\"split.piece0\":\"model-00002",
            "\"split.piece0\":\"model-00001",
            "does not say that",
        ),
        (
            index,
            "total_size\":1",
            "total_size\":2",
            "its tensors take 2",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let run = saved(directory.path());
        forge(&run.path(30), name, from, to);
        // Restoring needs neither, and every checksum fits.
        run.open(30, true).unwrap().load().unwrap();
        let found = damage(directory.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains(name) && found[0].contains(expected),
            "{found:?}"
        );
    }
}

#[test]
fn what_does_not_belong_there_is_named_and_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    fs::write(run.path(30).join("notes.txt"), "mine").unwrap();
    fs::create_dir(run.path(30).join("old")).unwrap();
    let found = run.verify(30, Watch::nobody()).unwrap();
    assert!(found.damage.is_empty());
    let unexpected: Vec<_> = found
        .unexpected
        .iter()
        .map(|path| path.file_name().unwrap())
        .collect();
    assert_eq!(unexpected, ["notes.txt", "old"]);
}

#[test]
fn a_checkpoint_under_the_name_of_another_step_is_told() {
    let directory = tempfile::tempdir().unwrap();
    saved(directory.path());
    let step = directory.path().join("step-40");
    fs::create_dir(&step).unwrap();
    for name in names(&directory.path().join("step-30")) {
        fs::copy(
            directory.path().join("step-30").join(&name),
            step.join(&name),
        )
        .unwrap();
    }
    let found = look(directory.path()).verify(40, Watch::nobody()).unwrap();
    assert!(
        matches!(
            found.damage.as_slice(),
            [RestoreError::Misplaced { found: 30, .. }]
        ),
        "{found:?}"
    );
    assert!(
        look(&step)
            .verify_here(Watch::nobody())
            .unwrap()
            .damage
            .is_empty()
    );
    assert!(matches!(
        look(directory.path()).verify(50, Watch::nobody()),
        Err(RestoreError::NotFound { .. })
    ));
}

#[test]
fn it_can_be_stopped_and_then_says_nothing_of_damage() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let watch = Watch {
        stop: &AtomicBool::new(true),
        ..Watch::nobody()
    };
    match run.verify(30, watch) {
        Err(RestoreError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::Interrupted),
        other => panic!("{other:?}"),
    }
}

/// The sums went over.
#[test]
fn sizes_that_add_up_to_more_than_a_number_holds_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let step = run.path(30);
    let mut manifest = Manifest::parse(&fs::read(step.join(MANIFEST)).unwrap()).unwrap();
    let shards: Vec<String> = (1..=9).map(|n| format!("x-{n}")).collect();
    let pair = |shard: &String| format!("\"{shard}\":\"{shard}\"");
    let map = shards.iter().map(pair).collect::<Vec<_>>().join(",");
    let index = format!("{{\"metadata\":{{\"total_size\":0}},\"weight_map\":{{{map}}}}}");
    // The largest size that a tensor may have.
    let size = (1 << 61) - 1;
    let entry = |size, data_start, bytes: &str| FileEntry {
        size,
        data_start,
        checksum: checksum::of(bytes.as_bytes()),
        links: 0,
    };
    for shard in shards {
        let stretch = Stretch {
            file: shard.as_str().into(),
            name: shard.clone(),
            start: 0,
            checksum: checksum::of(b""),
        };
        manifest.tensors.push(TensorEntry {
            key: shard.clone(),
            dtype: DType::U8,
            shape: vec![size],
            place: Place::Whole(stretch),
        });
        manifest.files.insert(shard, entry(size, Some(0), ""));
    }
    let name = "x.safetensors.index.json";
    let listed = entry(index.len() as u64, None, &index);
    manifest.files.insert(name.into(), listed);
    fs::write(step.join(name), index).unwrap();
    fs::write(step.join(MANIFEST), manifest.to_bytes().unwrap()).unwrap();
    let found = damage(directory.path());
    let missing = found.iter().filter(|it| it.contains("the file is missing"));
    assert_eq!(missing.count(), 9, "{found:?}");
    let of_index = found.iter().filter(|it| it.contains("its tensors take 0"));
    assert_eq!((of_index.count(), found.len()), (1, 10), "{found:?}");
}
