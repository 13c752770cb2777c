//! Following the file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{EVENTS, Line, open};
use crate::renderer::event::Event;

/// Bytes of a line that is looked at; a longer one is no event.
const LONGEST: usize = 1 << 20;
const CHUNK: usize = 1 << 16;

/// Follows a file of events, whether it is there yet or not. Only reads.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    tail: Option<Tail>,
    /// Reading it has failed.
    is_lost: bool,
    restarted: bool,
    modified: Option<SystemTime>,
}

/// An open file, read so far.
#[derive(Debug)]
struct Tail {
    file: File,
    /// What has the name of the file must still be this.
    metadata: Metadata,
    offset: u64,
    lines: Lines,
}

/// What has been read of a line.
#[derive(Debug, Default)]
struct Lines {
    torn: Vec<u8>,
    is_too_long: bool,
}

impl Reader {
    /// Follows the file in `directory`.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub(crate) fn open(directory: &Path) -> io::Result<Reader> {
        if !fs::metadata(directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Reader {
            path: directory.join(EVENTS),
            tail: None,
            is_lost: false,
            restarted: false,
            modified: None,
        })
    }

    /// Gives all events that were added since the last call to `take`; says whether anything is new. A line that is
    /// not complete is left for later, and one that is not understood is passed over.
    ///
    /// # Errors
    ///
    /// Whatever the system reports, `InvalidInput` if it is no regular file. The next call begins anew.
    pub(crate) fn read(&mut self, take: impl FnMut(f64, Event)) -> io::Result<bool> {
        let read = self.follow(take);
        if read.is_err() {
            self.is_lost |= self.tail.take().is_some();
        }
        read
    }

    /// Whether the events come from the beginning again, since the file is another one: what they added up to must be
    /// forgotten. True once for each time; the last call to [`read`](Self::read) gave none.
    pub(crate) fn restarted(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }

    /// When the file was written to or touched last, as [`read`](Self::read) has found it; `None` if it was not there.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn follow(&mut self, mut take: impl FnMut(f64, Event)) -> io::Result<bool> {
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.modified = None;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        self.modified = metadata.modified().ok();
        let is_another = |tail: &Tail| !tail.is(&metadata);
        if self.is_lost || self.tail.as_ref().is_some_and(is_another) {
            (self.tail, self.is_lost, self.restarted) = (None, false, true);
            return Ok(true);
        }
        let tail = match &mut self.tail {
            Some(tail) => tail,
            None => self.tail.insert(Tail::open(&self.path)?),
        };
        tail.read(&mut take)
    }
}

impl Tail {
    fn open(path: &Path) -> io::Result<Tail> {
        let file = open(OpenOptions::new().read(true), path)?;
        Ok(Tail {
            metadata: file.metadata()?,
            file,
            offset: 0,
            lines: Lines::default(),
        })
    }

    /// Whether this is what was opened, and has not been cut.
    fn is(&self, metadata: &Metadata) -> bool {
        is_same(&self.metadata, metadata) && metadata.len() >= self.offset
    }

    fn read(&mut self, take: &mut impl FnMut(f64, Event)) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK];
        let mut any = false;
        loop {
            let length = match self.file.read(&mut chunk) {
                Ok(0) => return Ok(any),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.offset += length as u64;
            any |= self.lines.add(&chunk[..length], take);
        }
    }
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether it was replaced cannot be told, only whether it was cut.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

impl Lines {
    /// Says whether there was an event in it.
    fn add(&mut self, mut bytes: &[u8], take: &mut impl FnMut(f64, Event)) -> bool {
        let mut any = false;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add_to_line(&bytes[..end]);
            any |= self.end_line(take);
            bytes = &bytes[end + 1..];
        }
        self.add_to_line(bytes);
        any
    }

    fn add_to_line(&mut self, part: &[u8]) {
        if self.torn.len() + part.len() > LONGEST {
            self.is_too_long = true;
            self.torn = Vec::new();
        }
        if !self.is_too_long {
            self.torn.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, take: &mut impl FnMut(f64, Event)) -> bool {
        // Events of a newer version are not understood; nor is what is left of a line that is too long.
        let line: Option<Line<Event>> = serde_json::from_slice(&self.torn).ok();
        self.torn.clear();
        self.is_too_long = false;
        let Some(Line { at, event }) = line else {
            return false;
        };
        take(at, event);
        true
    }
}
