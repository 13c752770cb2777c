//! Whatever a manifest can hold comes back from its bytes, and no changed byte goes unnoticed.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::{
    FileEntry, FormatError, MAX_DEPTH, Manifest, Part, Place, Stretch, TensorEntry, checksum,
};
use crate::state::{DType, Node, TensorRef, View};

fn leaf() -> impl Strategy<Value = Node> {
    let tensor = (0usize..2, "[a-z]{0,6}", any::<bool>()).prop_map(|(index, kind, view)| {
        let view = view.then(|| View {
            dtype: DType::F32,
            shape: vec![2],
            strides: vec![-4],
            offset: 4,
        });
        Node::Tensor(TensorRef {
            index,
            kind: kind.into(),
            view,
        })
    });
    prop_oneof![
        Just(Node::None),
        any::<bool>().prop_map(Node::Bool),
        any::<i64>().prop_map(Node::Int),
        "-?0x[1-9a-f][0-9a-f]{15,60}".prop_map(Node::BigInt),
        any::<u64>().prop_map(|bits| Node::Float(f64::from_bits(bits))),
        any::<(u64, u64)>()
            .prop_map(|(re, im)| Node::Complex(f64::from_bits(re), f64::from_bits(im))),
        any::<String>().prop_map(Node::Str),
        any::<Vec<u8>>().prop_map(Node::Bytes),
        tensor,
    ]
}

fn tree() -> impl Strategy<Value = Node> {
    leaf().prop_recursive(5, 64, 6, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            items().prop_map(Node::List),
            items().prop_map(Node::Tuple),
            items().prop_map(Node::Set),
            prop::collection::btree_map(any::<String>(), inner.clone(), 0..6).prop_map(Node::dict),
            prop::collection::vec((inner.clone(), inner.clone()), 0..6).prop_map(without_twins),
            (any::<String>(), inner.clone()).prop_map(|(tag, value)| Node::tagged(tag, value)),
        ]
    })
}

/// A dictionary whose text keys differ.
fn without_twins(mut entries: Vec<(Node, Node)>) -> Node {
    let mut seen = std::collections::HashSet::new();
    entries.retain(|(key, _)| key.as_str().is_none_or(|key| seen.insert(key.to_owned())));
    Node::Dict(entries)
}

/// Bit by bit, so that NaN equals itself and `-0.0` differs from `0.0`.
fn same(a: &Node, b: &Node) -> bool {
    format!("{:?}", bits(a)) == format!("{:?}", bits(b))
}

fn bits(node: &Node) -> Node {
    let all = |items: &[Node]| items.iter().map(bits).collect();
    match node {
        Node::Float(value) => Node::Str(format!("{:016x}", value.to_bits())),
        Node::Complex(re, im) => Node::Str(format!("{:016x} {:016x}", re.to_bits(), im.to_bits())),
        Node::List(items) => Node::List(all(items)),
        Node::Tuple(items) => Node::Tuple(all(items)),
        Node::Set(items) => Node::Set(all(items)),
        Node::Dict(entries) => {
            Node::Dict(entries.iter().map(|(k, v)| (bits(k), bits(v))).collect())
        }
        Node::Tagged { tag, value } => Node::tagged(tag.clone(), bits(value)),
        other => other.clone(),
    }
}

fn manifest(root: Node, metrics: BTreeMap<String, f64>) -> Manifest {
    let part = |offset: u64, start: u64| Part {
        offset: vec![offset],
        shape: vec![2],
        stretch: Stretch {
            file: "model.safetensors".into(),
            name: format!("w{offset}"),
            start,
            checksum: checksum::of(&offset.to_le_bytes()),
        },
    };
    let tensor = |key: &str, shape: u64, place| TensorEntry {
        key: key.into(),
        dtype: DType::F32,
        shape: vec![shape],
        place,
    };
    let file = FileEntry {
        size: 4096 + 64,
        data_start: Some(4096),
        checksum: checksum::of(b"file"),
        links: 3,
    };
    Manifest {
        step: u64::MAX,
        created: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        writer: "pitstop test".into(),
        metrics,
        metadata: Node::dict([("note", Node::from("hello"))]),
        root,
        files: [("model.safetensors".to_owned(), file)].into(),
        tensors: vec![
            tensor("a", 2, Place::Whole(part(0, 4096).stretch)),
            tensor("b", 4, Place::Pieces(vec![part(0, 4104), part(2, 4112)])),
        ],
    }
}

proptest! {
    #[test]
    fn any_tree_comes_back(root in tree()) {
        let written = manifest(root, BTreeMap::new());
        let read = Manifest::parse(&written.to_bytes().unwrap()).unwrap();
        prop_assert!(same(&read.root, &written.root), "{:?} != {:?}", read.root, written.root);
        prop_assert_eq!(&read.tensors, &written.tensors);
        prop_assert_eq!(&read.files, &written.files);
        prop_assert_eq!((read.step, read.created), (written.step, written.created));
    }

    #[test]
    fn any_metrics_come_back(metrics in prop::collection::btree_map(any::<String>(), any::<f64>(), 0..5)) {
        let read = Manifest::parse_head(&manifest(Node::None, metrics.clone()).to_bytes().unwrap()).unwrap();
        prop_assert_eq!(format!("{:?}", read.metrics), format!("{metrics:?}"));
    }

    #[test]
    fn garbage_is_refused(bytes in any::<Vec<u8>>()) {
        prop_assert!(Manifest::parse(&bytes).is_err());
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let root = Node::dict([(
        "x",
        Node::Tensor(TensorRef {
            index: 0,
            kind: "numpy".into(),
            view: None,
        }),
    )]);
    let mut bytes = manifest(root, [("loss".to_owned(), f64::NAN)].into())
        .to_bytes()
        .unwrap();
    Manifest::parse(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(Manifest::parse(&bytes).is_err(), "bit {bit} of byte {at}");
            assert!(
                Manifest::parse_head(&bytes).is_err(),
                "bit {bit} of byte {at}"
            );
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = manifest(Node::None, BTreeMap::new()).to_bytes().unwrap();
    for length in 0..bytes.len() {
        assert!(Manifest::parse(&bytes[..length]).is_err());
    }
}

/// A manifest with a valid checksum whose content was made by hand.
fn forged(edit: impl Fn(String) -> String) -> Result<Manifest, FormatError> {
    let root = Node::dict([(
        "x",
        Node::Tensor(TensorRef {
            index: 1,
            kind: "".into(),
            view: None,
        }),
    )]);
    let bytes = manifest(root, BTreeMap::new()).to_bytes().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let edited = edit(rest.to_owned());
    assert_ne!(edited, rest, "the edit did nothing");
    let line = format!("{{\"checksum\":\"{}\",\n", checksum::of(edited.as_bytes()));
    Manifest::parse((line + &edited).as_bytes())
}

#[test]
fn forged_numbers_and_names_are_refused() {
    let edits = [
        ("\"version\":1", "\"version\":2"),
        ("\"format\":\"pitstop\"", "\"format\":\"other\""),
        ("\"start\":4096", "\"start\":4095"),
        ("\"start\":4112", "\"start\":18446744073709551615"),
        ("\"size\":4160", "\"size\":4119"),
        ("\"data_start\":4096", "\"data_start\":4097"),
        ("\"shape\":[4]", "\"shape\":[18446744073709551615]"),
        ("\"dtype\":\"F32\"", "\"dtype\":\"F33\""),
        ("{\"tensor\":\"b\"}", "{\"tensor\":\"c\"}"),
        ("{\"tensor\":\"b\"}", "{\"view\":3}"),
        ("\"file\":\"model.safetensors\"", "\"file\":\"other\""),
        ("\"step\":18446744073709551615", "\"step\":-1"),
    ];
    for (from, to) in edits {
        assert!(
            forged(|text| text.replacen(from, to, 1)).is_err(),
            "{from} -> {to}"
        );
    }
    for name in [
        "../model.safetensors",
        "/etc/passwd",
        ".lock",
        "a/b",
        "a\\\\b",
        "manifest.json",
        "",
    ] {
        let result = forged(|text| text.replace("model.safetensors", name));
        assert!(result.is_err(), "{name}");
    }
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let leaf = |index, view| {
        Node::Tensor(TensorRef {
            index,
            kind: "".into(),
            view,
        })
    };
    let large = View {
        dtype: DType::F32,
        shape: vec![3],
        strides: vec![4],
        offset: 0,
    };
    for root in [
        Node::BigInt("123".into()),
        Node::List(vec![Node::BigInt("0x".into())]),
        Node::dict([("a", Node::None), ("a", Node::None)]),
        leaf(2, None),
        leaf(0, Some(large)),
    ] {
        let written = manifest(root.clone(), BTreeMap::new()).to_bytes();
        assert!(
            matches!(written, Err(FormatError::Malformed(_))),
            "{root:?}"
        );
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth| {
        (0..depth).fold(Node::None, |inner, _| {
            Node::Dict(vec![(Node::Int(1), inner)])
        })
    };
    let deepest = manifest(nested(MAX_DEPTH), BTreeMap::new());
    assert!(same(
        &Manifest::parse(&deepest.to_bytes().unwrap()).unwrap().root,
        &deepest.root
    ));
    assert_eq!(
        manifest(nested(MAX_DEPTH + 1), BTreeMap::new()).to_bytes(),
        Err(FormatError::TooDeep)
    );
    let bomb = "[".repeat(1_000_000);
    assert!(forged(|text| text.replacen("\"tree\":", &format!("\"tree\":{bomb}"), 1)).is_err());
    let bomb = bomb + &"]".repeat(1_000_000);
    let insert = |before: &str| forged(|text| text.replacen('}', &format!("{before}{bomb}}}"), 1));
    // In the metrics, where only numbers are expected.
    assert!(insert("\"a\":").is_err());
    let wrap = |open: &str, close: &str| {
        let node = format!("{}1{}", open.repeat(257), close.repeat(257));
        forged(|text| text.replacen("\"hello\"", &node, 1))
    };
    for (open, close) in [
        ("[", "]"),
        ("{\"tuple\":[", "]}"),
        ("{\"dict\":{\"a\":", "}}"),
        ("{\"items\":[[1,", "]]}"),
        ("{\"items\":[[", ",1]]}"),
        ("{\"tag\":\"a\",\"value\":", "}"),
    ] {
        let error = wrap(open, close).unwrap_err().to_string();
        assert!(error.contains("too deep"), "{open}: {error}");
    }
    // What nobody knows is passed over, however deep.
    let unknown = format!("\"unknown\":{bomb},\"step\":");
    assert!(forged(|text| text.replacen("\"step\":", &unknown, 1)).is_ok());
}

#[test]
fn what_is_there_twice_is_refused() {
    for (from, to) in [
        ("\"note\":\"hello\"", "\"note\":\"hello\",\"note\":1"),
        (
            "{\"dict\":{\"note\":\"hello\"}}",
            "{\"items\":[[\"a\",1],[\"a\",2]]}",
        ),
        ("\"b\":{\"dtype\"", "\"a\":{\"dtype\""),
    ] {
        let error = forged(|text| text.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
    let mut twins = manifest(Node::None, BTreeMap::new());
    twins.tensors[1].key = "a".into();
    assert!(matches!(twins.to_bytes(), Err(FormatError::Malformed(_))));
}

#[test]
fn the_keys_of_an_object_may_come_in_any_order() {
    let edits = [
        (
            "{\"tensor\":\"b\"}",
            "{\"kind\":\"numpy\",\"later\":[{}],\"tensor\":\"b\"}",
        ),
        ("\"hello\"", "{\"value\":[1],\"tag\":\"frozenset\"}"),
        (
            "\"format\":\"pitstop\",\"version\":1,\"step\"",
            "\"version\":1,\"format\":\"pitstop\",\"step\"",
        ),
    ];
    for (from, to) in edits {
        let read = forged(|text| text.replacen(from, to, 1));
        assert!(read.is_ok(), "{to}: {read:?}");
    }
    let read = forged(|text| text.replacen("\"hello\"", "{\"later\":1}", 1));
    assert!(
        read.is_err(),
        "an object that says nothing known is no node"
    );
}

#[test]
fn a_newer_version_may_have_changed_all_the_rest() {
    let newer = |rest: &str| {
        let rest = format!("\"format\":\"pitstop\",\"version\":2,{rest}}}");
        let line = format!("{{\"checksum\":\"{}\",\n", checksum::of(rest.as_bytes()));
        Manifest::parse((line + &rest).as_bytes())
    };
    assert_eq!(newer("\"step\":\"many\""), Err(FormatError::Version(2)));
}

#[test]
fn tensors_are_written_in_the_order_of_their_names() {
    let keys = [
        "m.b",
        "m.a\u{0}",
        "m.a",
        "m.",
        "m",
        "m.abcdefghij",
        "m.abcdefghi",
        "m.abcdefgh",
        "é",
    ];
    for skip in 0..keys.len() {
        let mut written = manifest(Node::None, BTreeMap::new());
        let like = written.tensors.swap_remove(0);
        let entry = |key: &&str| TensorEntry {
            key: (*key).into(),
            ..like.clone()
        };
        written.tensors = keys[skip..].iter().map(entry).collect();
        let text = String::from_utf8(written.to_bytes().unwrap()).unwrap();
        let mut sorted = keys[skip..].to_vec();
        sorted.sort_unstable();
        let place = |key: &&str| {
            text.find(&format!(
                "{}:{{\"dtype\"",
                serde_json::to_string(key).unwrap()
            ))
        };
        let places: Vec<_> = sorted.iter().map(|key| place(key).unwrap()).collect();
        assert!(places.is_sorted(), "{sorted:?}");
    }
}
