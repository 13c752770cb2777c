//! One checkpoint that lies by itself, saved with `save_as`.

use std::path::Path;
use std::sync::Arc;

use pitstop::storage::simulated::Disk;
use pitstop::{RestoreError, Run, SaveOptions, Storage, save_as};

use crate::campaign::seed;
use crate::power::{is_like_before, stop_at};
use crate::time_limit::{limited, limited_to};
use crate::world::{state, version};

const PATH: &str = "/runs/final";

fn save(disk: &Disk, version: u64) -> std::io::Result<()> {
    let options = SaveOptions {
        overwrite: true,
        ..SaveOptions::default()
    };
    save_as(disk, Path::new(PATH), 1, state(1, version, 200), &options).map(drop)
}

/// The version that lies there.
fn found(disk: &Disk) -> Option<u64> {
    match Run::new(Arc::new(disk.clone()), PATH).open_here(true) {
        Ok(opened) => Some(version(&opened.load().unwrap(), 1)),
        Err(RestoreError::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_power_cut_at_any_call_leaves_the_single_checkpoint_or_the_one_before() {
    limited(|| {
        for exchanges in [true, false] {
            for nth in 0.. {
                let disk = Disk::new();
                disk.set_exchanges(exchanges);
                stop_at(&disk, nth);
                let mut committed = None;
                for version in [1, 2] {
                    if save(&disk, version).is_ok() {
                        committed = Some(version);
                    }
                }
                for outcome in disk.outcomes(4, seed()) {
                    let woken = disk.wake(outcome);
                    let there = found(&woken);
                    let next = committed.map_or(1, |version| version + 1);
                    // Without exchange there is a moment without it, and its old name is hidden.
                    let moved = !exchanges && committed == Some(1) && there.is_none();
                    assert!(
                        there == committed || there == Some(next) || moved,
                        "cut {nth}, {outcome:?}: {there:?} of {committed:?}"
                    );
                    save(&woken, 3).unwrap();
                    assert_eq!(found(&woken), Some(3));
                }
                if disk.calls().len() <= nth {
                    assert_eq!(committed, Some(2));
                    break;
                }
            }
        }
    });
}

/// Makes what a killed process left look as what it is: this one lives on, and bears the same number.
fn bury(disk: &Disk) {
    let (parent, pid) = (Path::new("/runs"), format!("-{}-", std::process::id()));
    for entry in disk.list(parent).unwrap_or_default() {
        let name = entry.name.into_string().unwrap();
        if name.starts_with('.') {
            let dead = name.replacen(&pid, &format!("-{}-", u32::MAX), 1);
            disk.rename(&parent.join(name), &parent.join(dead)).unwrap();
        }
    }
}

/// Of a replacement that only memory knew, the next process removed the old checkpoint.
#[test]
fn a_power_cut_while_the_next_process_tidies_up_takes_nothing() {
    limited_to(600, || {
        for killed in 0.. {
            let first = Disk::new();
            save(&first, 1).unwrap();
            let kill = stop_at(&first, killed);
            let second = save(&first, 2).is_ok();
            let like_before = is_like_before(&first.calls(), kill);
            for nth in (0..).take_while(|_| !like_before) {
                let disk = first.restart();
                bury(&disk);
                let stop = stop_at(&disk, nth);
                let third = save(&disk, 3).is_ok();
                if is_like_before(&disk.calls(), stop) {
                    continue;
                }
                for outcome in disk.outcomes(0, seed()) {
                    let there = found(&disk.wake(outcome)).expect("one was saved");
                    let least = if third { 3 } else { 1 + u64::from(second) };
                    assert!(
                        there >= least,
                        "killed at {killed}, cut at {nth}, {outcome:?}"
                    );
                }
                if disk.calls().len() <= stop {
                    break;
                }
            }
            if first.calls().len() <= kill {
                break;
            }
        }
    });
}
