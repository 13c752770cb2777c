//! What is saved, and which checkpoints may be found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pitstop::storage::simulated::Disk;
use pitstop::{Node, RestoreError, Run, SaveOptions, State, Tensor, Transfer};

pub(crate) const RUN: &str = "/runs/exp1";

/// The checkpoints of a run: the version of each step. A step that is saved again gets another version.
pub(crate) type World = BTreeMap<u64, u64>;

/// A model that differs from version to version, and a part that never does.
pub(crate) fn state(step: u64, version: u64, length: usize) -> State {
    let mut state = State::default();
    let frozen = state.push(Tensor::from_vec(vec![7u8; 300], &[300]).unwrap());
    let trained = Tensor::from_vec(weight(step, version, length), &[length as u64]).unwrap();
    let trained = state.push(trained);
    state.root = Node::dict([
        ("model", Node::dict([("weight", trained)])),
        ("frozen", Node::dict([("weight", frozen)])),
        ("version", Node::Int(version as i64)),
    ]);
    state
}

/// No two sectors of any two checkpoints are alike.
fn weight(step: u64, version: u64, length: usize) -> Vec<u64> {
    let first = (step * 1000 + version) << 32;
    (first..).take(length).collect()
}

pub(crate) fn transfer(step: u64, version: u64, length: usize, overwrite: bool) -> Transfer {
    Transfer {
        options: SaveOptions {
            overwrite,
            ..SaveOptions::default()
        },
        ..Transfer::from(state(step, version, length))
    }
}

/// The version of a restored state; fails unless it is bit for bit what was saved.
pub(crate) fn version(state: &State, step: u64) -> u64 {
    let version = state.root.get("version").unwrap().as_int().unwrap() as u64;
    let leaf = |entry: &str| state.root.get(entry).unwrap().get("weight").unwrap();
    let tensor = |entry| state.tensor(leaf(entry)).unwrap();
    assert_eq!(tensor("frozen").to_vec::<u8>().unwrap(), [7; 300]);
    let found = tensor("model").to_vec::<u64>().unwrap();
    assert!(found == weight(step, version, found.len()), "step {step}");
    version
}

/// What a reader finds. All that looks like a checkpoint must be one, and intact.
pub(crate) fn world(run: &Run) -> World {
    let steps = match run.candidates() {
        Err(RestoreError::NotFound { .. }) => return World::new(),
        steps => steps.unwrap(),
    };
    let open = |step| match run.open(step, true).and_then(|it| it.load()) {
        Ok(state) => (step, version(&state, step)),
        Err(error) => panic!("step {step} can be seen, but is not whole: {error}"),
    };
    steps.into_iter().map(open).collect()
}

pub(crate) fn look(disk: &Disk) -> Run {
    Run::new(Arc::new(disk.clone()), RUN)
}

/// Keeps book of which worlds may be found, whatever happens next.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) possible: BTreeSet<World>,
    /// Only so many of the last steps stay, if there is a number.
    pub(crate) keep: Option<usize>,
    /// Steps that were never reported as committed, and may be there or not.
    doubtful: BTreeSet<u64>,
}

impl Ledger {
    pub(crate) fn new(keep: Option<usize>) -> Ledger {
        Ledger {
            possible: [World::new()].into(),
            keep,
            doubtful: BTreeSet::new(),
        }
    }

    /// A save was reported as committed: it is there, and what is surplus may be gone, since it went later.
    pub(crate) fn saved(&mut self, step: u64, version: u64) {
        self.doubtful.remove(&step);
        let mut possible = BTreeSet::new();
        for world in &self.possible {
            let world = with(world, step, version);
            // What is doubtful counts as long as it is there.
            for world in without_any(&world, &self.surplus(&world)) {
                possible.extend(without_any(&world, &Vec::from_iter(self.doubtful.clone())));
            }
        }
        self.possible = possible;
    }

    /// A save was reported as failed: what was there is, and nothing was removed; it may be there itself.
    pub(crate) fn not_saved(&mut self, step: u64, version: u64) {
        if self.possible.iter().any(|world| !world.contains_key(&step)) {
            self.doubtful.insert(step);
        }
        let saved: Vec<World> = self
            .possible
            .iter()
            .map(|it| with(it, step, version))
            .collect();
        self.possible.extend(saved);
    }

    /// A deletion was reported as done, or as failed.
    pub(crate) fn deleted(&mut self, step: u64, done: bool) {
        let gone: Vec<World> = self.possible.iter().map(|it| without(it, step)).collect();
        if done {
            self.doubtful.remove(&step);
            self.possible.clear();
        }
        self.possible.extend(gone);
    }

    /// The one world that is left if nothing goes wrong, and no removal is late.
    pub(crate) fn settled(&self) -> &World {
        let fewest = self.possible.iter().min_by_key(|world| world.len());
        fewest.unwrap()
    }

    fn surplus(&self, world: &World) -> Vec<u64> {
        let surplus = world.len().saturating_sub(self.keep.unwrap_or(usize::MAX));
        world.keys().copied().take(surplus).collect()
    }
}

fn with(world: &World, step: u64, version: u64) -> World {
    let mut world = world.clone();
    world.insert(step, version);
    world
}

fn without(world: &World, step: u64) -> World {
    let mut world = world.clone();
    world.remove(&step);
    world
}

/// The world without any choice of these steps.
fn without_any(world: &World, steps: &[u64]) -> Vec<World> {
    let mut worlds = vec![world.clone()];
    for &step in steps {
        let more: Vec<World> = worlds.iter().map(|it| without(it, step)).collect();
        worlds.extend(more);
    }
    worlds
}
