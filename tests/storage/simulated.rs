//! The simulated disk: what it keeps, what it may lose, and how it fails.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use pitstop::LockError;
use pitstop::storage::errno_of;
use pitstop::storage::simulated::{Disk, Fault, Outcome};
use pitstop::storage::{NewFile, Storage};

use crate::conformance;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn path(path: &str) -> &Path {
    Path::new(path)
}

/// A new file with this content, not synced.
fn put(disk: &Disk, at: &str, content: &[u8]) -> Box<dyn NewFile> {
    let file = disk.create(path(at), content.len() as u64).unwrap();
    file.write_at(0, content).unwrap();
    file
}

/// The same, durable.
fn put_durably(disk: &Disk, at: &str, content: &[u8]) {
    put(disk, at, content).sync().unwrap();
    disk.sync_dir(path(at).parent().unwrap()).unwrap();
}

fn get(disk: &Disk, at: &str) -> Option<Vec<u8>> {
    let file = disk.open(path(at)).ok()?;
    let mut content = vec![0; file.len() as usize];
    file.read_at(0, &mut content).unwrap();
    Some(content)
}

fn names(disk: &Disk, dir: &str) -> Vec<String> {
    let entries = disk.list(path(dir)).unwrap().into_iter();
    entries.map(|it| it.name.into_string().unwrap()).collect()
}

fn fail_all(disk: &Disk, fault: Fault) {
    disk.on_call(move |_, _| Some(fault));
}

#[test]
fn it_keeps_every_rule_of_a_storage() {
    conformance::run(&Disk::new(), path("/"));
    conformance::run(&Disk::new(), path(""));
    let disk = Disk::new();
    disk.set_exchanges(false);
    conformance::run(&disk, path("/"));
}

#[test]
fn what_was_not_synced_may_be_lost_or_not() {
    let disk = Disk::new();
    put(&disk, "/a", b"a");
    let unsynced: Vec<String> = disk.unsynced().iter().map(ToString::to_string).collect();
    assert_eq!(unsynced, ["create /a", "create /a", "write /a"]);
    assert_eq!(get(&disk.wake(Outcome::Everything), "/a").unwrap(), b"a");
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/a"), None);
    assert_eq!(get(&disk.wake(Outcome::Only(0)), "/a").unwrap(), b"");
    assert_eq!(get(&disk.wake(Outcome::AllBut(2)), "/a").unwrap(), b"\0");
    assert_eq!(get(&disk.wake(Outcome::AllBut(0)), "/a"), None);
}

#[test]
fn bytes_and_names_are_made_durable_apart() {
    let disk = Disk::new();
    let file = put(&disk, "/a", b"a");
    file.sync().unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/a"), None);
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/a").unwrap(), b"a");
    put(&disk, "/b", b"b");
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/b").unwrap(), b"");
}

#[test]
fn a_directory_is_synced_and_not_what_lies_below() {
    let disk = Disk::new();
    disk.create_dir(path("/a")).unwrap();
    disk.create_dir(path("/a/b")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    let woken = disk.wake(Outcome::Nothing);
    assert_eq!(names(&woken, "/"), ["a"]);
    assert_eq!(names(&woken, "/a"), [""; 0]);
}

#[test]
fn a_rename_is_made_or_not_even_between_directories() {
    let disk = Disk::new();
    for dir in ["/one", "/two"] {
        disk.create_dir(path(dir)).unwrap();
    }
    disk.sync_dir(path("/")).unwrap();
    put_durably(&disk, "/one/old", b"x");
    disk.rename(path("/one/old"), path("/two/new")).unwrap();
    for outcome in disk.outcomes(9, 7) {
        let woken = disk.wake(outcome);
        let found = (get(&woken, "/one/old"), get(&woken, "/two/new"));
        assert!(found.0.is_some() != found.1.is_some(), "{outcome:?}");
    }
    // Syncing either directory is enough for both.
    disk.sync_dir(path("/two")).unwrap();
    let woken = disk.wake(Outcome::Nothing);
    assert_eq!(get(&woken, "/two/new").unwrap(), b"x");
    assert_eq!(get(&woken, "/one/old"), None);
}

#[test]
fn an_exchange_is_made_or_not() {
    let disk = Disk::new();
    put_durably(&disk, "/a", b"a");
    put_durably(&disk, "/b", b"b");
    disk.exchange(path("/a"), path("/b")).unwrap();
    let both = |outcome| {
        let woken = disk.wake(outcome);
        (get(&woken, "/a").unwrap(), get(&woken, "/b").unwrap())
    };
    assert_eq!(both(Outcome::Nothing), (b"a".into(), b"b".into()));
    assert_eq!(both(Outcome::Everything), (b"b".into(), b"a".into()));
}

#[test]
fn a_removal_may_be_lost() {
    let disk = Disk::new();
    put_durably(&disk, "/a", b"a");
    disk.remove_file(path("/a")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/a").unwrap(), b"a");
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/a"), None);
}

/// What makes it dangerous to remove before a swap is durable.
#[test]
fn changes_survive_in_any_order() {
    let disk = Disk::new();
    for dir in ["/old", "/new"] {
        disk.create_dir(path(dir)).unwrap();
        put_durably(&disk, &format!("{dir}/file"), dir.as_bytes());
    }
    disk.sync_dir(path("/")).unwrap();
    disk.exchange(path("/old"), path("/new")).unwrap();
    disk.remove_file(path("/new/file")).unwrap();
    let woken = disk.wake(Outcome::Only(1));
    assert_eq!(get(&woken, "/old/file"), None);
    assert_eq!(get(&woken, "/new/file").unwrap(), b"/new");
}

#[test]
fn hard_links_share_what_they_hold() {
    let disk = Disk::new();
    let file = put(&disk, "/a", b"old");
    disk.hard_link(path("/a"), path("/b")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    disk.remove_file(path("/a")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/b").unwrap(), b"new");
}

#[test]
fn a_write_is_torn_between_sectors() {
    let disk = Disk::new();
    put_durably(&disk, "/a", &[1; 5000]);
    let file = disk.recycle(path("/a"), path("/b"), 5000).unwrap().unwrap();
    disk.sync_dir(path("/")).unwrap();
    file.write_at(100, &[2; 4900]).unwrap();
    let mut mixed = false;
    for outcome in disk.outcomes(30, 1) {
        let found = get(&disk.wake(outcome), "/b").unwrap();
        assert_eq!(found[..100], [1; 100]);
        let sectors = found.chunks(512).enumerate();
        let kept: Vec<bool> = sectors
            .map(|(number, sector)| {
                let sector = if number == 0 { &sector[100..] } else { sector };
                assert!(sector.iter().all(|byte| *byte == sector[0]));
                sector[0] == 2
            })
            .collect();
        mixed |= kept.contains(&true) && kept.contains(&false);
    }
    assert!(mixed);
}

#[test]
fn a_recycled_file_holds_old_bytes_until_others_are_durable() {
    let disk = Disk::new();
    put_durably(&disk, "/a", b"old old");
    let file = disk.recycle(path("/a"), path("/b"), 3).unwrap().unwrap();
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/b").unwrap(), b"old old");
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    assert_eq!(get(&disk.wake(Outcome::Nothing), "/b").unwrap(), b"new");
}

#[test]
fn a_file_that_is_shared_or_open_is_not_recycled() {
    let disk = Disk::new();
    put_durably(&disk, "/a", b"a");
    disk.hard_link(path("/a"), path("/b")).unwrap();
    assert!(disk.recycle(path("/a"), path("/c"), 1).unwrap().is_none());
    let reader = disk.open(path("/b")).unwrap();
    assert_eq!(disk.open_files(), 1);
    assert!(disk.recycle(path("/b"), path("/c"), 1).unwrap().is_none());
    drop(reader);
    put_durably(&disk, "/b", b"b");
    assert!(
        disk.recycle(path("/none"), path("/c"), 1)
            .unwrap()
            .is_none()
    );
    assert!(disk.recycle(path("/b"), path("/c"), 1).unwrap().is_some());
    assert_eq!(names(&disk, "/"), ["c"]);
}

#[test]
fn after_a_failed_sync_of_a_file_no_later_one_brings_its_bytes_back() {
    let disk = Disk::new();
    let file = put(&disk, "/a", b"first");
    disk.sync_dir(path("/")).unwrap();
    fail_all(&disk, Fault::Error(EIO));
    let error = file.sync().unwrap_err();
    assert_eq!(errno_of(&error).unwrap(), (EIO, "/a".into()));
    disk.heal();
    // They may have got there.
    assert_eq!(
        get(&disk.wake(Outcome::Everything), "/a").unwrap(),
        b"first"
    );
    file.sync().unwrap();
    assert_eq!(get(&disk, "/a").unwrap(), b"first");
    assert_eq!(get(&disk.wake(Outcome::Everything), "/a").unwrap(), b"");
}

#[test]
fn after_a_failed_sync_of_a_directory_only_new_changes_are_durable() {
    let disk = Disk::new();
    put(&disk, "/a", b"");
    fail_all(&disk, Fault::Error(EIO));
    disk.sync_dir(path("/")).unwrap_err();
    disk.heal();
    put(&disk, "/b", b"");
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(names(&disk, "/"), ["a", "b"]);
    assert_eq!(names(&disk.wake(Outcome::Everything), "/"), ["b"]);
}

#[test]
fn a_call_that_fails_does_nothing() {
    let disk = Disk::new();
    put_durably(&disk, "/a", b"a");
    let before = disk.calls().len();
    disk.on_call(move |number, _| (number == before).then_some(Fault::Error(ENOSPC)));
    let error = disk.rename(path("/a"), path("/b")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().starts_with("cannot rename /a to /b: "));
    assert_eq!(names(&disk, "/"), ["a"]);
    assert!(disk.calls()[before].is("rename", "/a"));
    disk.rename(path("/a"), path("/b")).unwrap();
}

#[test]
fn a_short_write_does_its_first_half() {
    let disk = Disk::new();
    let file = disk.create(path("/a"), 6).unwrap();
    fail_all(&disk, Fault::Short(ENOSPC));
    file.write_at(0, b"abcdef").unwrap_err();
    disk.heal();
    assert_eq!(get(&disk, "/a").unwrap(), b"abc\0\0\0");
}

#[test]
fn a_call_may_take_longer() {
    let disk = Disk::new();
    let time = Duration::from_millis(20);
    fail_all(&disk, Fault::Delay(time));
    let start = Instant::now();
    disk.list(path("/")).unwrap();
    assert!(start.elapsed() >= time);
}

#[test]
fn a_machine_that_stopped_does_nothing_more() {
    let disk = Disk::new();
    let file = put(&disk, "/a", b"a");
    let next = disk.calls().len();
    disk.on_call(move |number, _| (number == next).then_some(Fault::Stop));
    file.sync().unwrap_err();
    disk.sync_dir(path("/")).unwrap_err();
    disk.heal();
    disk.list(path("/")).unwrap_err();
    assert_eq!(disk.unsynced().len(), 3);
    assert_eq!(names(&disk.wake(Outcome::Nothing), "/"), [""; 0]);
}

#[test]
fn a_killed_process_leaves_everything_and_no_lock() {
    let disk = Disk::new();
    put(&disk, "/a", b"a");
    let lock = disk.lock(path("/.lock")).unwrap();
    assert!(lock.guards(path("/.lock")));
    let next = disk.restart();
    assert!(matches!(
        disk.lock(path("/.lock")),
        Err(LockError::Held { .. })
    ));
    next.lock(path("/.lock")).unwrap();
    assert_eq!(get(&next, "/a").unwrap(), b"a");
    // Still not durable, and the first disk goes its own way.
    assert_eq!(get(&next.wake(Outcome::Nothing), "/a"), None);
    next.remove_file(path("/a")).unwrap();
    assert_eq!(get(&disk, "/a").unwrap(), b"a");
}

#[test]
fn outcomes_are_all_nothing_each_alone_each_missing_torn_and_random() {
    let disk = Disk::new();
    assert_eq!(disk.outcomes(2, 5), [Outcome::Everything]);
    put(&disk, "/a", &[1; 1000]);
    let expected = [
        Outcome::Everything,
        Outcome::Nothing,
        Outcome::Only(0),
        Outcome::Only(1),
        Outcome::Only(2),
        Outcome::AllBut(0),
        Outcome::AllBut(1),
        Outcome::AllBut(2),
        Outcome::Random(5),
        Outcome::Random(6),
        Outcome::Torn(2),
    ];
    assert_eq!(disk.outcomes(2, 5), expected);
    let found = |seed| get(&disk.wake(Outcome::Random(seed)), "/a");
    assert!((0..50).all(|seed| found(seed) == found(seed)));
}

#[test]
fn what_is_gone_for_good_takes_no_memory() {
    let disk = Disk::new();
    for _ in 0..100 {
        put(&disk, "/a", &[1; 1000]);
        disk.remove_file(path("/a")).unwrap();
        disk.sync_dir(path("/")).unwrap();
        assert_eq!(disk.unsynced(), []);
    }
    // An open file stays as long as it is open.
    put_durably(&disk, "/a", b"a");
    let file = disk.open(path("/a")).unwrap();
    disk.remove_file(path("/a")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    let mut read = [0];
    file.read_at(0, &mut read).unwrap();
    assert_eq!(&read, b"a");
}
