use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pitstop::{
    Checkpointer, DType, FileCheckpointer, Local, Node, Options, RestoreError, State, Watch,
    export_directory, export_file,
};
use safetensors::SafeTensors;

use super::{change, look, names, open, saved};

/// What is in a file, as the reference reader sees it: name, type, shape, bytes.
fn read(path: &Path) -> Vec<(String, String, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let (dtype, shape) = (view.dtype().to_string(), view.shape().to_vec());
            (name, dtype, shape, view.data().to_vec())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn one_file_holds_every_tensor_whole_under_its_full_name() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(&directory.path().join("run"));
    let out = directory.path().join("out.safetensors");
    let size = export_file(&Local::new(), &open(&run, 30), &out, false, Watch::nobody()).unwrap();
    assert_eq!(fs::metadata(&out).unwrap().len(), size);
    let loaded = open(&run, 30).load().unwrap();
    let found = read(&out);
    assert_eq!(found.len(), 3);
    for (name, dtype, shape, bytes) in found {
        let tensor = loaded
            .tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .unwrap();
        assert_eq!(tensor.dtype.name(), dtype);
        assert_eq!(
            tensor.shape,
            shape
                .iter()
                .map(|&extent| extent as u64)
                .collect::<Vec<_>>()
        );
        assert_eq!(tensor.bytes().unwrap(), bytes, "{name}");
    }
    assert_eq!(names(directory.path()), ["out.safetensors", "run"]);
}

#[test]
fn a_directory_holds_the_tensors_by_entry_and_the_rest_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(&directory.path().join("run"));
    let out = directory.path().join("out");
    export_directory(&Local::new(), &open(&run, 30), &out, false, Watch::nobody()).unwrap();
    assert_eq!(names(&out), ["checkpoint.json", "model.safetensors"]);
    let found: Vec<String> = read(&out.join("model.safetensors"))
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(found, ["frozen", "split", "trained"]);
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("checkpoint.json")).unwrap()).unwrap();
    assert_eq!(json["format"], "pitstop-export");
    assert_eq!(
        (&json["step"], &json["metrics"]["loss"]),
        (&30.into(), &30.0.into())
    );
    assert_eq!(json["tree"]["dict"]["epoch"], 3);
    assert_eq!(json["metadata"], "a note");
    let split = &json["tensors"]["model.split"];
    assert_eq!(
        (&split["file"], &split["name"]),
        (&"model.safetensors".into(), &"split".into())
    );
    assert_eq!(split["shape"], serde_json::json!([4, 6]));
}

#[test]
fn what_is_there_is_replaced_only_when_asked_and_only_if_it_is_of_that_kind() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(&directory.path().join("run"));
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "mine").unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/precious"), "mine").unwrap();
    let refused = |result: Result<u64, RestoreError>| match result {
        Err(RestoreError::Io(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let file = |to: &str, replace| {
        export_file(
            &Local::new(),
            &open(&run, 10),
            &at(to),
            replace,
            Watch::nobody(),
        )
    };
    let folder = |to: &str, replace| {
        export_directory(
            &Local::new(),
            &open(&run, 10),
            &at(to),
            replace,
            Watch::nobody(),
        )
    };
    assert!(refused(file("file", false)).contains("is there already"));
    assert!(refused(file("folder", true)).contains("no file"));
    assert!(refused(folder("folder", false)).contains("is there already"));
    assert!(refused(folder("folder", true)).contains("not exported"));
    assert!(refused(folder("file", true)).contains("no directory"));
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "mine");
    assert_eq!(names(&at("folder")), ["precious"]);
    file("file", true).unwrap();
    assert_eq!(read(&at("file")).len(), 3);
    for replace in [false, true] {
        folder("exported", replace).unwrap();
        assert_eq!(
            names(&at("exported")),
            ["checkpoint.json", "model.safetensors"]
        );
    }
    assert_eq!(
        names(directory.path()),
        ["exported", "file", "folder", "run"]
    );
}

#[test]
fn damage_is_not_exported() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(&directory.path().join("run"));
    let out = directory.path().join("out");
    for name in names(&run.path(30))
        .iter()
        .filter(|name| name.ends_with(".safetensors"))
    {
        let opened = open(&run, 30);
        change(&run.path(30).join(name), |bytes| {
            *bytes.last_mut().unwrap() ^= 1;
        });
        let damaged = open(&run, 30);
        drop(opened);
        for export in [export_file, export_directory] {
            let error = export(&Local::new(), &damaged, &out, false, Watch::nobody()).unwrap_err();
            assert!(matches!(error, RestoreError::Corrupt { .. }), "{error}");
        }
        assert_eq!(names(directory.path()), ["run"]);
    }
}

#[test]
fn what_is_stopped_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(&directory.path().join("run"));
    let stop = AtomicBool::new(false);
    let watch = Watch {
        progress: &|_| stop.store(true, Ordering::Relaxed),
        stop: &stop,
    };
    let out = directory.path().join("out");
    let error = export_file(&Local::new(), &open(&run, 30), &out, false, watch).unwrap_err();
    assert!(
        matches!(error, RestoreError::Io(ref error) if error.kind() == std::io::ErrorKind::Interrupted)
    );
    assert_eq!(names(directory.path()), ["run"]);
}

#[test]
fn a_state_without_tensors_is_a_file_without_tensors() {
    let directory = tempfile::tempdir().unwrap();
    let files = FileCheckpointer::open(directory.path().join("run"), Options::default()).unwrap();
    let state = State {
        root: Node::Int(1),
        ..State::default()
    };
    files.save(1, state).unwrap();
    let run = look(&directory.path().join("run"));
    let out = directory.path().join("out");
    let size = export_file(&Local::new(), &open(&run, 1), &out, false, Watch::nobody()).unwrap();
    assert!(read(&out).is_empty());
    assert_eq!(fs::metadata(&out).unwrap().len(), size);
}

#[test]
fn every_element_type_is_exported() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = State::default();
    let mut root = vec![];
    for &dtype in DType::ALL {
        let bytes =
            pitstop::Tensor::from_vec(vec![1u8; dtype.bits() as usize], &[dtype.bits()]).unwrap();
        root.push((
            dtype.name(),
            state.push(pitstop::Tensor::new(dtype, &[8], bytes.data).unwrap()),
        ));
    }
    state.root = Node::dict(root);
    let files = FileCheckpointer::open(directory.path().join("run"), Options::default()).unwrap();
    files.save(1, state).unwrap();
    let out = directory.path().join("out");
    let opened = open(&look(&directory.path().join("run")), 1);
    export_file(&Local::new(), &opened, &out, false, Watch::nobody()).unwrap();
    assert_eq!(read(&out).len(), DType::ALL.len());
}
