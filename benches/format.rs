//! What a checkpoint costs beside its bytes: planning its files, writing and reading its manifest, opening it.
//!
//! `cargo bench --bench format`; add a part of a name to run only some.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pitstop::format::{MANIFEST, Manifest, Plan, PlanOptions, Source, checksum, plan};
use pitstop::{Checksum, DType, Data, Local, Node, ReadAt, Run, State, Stored, Tensor, TensorRef};

/// Nothing that is measured here reads a tensor.
struct Unread;

impl ReadAt for Unread {
    fn read_at(&self, _offset: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn name(&self) -> &'static str {
        "unread"
    }
}

/// Adds an F32 tensor that differs from one `generation` to the next.
fn tensor(state: &mut State, shape: &[u64], generation: u64) -> Node {
    let data = Data::Stored(Stored {
        source: Arc::new(Unread),
        offset: 0,
    });
    let index = state.tensors.len();
    let mut tensor = Tensor::new(DType::F32, shape, data).expect("the shape is possible");
    tensor.checksum = Some(checksum::of(
        &[index as u64, generation].map(u64::to_le_bytes).concat(),
    ));
    state.tensors.push(tensor);
    Node::Tensor(TensorRef {
        index,
        kind: "torch".into(),
        view: None,
    })
}

/// A GPT of 12 layers with the moments of Adam: 150 tensors, 1.5 GB.
fn few_large(generation: u64) -> State {
    let mut state = State::default();
    let d = 768;
    let mut shapes = vec![
        ("wte.weight".to_owned(), [50_257, d]),
        ("wpe.weight".to_owned(), [1024, d]),
    ];
    for layer in 0..12 {
        shapes.extend([
            (format!("h.{layer}.attn.qkv.weight"), [3 * d, d]),
            (format!("h.{layer}.attn.proj.weight"), [d, d]),
            (format!("h.{layer}.mlp.fc.weight"), [4 * d, d]),
            (format!("h.{layer}.mlp.proj.weight"), [d, 4 * d]),
        ]);
    }
    let mut model = Vec::new();
    for (name, shape) in &shapes {
        model.push((name.as_str(), tensor(&mut state, shape, generation)));
    }
    let mut moments = Vec::new();
    for (i, (_, shape)) in shapes.iter().enumerate() {
        let of_parameter = Node::dict([
            ("step", Node::Float(1000.0)),
            ("exp_avg", tensor(&mut state, shape, generation)),
            ("exp_avg_sq", tensor(&mut state, shape, generation)),
        ]);
        moments.push((Node::Int(i as i64), of_parameter));
    }
    state.root = Node::dict([
        ("model", Node::dict(model)),
        ("optimizer", Node::dict([("state", Node::Dict(moments))])),
        ("step", Node::Int(1000)),
    ]);
    state
}

/// Tensors of 1 to 4 KiB.
fn many_small(number: u64, generation: u64) -> State {
    let mut state = State::default();
    let mut model = Vec::new();
    for i in 0..number {
        let shape = [256 + (i * 37) % 769];
        let name = format!("blocks.{}.p{}", i / 20, i % 20);
        model.push((name, tensor(&mut state, &shape, generation)));
    }
    state.root = Node::dict([("model", Node::dict(model)), ("step", Node::Int(1000))]);
    state
}

struct Case {
    name: &'static str,
    make: fn(u64) -> State,
}

const CASES: [Case; 3] = [
    Case {
        name: "150 tensors, 1.5 GB",
        make: few_large,
    },
    Case {
        name: "20,000 tensors, 51 MB",
        make: |generation| many_small(20_000, generation),
    },
    Case {
        name: "100,000 tensors, 256 MB",
        make: |generation| many_small(100_000, generation),
    },
];

fn manifest(step: u64, state: &State, plan: Plan) -> Manifest {
    Manifest {
        step,
        created: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        writer: "bench".to_owned(),
        metrics: BTreeMap::from([("loss".to_owned(), 0.5)]),
        metadata: Node::None,
        root: state.root.clone(),
        files: plan
            .files
            .into_iter()
            .map(|file| (file.name, file.entry))
            .collect(),
        tensors: plan.tensors,
    }
}

/// Writes a checkpoint whose tensors are holes: opening it never reads them.
fn write(run: &Path, step: u64, state: &State) -> io::Result<()> {
    let directory = run.join(format!("step-{step}"));
    fs::create_dir(&directory)?;
    let plan = plan(state, None, &PlanOptions::default());
    for file in &plan.files {
        let mut written = File::create(directory.join(&file.name))?;
        if let Source::Write { head, .. } = &file.source {
            written.write_all(head)?;
        }
        written.set_len(file.entry.size)?;
    }
    let bytes = manifest(step, state, plan)
        .to_bytes()
        .map_err(io::Error::other)?;
    fs::write(directory.join(MANIFEST), bytes)
}

fn planning(c: &mut Criterion) {
    let options = PlanOptions::default();
    let mut group = c.benchmark_group("plan");
    for case in &CASES {
        // Made only if they are needed.
        let before = LazyCell::new(|| (case.make)(1));
        let previous = LazyCell::new(|| manifest(1, &before, plan(&before, None, &options)));
        let after = || (case.make)(2);
        let some = || {
            let mut state = (case.make)(1);
            for tensor in state.tensors.iter_mut().step_by(50) {
                tensor.checksum = Some(Checksum(7));
            }
            state
        };
        let mut measure = |what: &str, make: &dyn Fn() -> State, incremental: bool| {
            group.bench_function(BenchmarkId::new(what, case.name), |b| {
                let state = make();
                let previous = incremental.then(|| &*previous);
                b.iter(|| plan(black_box(&state), previous, &options));
            });
        };
        measure("first", &after, false);
        measure("all changed", &after, true);
        measure("2 % changed", &some, true);
        measure("unchanged", &|| (case.make)(1), true);
    }
}

fn manifests(c: &mut Criterion) {
    let mut group = c.benchmark_group("manifest");
    for case in &CASES {
        let manifest = LazyCell::new(|| {
            let state = (case.make)(1);
            manifest(1, &state, plan(&state, None, &PlanOptions::default()))
        });
        let bytes = LazyCell::new(|| manifest.to_bytes().expect("it can be written"));
        group.bench_function(BenchmarkId::new("to_bytes", case.name), |b| {
            let manifest = &*manifest;
            b.iter(|| black_box(manifest).to_bytes());
        });
        group.bench_function(BenchmarkId::new("parse", case.name), |b| {
            let bytes = &*bytes;
            b.iter(|| Manifest::parse(black_box(bytes)));
        });
        group.bench_function(BenchmarkId::new("parse_head", case.name), |b| {
            let bytes = &*bytes;
            b.iter(|| Manifest::parse_head(black_box(bytes)));
        });
    }
}

fn opening(c: &mut Criterion) {
    let mut group = c.benchmark_group("run of 10");
    for case in &CASES {
        let directory = tempfile::tempdir().expect("there is room");
        let run = LazyCell::new(|| {
            let state = (case.make)(1);
            for step in 1..=10 {
                write(directory.path(), step, &state).expect("it can be written");
            }
            Run::new(Arc::new(Local::new()), directory.path())
        });
        group.bench_function(BenchmarkId::new("open", case.name), |b| {
            let run = &*run;
            b.iter(|| run.open(10, true).expect("it is intact"));
        });
        group.bench_function(BenchmarkId::new("info", case.name), |b| {
            let run = &*run;
            b.iter(|| run.info(10).expect("it is intact"));
        });
        group.bench_function(BenchmarkId::new("latest", case.name), |b| {
            let run = &*run;
            b.iter(|| run.latest().expect("it is intact"));
        });
        group.bench_function(BenchmarkId::new("latest_after", case.name), |b| {
            let run = &*run;
            b.iter(|| run.latest_after(10).expect("it is intact"));
        });
        group.bench_function(BenchmarkId::new("checkpoints", case.name), |b| {
            let run = &*run;
            b.iter(|| run.checkpoints().expect("they are intact"));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(600));
    targets = planning, manifests, opening
}
criterion_main!(benches);
