use std::io;

use super::NewFile;

/// The most that one write takes, in bytes: large enough for full speed, small enough for progress to move.
const PIECE: usize = 4 << 20;
/// Offsets of writes are multiples of this, except for the last one.
const BLOCK: usize = 4096;
/// From this length on, copying a segment costs more than the extra write it saves.
const LARGE: usize = 1 << 20;

/// Writes `segments` one after the other from the start of `file`, and returns how many bytes that were.
///
/// Small segments are gathered into one buffer, large ones are written from where they lie, at most 4 MiB
/// at a time. Every write but the last starts and ends at a multiple of 4096 bytes. `progress` is told the
/// bytes of each write once it is done. Nothing is durable until [`NewFile::sync`].
///
/// # Errors
///
/// The first error of a write; nothing is written after it.
///
/// # Example
///
/// ```
/// use pitstop::storage::{write_all, Local, Storage};
///
/// let dir = tempfile::tempdir()?;
/// let file = Local::new().create(&dir.path().join("a"), 6)?;
/// let written = write_all(&*file, &mut [&b"abc"[..], b"def"].into_iter(), &|_| ())?;
/// assert_eq!(written, 6);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_all(
    file: &dyn NewFile,
    segments: &mut dyn Iterator<Item = &[u8]>,
    progress: &dyn Fn(u64),
) -> io::Result<u64> {
    let mut writer = Writer {
        file,
        progress,
        offset: 0,
        buffer: Buffer::default(),
    };
    for segment in segments {
        writer.append(segment)?;
    }
    writer.flush()?;
    Ok(writer.offset)
}

struct Writer<'a> {
    file: &'a dyn NewFile,
    progress: &'a dyn Fn(u64),
    /// Where the next write goes. A multiple of `BLOCK` until the last one.
    offset: u64,
    /// What comes next and is not written yet.
    buffer: Buffer,
}

impl Writer<'_> {
    fn append(&mut self, segment: &[u8]) -> io::Result<()> {
        if segment.len() < LARGE {
            return self.gather(segment);
        }
        // Fill the block begun, so that the direct writes start at a multiple of it.
        let (head, rest) =
            segment.split_at(self.buffer.used.next_multiple_of(BLOCK) - self.buffer.used);
        self.gather(head)?;
        self.flush()?;
        let (whole, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
        for piece in whole.chunks(PIECE) {
            self.write(piece)?;
        }
        self.gather(tail)
    }

    fn gather(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = self.buffer.fill(bytes);
            if self.buffer.used == PIECE {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.used > 0 {
            self.write(buffer.filled())?;
        }
        self.buffer = Buffer { used: 0, ..buffer };
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }
}

/// `PIECE` bytes at an address that is a multiple of `BLOCK`; takes no memory until something is put in.
#[derive(Default)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    used: usize,
}

impl Buffer {
    /// Takes as much of `bytes` as there is room for, and returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; PIECE + BLOCK];
            self.start = self.memory.as_ptr().align_offset(BLOCK);
        }
        let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.used));
        let at = self.start + self.used;
        self.memory[at..at + now.len()].copy_from_slice(now);
        self.used += now.len();
        later
    }

    fn filled(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.used]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Recorded {
        bytes: Mutex<Vec<u8>>,
        /// Offset, length and address of each write.
        writes: Mutex<Vec<(u64, usize, usize)>>,
    }

    impl NewFile for Recorded {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let mut all = self.bytes.lock().unwrap();
            assert_eq!(offset, all.len() as u64, "no gaps");
            all.extend_from_slice(bytes);
            let write = (offset, bytes.len(), bytes.as_ptr().addr());
            self.writes.lock().unwrap().push(write);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(segments: &[&[u8]]) -> Vec<(u64, usize, usize)> {
        let file = Recorded::default();
        let told = std::cell::Cell::new(0);
        let total = write_all(&file, &mut segments.iter().copied(), &|bytes| {
            told.set(told.get() + bytes);
        });
        assert!(*file.bytes.lock().unwrap() == segments.concat());
        assert_eq!(total.unwrap(), file.bytes.lock().unwrap().len() as u64);
        assert_eq!(told.get(), file.bytes.lock().unwrap().len() as u64);
        file.writes.into_inner().unwrap()
    }

    #[test]
    fn thousands_of_small_segments_become_few_large_writes() {
        let segment = [7; 1000];
        let writes = written(&vec![&segment[..]; 10_000]);
        assert_eq!(writes.len(), 3);
        assert!(writes.iter().all(|(_, _, address)| address % BLOCK == 0));
    }

    #[test]
    fn a_huge_segment_is_written_from_where_it_lies() {
        let huge: Vec<u8> = (0..3 * PIECE).map(|i| (i % 251) as u8).collect();
        let addresses: Vec<usize> = written(&[&huge]).iter().map(|w| w.2).collect();
        let start = huge.as_ptr().addr();
        assert_eq!(addresses, [start, start + PIECE, start + 2 * PIECE]);
    }

    #[test]
    fn nothing_is_written_for_nothing() {
        assert_eq!(written(&[]), []);
        assert_eq!(written(&[b"", b""]), []);
    }

    #[test]
    fn the_first_failed_write_is_the_last_one() {
        struct Full(Mutex<u32>);
        impl NewFile for Full {
            fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
                *self.0.lock().unwrap() += 1;
                Err(io::ErrorKind::StorageFull.into())
            }
            fn sync(&self) -> io::Result<()> {
                Ok(())
            }
        }
        let (file, huge) = (Full(Mutex::new(0)), vec![0; 2 * PIECE]);
        let error = write_all(&file, &mut [&huge[..]].into_iter(), &|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(*file.0.lock().unwrap(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_write_but_the_last_is_aligned(
            lengths in prop::collection::vec(prop_oneof![0..9000usize, LARGE - 5..LARGE + 5, PIECE - 5..PIECE + 9000], 0..12)
        ) {
            let memory: Vec<u8> = (0..PIECE + 9000).map(|i| (i % 253) as u8).collect();
            let segments: Vec<&[u8]> = lengths.iter().map(|&length| &memory[..length]).collect();
            let writes = written(&segments);
            for (index, (offset, length, _)) in writes.iter().enumerate() {
                prop_assert!(offset % BLOCK as u64 == 0 && *length <= PIECE);
                prop_assert!(length % BLOCK == 0 || index + 1 == writes.len());
            }
        }
    }
}
