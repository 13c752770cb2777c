//! An export that replaces an earlier one, on a disk that fails and then loses power.

use std::path::Path;

use pitstop::storage::simulated::{Disk, Fault, Outcome};
use pitstop::{Checkpointer, Opened, RestoreError, Storage, Watch, export_directory, export_file};

use crate::campaign::seed;
use crate::life::Setting;
use crate::power::fail_from;
use crate::time_limit::limited_to;
use crate::world::{look, transfer};

/// Input/output error.
const EIO: i32 = 5;
const OUT: &str = "/runs/out";

type Export = fn(&dyn Storage, &Opened, &Path, bool, Watch<'_>) -> Result<u64, RestoreError>;

/// The bytes of the files that make up an export.
fn content(disk: &Disk, names: &[&str]) -> Vec<Vec<u8>> {
    let read = |name: &&str| {
        let file = disk.open(&Path::new(OUT).join(name)).unwrap();
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    names.iter().map(read).collect()
}

/// The old one was emptied where taking the new one back had failed, and a power cut brought back its name.
#[test]
fn a_failed_export_and_a_power_cut_leave_the_one_before_or_the_new_one() {
    let file: (Export, &[&str]) = (export_file, &[""]);
    let directory: (Export, &[&str]) = (
        export_directory,
        &["checkpoint.json", "model.safetensors", "frozen.safetensors"],
    );
    limited_to(600, move || {
        for (export, names) in [file, directory] {
            for count in [1, 2, usize::MAX] {
                for nth in 0.. {
                    let disk = Disk::new();
                    let files = Setting::PLAIN.open(&disk).unwrap();
                    for step in [1, 2] {
                        files
                            .save(step as usize, transfer(step, 1, 200, false))
                            .unwrap();
                    }
                    let run = look(&disk);
                    let [one, two] = [1, 2].map(|step| run.open(step, true).unwrap());
                    let write = |disk: &Disk, from: &Opened| {
                        export(disk, from, Path::new(OUT), true, Watch::nobody())
                    };
                    let other = disk.wake(Outcome::Nothing);
                    write(&other, &two).unwrap();
                    write(&disk, &one).unwrap();
                    let (before, after) = (content(&disk, names), content(&other, names));
                    let first = fail_from(&disk, nth, count, Fault::Error(EIO));
                    let result = write(&disk, &two);
                    disk.heal();
                    for outcome in disk.outcomes(1, seed()) {
                        let found = content(&disk.wake(outcome), names);
                        let is_whole = found == after || (found == before && result.is_err());
                        assert!(is_whole, "{count} calls from {nth} failed; {outcome:?}");
                    }
                    if disk.calls().len() <= first {
                        result.unwrap();
                        break;
                    }
                }
            }
        }
    });
}
