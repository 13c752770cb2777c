//! Any bytes as the header of a safetensors file: as they are, and as the text behind a length that fits.

use pitstop::format::parse_header;

use crate::memory::bounded;

/// What reading takes beyond the bytes: messages, and tables that hold nothing yet.
const ROOM: usize = 16 << 10;

pub(crate) fn run(data: &[u8]) {
    check(data, data.len() as u64);
    // The first bytes say how many bytes of tensors follow the header.
    let (&[low, high], text) = data.split_first_chunk().unwrap_or((&[0, 0], data));
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text);
    let size = file.len() as u64;
    check(&file, size + u64::from(u16::from_le_bytes([low, high])));
}

fn check(bytes: &[u8], size: u64) {
    let Ok(header) = bounded(bytes.len(), ROOM, || parse_header(bytes, size)) else {
        return;
    };
    let mut at = header.data_start;
    for entry in &header.entries {
        assert_eq!(entry.start, at, "tensors lie back to back");
        at += entry.nbytes;
    }
    assert_eq!(at, size, "up to the end of the file");
    let mut names: Vec<_> = header.entries.iter().map(|entry| &entry.name).collect();
    names.sort();
    assert!(names.is_sorted_by(|a, b| a < b), "each has its own name");
}
