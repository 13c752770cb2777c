//! Which files may be written over, and what they hold then.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pitstop::Local;
use pitstop::storage::{Fill, NewFile, Segment, Storage, fill};

const SIZE: usize = (3 << 20) + 100;

/// A retired file, and the hidden directory that a new one is to lie in; `None` where nothing is recycled.
fn retired() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
    // Not in /tmp, which may lie in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::create_dir(&old).unwrap();
    fs::create_dir(&new).unwrap();
    let old = old.join("file");
    fs::write(&old, vec![7; SIZE]).unwrap();
    let offered = Local::new().recycles(dir.path());
    offered.then(|| (dir, old, new.join("file")))
}

fn recycle(old: &Path, new: &Path, size: usize) -> Option<Box<dyn NewFile>> {
    let file = Local::new().recycle(old, new, size as u64).unwrap();
    assert!(!old.exists());
    assert_eq!(new.symlink_metadata().is_ok(), file.is_some());
    file
}

#[test]
fn a_recycled_file_holds_what_is_written_and_nothing_else() {
    for size in [SIZE, SIZE / 4096 * 4096, 2 << 20, 17, (5 << 20) + 3] {
        let Some((_dir, old, new)) = retired() else {
            return;
        };
        let inode = fs::metadata(&old).unwrap().ino();
        let file = recycle(&old, &new, size).unwrap();
        let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let (file, segments) = (&*file, vec![Segment::Bytes(&bytes)]);
        fill(&[Fill { file, segments }], &|_| ()).unwrap();
        assert!(fs::read(&new).unwrap() == bytes, "{size}");
        let metadata = fs::metadata(&new).unwrap();
        assert_eq!(metadata.ino(), inode);
        assert!(metadata.blocks() * 512 <= (size as u64).next_multiple_of(4096) + 4096);
    }
}

#[test]
fn a_file_with_another_hard_link_is_left_alone() {
    let Some((dir, old, new)) = retired() else {
        return;
    };
    let other = dir.path().join("other");
    fs::hard_link(&old, &other).unwrap();
    assert!(recycle(&old, &new, SIZE).is_none());
    assert!(fs::read(&other).unwrap() == vec![7; SIZE]);
}

#[test]
fn a_file_that_someone_here_reads_or_writes_is_left_alone() {
    for write in [false, true] {
        let Some((_dir, old, new)) = retired() else {
            return;
        };
        let mut reader = File::options().read(true).append(write).open(&old).unwrap();
        assert!(recycle(&old, &new, SIZE).is_none());
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == vec![7; SIZE]);
    }
}

#[expect(unsafe_code, reason = "the test is about maps")]
fn map(path: &Path) -> memmap2::Mmap {
    // SAFETY: nobody changes the file; that is what is tested.
    unsafe { memmap2::Mmap::map(&File::open(path).unwrap()).unwrap() }
}

#[test]
fn a_file_that_is_mapped_here_is_left_alone() {
    let Some((_dir, old, new)) = retired() else {
        return;
    };
    let map = map(&old);
    assert!(recycle(&old, &new, SIZE).is_none());
    assert!(map[..] == vec![7; SIZE][..]);
}

const VICTIM: &str = "PITSTOP_TEST_RECYCLED_FILE";
const MAPPED: &str = "PITSTOP_TEST_RECYCLED_IS_MAPPED";

/// Not a test by itself: another process, which reads the file, or has it mapped, until it is told to look.
#[test]
#[expect(clippy::disallowed_macros, reason = "this is how it tells its parent")]
fn somebody_else() {
    let Some(path) = env::var_os(VICTIM).map(PathBuf::from) else {
        return;
    };
    let (file, map) = match env::var_os(MAPPED) {
        Some(_) => (None, Some(map(&path))),
        None => (Some(File::open(&path).unwrap()), None),
    };
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut bytes = Vec::new();
    if let Some(mut file) = file {
        file.read_to_end(&mut bytes).unwrap();
    } else if let Some(map) = map {
        bytes.extend_from_slice(&map);
    }
    assert!(bytes == vec![7; SIZE]);
}

fn start_somebody_else(path: &Path, mapped: bool) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "recycling::somebody_else", "--nocapture"])
        .env(VICTIM, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if mapped {
        command.env(MAPPED, "yes");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    child
}

#[test]
fn a_file_that_another_process_reads_or_maps_is_left_alone() {
    for mapped in [false, true] {
        let Some((_dir, old, new)) = retired() else {
            return;
        };
        let mut child = start_somebody_else(&old, mapped);
        assert!(recycle(&old, &new, SIZE).is_none());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn what_is_no_plain_file_is_left_alone() {
    let Some((dir, old, new)) = retired() else {
        return;
    };
    let link = dir.path().join("link");
    symlink(&old, &link).unwrap();
    assert!(recycle(&link, &new, SIZE).is_none());
    assert!(fs::read(&old).unwrap() == vec![7; SIZE]);
    let none = Local::new().recycle(&dir.path().join("none"), &new, 1);
    assert!(none.unwrap().is_none());
}

#[test]
fn a_file_that_does_not_look_like_a_new_one_is_not_used() {
    let Some((_dir, old, new)) = retired() else {
        return;
    };
    let mode = fs::metadata(&old).unwrap().permissions().mode();
    fs::set_permissions(&old, Permissions::from_mode(mode ^ 0o060)).unwrap();
    assert!(recycle(&old, &new, SIZE).is_none());
}

#[test]
fn nothing_that_is_there_is_replaced() {
    let Some((_dir, old, new)) = retired() else {
        return;
    };
    fs::write(&new, "precious").unwrap();
    let none = Local::new().recycle(&old, &new, SIZE as u64);
    assert!(none.unwrap().is_none());
    assert_eq!(fs::read_to_string(&new).unwrap(), "precious");
    assert!(old.exists());
}
