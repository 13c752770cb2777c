//! What is printed while the screen is up: it goes into a file, and from there to the terminal in the end.
//!
//! A file, not a pipe: whoever prints never waits for somebody to read it. Both streams share one, opened for
//! appending, so that lines keep their order, whichever process they come from. On Linux it lies in memory, where no
//! full disk makes a print fail; what has been written out is given back from its beginning, for its end belongs to
//! whoever is writing to it just now.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process;

use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::{Errno, Result};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::termios::tcgetpgrp;

/// Standard output and standard error, as far as they are this terminal, go into a file.
pub(super) struct Capture {
    file: OwnedFd,
    /// The streams as they were. Empty for one that is not captured.
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// What is typed belongs to the screen: whoever reads standard input finds its end, and does not wait for ever.
    stdin: Option<OwnedFd>,
}

impl Capture {
    /// A file without a name; nothing goes into it yet.
    ///
    /// # Errors
    ///
    /// If there can be none, neither in memory nor in the directory for such things.
    pub(super) fn new() -> io::Result<Capture> {
        let file = in_memory().or_else(|_| on_disk())?;
        Ok(Capture {
            file: above_standard_streams(file)?,
            stdout: terminal(stdout())?,
            stderr: terminal(stderr())?,
            stdin: terminal(stdin())?,
        })
    }

    /// From here on, what is printed goes into the file.
    pub(super) fn start(&self) -> io::Result<()> {
        if self.stdout.is_some() {
            dup2_stdout(&self.file)?;
        }
        if self.stderr.is_some() {
            dup2_stderr(&self.file)?;
        }
        if self.stdin.is_some()
            && let Some(nowhere) = nowhere()
        {
            dup2_stdin(&nowhere)?;
        }
        Ok(())
    }

    /// What is printed goes to the terminal again, and what is typed is to be had; nowhere if that is gone: a run must
    /// not end because nobody listens. A stream that somebody has turned elsewhere meanwhile is left alone.
    ///
    /// Fit for a handler of signals.
    pub(super) fn stop(&self, is_gone: bool) {
        let nowhere = if is_gone { nowhere() } else { None };
        if let Some(was) = &self.stdout
            && self.is_behind(stdout())
        {
            let _ = dup2_stdout(nowhere.as_ref().unwrap_or(was));
        }
        if let Some(was) = &self.stderr
            && self.is_behind(stderr())
        {
            let _ = dup2_stderr(nowhere.as_ref().unwrap_or(was));
        }
        if let Some(was) = &self.stdin
            && is_nowhere(stdin())
        {
            let _ = dup2_stdin(nowhere.as_ref().unwrap_or(was));
        }
    }

    /// Bytes that were printed.
    pub(super) fn len(&self) -> u64 {
        fstat(&self.file).map_or(0, |status| status.st_size.cast_unsigned())
    }

    /// How many bytes there were to read.
    pub(super) fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *into, offset) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }

    /// Gives back what the first bytes take. Nobody reads them any more; all others stay where they are.
    #[cfg(target_os = "linux")]
    pub(super) fn forget(&self, bytes: u64) {
        use rustix::fs::{FallocateFlags, fallocate};
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // On a file system that cannot do it they stay.
        let _ = fallocate(&self.file, hole, 0, bytes);
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "there is no way to do it")]
    pub(super) fn forget(&self, _bytes: u64) {}

    fn is_behind(&self, stream: impl AsFd) -> bool {
        match (fstat(&self.file), fstat(stream)) {
            (Ok(file), Ok(stream)) => (file.st_dev, file.st_ino) == (stream.st_dev, stream.st_ino),
            _ => false,
        }
    }
}

#[cfg(target_os = "linux")]
fn in_memory() -> Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, fcntl_setfl, memfd_create};
    let file = memfd_create("pitstop-screen", MemfdFlags::CLOEXEC)?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn in_memory() -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Bytes that there must be room for.
const ROOM: usize = 64 << 10;

fn on_disk() -> io::Result<OwnedFd> {
    let mut number = 0;
    loop {
        let name = format!(".pitstop-screen-{}-{number}", process::id());
        let path = env::temp_dir().join(name);
        let made = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match made {
            // Of a process that had this number before, or has it in another container.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            made => {
                let named = |error: io::Error| {
                    let directory = env::temp_dir();
                    let why = format!("{}: {error}", directory.display());
                    io::Error::new(error.kind(), why)
                };
                let file = made.map_err(named)?;
                fs::remove_file(&path).map_err(named)?;
                // Where there is no room, whoever prints would hear of it.
                (&file).write_all(&vec![0; ROOM]).map_err(named)?;
                file.set_len(0).map_err(named)?;
                return Ok(file.into());
            }
        }
    }
}

/// Another descriptor of a stream, if it is the terminal of this process.
fn terminal(stream: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match tcgetpgrp(&stream) {
        Ok(_) => Ok(Some(rustix::io::fcntl_dupfd_cloexec(stream, FIRST)?)),
        Err(_) => Ok(None),
    }
}

/// Whether it is the device that [`nowhere`] opens.
fn is_nowhere(stream: impl AsFd) -> bool {
    let device = rustix::fs::stat("/dev/null").map(|status| status.st_rdev);
    fstat(stream).map(|status| status.st_rdev) == device
}

fn nowhere() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The first number that is none of a standard stream.
const FIRST: RawFd = 3;

/// The same under a number above those of the standard streams. Where one of these is closed, whatever is opened next
/// gets its number, and what is printed would go there.
pub(super) fn above_standard_streams(descriptor: impl Into<OwnedFd>) -> io::Result<OwnedFd> {
    let descriptor = descriptor.into();
    if descriptor.as_raw_fd() >= FIRST {
        return Ok(descriptor);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST)?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const MUCH: usize = 4 << 20;

    /// Bytes that the file takes in memory or on disk.
    fn taken(capture: &Capture) -> i64 {
        let status = fstat(&capture.file).expect("an open file has a status");
        status.st_blocks * 512
    }

    #[test]
    fn what_is_forgotten_takes_no_room_and_the_rest_stays_where_it_is() {
        for (file, is_in_memory) in [(in_memory().unwrap(), true), (on_disk().unwrap(), false)] {
            let capture = Capture {
                file,
                stdout: None,
                stderr: None,
                stdin: None,
            };
            let mut written = 0;
            while written < MUCH {
                let rest = vec![b'x'; MUCH - written];
                written += rustix::io::write(&capture.file, &rest).unwrap();
            }
            let before = taken(&capture);
            capture.forget(MUCH as u64 - 3);
            // A page whose end is still wanted stays. What a disk gives back is up to its file system.
            let kept = taken(&capture);
            assert!(!is_in_memory || (before >= MUCH as i64 && kept <= 1 << 20));

            rustix::io::write(&capture.file, b"more").unwrap();
            assert_eq!(capture.len(), MUCH as u64 + 4);
            let mut rest = [0; 16];
            let count = capture.read_at(&mut rest, MUCH as u64 - 3).unwrap();
            assert_eq!(&rest[..count], b"xxxmore");
        }
    }
}
