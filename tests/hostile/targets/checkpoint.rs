//! A whole checkpoint with pieces of it changed, by accident or on purpose.
//!
//! The input is a list of edits. By accident, nothing but what was saved may come back, and what does not is
//! called damage. On purpose, checksums are made to fit; then anything may come back, but reading takes no more
//! memory than what is read, and ends.

use std::sync::Arc;

use pitstop::Run;
use pitstop::format::MANIFEST;

use super::forge::{FIRST_LINE, Files, sign, vouch};
use super::sample::{STEP, fingerprint, sample};
use super::shelf::Shelf;
use crate::memory::bounded;

/// What reading takes beyond the bytes: buffers of 64 and 256 KiB, messages, tables that hold nothing yet.
const ROOM: usize = 1 << 20;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let mut files = sample().files.clone();
    for _ in 0..16 {
        if input.0.is_empty() {
            break;
        }
        edit(&mut files, &mut input);
    }
    match how % 3 {
        0 => {}
        1 => sign(&mut files),
        _ => vouch(&mut files),
    }
    check(&files, how % 3 > 0, how & 64 == 0);
}

/// A run that holds a checkpoint of these files.
pub(crate) fn shelved(files: &Files) -> Run {
    let mut shelf = Shelf::default();
    for (name, bytes) in files {
        shelf.put(format!("run/step-{STEP}/{name}"), bytes.clone());
    }
    Run::new(Arc::new(shelf), "run")
}

/// Reads a checkpoint of these files in every way that there is.
pub(crate) fn check(files: &Files, forged: bool, verify: bool) {
    let bytes = files.values().map(Vec::len).sum();
    let run = shelved(files);
    let info = bounded(bytes, ROOM, || run.info(STEP));
    let listing = bounded(bytes, ROOM, || run.checkpoints());
    let load = |step| run.open(step, verify).and_then(|opened| opened.load());
    let read = bounded(bytes, ROOM, || load(STEP));
    let newest = bounded(bytes, ROOM, || run.newest_intact(load));
    let found = newest.is_ok_and(|(found, _)| found.is_some());
    assert_eq!(found, read.is_ok(), "it is the only one");
    if forged || !verify {
        return;
    }
    let listed = listing.map(|found| found.len());
    assert_eq!(
        listed.ok(),
        Some(usize::from(info.is_ok())),
        "what is damaged is left out"
    );
    match read {
        Ok(state) => assert_eq!(fingerprint(&state), fingerprint(&sample().state)),
        Err(error) => assert!(error.is_damage(), "{error}"),
    }
}

/// Numbers that programs are afraid of.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "4096",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "0.5",
    "-0.0",
    "1e19",
    "99999999999999999999999999999999999999999",
];

/// Texts of its own for a manifest.
const TEXTS: [&str; 24] = [
    "\"\"",
    "\"..\"",
    "\"../x\"",
    "\"a/b\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"manifest.json\"",
    "\"F4\"",
    "\"F64\"",
    "\"U8\"",
    "\"BOOL\"",
    "\"F6_E2M3\"",
    "\"model.w\"",
    "\"bytes\"",
    "\"numpy:<c16\"",
    "\"torch:complex128\"",
    "null",
    "true",
    "[]",
    "{}",
    "[[]]",
    "{\"tuple\":[]}",
    "{\"tensor\":\"model.w\"}",
    "{\"items\":[[[],1],[[],2]]}",
];

/// Changes one thing.
fn edit(files: &mut Files, input: &mut Input<'_>) {
    let what = input.byte();
    if what < 144 {
        let manifest = files.entry(MANIFEST.to_owned()).or_default();
        return edit_manifest(manifest, what, input);
    }
    let name = input.pick(files.keys()).cloned().unwrap_or_default();
    let other = input.pick(files.keys()).cloned().unwrap_or_default();
    let Some(mut bytes) = files.remove(&name) else {
        return;
    };
    let at = input.number(bytes.len() + 1);
    match what % 8 {
        0 => bytes.truncate(at),
        1 => bytes.resize(bytes.len() + input.number(300), input.byte()),
        2 | 3 => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1 << (what / 8 % 8)),
        4 => bytes[at..].fill(0),
        5 => return, // deleted
        6 => {
            // Swapped, or the same twice.
            if let Some(content) = files.insert(other, bytes) {
                files.insert(name, content);
            }
            return;
        }
        _ => drop(bytes.splice(at..at, input.take(what as usize / 8).to_vec())),
    }
    files.insert(name, bytes);
}

fn edit_manifest(manifest: &mut Vec<u8>, what: u8, input: &mut Input<'_>) {
    let rest = FIRST_LINE.min(manifest.len());
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte);
    let range = match what % 3 {
        // A number.
        0 => {
            let is_number =
                |&at: &usize| manifest[at].is_ascii_digit() && !is_value(manifest[at - 1]);
            let starts: Vec<usize> = (rest.max(1)..manifest.len()).filter(is_number).collect();
            let start = input.pick(starts.iter()).copied().unwrap_or(rest);
            let len = manifest[start..]
                .iter()
                .take_while(|&&byte| is_value(byte))
                .count();
            start..start + len
        }
        // A text.
        1 => {
            let quotes: Vec<usize> = (rest..manifest.len())
                .filter(|&at| manifest[at] == b'"')
                .collect();
            let pair = input.pick(quotes.chunks_exact(2));
            pair.map_or(rest..rest, |pair| pair[0]..pair[1] + 1)
        }
        _ => {
            let start = rest + input.number(manifest.len() - rest + 1);
            let end = (start + input.number(64)).min(manifest.len());
            start..end
        }
    };
    let with: Vec<u8> = match what / 3 % 6 {
        0 => input
            .pick(NUMBERS.iter())
            .copied()
            .unwrap_or_default()
            .into(),
        1 => input.pick(TEXTS.iter()).copied().unwrap_or_default().into(),
        2 => input.take(what as usize).to_vec(),
        // What is there already, somewhere else or once more.
        3 => {
            let start = rest + input.number(manifest.len() - rest + 1);
            let end = (start + input.number(200)).min(manifest.len());
            manifest[start..end].to_vec()
        }
        4 => {
            let depth = input.number(2000);
            let (open, close) = [
                ("[", "]"),
                ("{\"value\":", "}"),
                ("{\"dict\":{\"a\":", "}}"),
            ][depth % 3];
            let inner = String::from_utf8_lossy(&manifest[range.clone()]).into_owned();
            [open.repeat(depth), inner, close.repeat(depth)]
                .concat()
                .into()
        }
        _ => input.pick(NUMBERS.iter()).map_or_else(Vec::new, |number| {
            format!("[0,{number},{number},{number}]").into()
        }),
    };
    manifest.splice(range, with);
}

/// Bytes that become choices.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Below `end`.
    fn number(&mut self, end: usize) -> usize {
        let number = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        if end == 0 { 0 } else { number % end }
    }

    fn pick<T>(&mut self, items: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let number = self.number(items.len());
        let mut items = items;
        items.nth(number)
    }
}
