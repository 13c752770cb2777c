//! Checkpoints in a directory, through the public interface of the crate.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use pitstop::{
    AsyncCheckpointer, Checkpointer, DType, Data, FileCheckpointer, Mode, Node, Options, Piece,
    RestoreError, Retention, Run, SaveOptions, State, Tensor, Transfer,
};

fn state(n: u8) -> State {
    let mut state = State::default();
    let frozen = state.push(Tensor::from_vec(vec![7u8; 2 << 20], &[2 << 20]).unwrap());
    let trained = state.push(Tensor::from_vec(vec![f32::from(n); 1000], &[10, 100]).unwrap());
    let model = Node::dict([("frozen", frozen), ("trained", trained)]);
    state.root = Node::dict([("model", model), ("epoch", Node::Int(i64::from(n)))]);
    state
}

fn trained(state: &State) -> Vec<f32> {
    let leaf = state.root.get("model").unwrap().get("trained").unwrap();
    state.tensor(leaf).unwrap().to_vec().unwrap()
}

fn open(directory: &Path, options: Options) -> FileCheckpointer {
    FileCheckpointer::open(directory, options).unwrap()
}

fn save(checkpointer: &FileCheckpointer, step: usize, n: u8) {
    Checkpointer::<State>::save(checkpointer, step, state(n)).unwrap();
}

fn steps(checkpointer: &FileCheckpointer) -> Vec<u64> {
    checkpointer
        .run()
        .checkpoints()
        .unwrap()
        .iter()
        .map(|info| info.step)
        .collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    // A new file, so that other checkpoints that share the old one keep it.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_saved_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    assert!(checkpointer.restore_newest().unwrap().is_none());
    save(&checkpointer, 5, 5);
    let (step, restored) = checkpointer.restore_newest().unwrap().unwrap();
    assert_eq!((step, trained(&restored)), (5, vec![5.0; 1000]));
    assert_eq!(restored.root.get("epoch").unwrap().as_int(), Some(5));
    assert_eq!(restored.tensors[0].name, "model.frozen");
}

#[test]
fn the_files_are_plain_safetensors() {
    let directory = tempfile::tempdir().unwrap();
    save(&open(directory.path(), Options::default()), 1, 1);
    let bytes = fs::read(directory.path().join("step-1/model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor("trained").unwrap();
    assert_eq!(
        (tensor.dtype(), tensor.shape()),
        (safetensors::Dtype::F32, &[10, 100][..])
    );
    assert_eq!(tensor.data(), bytemuck_bytes(&vec![1.0; 1000]));
}

fn bytemuck_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn a_damaged_newest_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    save(&checkpointer, 1, 1);
    save(&checkpointer, 2, 2);
    let newest = directory.path().join("step-2/manifest.json");
    flip(&newest, 100);
    assert_eq!(checkpointer.restore_newest().unwrap().unwrap().0, 1);
    let error = Checkpointer::<State>::restore(&checkpointer, 2).unwrap_err();
    assert!(error.to_string().contains("step-2"), "{error}");
    assert_eq!(checkpointer.run().latest().unwrap().unwrap().step, 1);
}

#[test]
fn every_flipped_byte_of_every_file_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    let mut small = State::default();
    let leaf = small.push(Tensor::from_vec(vec![1u16, 2, 3], &[3]).unwrap());
    small.root = Node::dict([("model", Node::dict([("w", leaf)]))]);
    Checkpointer::<State>::save(&checkpointer, 1, small).unwrap();
    for entry in fs::read_dir(directory.path().join("step-1")).unwrap() {
        let path = entry.unwrap().path();
        for at in 0..fs::metadata(&path).unwrap().len() as usize {
            flip(&path, at);
            let result = Checkpointer::<State>::restore(&checkpointer, 1);
            assert!(result.is_err(), "byte {at} of {}", path.display());
            flip(&path, at);
        }
    }
    Checkpointer::<State>::restore(&checkpointer, 1).unwrap();
}

#[test]
fn missing_truncated_and_extended_files_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(
        directory.path(),
        Options {
            incremental: false,
            ..Options::default()
        },
    );
    let damages: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, &fs::read(path).unwrap()[..5000]).unwrap(),
        |path| fs::write(path, [fs::read(path).unwrap(), vec![0]].concat()).unwrap(),
    ];
    for (step, damage) in damages.into_iter().enumerate() {
        save(&checkpointer, step, 1);
        damage(
            &directory
                .path()
                .join(format!("step-{step}/model.safetensors")),
        );
        let error = checkpointer.run().open(step as u64, true).unwrap_err();
        assert!(
            matches!(&error, RestoreError::Corrupt { path, .. } if path.ends_with("model.safetensors")),
            "{error}"
        );
    }
}

#[test]
#[cfg(unix)]
fn unchanged_files_are_linked_and_survive_their_origin() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    for step in 1..=3 {
        save(&checkpointer, step, step as u8);
    }
    let frozen = |step| {
        directory
            .path()
            .join(format!("step-{step}/model-00001-of-00002.safetensors"))
    };
    let inode = |step| fs::metadata(frozen(step)).unwrap().ino();
    assert_eq!(inode(2), inode(3));
    Checkpointer::<State>::delete(&checkpointer, 2).unwrap();
    assert_eq!(
        trained(&Checkpointer::<State>::restore(&checkpointer, 3).unwrap()),
        vec![3.0; 1000]
    );
    save(&checkpointer, 4, 4);
    assert_eq!(inode(3), inode(4));
}

/// Only its length was compared: what somebody had put in its place was linked by all later saves, and the bytes in
/// memory were lost.
#[test]
#[cfg(unix)]
fn a_file_that_is_not_what_was_written_any_more_is_not_linked_to() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    let file = |step: usize| {
        let name = format!("step-{step}/model.safetensors");
        directory.path().join(name)
    };
    let replace = |step: usize, by_another: bool| {
        let mut bytes = fs::read(file(step)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        if by_another {
            fs::remove_file(file(step)).unwrap();
        }
        fs::write(file(step), bytes).unwrap();
        // As `cp -p` does; and so that no two times are alike by chance.
        let written = fs::File::options().write(true).open(file(step)).unwrap();
        written.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    save(&checkpointer, 1, 1);
    replace(1, true);
    save(&checkpointer, 2, 1);
    replace(2, false);
    save(&checkpointer, 3, 1);
    save(&checkpointer, 4, 1);
    let is_intact = |step| {
        let opened = checkpointer.run().open(step, true).unwrap();
        opened.verify().is_ok()
    };
    assert_eq!([1, 2, 3, 4].map(is_intact), [false, false, true, true]);
    let inode = |step| fs::metadata(file(step)).unwrap().ino();
    assert_eq!(inode(3), inode(4));
}

#[test]
#[cfg(unix)]
fn a_checkpoint_that_was_only_found_is_not_linked_to() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    save(&open(directory.path(), Options::default()), 1, 1);
    let inode = |step| {
        fs::metadata(
            directory
                .path()
                .join(format!("step-{step}/model.safetensors")),
        )
        .unwrap()
        .ino()
    };
    let checkpointer = open(directory.path(), Options::default());
    save(&checkpointer, 2, 1);
    assert_ne!(inode(1), inode(2));
    save(&checkpointer, 3, 1);
    assert_eq!(inode(2), inode(3));
}

#[test]
fn an_existing_step_is_only_replaced_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    save(&checkpointer, 1, 1);
    assert!(Checkpointer::<State>::save(&checkpointer, 1, state(2)).is_err());
    assert_eq!(
        trained(&Checkpointer::<State>::restore(&checkpointer, 1).unwrap()),
        vec![1.0; 1000]
    );
    let options = SaveOptions {
        overwrite: true,
        ..SaveOptions::default()
    };
    let transfer = Transfer {
        state: state(3),
        options,
        ..Transfer::default()
    };
    Checkpointer::<Transfer>::save(&checkpointer, 1, transfer).unwrap();
    assert_eq!(
        trained(&Checkpointer::<State>::restore(&checkpointer, 1).unwrap()),
        vec![3.0; 1000]
    );
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        2,
        "the lock and one checkpoint"
    );
}

#[test]
fn best_and_newest_both_survive() {
    let directory = tempfile::tempdir().unwrap();
    let rule =
        Retention::keep_last(1).unwrap() | Retention::keep_best("loss", Mode::Min, 1).unwrap();
    let checkpointer = open(
        directory.path(),
        Options {
            retention: rule,
            ..Options::default()
        },
    );
    for (step, loss) in [(1, 0.5), (2, 0.1), (3, f64::NAN), (4, 0.3)] {
        let metrics = BTreeMap::from([("loss".to_owned(), loss)]);
        let options = SaveOptions {
            metrics,
            ..SaveOptions::default()
        };
        let transfer = Transfer {
            state: state(step),
            options,
            ..Transfer::default()
        };
        Checkpointer::<Transfer>::save(&checkpointer, step.into(), transfer).unwrap();
    }
    assert_eq!(steps(&checkpointer), [2, 4]);
    assert_eq!(
        checkpointer
            .run()
            .best("loss", Mode::Min)
            .unwrap()
            .unwrap()
            .step,
        2
    );
    assert_eq!(
        checkpointer
            .run()
            .best("loss", Mode::Max)
            .unwrap()
            .unwrap()
            .step,
        4
    );
    assert!(
        checkpointer
            .run()
            .best("other", Mode::Min)
            .unwrap()
            .is_none()
    );
}

#[test]
fn the_only_intact_checkpoint_is_never_pruned() {
    let directory = tempfile::tempdir().unwrap();
    let save_with_loss = |checkpointer: &FileCheckpointer, step: usize, loss: f64| {
        let metrics = BTreeMap::from([("loss".to_owned(), loss)]);
        let options = SaveOptions {
            metrics,
            ..SaveOptions::default()
        };
        let transfer = Transfer {
            state: state(step as u8),
            options,
            ..Transfer::default()
        };
        Checkpointer::<Transfer>::save(checkpointer, step, transfer).unwrap();
    };
    save_with_loss(&open(directory.path(), Options::default()), 1, 0.1);
    flip(&directory.path().join("step-1/model.safetensors"), 9000);
    let retention = Retention::keep_best("loss", Mode::Min, 1).unwrap();
    let checkpointer = open(
        directory.path(),
        Options {
            retention,
            ..Options::default()
        },
    );
    save_with_loss(&checkpointer, 2, 0.2);
    assert_eq!(steps(&checkpointer), [1, 2]);
    assert_eq!(checkpointer.restore_newest().unwrap().unwrap().0, 2);
}

#[test]
fn a_lower_limit_frees_the_whole_backlog() {
    let directory = tempfile::tempdir().unwrap();
    let all = open(directory.path(), Options::default());
    (1..=6).for_each(|step| save(&all, step, 1));
    drop(all);
    let retention = Retention::keep_last(2).unwrap();
    let checkpointer = open(
        directory.path(),
        Options {
            retention,
            ..Options::default()
        },
    );
    let going: Vec<_> = checkpointer
        .plan()
        .unwrap()
        .into_iter()
        .filter(|d| !d.keep)
        .map(|d| d.step)
        .collect();
    assert_eq!(going, [1, 2, 3, 4]);
    save(&checkpointer, 7, 1);
    assert_eq!(steps(&checkpointer), [6, 7]);
}

#[test]
fn tensors_in_pieces_come_back_whole() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    let piece = |offset: [u64; 2], values: Vec<u8>, shape: [u64; 2]| Piece {
        offset: offset.to_vec(),
        tensor: Tensor::from_vec(values, &shape).unwrap(),
    };
    let pieces = vec![
        piece([0, 0], vec![1, 4], [2, 1]),
        piece([0, 1], vec![2, 3, 5, 6], [2, 2]),
    ];
    let mut parts = State::default();
    let leaf = parts.push(Tensor::new(DType::U8, &[2, 3], Data::Pieces(pieces)).unwrap());
    parts.root = Node::dict([("model", Node::dict([("w", leaf)]))]);
    Checkpointer::<State>::save(&checkpointer, 1, parts).unwrap();
    let manifest = fs::read_to_string(directory.path().join("step-1/manifest.json")).unwrap();
    assert!(manifest.contains("\"pieces\""));
    let restored: State = checkpointer.restore(1).unwrap();
    assert_eq!(
        restored.tensors[0].to_vec::<u8>().unwrap(),
        [1, 2, 3, 4, 5, 6]
    );
}

#[test]
fn a_second_writer_is_refused_and_readers_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), Options::default());
    save(&first, 1, 1);
    let refused = FileCheckpointer::open(directory.path(), Options::default()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&std::process::id().to_string()),
        "{refused}"
    );
    let reader = Run::new(Arc::new(pitstop::Local::new()), directory.path());
    assert_eq!(reader.checkpoints().unwrap().len(), 1);
    drop(first);
    open(directory.path(), Options::default());
}

#[test]
fn it_works_behind_the_worker() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer: AsyncCheckpointer<State> =
        AsyncCheckpointer::new(open(directory.path(), Options::default()));
    checkpointer.save(1, state(1)).unwrap();
    checkpointer.save(2, state(2)).unwrap();
    assert_eq!(trained(&checkpointer.restore(2).unwrap()), vec![2.0; 1000]);
    checkpointer.delete(1).unwrap();
    checkpointer.close().unwrap();
    assert!(!directory.path().join("step-1").exists());
}

#[test]
fn a_failed_save_leaves_nothing_and_the_next_one_works() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = open(directory.path(), Options::default());
    save(&checkpointer, 1, 1);
    // A file in the place of the next checkpoint.
    fs::write(directory.path().join("step-2"), b"stray").unwrap();
    assert!(Checkpointer::<State>::save(&checkpointer, 2, state(2)).is_err());
    let hidden = |name: &str| {
        name.starts_with(".tmp") || name.starts_with(".del") || name.starts_with(".old")
    };
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| hidden(name)), "{names:?}");
    save(&checkpointer, 3, 3);
    assert_eq!(steps(&checkpointer), [1, 3]);
}
