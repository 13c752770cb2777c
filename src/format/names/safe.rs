//! Names that every reader and every file system takes.

use crate::format::checksum;

/// Longest tensor name kept as it is, in bytes.
pub(super) const LONGEST_NAME: usize = 512;
/// Longest file stem kept as it is, in bytes; leaves room for the shard number and the extension.
const LONGEST_STEM: usize = 120;
/// A tensor name that any reader takes: not empty, not the reserved `__metadata__`, not endless.
pub(super) fn safe_name(name: String) -> String {
    match name.as_str() {
        "" => "_".into(),
        "__metadata__" => "_.__metadata__".into(),
        _ => shorten(name, LONGEST_NAME),
    }
}

/// A file stem that any file system takes: letters, digits, `.`, `_`, `-`; no leading dot; no device name.
pub(super) fn safe_stem(name: &str) -> String {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut stem: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    let device = stem.split('.').next().unwrap_or("").to_ascii_lowercase();
    let port = |prefix: &str| {
        device
            .strip_prefix(prefix)
            .is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    let reserved =
        ["con", "prn", "aux", "nul"].contains(&device.as_str()) || port("com") || port("lpt");
    if stem.is_empty() || stem.starts_with('.') || reserved || looks_like_shard(&stem) {
        stem.insert(0, '_');
    }
    shorten(stem, LONGEST_STEM)
}

/// `model-00001-of-00002` would collide with a shard of `model`.
fn looks_like_shard(stem: &str) -> bool {
    let digits = |s: &str| s.len() >= 5 && s.bytes().all(|b| b.is_ascii_digit());
    let mut parts = stem.rsplitn(4, '-');
    matches!((parts.next(), parts.next(), parts.next()), (Some(total), Some("of"), Some(number)) if digits(total) && digits(number))
}

fn shorten(name: String, longest: usize) -> String {
    if name.len() <= longest {
        return name;
    }
    let digest = checksum::of(name.as_bytes()).to_string();
    let mut end = longest - 17;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &name[..end], &digest[..16])
}

/// What two stems have in common if a file system may take them for the same: letter case, and the many
/// spellings of one character outside ASCII.
pub(super) fn folded(stem: &str) -> String {
    stem.chars()
        .filter(char::is_ascii)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}
