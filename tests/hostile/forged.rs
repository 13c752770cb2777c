//! Manifests and headers whose checksums fit, made by somebody who means harm.

use pitstop::Watch;
use pitstop::format::{FormatError, MANIFEST, Manifest, checksum, parse_header};

use crate::memory::{PER_BYTE, bounded, most_during};
use crate::targets::checkpoint;
use crate::targets::forge::{FIRST_LINE, sign, signed, vouch};
use crate::targets::sample::{self, sample};

/// Messages, and tables that hold nothing yet.
const ROOM: usize = 16 << 10;

/// The sample's manifest after its first line.
fn rest() -> String {
    let rest = sample().files[MANIFEST][FIRST_LINE..].to_vec();
    String::from_utf8(rest).expect("it is UTF-8")
}

/// Reads a manifest in full and in part, in memory that its length allows.
fn parse(rest: &str) -> Result<Manifest, FormatError> {
    let bytes = signed(rest.as_bytes());
    let head = bounded(bytes.len(), ROOM, || Manifest::parse_head(&bytes));
    let whole = bounded(bytes.len(), ROOM, || Manifest::parse(&bytes));
    if whole.is_ok() {
        head.expect("what can be read as a whole can be read in part");
    }
    whole
}

/// The sample with one thing replaced.
fn edited(from: &str, to: &str) -> String {
    let edited = rest().replacen(from, to, 1);
    assert_ne!(edited, rest(), "there is no {from}");
    edited
}

fn refuse(from: &str, to: &str) {
    let short: String = to.chars().take(80).collect();
    assert!(parse(&edited(from, to)).is_err(), "{from} -> {short}");
}

const STEP: &str = "\"step\":7,";
const TREE: &str = "\"tree\":";

#[test]
fn the_sample_itself_is_fine() {
    assert!(parse(&rest()).is_ok());
}

#[test]
fn nothing_nests_too_deep_to_be_refused() {
    let deep = 50_000;
    let opened = [
        "[",
        "{\"dict\":{\"a\":",
        "{\"tuple\":[",
        "{\"items\":[[",
        "{\"tag\":\"a\",\"value\":",
        "{\"a\":",
    ];
    let places = [
        TREE,
        "\"metadata\":",
        "\"loss\":",
        "\"shape\":[",
        "\"files\":{",
        "\"tensors\":{",
        "\"size\":",
        "\"view\":",
        "\"kind\":",
        "\"pieces\":[",
        "\"checksum\":",
        "\"int\":",
        "\"complex\":[",
        "\"writer\":",
        STEP,
    ];
    for place in places {
        for open in opened {
            refuse(place, &format!("{place}{}", open.repeat(deep)));
        }
        let closed = format!("{place}{}{},", "[".repeat(deep), "]".repeat(deep));
        refuse(place, &closed);
    }
    // Where nobody looks, it is passed over.
    let unknown = format!(
        "\"unknown\":{}{},{STEP}",
        "[".repeat(deep),
        "]".repeat(deep)
    );
    assert!(parse(&edited(STEP, &unknown)).is_ok());
}

#[test]
fn what_is_long_takes_memory_in_proportion() {
    let count = 100_000;
    let items = [
        "0",
        "[]",
        "null",
        "\"\"",
        "{\"set\":[]}",
        "[0]",
        "{\"bytes\":\"\"}",
        "{\"tensor\":\"model.w\"}",
    ];
    let mut worst = 0.0_f64;
    for item in items {
        let list = vec![item; count].join(",");
        for text in [
            format!("[{list}]"),
            format!(
                "{{\"items\":[{}]}}",
                vec![format!("[{item},0]"); count].join(",")
            ),
        ] {
            let bytes = signed(edited(TREE, &format!("{TREE}{text},\"was\":")).as_bytes());
            let (read, most) = most_during(|| Manifest::parse(&bytes));
            // Texts that are keys twice, and keys that are tensors, are refused at the end.
            assert!(read.is_ok() || item.contains('"'), "{item}: {read:?}");
            worst = worst.max(most as f64 / bytes.len() as f64);
        }
    }
    let allowed = PER_BYTE as f64;
    assert!(
        worst <= allowed && worst > allowed / 3.0,
        "{worst} bytes of memory for each"
    );
    let entry = "\"dtype\":\"U8\",\"shape\":[0],\"pieces\":[]";
    let many: Vec<String> = (0..count).map(|i| format!("\"{i}\":{{{entry}}}")).collect();
    let tensors = format!("\"tensors\":{{{},", many.join(","));
    assert!(parse(&edited("\"tensors\":{", &tensors)).is_ok());
    let numbers = format!("\"shape\":[0,{}", vec!["1"; count].join(","));
    assert!(
        parse(&edited("\"shape\":[0", &numbers)).is_ok(),
        "an empty tensor of many axes"
    );
    let long = "x".repeat(5_000_000);
    assert!(parse(&edited("\"writer\":\"", &format!("\"writer\":\"{long}"))).is_ok());
    let name = format!("\"model.w\":{{\"later\":\"{long}\",");
    assert!(parse(&edited("\"model.w\":{", &name)).is_ok());
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let numbers = [
        "-1",
        "1.5",
        "1e3",
        "1e400",
        "18446744073709551616",
        "NaN",
        "Infinity",
        "null",
        "\"1\"",
        "[1]",
        "0x10",
        "01",
        "",
    ];
    for number in numbers {
        refuse("\"step\":7", &format!("\"step\":{number}"));
        refuse("\"version\":1", &format!("\"version\":{number}"));
        refuse("\"size\":", &format!("\"links\":{number},\"size\":"));
        for key in ["size", "data_start", "start"] {
            // No place for tensors at all is a thing that a file may say.
            if (key, number) != ("data_start", "null") {
                let with = format!("\"{key}\":{number},\"was\":");
                refuse(&format!("\"{key}\":"), &with);
            }
        }
        refuse("\"shape\":[2,3]", &format!("\"shape\":[{number},3]"));
        refuse("\"offset\":[1,0]", &format!("\"offset\":[{number},0]"));
    }
    for shape in [
        "4294967296,4294967296",
        "18446744073709551615,2",
        "9223372036854775807",
        "2305843009213693952,2",
    ] {
        refuse("\"shape\":[2,3]", &format!("\"shape\":[{shape}]"));
    }
}

#[test]
fn places_outside_of_a_file_are_refused() {
    for start in [
        "0",
        "4095",
        "18446744073709551615",
        "18446744073709551592",
        "9223372036854775807",
    ] {
        refuse("\"start\":4096", &format!("\"start\":{start}"));
    }
    refuse("\"data_start\":4096", "\"data_start\":18446744073709551615");
    refuse("\"size\":", "\"size\":4097,\"was\":");
    for view in [
        "\"offset\":18446744073709551615",
        "\"offset\":9223372036854775807",
        "\"offset\":24",
        "\"offset\":0",
    ] {
        refuse("\"offset\":8}", &format!("{view}}}"));
    }
    for strides in [
        "-9223372036854775808,12",
        "9223372036854775807,9223372036854775807",
        "4",
        "4,12,0",
        "-12,12",
        "4,13",
    ] {
        refuse("\"strides\":[-4,12]", &format!("\"strides\":[{strides}]"));
    }
    for shape in [
        "3,18446744073709551615",
        "9223372036854775807,9223372036854775807",
        "4,2",
    ] {
        refuse(
            "\"shape\":[3,2],\"strides\"",
            &format!("\"shape\":[{shape}],\"strides\""),
        );
    }
    refuse("\"view\":{\"dtype\":\"F32\"", "\"view\":{\"dtype\":\"F4\"");
    refuse("\"view\":{\"dtype\":\"F32\"", "\"view\":{\"dtype\":\"F64\"");
    // One element many times is fine, and takes no memory.
    let broadcast = edited(
        "\"shape\":[3,2],\"strides\":[-4,12]",
        "\"shape\":[9223372036854775807,1],\"strides\":[0,0]",
    );
    assert!(parse(&broadcast).is_ok());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let long = "x".repeat(256);
    for name in [
        "..",
        ".",
        "../step-6/model.safetensors",
        "/etc/passwd",
        "a/b",
        "a\\\\b",
        "C:x",
        ".lock",
        ".hidden",
        "",
        "manifest.json",
        "a\\u0000b",
        "a\\nb",
        "\\u001b[2J",
        "\\u0085",
        "\\ud800",
        "\\ud800\\ud800",
        "\\udc00",
        &long,
    ] {
        let forged = rest().replace("model.safetensors\"", &format!("{name}\""));
        assert!(parse(&forged).is_err(), "{name}");
    }
}

#[test]
fn what_is_there_twice_is_refused() {
    for (from, to) in [
        (STEP, "\"step\":7,\"step\":8,".to_owned()),
        ("\"writer\":", "\"writer\":\"x\",\"writer\":".to_owned()),
        ("\"metrics\":{", "\"metrics\":{\"loss\":1.0,".to_owned()),
        ("\"tensors\":{", "\"tensors\":{\"model.w\":{\"dtype\":\"U8\",\"shape\":[0],\"pieces\":[]},".to_owned()),
        ("\"size\":", "\"size\":1,\"size\":".to_owned()),
        ("\"dtype\":\"F32\",\"shape\":[2,3]", "\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2,3]".to_owned()),
        (
            "\"files\":{",
            "\"files\":{\"model.safetensors\":{\"size\":0,\"checksum\":\"99aa06d3014798d86001c324468d497f\"},".to_owned(),
        ),
        ("\"git\":\"abc\"", "\"git\":\"abc\",\"git\":\"abc\"".to_owned()),
    ] {
        refuse(from, &to);
    }
}

/// The sample with one thing in its manifest replaced, read with all that follows.
fn restore(from: &str, to: &str) {
    for fit in [sign, vouch] {
        let mut files = sample().files.clone();
        files.insert(MANIFEST.to_owned(), signed(edited(from, to).as_bytes()));
        fit(&mut files);
        for verify in [true, false] {
            checkpoint::check(&files, true, verify);
        }
    }
}

#[test]
fn what_only_the_files_can_tell_harms_nobody() {
    let huge = "9223372036854775807";
    let other = "{\"size\":18446744073709551615,\"checksum\":\"99aa06d3014798d86001c324468d497f\"}";
    let pieces = |dtype: &str, shape: &str, pieces: &str| {
        format!(
            "\"tensors\":{{\"a\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"pieces\":[{pieces}]}},"
        )
    };
    for to in [
        // An empty tensor in no pieces, with extents whose product overflows.
        pieces("F64", &format!("[0,{huge},{huge}]"), ""),
        pieces("F64", &format!("[{huge},0,{huge}]"), ""),
        pieces("F4", "[0]", ""),
        pieces("F64", "[]", ""),
    ] {
        restore("\"tensors\":{", &to);
    }
    // Sizes that add up to more than a number holds.
    let files = format!("\"files\":{{\"x\":{other},\"y\":{other},");
    restore("\"files\":{", &files);
    // Elements smaller than a byte, in pieces.
    restore(
        "\"dtype\":\"U32\",\"shape\":[3,2],\"pieces\"",
        "\"dtype\":\"F4\",\"shape\":[3,2],\"pieces\"",
    );
    restore("\"dtype\":\"U32\"", "\"dtype\":\"F6_E2M3\"");
    // Pieces that reach outside, overlap, leave a hole, or have another number of axes.
    for offset in [
        "[2,0]",
        "[0,0]",
        "[18446744073709551615,0]",
        "[1]",
        "[1,0,0]",
        "[]",
        "[1,1]",
    ] {
        restore("\"offset\":[1,0]", &format!("\"offset\":{offset}"));
    }
    restore("\"start\":4096", "\"start\":4100");
    restore("\"data_start\":4096", "\"data_start\":0");
    restore("\"data_start\":4096,", "");
    restore("\"start\":4096", "\"start\":4104");
    restore("\"step\":7", "\"step\":8");
    restore("\"version\":1", "\"version\":2");
}

#[test]
fn headers_take_memory_in_proportion() {
    let header = |text: &str| {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text.bytes());
        bounded(bytes.len(), ROOM, || {
            parse_header(&bytes, bytes.len() as u64)
        })
    };
    let empty = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    let many: Vec<String> = (0..100_000).map(|i| format!("\"{i}\":{empty}")).collect();
    let entries = header(&format!("{{{}}}", many.join(",")));
    assert_eq!(entries.map(|header| header.entries.len()), Ok(100_000));
    let axes = vec!["1"; 300_000].join(",");
    assert!(
        header(&format!(
            "{{\"a\":{{\"dtype\":\"U8\",\"shape\":[0,{axes}],\"data_offsets\":[0,0]}}}}"
        ))
        .is_ok()
    );
    for text in [
        format!("{{\"__metadata__\":{}", "[".repeat(1_000_000)),
        format!("{{\"a\":{}", "{\"a\":".repeat(200_000)),
        "[".repeat(1_000_000),
        format!("{{\"a\":{empty},\"a\":{empty}}}"),
    ] {
        assert!(header(&text).is_err());
    }
    for length in [0u64, 1, 7, 100_000_000, u64::MAX - 8, u64::MAX] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        for size in [0, 10, 100_000_008, u64::MAX] {
            let _ = bounded(bytes.len(), ROOM, || parse_header(&bytes, size));
        }
    }
}

/// All of a file that holds no tensor was taken into memory.
#[test]
fn verifying_a_large_file_without_tensors_takes_little_memory() {
    let large = 64 << 20;
    let mut files = sample().files.clone();
    files.insert("notes".to_owned(), vec![7; large]);
    let entry = format!(
        "\"files\":{{\"notes\":{{\"size\":{large},\"checksum\":\"{}\"}},",
        checksum::of(&files["notes"])
    );
    files.insert(
        MANIFEST.to_owned(),
        signed(edited("\"files\":{", &entry).as_bytes()),
    );
    let run = checkpoint::shelved(&files);
    let (found, most) = most_during(|| run.verify(sample::STEP, Watch::nobody()));
    let damage = found.expect("it is there").damage;
    assert!(
        !damage.iter().any(|it| it.to_string().contains("notes")),
        "{damage:?}"
    );
    assert!(most < large / 8, "{most} bytes of memory");
}
