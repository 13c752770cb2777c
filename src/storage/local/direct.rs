use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::system;

/// The second descriptor of a file being written: its writes go past the page cache.
///
/// It takes whole pages only, and each byte of a new file is written once. So no page is ever written both
/// ways, and it does not matter in which order cache and disk get theirs.
pub(super) struct Direct {
    file: File,
    alignment: Alignment,
    /// The file system has refused a write, whatever it said when the file was opened.
    refused: AtomicBool,
}

/// What a direct write must be a multiple of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alignment {
    /// The address.
    pub(super) memory: usize,
    /// Offset and length: whole pages of the cache, and whatever more the file system asks for.
    pub(super) offset: usize,
}

impl Direct {
    /// `None` where the file system has no direct I/O.
    pub(super) fn open(path: &Path) -> Option<Direct> {
        let (file, alignment) = system::open_direct(path)?;
        Some(Direct {
            file,
            alignment,
            refused: AtomicBool::new(false),
        })
    }

    /// What addresses must be a multiple of.
    pub(super) fn alignment(&self) -> usize {
        if self.refused.load(Ordering::Relaxed) {
            return 1;
        }
        self.alignment.memory
    }

    /// Writes as many of `bytes` as can go this way, from the first on, and returns their number.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let Alignment {
            memory,
            offset: unit,
        } = self.alignment;
        let fits =
            offset.is_multiple_of(unit as u64) && bytes.as_ptr().addr().is_multiple_of(memory);
        if !fits || self.refused.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let whole = bytes.len() / unit * unit;
        let mut done = 0;
        // After a short write that ends inside a page, the rest goes through the cache.
        while done < whole && done.is_multiple_of(unit) {
            match system::write_at(&self.file, offset + done as u64, &bytes[done..whole]) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if system::refuses_direct(&error) => {
                    self.refused.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
