//! The one thing asked of the system that no safe wrapper offers.

#![expect(unsafe_code, reason = "rustix has no leases")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{F_SETLEASE, F_UNLCK, F_WRLCK, SIGURG, c_int};

/// From `asm-generic/fcntl.h`; libc does not list it.
const F_SETSIG: c_int = 10;

/// Fails if anyone else has the file open, in this process or another. A mapping counts: it keeps its file
/// open.
///
/// That is what a write lease asks for. It is given back at once.
pub(super) fn is_ours_alone(file: &File) -> io::Result<()> {
    // If somebody opens the file just while the lease is held, a signal says so, by default one that kills the
    // process. This one is ignored by default, and says the same to whoever handles it: look for yourself.
    control(file, F_SETSIG, SIGURG)?;
    control(file, F_SETLEASE, c_int::from(F_WRLCK))?;
    control(file, F_SETLEASE, c_int::from(F_UNLCK))
}

fn control(file: &File, command: c_int, argument: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and these commands take a number: no
    // memory is touched.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
