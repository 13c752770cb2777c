//! The snapshot: what the copying threads share, the arena, and what a save says it still reads.

use std::cell::UnsafeCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pitstop::snapshot::{Arena, Capture, capture, fill_checksums, load};
use pitstop::{AsyncCheckpointer, DType, Data, FileCheckpointer, Memory, Node, Options, Reads};
use pitstop::{Region, State, Tensor, Ticket, Transfer};

use crate::explore::explore;
use crate::stage::{any, keep_log, pause};

const FOREVER: Duration = Duration::MAX;

/// Memory that training writes to: its owner sees to it that nobody reads meanwhile.
struct Weights(UnsafeCell<Vec<u8>>);

// SAFETY: it is written only by `fill`, whose caller vouches for it.
unsafe impl Sync for Weights {}

impl Weights {
    fn of(value: u8, len: usize) -> Arc<Weights> {
        Arc::new(Weights(UnsafeCell::new(vec![value; len])))
    }

    /// # Safety
    ///
    /// Nobody reads it meanwhile. In a model one thread runs at a time, so a wrong promise shows as wrong bytes.
    unsafe fn fill(&self, value: u8) {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }.fill(value);
    }
}

impl Region for Weights {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `fill` does not run meanwhile.
        unsafe { &*self.0.get() }
    }
}

fn state_of(weights: &[Arc<Weights>]) -> State {
    let mut state = State::default();
    let mut leaves = Vec::new();
    for (index, weights) in weights.iter().enumerate() {
        let shape = [weights.bytes().len() as u64];
        let region = Arc::clone(weights);
        let data = Data::Memory(Memory {
            immutable: false,
            ..Memory::whole(region)
        });
        let tensor = Tensor::new(DType::U8, &shape, data).expect("it fits");
        leaves.push((format!("w{index}"), state.push(tensor)));
    }
    state.root = Node::dict(leaves);
    state
}

fn holds(tensor: &Tensor, value: u8) -> bool {
    let bytes = tensor.bytes().expect("in memory, without gaps");
    bytes == vec![value; bytes.len()]
}

// Enough bytes for several threads; now and then one of them is not to be had.
#[test]
fn what_several_threads_copy_is_whole() {
    explore(200, || {
        let sizes = [5 << 20, 1, 5 << 20, 100_000];
        let weights: Vec<_> = (1..)
            .zip(sizes)
            .map(|(value, len)| Weights::of(value, len))
            .collect();
        let arena = Arena::default();
        let copied = capture(state_of(&weights), Capture::into(&arena));
        let mut copied = copied.expect("there is memory");
        fill_checksums(&mut copied).expect("it is in memory");
        for (value, (tensor, weights)) in (1..).zip(copied.tensors.iter().zip(&weights)) {
            assert!(holds(tensor, value), "tensor {value}");
            let expected = pitstop::format::checksum::of(weights.bytes());
            assert_eq!(tensor.checksum, Some(expected), "tensor {value}");
        }
    });
}

#[test]
fn snapshots_at_the_same_time_share_no_memory() {
    explore(1000, || {
        let arena = Arena::default();
        let snapshots: Vec<_> = (1..4)
            .map(|value| {
                let arena = arena.clone();
                shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        let state = state_of(&[Weights::of(value, 10_000)]);
                        let copied = capture(state, Capture::into(&arena)).expect("memory");
                        pause();
                        assert!(holds(&copied.tensors[0], value));
                        if any(4) == 0 {
                            arena.release();
                        }
                        drop(copied);
                    }
                })
            })
            .collect();
        for snapshot in snapshots {
            snapshot.join().expect("it ends");
        }
        let (bytes, leased) = arena.usage();
        assert_eq!(leased, 0);
        drop(capture(
            state_of(&[Weights::of(0, 1)]),
            Capture::into(&arena),
        ));
        let one_block = arena.bytes();
        assert!(bytes <= one_block, "{bytes} bytes are kept");
    });
}

/// A state of small tensors, of which some may be deferred, and the training that changes it.
struct Training {
    weights: Vec<Arc<Weights>>,
    deferred: Vec<bool>,
    ticket: Arc<Ticket>,
}

impl Training {
    fn transfer() -> (Training, Transfer) {
        let weights: Vec<_> = (1..=4).map(|value| Weights::of(value, 5000)).collect();
        let deferred: Vec<_> = weights.iter().map(|_| any(2) == 0).collect();
        let transfer = Transfer {
            deferred: deferred.clone(),
            ..Transfer::from(state_of(&weights))
        };
        let ticket = Arc::clone(&transfer.ticket);
        let training = Training {
            weights,
            deferred,
            ticket,
        };
        (training, transfer)
    }

    /// Changes everything, each as soon as it may be.
    fn go_on(&self) {
        if any(2) == 0 {
            assert!(self.ticket.wait_reads(Reads::Deferred, FOREVER));
            // With a memory limit it may be less that is read by now.
            self.change(false);
        }
        while !self
            .ticket
            .wait_reads(Reads::Nothing, Duration::from_secs(1))
        {}
        assert_eq!(self.ticket.reads(), Reads::Nothing);
        self.change(true);
        self.change(false);
    }

    fn change(&self, deferred: bool) {
        for (weights, of) in self.weights.iter().zip(&self.deferred) {
            if *of == deferred {
                // SAFETY: the ticket says that it is not read any more.
                unsafe { weights.fill(0) };
            }
        }
    }
}

fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    directory.expect("a directory")
}

#[test]
fn what_a_save_says_it_reads_no_more_may_change() {
    explore(1000, || {
        keep_log();
        let directory = directory();
        // All fits, some does, nothing does.
        let memory_limit = [None, Some(12_288), Some(0)][any(3)];
        let options = Options {
            memory_limit,
            fsync: false,
            ..Options::default()
        };
        let files = FileCheckpointer::open(directory.path(), options).expect("it is ours");
        let checkpointer = AsyncCheckpointer::<Transfer>::new(files);
        for step in [1, 2] {
            let (training, transfer) = Training::transfer();
            let ticket = Arc::clone(&transfer.ticket);
            let pending = checkpointer.submit(step, transfer).expect("a worker");
            let other = shuttle::thread::spawn(move || ticket.wait_reads(Reads::Nothing, FOREVER));
            training.go_on();
            assert!(other.join().expect("it ends"));
            pending
                .wait(None)
                .expect("no time limit")
                .expect("it is saved");
            let saved = pitstop::Checkpointer::restore(&checkpointer, step).expect("it is there");
            let saved = load(&saved.state.tensors).expect("it is intact");
            for (value, tensor) in (1..).zip(&saved) {
                assert!(
                    holds(tensor, value),
                    "step {step}, tensor {value}: {memory_limit:?}"
                );
            }
        }
    });
}

#[test]
fn a_save_that_fails_reads_nothing_any_more() {
    explore(500, || {
        keep_log();
        let directory = directory();
        let options = Options {
            fsync: false,
            ..Options::default()
        };
        let files = FileCheckpointer::open(directory.path(), options).expect("it is ours");
        // Nothing can be begun, or all but the last step succeeds.
        let failed = match any(2) {
            0 => std::fs::remove_dir_all(directory.path()),
            _ => std::fs::write(directory.path().join("step-1"), "in the way"),
        };
        failed.expect("it is ours");
        let checkpointer = AsyncCheckpointer::<Transfer>::new(files);
        let (training, transfer) = Training::transfer();
        let pending = checkpointer.submit(1, transfer).expect("a worker");
        training.go_on();
        pending
            .wait(None)
            .expect("no time limit")
            .expect_err("it fails");
    });
}
