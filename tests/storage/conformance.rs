//! What every implementation of `Storage` must do. Each rule gets an empty directory of its own.

use std::io::ErrorKind::{self, AlreadyExists, NotFound, UnexpectedEof, Unsupported};
use std::path::{Path, PathBuf};
use std::thread;

use pitstop::storage::{EntryKind, Fill, LockError, PathError, Segment, Storage, errno_of, fill};

type Rule = fn(&dyn Storage, &Path);

/// Checks every rule below `root`, an existing empty directory.
pub(crate) fn run(storage: &dyn Storage, root: &Path) {
    let rules: [(&str, Rule); 13] = [
        ("directories", directories),
        ("missing_parents", missing_parents),
        ("a_file_in_the_way", a_file_in_the_way),
        ("files", files),
        ("unwritten_bytes_are_zero", unwritten_bytes_are_zero),
        ("parallel_writes", parallel_writes),
        ("large_files", large_files),
        (
            "open_files_outlive_their_names",
            open_files_outlive_their_names,
        ),
        ("hard_links", hard_links),
        ("rename", rename),
        ("exchange", exchange),
        ("locks", locks),
        ("errors_name_the_path", errors_name_the_path),
    ];
    for (name, rule) in rules {
        let dir = root.join(name);
        storage.create_dir(&dir).unwrap();
        rule(storage, &dir);
    }
}

fn put(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let file = storage.create(path, bytes.len() as u64).unwrap();
    let segments = vec![Segment::Bytes(bytes)];
    let file = &*file;
    fill(&[Fill { file, segments }], &|_| ()).unwrap();
}

fn get(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let file = storage.open(path).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn kind_of<T>(result: std::io::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.kind(),
    }
}

fn directories(storage: &dyn Storage, dir: &Path) {
    let (b, a) = (dir.join("b"), dir.join("a"));
    storage.create_dir(&b).unwrap();
    assert_eq!(kind_of(storage.create_dir(&b)), AlreadyExists);
    put(storage, &a, b"x");
    assert_eq!(kind_of(storage.create_dir(&a)), AlreadyExists);
    let listed = storage.list(dir).unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|e| (e.name.to_str().unwrap(), e.kind))
        .collect();
    assert_eq!(listed, [("a", EntryKind::File), ("b", EntryKind::Dir)]);
    storage.sync_dir(dir).unwrap();
    assert_eq!(storage.kind(&a).unwrap(), Some(EntryKind::File));
    assert_eq!(storage.kind(&b).unwrap(), Some(EntryKind::Dir));
    put(storage, &b.join("inside"), b"x");
    assert!(storage.remove_dir(&b).is_err(), "not empty");
    storage.remove_file(&b.join("inside")).unwrap();
    storage.remove_dir(&b).unwrap();
    storage.remove_file(&a).unwrap();
    assert_eq!(storage.kind(&b).unwrap(), None);
    assert_eq!(storage.list(dir).unwrap(), []);
    assert_eq!(kind_of(storage.remove_file(&a)), NotFound);
    assert_eq!(kind_of(storage.remove_dir(&b)), NotFound);
    assert_eq!(kind_of(storage.list(&b)), NotFound);
    assert_eq!(kind_of(storage.create_dir(&b.join("c"))), NotFound);
}

fn missing_parents(storage: &dyn Storage, dir: &Path) {
    let deep = dir.join("a/b/c");
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(&deep).unwrap();
    assert_eq!(storage.kind(&deep).unwrap(), Some(EntryKind::Dir));
}

fn a_file_in_the_way(storage: &dyn Storage, dir: &Path) {
    let file = dir.join("file");
    put(storage, &file, b"x");
    for path in [file.clone(), file.join("a"), file.join("a/b")] {
        assert!(storage.create_dir_all(&path).is_err());
    }
    assert_eq!(get(storage, &file), b"x");
}

fn files(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("file");
    put(storage, &path, b"0123456789");
    assert_eq!(kind_of(storage.create(&path, 1)), AlreadyExists);
    let file = storage.open(&path).unwrap();
    assert_eq!((file.len(), file.is_empty()), (10, false));
    let mut part = [0; 4];
    file.read_at(6, &mut part).unwrap();
    assert_eq!(&part, b"6789");
    assert_eq!(kind_of(file.read_at(7, &mut part)), UnexpectedEof);
    assert_eq!(kind_of(file.read_at(1 << 40, &mut part)), UnexpectedEof);
    file.read_at(10, &mut []).unwrap();
    put(storage, &dir.join("empty"), b"");
    assert!(storage.open(&dir.join("empty")).unwrap().is_empty());
    assert_eq!(kind_of(storage.open(&dir.join("none"))), NotFound);
    assert_eq!(kind_of(storage.create(&dir.join("none/file"), 1)), NotFound);
    assert!(storage.open(dir).is_err(), "a directory is no file");
}

fn unwritten_bytes_are_zero(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("file");
    let file = storage.create(&path, 10_000).unwrap();
    file.write_at(9_999, b"x").unwrap();
    file.write_at(4, b"y").unwrap();
    file.sync().unwrap();
    let mut expected = vec![0; 10_000];
    (expected[4], expected[9_999]) = (b'y', b'x');
    assert!(get(storage, &path) == expected);
}

fn parallel_writes(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("file");
    let file = storage.create(&path, 4 << 14).unwrap();
    thread::scope(|scope| {
        for part in 0..4u8 {
            let file = &file;
            scope.spawn(move || {
                let offset = u64::from(part) << 14;
                file.write_at(offset, &[part; 1 << 14]).unwrap();
            });
        }
    });
    file.sync().unwrap();
    let expected: Vec<u8> = (0..4u8).flat_map(|part| [part; 1 << 14]).collect();
    assert!(get(storage, &path) == expected);
}

/// Past the page cache where it can be done: whole, with a tail that is no block, from odd addresses, and with
/// writes at odd offsets beside.
fn large_files(storage: &dyn Storage, dir: &Path) {
    let bytes: Vec<u8> = (0..9 << 20).map(|i: u32| (i % 251) as u8).collect();
    let start = bytes.as_ptr().align_offset(4096);
    for (number, skip) in [0, 1, 64].into_iter().enumerate() {
        for (size, pieces) in [(1 << 20, 1), ((8 << 20) + 4097, 1), ((8 << 20) + 17, 5)] {
            let path = dir.join(format!("file-{number}-{size}"));
            let bytes = &bytes[start + skip..][..size];
            let file = storage.create(&path, size as u64).unwrap();
            let pieces = bytes.chunks(size.div_ceil(pieces));
            let segments = pieces.map(Segment::Bytes).collect();
            let file = &*file;
            fill(&[Fill { file, segments }], &|_| ()).unwrap();
            assert!(get(storage, &path) == bytes, "{}", path.display());
        }
    }
    let path = dir.join("by-hand");
    let bytes = &bytes[start..][..2 << 20];
    let file = storage.create(&path, bytes.len() as u64).unwrap();
    for cut in [
        0..4096 + 100,
        4196..8192,
        8192..1 << 20,
        (1 << 20)..(1 << 20) + 1,
    ] {
        file.write_at(cut.start as u64, &bytes[cut]).unwrap();
    }
    file.write_at((1 << 20) + 1, &bytes[(1 << 20) + 1..])
        .unwrap();
    file.sync().unwrap();
    assert!(get(storage, &path) == bytes);
}

fn open_files_outlive_their_names(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("file");
    put(storage, &path, b"still here");
    let file = storage.open(&path).unwrap();
    storage.remove_file(&path).unwrap();
    let mut bytes = [0; 10];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
}

fn hard_links(storage: &dyn Storage, dir: &Path) {
    let (one, two) = (dir.join("one"), dir.join("two"));
    put(storage, &one, b"shared");
    storage.hard_link(&one, &two).unwrap();
    assert_eq!(kind_of(storage.hard_link(&one, &two)), AlreadyExists);
    storage.remove_file(&one).unwrap();
    assert_eq!(get(storage, &two), b"shared");
    assert_eq!(
        kind_of(storage.hard_link(&one, &dir.join("three"))),
        NotFound
    );
}

fn dir_with(storage: &dyn Storage, path: PathBuf, file: &str) -> PathBuf {
    storage.create_dir(&path).unwrap();
    put(storage, &path.join(file), file.as_bytes());
    path
}

fn rename(storage: &dyn Storage, dir: &Path) {
    let (old, new) = (dir_with(storage, dir.join("old"), "x"), dir.join("new"));
    storage.rename(&old, &new).unwrap();
    assert_eq!(storage.kind(&old).unwrap(), None);
    assert_eq!(get(storage, &new.join("x")), b"x");

    let full = dir_with(storage, dir.join("full"), "y");
    assert_eq!(kind_of(storage.rename(&new, &full)), AlreadyExists);
    assert_eq!(get(storage, &full.join("y")), b"y");
    assert_eq!(get(storage, &new.join("x")), b"x");

    let empty = dir.join("empty");
    storage.create_dir(&empty).unwrap();
    storage.rename(&new, &empty).unwrap();
    assert_eq!(get(storage, &empty.join("x")), b"x");

    let (file, other) = (dir.join("file"), dir.join("other"));
    put(storage, &file, b"file");
    put(storage, &other, b"other");
    assert_eq!(kind_of(storage.rename(&file, &other)), AlreadyExists);
    assert_eq!(kind_of(storage.rename(&full, &file)), AlreadyExists);
    assert_eq!(kind_of(storage.rename(&file, &full)), AlreadyExists);
    assert_eq!(
        (get(storage, &file), get(storage, &other)),
        (b"file".into(), b"other".into())
    );
    assert_eq!(kind_of(storage.rename(&dir.join("none"), &new)), NotFound);
}

fn exchange(storage: &dyn Storage, dir: &Path) {
    let one = dir_with(storage, dir.join("one"), "x");
    let two = dir_with(storage, dir.join("two"), "y");
    match storage.exchange(&one, &two) {
        Ok(()) => {
            assert_eq!(get(storage, &one.join("y")), b"y");
            assert_eq!(get(storage, &two.join("x")), b"x");
            let none = dir.join("none");
            assert_eq!(kind_of(storage.exchange(&one, &none)), NotFound);
        }
        Err(error) => {
            assert_eq!(error.kind(), Unsupported);
            assert_eq!(get(storage, &one.join("x")), b"x");
            assert_eq!(get(storage, &two.join("y")), b"y");
        }
    }
}

fn locks(storage: &dyn Storage, dir: &Path) {
    let path = dir.join(".lock");
    let lock = storage.lock(&path).unwrap();
    match storage.lock(&path) {
        Err(LockError::Held { pid, path: named }) => {
            assert_eq!(pid, Some(std::process::id()));
            assert_eq!(named, path);
        }
        other => panic!("a second lock: {other:?}"),
    }
    drop(lock);
    assert_eq!(storage.kind(&path).unwrap(), Some(EntryKind::File));
    storage.lock(&path).unwrap();
    assert!(matches!(
        storage.lock(&dir.join("none/.lock")),
        Err(LockError::Io(_))
    ));
}

fn errors_name_the_path(storage: &dyn Storage, dir: &Path) {
    let none = dir.join("none");
    let errors = [
        storage.list(&none).err(),
        storage.create(&none.join("file"), 0).err(),
        storage.open(&none).err(),
        storage.create_dir(&none.join("dir")).err(),
        storage.remove_file(&none).err(),
        storage.remove_dir(&none).err(),
        storage.rename(&none, &dir.join("to")).err(),
        storage.hard_link(&none, &dir.join("to")).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        let inner = error
            .get_ref()
            .unwrap()
            .downcast_ref::<PathError>()
            .unwrap();
        assert!(inner.path.starts_with(&none), "{error}");
        assert!(
            error.to_string().contains(none.to_str().unwrap()),
            "{error}"
        );
        assert_eq!(errno_of(&error).unwrap().1, inner.path);
    }
}
