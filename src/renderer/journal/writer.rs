//! Appending to the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::pending::{Pending, Urgency};
use super::{EVENTS, Line, open};
use crate::renderer::event::Event;

/// So many points has a run of any length, until they are [`SELDOM`] apart.
const POINTS: f64 = 4096.0;
/// Seconds between points, at least and at most.
const OFTEN: f64 = 0.25;
const SELDOM: f64 = 10.0;
/// What a person waits for is told so many times sooner.
const SOON: f64 = 4.0;
/// Seconds between signs of life, where there is nothing to write.
const BEAT: f64 = 10.0;

/// Appends events, thinned: values are averaged, and what has been overtaken is left out, until the next point is due.
/// A run that is old has fewer points. What begins and ends the run is written at once.
///
/// While there is nothing to write, the file is touched now and then: its time tells a run in a long step from one that
/// has died.
///
/// Each point is one write of whole lines, so that lines of several processes do not mix.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    pending: Pending,
    /// The first event of this process, which the age of the run is counted from.
    began: Option<f64>,
    /// The last point.
    last: f64,
    /// The last sign of life.
    beat: f64,
    /// The last line in the file is torn: somebody died while writing it.
    is_torn: bool,
}

impl Writer {
    /// Opens the file in `directory`; both are created if need be.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; `InvalidInput` if something else has the name of the file.
    pub(crate) fn open(directory: &Path) -> io::Result<Writer> {
        fs::create_dir_all(directory)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = open(&mut options, &directory.join(EVENTS))?;
        let is_torn = is_torn(&mut file)?;
        Ok(Writer {
            file,
            pending: Pending::default(),
            began: None,
            last: f64::NEG_INFINITY,
            beat: f64::NEG_INFINITY,
            is_torn,
        })
    }

    /// Takes in an event; writes a point if one is due.
    ///
    /// # Errors
    ///
    /// Whatever the system reports. There may be half a line in the file then: nothing must be written after it.
    pub(crate) fn write(&mut self, at: f64, event: &Event) -> io::Result<()> {
        if matches!(event, Event::Start { .. }) {
            // What comes before belongs to another process.
            self.flush()?;
            self.began = Some(at);
        }
        self.began.get_or_insert(at);
        self.pending.add(at, event);
        self.tick(at)
    }

    /// Writes a point if one is due at `now`, and gives a sign of life.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn tick(&mut self, now: f64) -> io::Result<()> {
        let interval = self.interval(now);
        let since = now - self.last;
        let is_due = match self.pending.urgency() {
            None => false,
            Some(Urgency::NextPoint) => since >= interval,
            Some(Urgency::Soon) => since >= (interval / SOON).max(OFTEN),
            Some(Urgency::Now) => true,
        };
        // A clock that was set back must not stop the file.
        if is_due || since < 0.0 {
            self.last = now;
            self.flush()?;
        }
        self.give_sign_of_life(now);
        Ok(())
    }

    fn give_sign_of_life(&mut self, now: f64) {
        if (0.0..BEAT).contains(&(now - self.beat)) {
            return;
        }
        self.beat = now;
        // Where it is not to be had, what is written is sign enough.
        let _ = touch(&self.file);
    }

    fn interval(&self, now: f64) -> f64 {
        let age = now - self.began.unwrap_or(now);
        (age / POINTS).clamp(OFTEN, SELDOM)
    }

    /// Writes whatever has not been written yet.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        if self.is_torn {
            lines.push(b'\n');
        }
        let torn = lines.len();
        for (at, event) in self.pending.take() {
            let at = (at * 1000.0).round() / 1000.0;
            Line { at, event: &event }.append_to(&mut lines);
        }
        if lines.len() == torn {
            return Ok(());
        }
        self.file.write_all(&lines)?;
        self.is_torn = false;
        Ok(())
    }
}

/// Whether the file ends within a line.
fn is_torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Sets the time of the last change to now, by the clock of the file system. Whoever may write to the file may do that,
/// while another time is for its owner only.
#[cfg(unix)]
fn touch(file: &File) -> io::Result<()> {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    Ok(futimens(
        file,
        &Timestamps {
            last_access: now,
            last_modification: now,
        },
    )?)
}

#[cfg(not(unix))]
fn touch(file: &File) -> io::Result<()> {
    file.set_modified(std::time::SystemTime::now())
}
