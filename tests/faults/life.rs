//! A process that saves, what it is told, and what is found after its death.

use std::sync::Arc;

use pitstop::storage::EntryKind;
use pitstop::storage::simulated::{Disk, Outcome};
use pitstop::{
    Checkpointer, CheckpointerError, FileCheckpointer, LockError, Options, Retention, State,
    Storage, Transfer,
};

use crate::world::{Ledger, RUN, World, look, transfer, world};

/// The step of a save that is made to see whether the directory can be used.
const LATER: u64 = 1000;

/// How a run is saved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) keep: Option<usize>,
    pub(crate) incremental: bool,
    pub(crate) recycle: bool,
    /// Whether the disk can exchange two names at once.
    pub(crate) exchanges: bool,
    /// Of the weights: how many, of 8 bytes.
    pub(crate) length: usize,
}

impl Setting {
    pub(crate) const PLAIN: Setting = Setting {
        keep: None,
        incremental: false,
        recycle: false,
        exchanges: true,
        length: 200,
    };

    fn options(&self) -> Options {
        Options {
            retention: match self.keep {
                Some(keep) => Retention::keep_last(keep).unwrap(),
                None => Retention::All,
            },
            incremental: self.incremental,
            recycle: self.recycle,
            ..Options::default()
        }
    }

    pub(crate) fn open(&self, disk: &Disk) -> Result<FileCheckpointer, LockError> {
        FileCheckpointer::with_storage(Arc::new(disk.clone()), RUN, self.options())
    }
}

/// One process. Its calls may fail, and the machine may stop under it.
pub(crate) struct Life {
    pub(crate) disk: Disk,
    pub(crate) ledger: Ledger,
    pub(crate) setting: Setting,
    files: Option<FileCheckpointer>,
}

impl Life {
    pub(crate) fn new(setting: Setting) -> Life {
        let disk = Disk::new();
        disk.set_exchanges(setting.exchanges);
        Life {
            disk,
            ledger: Ledger::new(setting.keep),
            setting,
            files: None,
        }
    }

    /// The next process, after this one was killed.
    pub(crate) fn next(self) -> Life {
        Life {
            disk: self.disk.restart(),
            files: None,
            ..self
        }
    }

    /// Opens the run; tries again if that fails, as a user would.
    pub(crate) fn open(&mut self) {
        self.close();
        let open = || self.setting.open(&self.disk).ok();
        self.files = open().or_else(open);
    }

    /// From the next opening on, only so many stay.
    pub(crate) fn keep(&mut self, keep: Option<usize>) {
        self.setting.keep = keep;
        self.ledger.keep = keep;
    }

    pub(crate) fn save(&mut self, step: u64, version: u64) {
        self.write(step, version, false);
    }

    pub(crate) fn overwrite(&mut self, step: u64, version: u64) {
        self.write(step, version, true);
    }

    fn write(&mut self, step: u64, version: u64, overwrite: bool) {
        // It could not be opened.
        let Some(files) = &self.files else { return };
        let transfer = transfer(step, version, self.setting.length, overwrite);
        match files.save(step as usize, transfer) {
            Ok(()) => self.ledger.saved(step, version),
            Err(error) => {
                assert!(matches!(error, CheckpointerError::IOError(_)), "{error}");
                self.ledger.not_saved(step, version);
            }
        }
    }

    pub(crate) fn delete(&mut self, step: u64) {
        let Some(files) = &self.files else { return };
        let deleted = Checkpointer::<Transfer>::delete(files, step as usize);
        self.ledger.deleted(step, deleted.is_ok());
    }

    pub(crate) fn close(&mut self) {
        self.files = None;
    }

    /// What the process itself sees must be what was reported, and no file may be left open.
    pub(crate) fn check_sight(&self) {
        self.disk.heal();
        let seen = world(&look(&self.disk));
        assert!(
            self.ledger.possible.contains(&seen),
            "seen: {seen:?}, possible: {:?}",
            self.ledger.possible
        );
        assert_eq!(self.disk.open_files(), 0);
    }

    /// Looks at what a power cut leaves, uses it, and looks at what a second one leaves of that.
    pub(crate) fn check_wake(&self, outcome: Outcome) {
        let found = self.disk.wake(outcome);
        // Somebody who only reads sees nothing half.
        world(&look(&found));
        let files = self.setting.open(&found).unwrap();
        let seen = world(&look(&found));
        assert!(
            self.ledger.possible.contains(&seen),
            "found: {seen:?}, possible: {:?}",
            self.ledger.possible
        );
        check_names(&found);
        let mut ledger = Ledger::new(self.setting.keep);
        ledger.possible = [seen].into();
        let later = transfer(LATER, 0, self.setting.length, false);
        files.save(LATER as usize, later).unwrap();
        ledger.saved(LATER, 0);
        let restored = Checkpointer::<State>::restore(&files, LATER as usize).unwrap();
        assert_eq!(crate::world::version(&restored, LATER), 0);
        drop(files);
        let durable: World = world(&look(&found.wake(Outcome::Nothing)));
        assert_eq!(
            &durable,
            ledger.settled(),
            "after a save and another power cut"
        );
    }
}

/// A run that was just opened, or closed after all went well, holds its lock and its checkpoints, and nothing else.
pub(crate) fn check_names(disk: &Disk) {
    for entry in disk.list(RUN.as_ref()).unwrap() {
        let name = entry.name.to_str().unwrap();
        let expected = match entry.kind {
            EntryKind::Dir => name.starts_with("step-"),
            _ => name == ".lock",
        };
        assert!(expected, "left behind: {name}");
    }
}
