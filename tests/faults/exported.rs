//! A checkpoint that is exported in the place of an earlier export.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pitstop::storage::EntryKind;
use pitstop::storage::simulated::{Disk, Fault};
use pitstop::{
    Checkpointer, Opened, RestoreError, Run, State, Storage, Watch, export_directory, export_file,
};

use crate::campaign::seed;
use crate::life::Setting;
use crate::time_limit::limited_to;
use crate::world::{RUN, state};

const PARENT: &str = "/out";
const TO: &str = "/out/copy";
/// Input/output error.
const EIO: i32 = 5;

type Export = fn(&dyn Storage, &Opened, &Path, bool, Watch<'_>) -> Result<u64, RestoreError>;

/// What lies in a place: the content of a file, or of each file of a directory.
type Found = BTreeMap<OsString, Vec<u8>>;

fn found(disk: &Disk) -> Found {
    let to = Path::new(TO);
    let names = match disk.kind(to).unwrap() {
        None => Vec::new(),
        Some(EntryKind::Dir) => {
            let entries = disk.list(to).unwrap().into_iter();
            entries.map(|entry| entry.name).collect()
        }
        Some(_) => vec![OsString::new()],
    };
    let read = |name: OsString| {
        let at = to.components().chain(Path::new(&name).components());
        let file = disk.open(&at.collect::<PathBuf>()).unwrap();
        let mut content = vec![0; file.len() as usize];
        file.read_at(0, &mut content).unwrap();
        (name, content)
    };
    names.into_iter().map(read).collect()
}

/// Two checkpoints to export, and what is found before, after the first, and after the second.
struct Case {
    export: Export,
    from: [Opened; 2],
    found: [Found; 3],
    exchanges: bool,
}

impl Case {
    fn new(export: Export, exchanges: bool) -> Case {
        let source = Disk::new();
        let files = Setting::PLAIN.open(&source).unwrap();
        let from = [1, 2].map(|step| {
            Checkpointer::<State>::save(&files, step, state(step as u64, 1, 200)).unwrap();
            let run = Run::new(Arc::new(source.clone()), RUN);
            run.open(step as u64, true).unwrap()
        });
        let mut case = Case {
            export,
            from,
            found: [const { Found::new() }; 3],
            exchanges,
        };
        let disk = case.disk();
        for number in [1, 2] {
            case.export(&disk, number).unwrap();
            case.found[number] = found(&disk);
            assert_ne!(case.found[number], case.found[number - 1]);
        }
        case
    }

    fn all() -> impl Iterator<Item = Case> {
        let exports: [Export; 2] = [export_file, export_directory];
        exports
            .into_iter()
            .flat_map(|export| [true, false].map(|exchanges| Case::new(export, exchanges)))
    }

    fn disk(&self) -> Disk {
        let disk = Disk::new();
        disk.set_exchanges(self.exchanges);
        disk.create_dir_all(PARENT.as_ref()).unwrap();
        disk
    }

    /// Exports the first or the second.
    fn export(&self, disk: &Disk, number: usize) -> Result<u64, RestoreError> {
        let from = &self.from[number - 1];
        (self.export)(disk, from, TO.as_ref(), true, Watch::nobody())
    }

    /// After a power cut there is what was exported last or, whole, what was on its way; and the next one goes well.
    fn check(&self, disk: &Disk, done: usize, at: &str) {
        for outcome in disk.outcomes(4, seed()) {
            let woken = disk.wake(outcome);
            let there = found(&woken);
            // Without exchange there is a moment without it.
            let moved = !self.exchanges && done == 1 && there.is_empty();
            let expected = &self.found[done..3.min(done + 2)];
            assert!(
                moved || expected.contains(&there),
                "{at}, {outcome:?}: {:?}",
                there.keys()
            );
            self.export(&woken, 2).unwrap();
            assert_eq!(found(&woken), self.found[2]);
        }
    }
}

#[test]
fn a_power_cut_at_any_call_of_an_export_leaves_it_whole_or_the_one_before() {
    limited_to(600, || {
        for case in Case::all() {
            for nth in 0.. {
                let disk = case.disk();
                let stop = disk.calls().len() + nth;
                disk.on_call(move |number, _| (number == stop).then_some(Fault::Stop));
                let done = [1, 2].map(|number| case.export(&disk, number).is_ok());
                let done = done.into_iter().filter(|done| *done).count();
                case.check(&disk, done, &format!("cut at call {nth}"));
                if disk.calls().len() <= stop {
                    assert_eq!(done, 2);
                    break;
                }
            }
        }
    });
}

/// Of an export that could neither be made durable nor taken back, what it had replaced was removed: after a power
/// cut its name led to an empty directory.
#[test]
fn an_export_that_fails_leaves_the_one_before() {
    limited_to(600, || {
        for case in Case::all() {
            for count in [1, 2, usize::MAX] {
                for nth in 0.. {
                    let disk = case.disk();
                    case.export(&disk, 1).unwrap();
                    let first = disk.calls().len() + nth;
                    let failing = first..first.saturating_add(count);
                    disk.on_call(move |number, _| {
                        failing.contains(&number).then_some(Fault::Error(EIO))
                    });
                    let done = 1 + usize::from(case.export(&disk, 2).is_ok());
                    let calls = disk.calls();
                    let Some(call) = calls.get(first) else {
                        assert_eq!(done, 2);
                        break;
                    };
                    disk.heal();
                    let at = format!("{count} calls from {nth}, {call}, failed");
                    if count == 1 {
                        assert_eq!(found(&disk), case.found[done], "{at}");
                    }
                    case.check(&disk, done, &at);
                }
            }
        }
    });
}

/// It was put back after it had been found that there was nothing to replace, so that the export failed.
#[test]
#[cfg(unix)]
fn an_export_that_a_dead_process_moved_aside_is_put_back_and_replaced() {
    limited_to(60, || {
        let case = Case::new(export_directory, false);
        let disk = case.disk();
        case.export(&disk, 1).unwrap();
        // No process has such a number.
        let aside = Path::new(PARENT).join(".old-copy-999999999-00000000000000ff");
        disk.rename(TO.as_ref(), &aside).unwrap();
        case.export(&disk, 2).unwrap();
        assert_eq!(found(&disk), case.found[2]);
        let left = disk.list(PARENT.as_ref()).unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
    });
}
