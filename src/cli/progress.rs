use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::json::size;

/// Work that is done sooner is not shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A line on the terminal that says how far long work has come; gone when it is dropped.
pub(super) struct Progress {
    what: String,
    total: Option<u64>,
    done: AtomicU64,
    started: Instant,
    /// When the line is to be drawn next; `None` if there is no terminal to draw on.
    next: Option<Mutex<Instant>>,
    /// There is a line to be taken away.
    drawn: AtomicBool,
}

impl Progress {
    /// Of `total` bytes, if that is known.
    pub(super) fn new(what: &str, total: Option<u64>, wanted: bool) -> Progress {
        let started = Instant::now();
        let shown = wanted && io::stderr().is_terminal();
        Progress {
            what: what.to_owned(),
            total,
            done: AtomicU64::new(0),
            started,
            next: shown.then(|| Mutex::new(started + PATIENCE)),
            drawn: AtomicBool::new(false),
        }
    }

    /// So many bytes more are done.
    pub(super) fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Whoever draws just now does it for all.
        let Some(Ok(mut next)) = self.next.as_ref().map(Mutex::try_lock) else {
            return;
        };
        let now = Instant::now();
        if now < *next {
            return;
        }
        *next = now + PAUSE;
        let line = line(&self.what, done, self.total, self.started.elapsed());
        self.drawn.store(true, Ordering::Relaxed);
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.load(Ordering::Relaxed) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, took: Duration) -> String {
    let speed = (done as f64 / took.as_secs_f64().max(0.001)) as u64;
    let of = match total {
        Some(total) if total >= done && total > 0 => {
            format!(
                " of {} ({} %)",
                size(total),
                u128::from(done) * 100 / u128::from(total)
            )
        }
        _ => String::new(),
    };
    format!("{what}: {}{of}, {}/s", size(done), size(speed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_how_fast() {
        let second = Duration::from_secs(1);
        assert_eq!(
            line("verifying", 250_000_000, Some(1_000_000_000), second),
            "verifying: 250 MB of 1.00 GB (25 %), 250 MB/s"
        );
        assert_eq!(
            line("reading", 2_000, None, second),
            "reading: 2.00 kB, 2.00 kB/s"
        );
    }
}
