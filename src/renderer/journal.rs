//! `events.jsonl`: what happened in a run, appended line by line, for watchers and for the run that resumes it.
//!
//! A line is an event and its time: `{"at":1764533373.25,"event":"epoch","epoch":3}`. Readers pass over lines that
//! they do not know. A file that the run itself writes stays small: see [`Writer`].

mod pending;
mod reader;
mod writer;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::control::STOPPING;
use super::event::Event;

pub(crate) use reader::Reader;
pub(crate) use writer::Writer;

/// Name of the file, in the directory of the run, that holds what happened in it.
pub const EVENTS: &str = "events.jsonl";
/// A watcher that asks the run to stop creates this file; the run removes it.
pub(crate) const STOP: &str = ".stop";

/// One line. `E` is an event, or a reference to one.
#[derive(Debug, Serialize, Deserialize)]
struct Line<E> {
    /// Seconds since 1970 (UTC).
    at: f64,
    #[serde(flatten)]
    event: E,
}

impl Line<&Event> {
    fn append_to(self, lines: &mut Vec<u8>) {
        let before = lines.len();
        match serde_json::to_writer(&mut *lines, &self) {
            Ok(()) => lines.push(b'\n'),
            // No event is known that JSON cannot hold.
            Err(error) => {
                log::error!("an event is not written to {EVENTS}: {error}");
                lines.truncate(before);
            }
        }
    }
}

/// Asks the run in `directory` to stop; it looks for that about twice a second.
///
/// # Errors
///
/// Whatever the system reports; `IsADirectory` if one has the name of the request, which the run could not remove. That
/// it was asked before is no error.
pub(crate) fn ask_to_stop(directory: &Path) -> io::Result<()> {
    let path = directory.join(STOP);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            // For whoever finds the file; the run does not read it.
            let _ = file.write_all(STOPPING.as_bytes());
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
                let why = format!("{} is a directory", path.display());
                return Err(io::Error::new(io::ErrorKind::IsADirectory, why));
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Whether the run in `directory` has yet to hear that it was asked to stop.
///
/// # Errors
///
/// Whatever the system reports, also if there is no such directory any more.
pub(crate) fn is_asked_to_stop(directory: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(directory.join(STOP)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::metadata(directory).map(|_| false)
        }
        Err(error) => Err(error),
    }
}

/// Whether the run was asked to stop since this was asked last.
pub(crate) fn take_stop_request(directory: &Path) -> bool {
    // One that cannot be removed would stop each later run as well.
    fs::remove_file(directory.join(STOP)).is_ok()
}

/// Opens a file of events. Neither waits, as for the other end of a pipe, nor leads out of the directory.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        let why = "it is no regular file";
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

#[cfg(test)]
mod tests;
