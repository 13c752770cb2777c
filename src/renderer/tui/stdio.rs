//! C's own buffer of standard output: what `printf` leaves in there would come too late, or nowhere.

#![expect(unsafe_code, reason = "the functions of C")]

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod system {
    use libc::{FILE, c_int};

    unsafe extern "C" {
        #[cfg_attr(target_os = "linux", link_name = "stdout")]
        #[cfg_attr(target_vendor = "apple", link_name = "__stdoutp")]
        static STDOUT: *mut FILE;
        fn ftrylockfile(stream: *mut FILE) -> c_int;
        fn funlockfile(stream: *mut FILE);
        #[cfg(target_os = "linux")]
        fn __fbufsize(stream: *mut FILE) -> usize;
    }

    pub(in super::super) fn flush() {
        // SAFETY: the stream is there from the beginning to the end of a process, and only a program that assigns to
        // `stdout`, which no threads may do, changes the variable. The lock may be taken twice by one thread.
        unsafe {
            // Whoever has it may have it for long.
            if ftrylockfile(STDOUT) == 0 {
                libc::fflush(STDOUT);
                funlockfile(STDOUT);
            }
        }
    }

    #[cfg(target_os = "linux")]
    pub(in super::super) fn decide() {
        const LINES: c_int = libc::_IOLBF;
        // SAFETY: as in `flush`; nothing has been done with the stream if it has no buffer.
        unsafe {
            if __fbufsize(STDOUT) == 0 {
                libc::setvbuf(STDOUT, std::ptr::null_mut(), LINES, 0);
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(in super::super) fn decide() {}
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod system {
    pub(in super::super) fn flush() {}

    pub(in super::super) fn decide() {}
}

/// Writes what is in there to wherever standard output leads now. Waits for nobody.
pub(super) use system::flush;

/// Lets it write line by line, as it does on a terminal. It decides that for good with the first thing that is
/// printed, which may be while standard output leads into a file.
pub(super) use system::decide;
