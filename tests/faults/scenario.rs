//! What a process does while the disk loses power or fails.

use crate::life::{Life, Setting};

/// What goes well before, and what may not.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) setting: Setting,
    before: fn(&mut Life),
    act: fn(&mut Life),
}

impl Scenario {
    /// A process that is about to act.
    pub(crate) fn begin(&self) -> Life {
        let mut life = Life::new(self.setting);
        (self.before)(&mut life);
        life
    }

    /// Acts, and closes the run.
    pub(crate) fn act(&self, life: &mut Life) {
        (self.act)(life);
        life.close();
    }
}

const PLAIN: Setting = Setting::PLAIN;
pub(crate) const INCREMENTAL: Setting = Setting {
    incremental: true,
    ..PLAIN
};
const NO_EXCHANGE: Setting = Setting {
    exchanges: false,
    ..INCREMENTAL
};
pub(crate) const KEEP_TWO: Setting = Setting {
    keep: Some(2),
    ..INCREMENTAL
};
const KEEP_ONE: Setting = Setting {
    keep: Some(1),
    ..INCREMENTAL
};
/// Smaller files are not recycled.
pub(crate) const RECYCLE: Setting = Setting {
    recycle: true,
    length: (1 << 17) + 100,
    ..KEEP_ONE
};

fn saved_one(life: &mut Life) {
    life.open();
    life.save(1, 1);
}

fn saved_two(life: &mut Life) {
    saved_one(life);
    life.save(2, 1);
}

fn saved_three(life: &mut Life) {
    saved_two(life);
    life.save(3, 1);
}

fn overwrite(life: &mut Life) {
    life.overwrite(2, 2);
}

fn overwrite_and_delete(life: &mut Life) {
    overwrite(life);
    life.delete(2);
}

/// All but those with much data.
pub(crate) fn quick() -> Vec<Scenario> {
    let quick = |scenario: &&Scenario| !scenario.setting.recycle;
    ALL.iter().filter(quick).copied().collect()
}

/// All that a run does to its directory.
pub(crate) const ALL: [Scenario; 13] = [
    Scenario {
        name: "first save, in a directory that is made for it",
        setting: PLAIN,
        before: |_| (),
        act: saved_one,
    },
    Scenario {
        name: "later save",
        setting: PLAIN,
        before: saved_one,
        act: |life| life.save(2, 1),
    },
    Scenario {
        name: "incremental saves, with hard links",
        setting: INCREMENTAL,
        before: saved_one,
        act: |life| {
            life.save(2, 1);
            life.save(3, 1);
        },
    },
    Scenario {
        name: "overwrite",
        setting: INCREMENTAL,
        before: saved_two,
        act: overwrite,
    },
    Scenario {
        name: "overwrite, where names cannot be exchanged",
        setting: NO_EXCHANGE,
        before: saved_two,
        act: overwrite,
    },
    Scenario {
        name: "overwrite and delete",
        setting: INCREMENTAL,
        before: saved_two,
        act: overwrite_and_delete,
    },
    Scenario {
        name: "overwrite and delete, where names cannot be exchanged",
        setting: NO_EXCHANGE,
        before: saved_two,
        act: overwrite_and_delete,
    },
    Scenario {
        name: "delete",
        setting: INCREMENTAL,
        before: saved_three,
        act: |life| {
            life.delete(1);
            life.delete(3);
        },
    },
    Scenario {
        name: "delete, and save again",
        setting: INCREMENTAL,
        before: saved_two,
        act: |life| {
            life.delete(2);
            life.save(2, 2);
        },
    },
    Scenario {
        name: "retention",
        setting: KEEP_TWO,
        before: saved_two,
        act: |life| {
            life.save(3, 1);
            life.save(4, 1);
        },
    },
    Scenario {
        name: "retention of a backlog",
        setting: KEEP_ONE,
        before: |life| {
            life.keep(None);
            saved_three(life);
            life.keep(Some(1));
            life.open();
        },
        act: |life| life.save(4, 1),
    },
    Scenario {
        name: "retention, with recycled files",
        setting: RECYCLE,
        before: saved_two,
        act: |life| {
            life.save(3, 1);
            life.save(4, 1);
        },
    },
    Scenario {
        name: "opening a run that is in order",
        setting: INCREMENTAL,
        before: |life| {
            saved_two(life);
            life.close();
        },
        act: Life::open,
    },
];
