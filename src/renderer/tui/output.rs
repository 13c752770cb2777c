//! Frames, and their way to a terminal that may take nothing for a while.

use std::io;
use std::mem;
use std::os::fd::AsFd;

use ratatui::Frame;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::io::Errno;
use rustix::termios::Winsize;

/// Says that all of the screen is to be empty.
const CLEAR: &[u8] = b"\x1b[0m\x1b[2J";

/// Turns what is drawn into bytes: those that change what is on the screen already.
pub(super) struct Canvas {
    /// Only it can make a frame; it never writes anything.
    frames: Terminal<CrosstermBackend<io::Sink>>,
    /// What is on the screen. `None`: nobody knows.
    shown: Option<Buffer>,
    area: Rect,
}

impl Canvas {
    pub(super) fn new(area: Rect) -> io::Result<Canvas> {
        let options = TerminalOptions {
            viewport: Viewport::Fixed(area),
        };
        Ok(Canvas {
            frames: Terminal::with_options(CrosstermBackend::new(io::sink()), options)?,
            shown: None,
            area,
        })
    }

    pub(super) fn area(&self) -> Rect {
        self.area
    }

    /// Somebody else has used the screen: the next frame is drawn all anew.
    pub(super) fn forget(&mut self) {
        self.shown = None;
    }

    /// Draws a frame, and returns what is to be written.
    pub(super) fn paint(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut shown = self.shown.take().unwrap_or_else(|| {
            bytes.extend_from_slice(CLEAR);
            Buffer::empty(self.area)
        });
        draw(&mut self.frames.get_frame());
        let drawn = self.frames.current_buffer_mut();
        let changed = shown.diff_iter(drawn);
        let mut changed = changed.peekable();
        if changed.peek().is_some() {
            CrosstermBackend::new(&mut bytes).draw(changed)?;
        }
        mem::swap(&mut shown, drawn);
        drawn.reset();
        self.shown = Some(shown);
        Ok(bytes)
    }
}

/// The part of a terminal that is drawn on. One that does not know its size has that of all terminals once; one that
/// is larger than any wall costs no more memory than one that is not.
pub(super) fn area(size: Winsize) -> Rect {
    if size.ws_col == 0 || size.ws_row == 0 {
        return Rect::new(0, 0, 80, 24);
    }
    Rect::new(0, 0, size.ws_col.min(1000), size.ws_row.min(400))
}

/// What is still to be written to a terminal that does not make one wait.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    /// Nothing, whatever there was.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes what the terminal takes; returns whether that was all. While it was not, no more should be pushed.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn send(&mut self, terminal: impl AsFd) -> io::Result<bool> {
        while self.written < self.bytes.len() {
            match rustix::io::write(&terminal, &self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.clear();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use ratatui::style::{Color, Style};

    use super::*;

    fn canvas() -> Canvas {
        Canvas::new(Rect::new(0, 0, 20, 3)).unwrap()
    }

    fn painted(canvas: &mut Canvas, text: &str) -> String {
        let draw = |frame: &mut Frame<'_>| {
            frame.buffer_mut().set_string(0, 1, text, Style::default());
        };
        String::from_utf8(canvas.paint(draw).unwrap()).unwrap()
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut canvas = canvas();
        let first = painted(&mut canvas, "loss 0.5");
        assert!(first.starts_with("\x1b[0m\x1b[2J"), "{first:?}");
        assert!(first.contains("\x1b[2;1Hloss"), "{first:?}");
        assert_eq!(painted(&mut canvas, "loss 0.5"), "");
        let second = painted(&mut canvas, "loss 0.4");
        assert!(second.starts_with("\x1b[2;8H4"), "{second:?}");
        assert!(!second.contains("loss"), "{second:?}");
        let third = painted(&mut canvas, "loss");
        assert!(
            third.starts_with("\x1b[2;6H   "),
            "what is gone is wiped out: {third:?}"
        );
    }

    #[test]
    fn what_nobody_knows_is_drawn_all_anew() {
        let mut canvas = canvas();
        let first = painted(&mut canvas, "loss 0.5");
        canvas.forget();
        assert_eq!(painted(&mut canvas, "loss 0.5"), first);
    }

    #[test]
    fn colours_end_with_the_frame() {
        let draw = |frame: &mut Frame<'_>| {
            frame
                .buffer_mut()
                .set_string(0, 0, "red", Style::default().fg(Color::Red));
        };
        let bytes = canvas().paint(draw).unwrap();
        assert!(String::from_utf8(bytes).unwrap().ends_with("\x1b[0m"));
    }

    #[test]
    fn a_terminal_without_a_size_or_with_a_mad_one_is_drawn_on() {
        let size = |columns, rows| {
            let size = Winsize {
                ws_col: columns,
                ws_row: rows,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            let Rect { width, height, .. } = area(size);
            (width, height)
        };
        assert_eq!(size(100, 30), (100, 30));
        assert_eq!(size(1, 1), (1, 1));
        assert_eq!(size(0, 0), (80, 24));
        assert_eq!(size(80, 0), (80, 24));
        assert_eq!(size(u16::MAX, u16::MAX), (1000, 400));
    }

    #[test]
    fn a_terminal_that_takes_nothing_makes_nobody_wait_and_gets_the_rest_later() {
        let (terminal, mut person) = UnixStream::pair().unwrap();
        terminal.set_nonblocking(true).unwrap();
        let frame: Vec<u8> = (0..4_000_000_u32).map(|byte| byte as u8).collect();
        let mut output = Output::default();
        output.push(&frame);
        assert!(!output.send(&terminal).unwrap());
        assert!(!output.send(&terminal).unwrap(), "still nobody has read");

        let mut seen = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while !output.send(&terminal).unwrap() {
            let count = person.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..count]);
        }
        drop(terminal);
        person.read_to_end(&mut seen).unwrap();
        assert!(seen == frame);
        assert!(output.bytes.is_empty());
    }

    #[test]
    fn a_terminal_that_is_gone_is_an_error() {
        let (terminal, person) = UnixStream::pair().unwrap();
        drop(person);
        let mut output = Output::default();
        output.push(b"frame");
        assert!(output.send(&terminal).is_err());
        output.clear();
        assert!(output.send(&terminal).unwrap(), "there is nothing to write");
    }
}
