//! What handing a record over to the worker costs the training thread.
//!
//! `cargo bench --bench worker`; add a part of a name to run only some.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError};

/// Saves nothing, at once: what is left is the worker's own cost.
struct Nowhere;

impl Checkpointer<Vec<u8>> for Nowhere {
    fn save(&self, _epoch: usize, record: Vec<u8>) -> Result<(), CheckpointerError> {
        black_box(record);
        Ok(())
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, _epoch: usize) -> Result<Vec<u8>, CheckpointerError> {
        Ok(Vec::new())
    }
}

fn hand_over(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("worker");
    let checkpointer = AsyncCheckpointer::new(Nowhere);
    // What a training thread waits for: the worker is idle when it comes.
    group.bench_function("submit to an idle worker", |bencher| {
        bencher.iter_batched(
            || checkpointer.wait(None).expect("nothing fails"),
            |_| checkpointer.submit(1, vec![0]).expect("nothing fails"),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("submit and wait for the end", |bencher| {
        bencher.iter(|| {
            let pending = checkpointer.submit(1, vec![0]).expect("nothing fails");
            pending.wait(None)
        });
    });
    group.bench_function("submit back to back", |bencher| {
        bencher.iter(|| checkpointer.submit(1, vec![0]).expect("nothing fails"));
    });
    group.bench_function("restore", |bencher| {
        bencher.iter(|| checkpointer.restore(1).expect("nothing fails"));
    });
    group.bench_function("check", |bencher| {
        bencher.iter(|| checkpointer.check().expect("nothing fails"));
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hand_over(&mut criterion);
    criterion.final_summary();
}
