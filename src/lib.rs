//! pitstop: an asynchronous training checkpointer.
//!
//! It saves the state of a training run on a worker thread while training goes on, and gives back exactly
//! what was saved, or says clearly that it can't. A checkpoint is whole or not there at all, whatever kills
//! the process; every byte of it is checksummed; its tensors are plain `.safetensors` files, and all else
//! is JSON.
//!
//! # Saving and resuming
//!
//! ```
//! use pitstop::{AsyncCheckpointer, Checkpointer, FileCheckpointer, Node, Options, Retention};
//! use pitstop::{State, Tensor};
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path().join("runs/exp1");
//! # for last in [30, 50] {
//! # let mut weight = vec![0.0f32; 4];
//! let retention = Retention::keep_last(3)?;
//! let files = FileCheckpointer::open(&dir, Options { retention, ..Options::default() })?;
//! let mut start = 0;
//! if let Some((step, state)) = files.restore_newest()? {
//!     let leaf = state.root.get("weight").expect("it was saved");
//!     weight = state.tensor(leaf).and_then(Tensor::to_vec).expect("it was saved as f32");
//!     start = step as usize;
//! }
//!
//! let checkpointer = AsyncCheckpointer::new(files);
//! for step in start + 1..=last {
//!     weight.iter_mut().for_each(|weight| *weight += 0.5); // training
//!     if step % 10 == 0 {
//!         let mut state = State::default();
//!         let leaf = state.push(Tensor::copy_of(&weight, &[2, 2])?);
//!         state.root = Node::dict([("weight", leaf), ("rate", Node::Float(3e-4))]);
//!         checkpointer.save(step, state)?; // written in the background
//!     }
//! }
//! checkpointer.close()?; // the last one is on disk, or this says why not
//! # assert_eq!(weight, [last as f32 / 2.0; 4]);
//! # assert!(dir.join(format!("step-{last}/manifest.json")).exists());
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/native_trainer.rs` is a whole trainer: retention by metric, an [`Interrupter`] that stops the
//! loop when a save fails, a generator whose state is saved too, and a resumed run that ends bit-identical
//! to one that was never stopped.
//!
//! # Your own record, your own checkpointer
//!
//! [`AsyncCheckpointer<R>`] carries any `R: Send` to anything that implements [`Checkpointer<R>`], and knows
//! nothing of files or tensors. [The checkpointer room](checkpointer) has an example with both of one's own.
//! [`FileCheckpointer`] is a [`Checkpointer`] of two records: [`State`], and [`Transfer`], which adds metrics,
//! metadata, overwriting, and a [`Ticket`] that follows the save, with its [`Timings`].
//!
//! # The house
//!
//! Each room is a module. Data flows one way: [`format`](mod@format) plans the files of a [`State`],
//! [`snapshot`] copies it out of training memory, [`checkpointer`] carries it to the worker, [`storage`]
//! writes, and `commit` publishes and prunes. Restoring is the way back.
//!
//! | room | what it holds | whom it knows |
//! | --- | --- | --- |
//! | [`checkpointer`] | [`Checkpointer`], the worker behind [`AsyncCheckpointer`], [`Interrupter`], errors | nobody |
//! | [`state`] | what is saved: a tree of [`Node`]s beside a list of [`Tensor`]s | nobody |
//! | [`storage`] | [`Storage`], the one seam to the disk, and the real one behind it | nobody |
//! | [`format`](mod@format) | the bytes on disk: safetensors, the manifest, checksums | `state` |
//! | [`snapshot`] | copies between training memory, the arena and files | `state`, `format` |
//! | `commit` | publishing, recovery, [`Retention`] | `storage`, `format` |
//! | [`file_checkpointer`] | [`FileCheckpointer`] and [`Run`], made of the rooms above | all above |
//! | [`renderer`] | the training screen: [`Renderer`], its [`Event`](renderer::Event)s, and [`Screen`] | `checkpointer`'s [`Interrupter`]; its [`Monitor`](renderer::Monitor) all above |
//! | [`schedule`] | when to save: [`Interval`], applied to a run by [`Schedule`] | nobody |
//! | `cli` | the command line (feature `cli`) | the top: reads arguments, prints |
//! | `python` | the extension module (feature `python`) | the top: translates, decides nothing |
//!
//! Below them lies `sync`: what threads meet at, from `std` or from the model that tries their orders.
//!
//! `docs/format.md` in the repository describes every byte on disk; `docs/screen.md` the training screen.
//!
//! # Features
//!
//! By default the crate brings no Python, no async runtime and no terminal code. `cli` adds the program
//! `pitstop`, to list, verify, compare and export checkpoints: `cargo install --features cli`; `docs/cli.md`
//! describes it. `tui` lets [`default_renderer`] show a run as a screen in the terminal; without, it is lines of text.
//! `python` is what the Python package is built with.
//!
//! `test-util`, for `[dev-dependencies]`, adds `storage::simulated`: a disk in memory that loses power and fails
//! when told to, for tests of one's own runs. It brings no dependency.

pub mod checkpointer;
#[cfg(feature = "cli")]
pub mod cli;
mod commit;
pub mod file_checkpointer;
pub mod format;
#[cfg(feature = "python")]
mod python;
pub mod renderer;
pub mod schedule;
pub mod snapshot;
pub mod state;
pub mod storage;
mod sync;

pub use checkpointer::{
    AsyncCheckpointer, Checkpointer, CheckpointerError, Failure, Interrupter, Operation, Pending,
    Reply, TrySubmitError,
};
pub use commit::{Decision, Keep, Mode, Retention, RetentionError};
pub use file_checkpointer::{
    Changed, CheckpointInfo, Comparison, Cost, FileCheckpointer, History, Listed, Listing, Opened,
    Options, Outcome, Reads, RestoreError, Run, SaveOptions, SaveStats, Stats, TensorChange,
    Ticket, Timings, Transfer, Verification, compare, export_directory, export_file, save_as,
};
pub use format::Summary;
pub use renderer::{Renderer, Screen, ScreenOptions, default_renderer};
pub use schedule::{Interval, IntervalError, Schedule};
pub use snapshot::Watch;
pub use state::{
    Checksum, DType, Data, Distance, Element, Memory, Node, Piece, ReadAt, Region, ShapeError,
    State, Stored, Tensor, TensorRef, View,
};
pub use storage::{FileId, Local, Lock, LockError, NewFile, PathError, Storage, StoredFile};

// Its example is compiled, as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
