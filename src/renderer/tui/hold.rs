//! What is taken from the terminal and the process while the screen is up, and the one way to give it back.
//!
//! Whoever ends the screen goes this way: its own closing, a panic, a signal, `exit`. So it must be fit for a handler
//! of signals: it makes plain system calls, takes no lock and allocates nothing.

#![expect(unsafe_code, reason = "a handler of signals finds it behind a pointer")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, getpgrp, getpid};
use rustix::termios::{LocalModes, OptionalActions, OutputModes, QueueSelector, Termios, Winsize};

use super::capture::{Capture, above_standard_streams};
use super::signals;

/// The other screen; no cursor; clicks and the wheel of the mouse, wherever they are; and pasted text told from keys.
pub(super) const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h";
/// The reverse. The other screen comes last, for it brings the cursor back to where it was.
pub(super) const LEAVE: &[u8] = b"\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

/// For so long a terminal may take nothing when a process is about to die.
pub(super) const SOON: Duration = Duration::from_secs(2);
/// For so long it may when a screen is closed, at each of its three last words: ssh may come back.
pub(super) const IN_THE_END: Duration = Duration::from_secs(20);
/// Longer than any frame is on its way to the terminal.
const FRAME: Duration = Duration::from_millis(5);
/// For so long what was captured is written out at a time, while the run goes on.
const SLICE: Duration = Duration::from_millis(50);

/// What is taken from the terminal and the process.
pub(super) struct Hold {
    /// Of the process that took it. A forked child has all of this in its memory, and no right to it.
    owner: Pid,
    /// The terminal, by a description of its own: nobody else is made not to wait.
    terminal: OwnedFd,
    /// As they were.
    modes: Termios,
    capture: Option<Capture>,
    /// How much of what was captured has been written to the terminal.
    copied: AtomicU64,
    screen: AtomicU8,
    stage: AtomicU8,
    /// The screen is to be taken, whatever is known of it.
    wanted_anew: AtomicBool,
}

/// Values of `Hold::screen`: the person's; ours, to be drawn on; ours, and about to be the person's.
const THEIRS: u8 = 0;
const OURS: u8 = 1;
const LEAVING: u8 = 2;

/// Values of `Hold::stage`.
const HELD: u8 = 0;
const GOING_BACK: u8 = 1;
const GIVEN_BACK: u8 = 2;

impl Hold {
    /// Takes hold of the terminal of this process, which must be standard output too; changes nothing yet.
    pub(super) fn new(capture: bool) -> io::Result<Hold> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty())?;
        let terminal = above_standard_streams(terminal)?;
        Ok(Hold {
            owner: getpid(),
            modes: rustix::termios::tcgetattr(&terminal)?,
            terminal,
            capture: if capture { Some(Capture::new()?) } else { None },
            copied: AtomicU64::new(0),
            screen: AtomicU8::new(THEIRS),
            stage: AtomicU8::new(HELD),
            wanted_anew: AtomicBool::new(false),
        })
    }

    pub(super) fn terminal(&self) -> &OwnedFd {
        &self.terminal
    }

    pub(super) fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    pub(super) fn size(&self) -> io::Result<Winsize> {
        Ok(rustix::termios::tcgetwinsize(&self.terminal)?)
    }

    /// Whether keys go to this process.
    pub(super) fn is_in_foreground(&self) -> io::Result<bool> {
        is_in_foreground(&self.terminal)
    }

    fn is_gone(&self) -> bool {
        self.is_in_foreground().is_err()
    }

    /// Whether the terminal may be drawn on and read from.
    pub(super) fn is_ours(&self) -> bool {
        self.screen.load(Ordering::SeqCst) == OURS && self.is_held()
    }

    pub(super) fn is_held(&self) -> bool {
        self.stage.load(Ordering::SeqCst) == HELD
    }

    /// Sets the modes of the terminal. [`ENTER`] is to be written next.
    pub(super) fn take_screen(&self) -> io::Result<()> {
        let mut raw = self.modes.clone();
        raw.make_raw();
        // First, so that whoever comes in between brings them back.
        self.screen.store(OURS, Ordering::SeqCst);
        signals::without_job_control(|| {
            self.set_modes(&raw)?;
            // Somebody may just have given all back.
            if self.is_ours() {
                Ok(())
            } else {
                self.set_modes(&self.modes)
            }
        })
    }

    /// Whether the terminal still has the modes of the screen. A child process may have set others.
    pub(super) fn is_raw(&self) -> io::Result<bool> {
        let modes = rustix::termios::tcgetattr(&self.terminal)?;
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let (local, output) = (modes.local_modes, modes.output_modes);
        Ok(!local.intersects(cooked) && !output.contains(OutputModes::OPOST))
    }

    fn set_modes(&self, modes: &Termios) -> io::Result<()> {
        let now = OptionalActions::Now;
        Ok(rustix::termios::tcsetattr(&self.terminal, now, modes)?)
    }

    /// Gives the screen to the person for now: the process is about to be stopped.
    pub(super) fn suspend(&self) {
        signals::without_job_control(|| self.leave_screen(SOON));
    }

    /// Has the screen taken anew: whatever is known of it may be wrong, for the process was stopped, say, and goes on.
    pub(super) fn want_anew(&self) {
        self.wanted_anew.store(true, Ordering::SeqCst);
    }

    /// Whether somebody has wanted that since the last call.
    pub(super) fn take_wanted_anew(&self) -> bool {
        self.wanted_anew.swap(false, Ordering::SeqCst)
    }

    /// Gives everything back, unless somebody has; waits for whoever is just at it. The terminal may take nothing for
    /// `patience`; then what is left to be written is lost.
    pub(super) fn give_back(&self, patience: Duration) {
        let order = Ordering::SeqCst;
        let taken_on = self.stage.compare_exchange(HELD, GOING_BACK, order, order);
        if taken_on.is_ok() {
            self.give_back_now(patience);
        }
        let begin = Instant::now();
        while self.stage.load(Ordering::SeqCst) == GOING_BACK && begin.elapsed() < 2 * patience {
            pause(FRAME);
        }
    }

    /// The same, for a handler of signals: the thread that was at it may be the one that was interrupted, so nobody
    /// is waited for. What was given back already is given back no second time.
    pub(super) fn give_back_now(&self, patience: Duration) {
        if self.stage.load(Ordering::SeqCst) == GIVEN_BACK {
            return;
        }
        self.stage.store(GOING_BACK, Ordering::SeqCst);
        signals::without_job_control(|| {
            self.leave_screen(patience);
            self.give_streams_back(patience);
        });
        self.stage.store(GIVEN_BACK, Ordering::SeqCst);
    }

    fn leave_screen(&self, patience: Duration) {
        if self.screen.load(Ordering::SeqCst) == THEIRS {
            return;
        }
        self.screen.store(LEAVING, Ordering::SeqCst);
        // Another thread may be writing a frame; it sees that it may not before the next one.
        pause(FRAME);
        let _ = self.write(LEAVE, patience);
        self.have_left();
    }

    /// What is done once [`LEAVE`] has been written.
    fn have_left(&self) {
        // In the background the rest is the shell's by now.
        if self.is_in_foreground().unwrap_or(true) {
            // What the mouse did meanwhile would stand behind the prompt as nonsense.
            let _ = rustix::termios::tcflush(&self.terminal, QueueSelector::IFlush);
            let _ = self.set_modes(&self.modes);
        }
        self.screen.store(THEIRS, Ordering::SeqCst);
    }

    fn give_streams_back(&self, patience: Duration) {
        let Some(capture) = &self.capture else {
            return;
        };
        // Another thread may be at it, in `spill`; it sees that it may not any more.
        pause(FRAME);
        let go_on = |waited: Duration| waited < patience;
        // While most of it is copied others may go on printing: behind it, in order.
        let copied = self.copy(capture, go_on);
        capture.stop(self.is_gone());
        if copied.is_ok() {
            let _ = self.copy(capture, go_on);
        }
    }

    /// Bytes that were captured, and not copied yet.
    pub(super) fn pending(&self) -> u64 {
        let end = self.capture.as_ref().map_or(0, Capture::len);
        end.saturating_sub(self.copied.load(Ordering::SeqCst))
    }

    /// What is captured begins anew.
    pub(super) fn copy_anew(&self) {
        self.copied.store(0, Ordering::SeqCst);
    }

    /// Writes out what was captured by now, for a moment, on the screen of the person: [`LEAVE`] has been written.
    /// Returns whether that was all; then the screen may be taken anew. What has been written, as far as it was `read`,
    /// is not kept any more.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn spill(&self, read: u64) -> io::Result<bool> {
        let Some(capture) = &self.capture else {
            return Ok(true);
        };
        if self.screen.load(Ordering::SeqCst) == LEAVING {
            // Whoever is at it has not left yet: this would go to the screen that disappears.
            return Ok(false);
        }
        let begin = Instant::now();
        let copied = signals::without_job_control(|| {
            if self.screen.load(Ordering::SeqCst) == OURS {
                self.have_left();
            }
            self.copy(capture, |_| self.is_held() && begin.elapsed() < SLICE)
        });
        // The last byte stays: it says whether a line has ended.
        let done = read.min(self.copied.load(Ordering::SeqCst));
        capture.forget(done.saturating_sub(1));
        match copied {
            Err(Errno::TIMEDOUT) => Ok(false),
            copied => Ok(copied?),
        }
    }

    /// Writes what was captured by now, and not copied yet, and returns whether that was all. Before each part `go_on`
    /// is asked, also while the terminal takes nothing, with for how long it has not.
    fn copy(
        &self,
        capture: &Capture,
        go_on: impl Fn(Duration) -> bool,
    ) -> rustix::io::Result<bool> {
        let end = capture.len();
        // Small, for the stack of a handler may be.
        let mut buffer = [0; 1024];
        while go_on(Duration::ZERO) {
            let from = self.copied.load(Ordering::SeqCst);
            let left = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
            let room = left.min(buffer.len());
            let count = capture.read_at(&mut buffer[..room], from)?;
            if count == 0 {
                return Ok(true);
            }
            let taken = self.write_some(&buffer[..count], &go_on)?;
            self.copied.store(from + taken as u64, Ordering::SeqCst);
        }
        Ok(false)
    }

    /// Writes all of it, however often the terminal is full; [`TIMEDOUT`](Errno::TIMEDOUT) if it is for too long.
    pub(super) fn write(&self, bytes: &[u8], patience: Duration) -> rustix::io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.write_some(rest, &|waited: Duration| waited < patience)?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Writes what the terminal takes; while it takes nothing, `go_on` is asked, as in [`copy`](Self::copy).
    fn write_some(
        &self,
        bytes: &[u8],
        go_on: &impl Fn(Duration) -> bool,
    ) -> rustix::io::Result<usize> {
        let begin = Instant::now();
        loop {
            match rustix::io::write(&self.terminal, bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if go_on(begin.elapsed()) => pause(Duration::from_millis(1)),
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                result => return result,
            }
        }
    }
}

/// Whether this process is in the foreground of the terminal that this is, which must be its own.
pub(super) fn is_in_foreground(terminal: impl AsFd) -> io::Result<bool> {
    Ok(rustix::termios::tcgetpgrp(terminal)? == getpgrp())
}

/// A sleep that a handler of signals may have.
fn pause(time: Duration) {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    };
    let _ = poll(&mut [], Some(&time));
}

/// What handlers find: null, or what [`Arc::into_raw`] gave.
static CURRENT: AtomicPtr<Hold> = AtomicPtr::new(ptr::null_mut());
/// How many are just looking at what they found there.
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// Shows it to handlers.
///
/// # Errors
///
/// If there is another one: a process has one screen at a time, and a forked child none while its parent has one.
pub(super) fn publish(hold: &Arc<Hold>) -> io::Result<()> {
    let mine = Arc::into_raw(Arc::clone(hold)).cast_mut();
    let (nobody, order) = (ptr::null_mut(), Ordering::SeqCst);
    if CURRENT
        .compare_exchange(nobody, mine, order, order)
        .is_err()
    {
        // SAFETY: it is the pointer that was just made, and nobody else has seen it.
        drop(unsafe { Arc::from_raw(mine) });
        let why = "another screen has the terminal";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// The reverse. Waits until no handler looks at it any more.
pub(super) fn withdraw(hold: &Arc<Hold>) {
    let (mine, order) = (Arc::as_ptr(hold).cast_mut(), Ordering::SeqCst);
    if CURRENT
        .compare_exchange(mine, ptr::null_mut(), order, order)
        .is_err()
    {
        return;
    }
    while VISITORS.load(Ordering::SeqCst) > 0 {
        pause(FRAME);
    }
    // SAFETY: `publish` made it from an `Arc` and left that to whoever takes it out of CURRENT. Whoever found it there
    // has gone: it counted itself before it looked, and all of these operations have one order.
    drop(unsafe { Arc::from_raw(mine) });
}

/// Does something with what the screen that is up has taken. Nothing if none is up, or only in the process that this
/// one was forked from. `work` must not panic.
pub(super) fn visit(work: impl FnOnce(&Hold)) {
    VISITORS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: what is there stays until no visitor is left, see `withdraw`.
    let hold = unsafe { CURRENT.load(Ordering::SeqCst).as_ref() };
    if let Some(hold) = hold.filter(|hold| hold.owner == getpid()) {
        work(hold);
    }
    VISITORS.fetch_sub(1, Ordering::SeqCst);
}
