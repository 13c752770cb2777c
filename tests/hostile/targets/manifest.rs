//! Any bytes as a manifest: as they are, and behind a first line that vouches for them.

use pitstop::format::Manifest;

use super::forge::signed;
use crate::memory::bounded;

/// What reading takes beyond the bytes: messages, and tables that hold nothing yet.
const ROOM: usize = 16 << 10;

pub(crate) fn run(data: &[u8]) {
    let _ = bounded(data.len(), ROOM, || Manifest::parse(data));
    let bytes = signed(data);
    let read = bounded(bytes.len(), ROOM, || Manifest::parse(&bytes));
    let head = bounded(bytes.len(), ROOM, || Manifest::parse_head(&bytes));
    let Ok(manifest) = read else { return };
    let head = head.expect("what can be read as a whole can be read in part");
    assert_eq!(
        format!("{:?}", (manifest.summary(), manifest.nbytes())),
        format!("{:?}", (head.summary(), head.nbytes()))
    );
    let written = manifest.to_bytes().expect("what was read can be written");
    let again = Manifest::parse(&written).expect("what was written can be read");
    assert_eq!(
        again.to_bytes().as_ref(),
        Ok(&written),
        "and is the same then"
    );
}
