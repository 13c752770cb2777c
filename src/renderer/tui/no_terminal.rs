//! Where there is no terminal as Unix knows it: no screen.

use std::io;

use ratatui::Frame;
use ratatui::crossterm::event::Event;

use super::log_tail::LogTail;

/// There is none.
pub(super) enum Terminal {}

impl Terminal {
    pub(super) fn open(_capture: bool) -> io::Result<Terminal> {
        let why = "the screen needs a terminal as Unix knows it";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    pub(super) fn is_ready(&mut self) -> io::Result<bool> {
        match *self {}
    }

    pub(super) fn events(&mut self) -> io::Result<Vec<Event>> {
        match *self {}
    }

    pub(super) fn follow(&mut self, _log: &mut LogTail) -> io::Result<bool> {
        match *self {}
    }

    pub(super) fn send(&mut self) -> io::Result<bool> {
        match *self {}
    }

    pub(super) fn draw(&mut self, _draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<bool> {
        match *self {}
    }

    pub(super) fn columns(&self) -> Option<usize> {
        match *self {}
    }

    pub(super) fn close(&mut self, _lines: &[String]) -> io::Result<()> {
        match *self {}
    }
}
