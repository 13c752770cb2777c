//! Signals that end or stop the process, and its regular exit: the terminal is given back first.
//!
//! Only signals that do what they do by default are taken. Whoever has a handler, such as Python for `SIGINT`, keeps
//! it, and is to close the screen himself.

#![expect(
    unsafe_code,
    reason = "a handler of a signal is a pointer to a function"
)]

use std::mem;
use std::ptr;
use std::sync::Once;

use libc::{
    SIGABRT, SIGALRM, SIGBUS, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGPIPE, SIGQUIT, SIGSEGV,
    SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGXCPU, c_int, sighandler_t, sigset_t,
};

use super::hold::{Hold, IN_THE_END, SOON, visit};

type Handler = extern "C" fn(c_int);

/// The signals that are taken, and what is done about each.
const TAKEN: [(c_int, Handler); 16] = [
    (SIGHUP, end),
    (SIGINT, end),
    (SIGQUIT, end),
    (SIGTERM, end),
    (SIGUSR1, end),
    (SIGUSR2, end),
    (SIGALRM, end),
    (SIGXCPU, end),
    (SIGPIPE, end),
    (SIGABRT, end),
    (SIGSEGV, end),
    (SIGBUS, end),
    (SIGFPE, end),
    (SIGILL, end),
    (SIGTSTP, stop),
    (SIGCONT, go_on),
];

/// Takes the signals that do what they do by default. To be called now and then: whoever handles one of them for a
/// while, as `Interrupter.on_signals` in Python, puts the default back afterwards.
pub(super) fn take() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function may be called at any time, in any thread.
        unsafe { libc::atexit(at_exit) };
    });
    for (signal, handler) in TAKEN {
        if handler_of(signal) == libc::SIG_DFL {
            handle(signal, address(handler));
        }
    }
}

/// The reverse. What somebody has installed meanwhile is left alone; whoever has found a handler of this file there,
/// and calls it or puts it back later, gets what the signal does by default.
pub(super) fn leave() {
    for (signal, handler) in TAKEN {
        if handler_of(signal) == address(handler) {
            handle(signal, libc::SIG_DFL);
        }
    }
}

/// Runs `work` with a terminal that stops nobody for using it in the background.
pub(super) fn without_job_control<T>(work: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_BLOCK, &[SIGTTOU, SIGTTIN]);
    let done = work();
    // SAFETY: the set was filled in by the system.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    done
}

/// Ends the process as the signal does by default.
extern "C" fn end(signal: c_int) {
    visit(|hold| hold.give_back_now(SOON));
    handle(signal, libc::SIG_DFL);
    // It is blocked while it is handled: it comes when this returns.
    // SAFETY: sends a signal to this thread, no more.
    unsafe { libc::raise(signal) };
}

/// Stops the process, with the terminal as the person knows it.
extern "C" fn stop(signal: c_int) {
    visit(Hold::suspend);
    handle(signal, libc::SIG_DFL);
    // SAFETY: as in `end`.
    unsafe { libc::raise(signal) };
    // Here it stops, unless there is no shell that could let it go on: then the system drops the signal.
    change_mask(libc::SIG_UNBLOCK, &[signal]);
    change_mask(libc::SIG_BLOCK, &[signal]);
    handle(signal, address(stop));
    visit(Hold::want_anew);
}

extern "C" fn go_on(_: c_int) {
    visit(Hold::want_anew);
}

/// Somebody called `exit` while the screen was up.
extern "C" fn at_exit() {
    visit(|hold| hold.give_back(IN_THE_END));
}

fn address(handler: Handler) -> sighandler_t {
    handler as *const () as sighandler_t
}

/// The function that handles a signal, or what stands for none.
fn handler_of(signal: c_int) -> sighandler_t {
    // SAFETY: all zeroes is a value of this structure of C.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: only asks; both pointers may be used as they are.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    action.sa_sigaction
}

/// Fit for a handler of signals.
fn handle(signal: c_int, handler: sighandler_t) {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler;
    // Whoever waits for something is not disturbed; and a thread that ran out of stack may have another one.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the structure is whole. The functions installed here take the number of the signal, as they must without
    // SA_SIGINFO, and do only what POSIX allows in a handler.
    unsafe {
        // One at a time, and no other signal meanwhile.
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Changes which signals this thread lets through, and returns which they were.
fn change_mask(how: c_int, signals: &[c_int]) -> sigset_t {
    // SAFETY: all zeroes is a value of the sets, which are plain numbers; the pointers may be used as they are.
    unsafe {
        let (mut set, mut before): (sigset_t, sigset_t) = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, &raw mut before);
        before
    }
}
