//! Keys and the mouse, from the bytes that the terminal sends.
//!
//! crossterm has a reader of its own, but it holds on to standard input or `/dev/tty` and to a handler of `SIGWINCH`
//! for the rest of the process, and turns for ever once its terminal has gone. Here the bytes are read from the
//! terminal that is drawn on, and taken apart into crossterm's events.

use std::io;
use std::os::fd::AsFd;

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use rustix::io::Errno;

/// A sequence that is longer is none.
const SEQUENCE: usize = 64;
/// After so many reads that brought nothing, the end of a text that was pasted does not come any more.
const PATIENCE: u32 = 100;
const PASTE: &[u8] = b"\x1b[200~";
const PASTED: &[u8] = b"\x1b[201~";

/// What a person does at the terminal.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// What has not been understood yet.
    bytes: Vec<u8>,
    /// In the middle of a text that was pasted, which is no keys: a `q` and a `k` in it must not end a run.
    pasting: bool,
    /// Reads in a row that brought nothing.
    idle: u32,
}

/// What some bytes begin with.
#[derive(Debug, PartialEq)]
enum Parsed {
    /// An event, or a sequence that is none, and how many bytes it has.
    Event(Option<Event>, usize),
    /// The beginning of a sequence.
    Incomplete,
}

impl Input {
    /// What was done since the last call, read from a terminal that does not make one wait.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn read(&mut self, terminal: impl AsFd) -> io::Result<Vec<Event>> {
        let mut buffer = [0; 1024];
        match rustix::io::read(&terminal, &mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(self.take(&buffer[..count])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(self.nothing_more()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.idle = 0;
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut used = 0;
        while used < self.bytes.len() {
            let rest = &self.bytes[used..];
            if self.pasting {
                used += pasted(rest, &mut self.pasting);
                if self.pasting {
                    break;
                }
                continue;
            }
            match parse(rest) {
                Parsed::Event(event, length) => {
                    self.pasting = rest[..length] == *PASTE;
                    events.extend(event);
                    used += length;
                }
                Parsed::Incomplete if rest.len() > SEQUENCE => used = self.bytes.len(),
                Parsed::Incomplete => break,
            }
        }
        self.bytes.drain(..used);
        events
    }

    /// A sequence whose end has not come by now is none; an escape alone is the key.
    fn nothing_more(&mut self) -> Vec<Event> {
        self.idle = self.idle.saturating_add(1);
        if self.pasting && self.idle < PATIENCE {
            return Vec::new();
        }
        self.pasting = false;
        let escape = self.bytes == b"\x1b";
        self.bytes.clear();
        if escape {
            vec![key(KeyCode::Esc)]
        } else {
            Vec::new()
        }
    }
}

/// How many bytes to skip, and whether there is more to come.
fn pasted(bytes: &[u8], pasting: &mut bool) -> usize {
    let end = bytes
        .windows(PASTED.len())
        .position(|window| window == PASTED);
    *pasting = end.is_none();
    match end {
        Some(end) => end + PASTED.len(),
        // The last few may be the beginning of its end.
        None => bytes.len().saturating_sub(PASTED.len() - 1),
    }
}

fn key(code: KeyCode) -> Event {
    modified(code, KeyModifiers::NONE)
}

fn modified(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn control(character: u8) -> Event {
    modified(KeyCode::Char(char::from(character)), KeyModifiers::CONTROL)
}

fn parse(bytes: &[u8]) -> Parsed {
    let event = match bytes[0] {
        0x1b => return parse_escape(bytes),
        b'\r' | b'\n' => key(KeyCode::Enter),
        b'\t' => key(KeyCode::Tab),
        0x08 | 0x7f => key(KeyCode::Backspace),
        0 => control(b' '),
        byte @ 0x01..=0x1a => control(byte - 1 + b'a'),
        // As crossterm names them.
        byte @ 0x1c..=0x1f => control(byte - 0x1c + b'4'),
        _ => return parse_character(bytes),
    };
    Parsed::Event(Some(event), 1)
}

fn parse_character(bytes: &[u8]) -> Parsed {
    let length = match bytes[0] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let Some(bytes) = bytes.get(..length) else {
        return Parsed::Incomplete;
    };
    let character = str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.chars().next());
    match character {
        Some(character) if character.is_uppercase() => {
            let event = modified(KeyCode::Char(character), KeyModifiers::SHIFT);
            Parsed::Event(Some(event), length)
        }
        Some(character) => Parsed::Event(Some(key(KeyCode::Char(character))), length),
        None => Parsed::Event(None, 1),
    }
}

fn parse_escape(bytes: &[u8]) -> Parsed {
    match bytes.get(1) {
        None => Parsed::Incomplete,
        Some(b'[') => parse_sequence(bytes),
        Some(b'O') => match bytes.get(2) {
            None => Parsed::Incomplete,
            Some(&last) => Parsed::Event(named(last, &[]), 3),
        },
        Some(0x1b) => Parsed::Event(Some(key(KeyCode::Esc)), 1),
        Some(_) => match parse(&bytes[1..]) {
            Parsed::Event(event, length) => Parsed::Event(event.map(with_alt), length + 1),
            Parsed::Incomplete => Parsed::Incomplete,
        },
    }
}

fn with_alt(event: Event) -> Event {
    match event {
        Event::Key(mut key) => {
            key.modifiers |= KeyModifiers::ALT;
            Event::Key(key)
        }
        other => other,
    }
}

/// `ESC [`, parameters, and a letter that says what it is.
fn parse_sequence(bytes: &[u8]) -> Parsed {
    let Some(length) = bytes[2..]
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte))
    else {
        return Parsed::Incomplete;
    };
    let (parameters, last) = (&bytes[2..2 + length], bytes[2 + length]);
    let length = length + 3;
    match (parameters, last) {
        ([], b'M') => match bytes.get(3..6) {
            // As terminals say it that know no other way.
            Some(&[code, column, row]) => {
                let code = u16::from(code.saturating_sub(32));
                let place = [column, row].map(|at| u16::from(at.saturating_sub(32)));
                let released = code & 3 == 3 && code < 32;
                Parsed::Event(mouse(if released { 0 } else { code }, place, !released), 6)
            }
            _ => Parsed::Incomplete,
        },
        ([b'<', rest @ ..], b'M' | b'm') => match numbers(rest)[..] {
            [code, column, row] => Parsed::Event(mouse(code, [column, row], last == b'M'), length),
            _ => Parsed::Event(None, length),
        },
        _ => Parsed::Event(named(last, &numbers(parameters)), length),
    }
}

/// What stands between semicolons; 0 where there is no number.
fn numbers(parameters: &[u8]) -> Vec<u16> {
    let parts = parameters.split(|byte| *byte == b';');
    let number = |part: &[u8]| str::from_utf8(part).ok()?.parse().ok();
    parts.map(|part| number(part).unwrap_or(0)).collect()
}

/// The key whose sequence ends with `last`.
fn named(last: u8, numbers: &[u16]) -> Option<Event> {
    let code = match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'Z' => return Some(modified(KeyCode::BackTab, KeyModifiers::SHIFT)),
        b'~' => match numbers.first()? {
            1 | 7 => KeyCode::Home,
            2 => KeyCode::Insert,
            3 => KeyCode::Delete,
            4 | 8 => KeyCode::End,
            5 => KeyCode::PageUp,
            6 => KeyCode::PageDown,
            _ => return None,
        },
        _ => return None,
    };
    let mask = numbers.get(1).map_or(0, |mask| mask.saturating_sub(1));
    let pairs = [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
    ];
    Some(modified(code, chosen(mask, pairs)))
}

fn chosen(mask: u16, pairs: [(u16, KeyModifiers); 3]) -> KeyModifiers {
    let set = pairs.into_iter().filter(|(bit, _)| mask & bit != 0);
    set.fold(KeyModifiers::NONE, |all, (_, one)| all | one)
}

/// `place` counts from 1.
fn mouse(code: u16, place: [u16; 2], pressed: bool) -> Option<Event> {
    let button = match code & 3 {
        0 => Some(MouseButton::Left),
        1 => Some(MouseButton::Middle),
        2 => Some(MouseButton::Right),
        _ => None,
    };
    let kind = match (code & 64 != 0, code & 32 != 0, button) {
        (true, _, _) => match code & 3 {
            0 => MouseEventKind::ScrollUp,
            1 => MouseEventKind::ScrollDown,
            2 => MouseEventKind::ScrollLeft,
            _ => MouseEventKind::ScrollRight,
        },
        (false, true, Some(button)) => MouseEventKind::Drag(button),
        (false, true, None) => MouseEventKind::Moved,
        (false, false, Some(button)) if pressed => MouseEventKind::Down(button),
        (false, false, Some(button)) => MouseEventKind::Up(button),
        (false, false, None) => return None,
    };
    let pairs = [
        (4, KeyModifiers::SHIFT),
        (8, KeyModifiers::ALT),
        (16, KeyModifiers::CONTROL),
    ];
    let [column, row] = place.map(|at| at.saturating_sub(1));
    Some(Event::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: chosen(code, pairs),
    }))
}

#[cfg(test)]
mod tests;
