//! Panics: the terminal is given back before one is reported, whichever thread it happens in.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use super::hold::{self, IN_THE_END};
use super::stdio;
use crate::renderer::control::KILLING;

/// Reports a panic.
type Report = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The hook of a screen that is up.
pub(super) struct Hook {
    shared: Arc<Shared>,
    /// Where the hook lies in memory, by which it is known.
    address: usize,
}

struct Shared {
    /// The hook that was there before; `None` once it is back in its place.
    previous: RwLock<Option<Report>>,
    is_up: AtomicBool,
    killed: AtomicBool,
}

impl Hook {
    /// Puts a hook on top of the one that is there. This thread must not be panicking.
    pub(super) fn install() -> Hook {
        let shared = Arc::new(Shared {
            previous: RwLock::new(Some(panic::take_hook())),
            is_up: AtomicBool::new(true),
            killed: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let hook: Report = Box::new(move |info| theirs.report(info));
        let address = address(&hook);
        panic::set_hook(hook);
        Hook { shared, address }
    }

    /// Whether a person has killed the training. As long as the hook is there, the threads that go down with it do so
    /// in silence.
    pub(super) fn has_killed(&self) -> bool {
        self.shared.killed.load(Ordering::SeqCst)
    }

    /// Puts the previous one back, if nobody has put another one on top: then this one stays below it, and passes
    /// everything on.
    pub(super) fn remove(&self) {
        self.shared.is_up.store(false, Ordering::SeqCst);
        // The hook cannot be changed from a thread that panics.
        if thread::panicking() {
            return;
        }
        let top = panic::take_hook();
        if address(&top) != self.address {
            return panic::set_hook(top);
        }
        let previous = &self.shared.previous;
        let previous = previous
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(previous) = previous {
            panic::set_hook(previous);
        }
    }
}

impl Shared {
    fn report(&self, info: &PanicHookInfo<'_>) {
        if self.is_up.load(Ordering::SeqCst) {
            if self.killed.load(Ordering::SeqCst) {
                // The threads that go down with the one that was killed.
                return;
            }
            if text(info.payload()) == Some(KILLING) {
                self.killed.store(true, Ordering::SeqCst);
                give_back();
                let _ = writeln!(io::stderr(), "{KILLING}");
                return;
            }
            if !is_caught() {
                give_back();
            }
        }
        let previous = self.previous.read();
        if let Some(previous) = &*previous.unwrap_or_else(PoisonError::into_inner) {
            previous(info);
        }
    }
}

fn address(hook: &Report) -> usize {
    ptr::from_ref(&**hook).cast::<()>().addr()
}

fn text(payload: &dyn Any) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&'static str>().copied())
}

/// Whether this is a thread of the crate whose panics are told in another way, and end nothing. A report of one is
/// printed, and so in the log of the screen.
fn is_caught() -> bool {
    let name = thread::current().name().map(str::to_owned);
    name.is_some_and(|name| name.starts_with("pitstop") && name != "pitstop-screen")
}

fn give_back() {
    stdio::flush();
    hold::visit(|hold| hold.give_back(IN_THE_END));
}

#[cfg(test)]
mod tests {
    use super::*;

    static REPORTS: AtomicBool = AtomicBool::new(false);

    /// All in one test: there is one hook in a process, and this one is in the way of other tests for a moment only.
    #[test]
    fn the_hook_that_was_there_before_is_there_afterwards() {
        let before = panic::take_hook();
        let below: Report = Box::new(|info| {
            if text(info.payload()) == Some("told") {
                REPORTS.store(true, Ordering::SeqCst);
            }
        });
        // What captures something lies somewhere.
        let below: Report = Box::new(move |info| below(info));
        let below_at = address(&below);
        panic::set_hook(below);

        let hook = Hook::install();
        assert!(thread::spawn(|| panic!("told")).join().is_err());
        assert!(REPORTS.swap(false, Ordering::SeqCst), "it is passed on");
        hook.remove();
        let top = panic::take_hook();
        assert_eq!(address(&top), below_at);
        panic::set_hook(top);

        let hook = Hook::install();
        let ours = panic::take_hook();
        let on_top: Report = Box::new(move |info| ours(info));
        let on_top_at = address(&on_top);
        panic::set_hook(on_top);
        hook.remove();
        let top = panic::take_hook();
        assert_eq!(address(&top), on_top_at, "somebody else's stays");
        panic::set_hook(top);
        assert!(thread::spawn(|| panic!("told")).join().is_err());
        assert!(
            REPORTS.load(Ordering::SeqCst),
            "and what is below it passes on"
        );

        panic::set_hook(before);
    }

    #[test]
    fn a_panic_says_a_text_or_something_else() {
        assert_eq!(text(&"killed"), Some("killed"));
        assert_eq!(text(&"killed".to_owned()), Some("killed"));
        assert_eq!(text(&7), None);
    }
}
