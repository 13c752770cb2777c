//! What a snapshot costs: copying a state into the arena with its checksums, and loading it back.
//!
//! `cargo bench --bench snapshot`; add a part of a name to run only some.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use pitstop::snapshot::{Arena, Capture, capture, load};
use pitstop::{Checkpointer, Data, FileCheckpointer, Node, Options, State, Tensor};

/// A state of tensors with these many elements each, in memory that its owner may change.
fn state(lengths: impl Iterator<Item = usize>) -> State {
    let mut state = State::default();
    let entries: Vec<(String, Node)> = lengths
        .enumerate()
        .map(|(index, length)| {
            let values: Vec<f32> = (0..length).map(|at| (at * 31 + index) as f32).collect();
            let mut tensor =
                Tensor::from_vec(values, &[length as u64]).expect("the shape is its length");
            if let Data::Memory(memory) = &mut tensor.data {
                memory.immutable = false;
            }
            (format!("p{index}"), state.push(tensor))
        })
        .collect();
    state.root = Node::dict([("model", Node::dict(entries))]);
    state
}

/// The states of the comparison with other libraries, the large one at a quarter of its size.
fn states() -> [(&'static str, State); 2] {
    let (vocabulary, width) = (50_257 / 4, 768);
    let layer = [3, 1, 4, 4].map(|rows| rows * width * width / 4);
    let model = [vocabulary * width, 256 * width]
        .into_iter()
        .chain((0..12).flat_map(move |_| layer));
    // Parameters, and two moments for each of them.
    let model = (0..3).flat_map(move |_| model.clone());
    [
        ("150 tensors, 373 MB", state(model)),
        (
            "20,000 tensors, 51 MB",
            state((0..20_000).map(|index| 256 + (index * 37) % 769)),
        ),
    ]
}

fn nbytes(state: &State) -> u64 {
    state.tensors.iter().map(Tensor::nbytes).sum()
}

fn captures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capture");
    group.sample_size(20);
    for (name, state) in states() {
        let arena = Arena::default();
        group.throughput(Throughput::Bytes(nbytes(&state)));
        // Each capture is dropped before the next one begins: the arena is used again, as between saves.
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_batched(
                || state.clone(),
                |state| {
                    let captured = capture(state, Capture::into(&arena));
                    drop(black_box(captured.expect("there is memory")));
                },
                BatchSize::PerIteration,
            );
        });
    }
}

fn loads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("load, warm");
    group.sample_size(20);
    for (name, state) in states() {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let files = FileCheckpointer::open(directory.path(), Options::default())
            .expect("nobody else writes there");
        group.throughput(Throughput::Bytes(nbytes(&state)));
        files.save(1, state).expect("it can be saved");
        let stored = files
            .run()
            .open(1, true)
            .expect("it was saved")
            .state
            .tensors;
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_with_large_drop(|| load(&stored).expect("it is intact"));
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    captures(&mut criterion);
    loads(&mut criterion);
    criterion.final_summary();
}
