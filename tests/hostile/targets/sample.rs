//! A checkpoint with one of everything.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use pitstop::format::{FileEntry, MANIFEST, Manifest, checksum};
use pitstop::{
    DType, Data, Element, Local, Memory, Node, Piece, SaveOptions, State, Tensor, TensorRef, View,
    save_as,
};

use super::forge::Files;

/// The step that it is of.
pub(crate) const STEP: u64 = 7;

/// A checkpoint, and what it holds.
pub(crate) struct Sample {
    pub(crate) files: Files,
    pub(crate) state: State,
}

/// The same one each time: what was found with it is found again.
pub(crate) fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let path = directory.path().join("step-7");
        let options = SaveOptions {
            metrics: [("loss".to_owned(), 0.25), ("worst".to_owned(), f64::NAN)].into(),
            metadata: Node::dict([("git", Node::from("abc")), ("runs", Node::List(vec![]))]),
            ..SaveOptions::default()
        };
        let storage = Local::new().fsync(false);
        save_as(&storage, &path, STEP, state(), &options).expect("it can be saved");
        let mut files = read(&path);
        add_index(&mut files);
        Sample {
            files,
            state: state(),
        }
    })
}

/// All files in a directory, by name.
pub(crate) fn read(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).expect("it is a directory");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("it can be listed");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        (name, fs::read(entry.path()).expect("it can be read"))
    };
    entries.map(file).collect()
}

/// Only states of many gigabytes have a file without tensors: this one is given its own.
fn add_index(files: &mut Files) {
    let index = br#"{"metadata":{"total_size":24},"weight_map":{}}"#;
    let mut manifest = Manifest::parse(&files[MANIFEST]).expect("it was just written");
    let name = "model.safetensors.index.json";
    let entry = FileEntry {
        checksum: checksum::of(index),
        data_start: None,
        size: index.len() as u64,
        ..manifest.files["model.safetensors"].clone()
    };
    manifest.files.insert(name.to_owned(), entry);
    let manifest = manifest.to_bytes().expect("it still is a manifest");
    files.insert(MANIFEST.to_owned(), manifest);
    files.insert(name.to_owned(), index.to_vec());
}

fn tensor<T: Element>(values: Vec<T>, shape: &[u64]) -> Tensor {
    Tensor::from_vec(values, shape).expect("as many as the shape says")
}

fn state() -> State {
    let mut state = State::default();
    let weight = state.push(tensor(vec![1.5f32, -2.0, 0.0, 4.0, 5.0, 6.0], &[2, 3]));
    let wide = state.push(tensor(vec![0.1f64, f64::INFINITY], &[2]));
    let empty = state.push(tensor(Vec::<i64>::new(), &[0, 3]));
    let scalar = state.push(tensor(vec![7i16], &[]));
    let half = Data::Memory(Memory::whole(std::sync::Arc::new(vec![1u8, 2, 3])));
    let packed = state.push(Tensor::new(DType::F4, &[6], half).expect("three bytes"));
    let piece = |at: u64, rows: u64| Piece {
        offset: vec![at, 0],
        tensor: tensor(vec![at as u32; rows as usize * 2], &[rows, 2]),
    };
    let pieces = Data::Pieces(vec![piece(0, 1), piece(1, 2)]);
    let pieces = state.push(Tensor::new(DType::U32, &[3, 2], pieces).expect("they tile it"));
    let loose = state.push(tensor(vec![9u8; 5], &[5]));
    let view = View {
        dtype: DType::F32,
        shape: vec![3, 2],
        strides: vec![-4, 12],
        offset: 8,
    };
    let window = show(&weight, "torch", Some(view));
    let model = Node::dict([
        ("w", show(&weight, "torch", None)),
        ("window", window),
        ("list", Node::List(vec![wide, Node::None, empty, scalar])),
    ]);
    let moments = Node::Tuple(vec![show(&packed, "", None), pieces]);
    let optimizer = Node::tagged("object:torch.optim.AdamW", Node::dict([("m", moments)]));
    let plain = Node::Dict(vec![
        (Node::Int(-3), Node::Bool(true)),
        (Node::Tuple(vec![1.into(), "x".into()]), Node::Float(1e-8)),
        ("big".into(), Node::BigInt("-0x1ffffffffffffffff".into())),
        ("complex".into(), Node::Complex(-0.0, f64::NAN)),
        ("bytes".into(), Node::Bytes(vec![0, 255, 7])),
        ("set".into(), Node::Set(vec![Node::Float(f64::INFINITY)])),
        ("quote\" \u{7}\u{1F600}".into(), Node::Str("é".into())),
    ]);
    state.root = Node::dict([
        ("model", model),
        ("optimizer", optimizer),
        ("plain", plain),
        ("loose", show(&loose, "bytes", None)),
    ]);
    state
}

fn show(leaf: &Node, kind: &'static str, view: Option<View>) -> Node {
    match leaf {
        Node::Tensor(leaf) => Node::Tensor(TensorRef {
            index: leaf.index,
            kind: kind.into(),
            view,
        }),
        other => other.clone(),
    }
}

/// What two states have in common if they are the same: the tree, and the bytes of each tensor.
pub(crate) fn fingerprint(state: &State) -> String {
    let mut text = format!("{:?}", state.root);
    let mut tensors = Vec::new();
    state
        .root
        .for_each_tensor(&mut |leaf| tensors.push(leaf.index));
    for index in tensors {
        let tensor = &state.tensors[index];
        let bytes = stored(tensor);
        let _ = write!(text, "{:?}{:?}{bytes:?}", tensor.dtype, tensor.shape);
    }
    // Which number a tensor has does not matter.
    normal(&text)
}

fn stored(tensor: &Tensor) -> Vec<u8> {
    match &tensor.data {
        // The pieces of the sample follow each other.
        Data::Pieces(pieces) => pieces
            .iter()
            .flat_map(|piece| stored(&piece.tensor))
            .collect(),
        _ => tensor.bytes().expect("it is in memory").to_vec(),
    }
}

fn normal(text: &str) -> String {
    let mut parts = text.split("index: ");
    let mut normal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        normal += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    normal
}
