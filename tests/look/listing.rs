use std::fs;

use pitstop::format::MANIFEST;
use pitstop::{
    Checkpointer, FileCheckpointer, Mode, Options, Retention, SaveOptions, Transfer, Watch,
};

use super::{change, look, names, saved, state};

#[test]
fn what_a_step_shares_with_earlier_ones_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let listing = run.listing().unwrap();
    assert!(listing.damaged.is_empty());
    let steps: Vec<u64> = listing.checkpoints.iter().map(|it| it.info.step).collect();
    assert_eq!(steps, [10, 20, 30]);
    let linked: Vec<u64> = listing
        .checkpoints
        .iter()
        .map(|it| it.linked.unwrap_or(0))
        .collect();
    if cfg!(unix) {
        // The second gathers what did not change in a file of its own, the third links it.
        assert_eq!(linked[..2], [0, 0]);
        assert!(
            linked[2] > 1 << 20 && linked[2] < listing.checkpoints[2].info.nbytes,
            "{linked:?}"
        );
    }
}

#[test]
fn what_cannot_be_used_is_listed_apart() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    change(&run.path(20).join(MANIFEST), |bytes| bytes[100] ^= 1);
    fs::create_dir(run.path(25)).unwrap();
    let listing = run.listing().unwrap();
    let steps: Vec<u64> = listing.checkpoints.iter().map(|it| it.info.step).collect();
    assert_eq!(steps, [10, 30]);
    let damaged: Vec<u64> = listing.damaged.iter().map(|it| it.step).collect();
    assert_eq!(damaged, [20, 25]);
}

#[test]
fn a_plan_never_lets_the_last_intact_checkpoint_go() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let rule = Retention::keep_last(1).unwrap();
    let kept = || -> Vec<u64> {
        let plan = run.plan(&rule, Watch::nobody()).unwrap();
        plan.iter().filter(|it| it.keep).map(|it| it.step).collect()
    };
    assert_eq!(kept(), [30]);
    for name in names(&run.path(30))
        .iter()
        .filter(|name| name.ends_with(".safetensors"))
    {
        change(&run.path(30).join(name), |bytes| {
            *bytes.last_mut().unwrap() ^= 1;
        });
    }
    assert_eq!(kept(), [20, 30]);
    let all = run.plan(&Retention::All, Watch::nobody()).unwrap();
    assert!(all.iter().all(|it| it.keep));
}

/// Zero and negative zero were equal to retention and not to `best`, which named what retention had let go.
#[test]
fn the_best_one_is_the_one_that_retention_keeps() {
    for (mode, values) in [(Mode::Min, [0.0, -0.0]), (Mode::Max, [-0.0, 0.0])] {
        let directory = tempfile::tempdir().unwrap();
        let files = FileCheckpointer::open(directory.path(), Options::default()).unwrap();
        for (step, value) in [1, 2].into_iter().zip(values) {
            let transfer = Transfer {
                options: SaveOptions {
                    metrics: [("loss".to_owned(), value)].into(),
                    ..SaveOptions::default()
                },
                ..Transfer::from(state(1))
            };
            files.save(step, transfer).unwrap();
        }
        let run = look(directory.path());
        let rule = Retention::keep_best("loss", mode, 1).unwrap();
        let plan = run.plan(&rule, Watch::nobody()).unwrap();
        let kept = plan.iter().find(|it| it.keep).unwrap().step;
        assert_eq!(run.best("loss", mode).unwrap().unwrap().step, kept);
    }
}
