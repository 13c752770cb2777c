//! The last lines of what was printed, as they would stand on a terminal.

use std::collections::VecDeque;
use std::mem;

/// So many lines are kept.
const LINES: usize = 1000;
/// So many bytes of a line are kept; the rest of it is only in what is written to the terminal in the end.
const LINE: usize = 4096;
/// Columns between the stops of a tab.
const TAB: usize = 8;

/// The last lines of what was printed.
///
/// Progress bars write over themselves: `\r`, "erase to the end of the line" and "up a line" do what a terminal does.
/// All other control sequences, colours too, are left out.
#[derive(Debug)]
pub(super) struct LogTail {
    /// Never empty.
    lines: VecDeque<String>,
    /// The line that is written to, and the byte in it where the next character goes.
    row: usize,
    at: usize,
    place: Place,
    /// The beginning of a character whose end has not come yet.
    partial: Vec<u8>,
}

/// Where in the stream of characters the next one stands.
#[derive(Debug, Clone, Copy)]
enum Place {
    Text,
    /// Behind an escape.
    Escape,
    /// In a control sequence, with its first number so far, and whether it is beyond that.
    Sequence(usize, bool),
    /// In a text for the terminal, such as a title for its window; after an escape in there.
    Title,
    TitleEscape,
}

impl LogTail {
    pub(super) fn new() -> LogTail {
        LogTail {
            lines: VecDeque::from([String::new()]),
            row: 0,
            at: 0,
            place: Place::Text,
            partial: Vec::new(),
        }
    }

    /// The lines that are kept, oldest first. One that has no end yet is the last.
    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        let unwritten = self.lines.back().is_some_and(String::is_empty);
        let count = self.lines.len() - usize::from(unwritten);
        self.lines.range(..count).map(String::as_str)
    }

    /// Takes in what was printed next. Characters and control sequences may be cut in two.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut joined = mem::take(&mut self.partial);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while let Err(error) = str::from_utf8(rest) {
            let (valid, bad) = rest.split_at(error.valid_up_to());
            self.text(valid);
            let Some(length) = error.error_len() else {
                self.partial = bad.to_vec();
                return;
            };
            self.character(char::REPLACEMENT_CHARACTER);
            rest = &bad[length..];
        }
        self.text(rest);
    }

    fn text(&mut self, valid: &[u8]) {
        for character in String::from_utf8_lossy(valid).chars() {
            self.character(character);
        }
    }

    #[expect(
        clippy::match_same_arms,
        reason = "an earlier arm is met first: in the order of the places it can be read"
    )]
    fn character(&mut self, character: char) {
        self.place = match (self.place, character) {
            (Place::Title, '\x1b') => Place::TitleEscape,
            (Place::Title, '\x07') | (Place::TitleEscape, '\\') => Place::Text,
            // One that never ends must not swallow all that follows.
            (Place::Title | Place::TitleEscape, '\n') => {
                self.line_feed();
                Place::Text
            }
            (Place::Title | Place::TitleEscape, _) => Place::Title,
            // Also in the middle of another sequence: that one is over.
            (_, '\x1b') => Place::Escape,
            (Place::Escape, '[') => Place::Sequence(0, false),
            (Place::Escape, ']' | 'P' | 'X' | '^' | '_') => Place::Title,
            // Such as the choice of a character set, which has one more.
            (Place::Escape, ' '..='/') => Place::Escape,
            (Place::Escape, _) => Place::Text,
            (Place::Sequence(number, beyond), _) => self.sequence(number, beyond, character),
            (Place::Text, _) => {
                self.print(character);
                Place::Text
            }
        };
    }

    fn sequence(&mut self, number: usize, beyond: bool, character: char) -> Place {
        match character {
            '0'..='9' if !beyond => {
                let digit = character as usize - '0' as usize;
                return Place::Sequence((number * 10 + digit).min(LINES), false);
            }
            ' '..='?' => return Place::Sequence(number, true),
            'A' => self.go_to(self.row.saturating_sub(number.max(1))),
            'B' => self.go_to((self.row + number.max(1)).min(self.lines.len() - 1)),
            'K' if number == 0 => self.lines[self.row].truncate(self.at),
            'K' if number == 2 => {
                self.lines[self.row].clear();
                self.at = 0;
            }
            _ => {}
        }
        Place::Text
    }

    /// To another line, in the same column, or as close to it as there is text.
    fn go_to(&mut self, row: usize) {
        let column = self.column();
        self.row = row;
        let line = &self.lines[row];
        self.at = (line.char_indices().nth(column)).map_or(line.len(), |(at, _)| at);
    }

    fn print(&mut self, character: char) {
        match character {
            '\n' => self.line_feed(),
            '\r' => self.at = 0,
            '\t' => {
                for _ in 0..TAB - self.column() % TAB {
                    self.put(' ');
                }
            }
            '\x08' => {
                let before = self.lines[self.row][..self.at].chars().next_back();
                self.at -= before.map_or(0, char::len_utf8);
            }
            _ if character.is_control() => {}
            _ => self.put(character),
        }
    }

    fn line_feed(&mut self) {
        self.at = 0;
        self.row += 1;
        if self.row < self.lines.len() {
            return;
        }
        self.lines.push_back(String::new());
        if self.lines.len() > LINES {
            self.lines.pop_front();
            self.row -= 1;
        }
    }

    fn column(&self) -> usize {
        self.lines[self.row][..self.at].chars().count()
    }

    /// Puts a character where the next one goes, instead of the one that is there.
    fn put(&mut self, character: char) {
        let line = &mut self.lines[self.row];
        let there = line[self.at..].chars().next().map_or(0, char::len_utf8);
        if line.len() - there + character.len_utf8() > LINE {
            return;
        }
        let mut bytes = [0; 4];
        let text = character.encode_utf8(&mut bytes);
        line.replace_range(self.at..self.at + there, text);
        self.at += text.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(pieces: &[&[u8]]) -> Vec<String> {
        let mut log = LogTail::new();
        for piece in pieces {
            log.push(piece);
        }
        log.lines().map(str::to_owned).collect()
    }

    fn printed(text: &str) -> Vec<String> {
        after(&[text.as_bytes()])
    }

    #[test]
    fn lines_come_oldest_first_and_the_one_without_an_end_too() {
        assert_eq!(printed(""), [""; 0]);
        assert_eq!(printed("one\n\ntwo"), ["one", "", "two"]);
        assert_eq!(printed("one\r\ntwo\r\n"), ["one", "two"]);
        let mut log = LogTail::new();
        log.push(b"one\ntwo\n");
        assert_eq!(log.lines().len(), 2);
        assert_eq!(log.lines().next_back(), Some("two"));
    }

    #[test]
    fn a_progress_bar_writes_over_itself() {
        assert_eq!(
            printed("\r 10%|#  |\r 20%|## |\r100%|###|\ndone"),
            ["100%|###|", "done"]
        );
        assert_eq!(
            printed("a long line\rshort"),
            ["shortg line"],
            "as on a terminal"
        );
        assert_eq!(printed("a long line\rshort\x1b[K"), ["short"]);
        assert_eq!(printed("a long line\x1b[2Kshort"), ["short"]);
        assert_eq!(printed("ä€😀\rab"), ["ab😀"], "characters, not bytes");
        assert_eq!(printed("abc\x08\x08X"), ["aXc"]);
    }

    #[test]
    fn bars_below_each_other_stay_there() {
        let bars = "outer 0\ninner 1\x1b[A\router 1\ninner 2\x1b[A\router 2\n\n";
        assert_eq!(printed(bars), ["outer 2", "inner 2"]);
        assert_eq!(printed("one\ntwo\x1b[9Athree\x1b[Bx"), ["onethree", "twox"]);
    }

    #[test]
    fn control_sequences_are_left_out() {
        assert_eq!(
            printed("\x1b[1;31mred\x1b[0m and \x1b(Bplain"),
            ["red and plain"]
        );
        assert_eq!(
            printed("\x1b]0;a title\x07one\x1b]8;;link\x1b\\two\x1bM"),
            ["onetwo"]
        );
        assert_eq!(
            printed("\x1b[?25l\x1b[38;2;1;2;3mx\x1b[?25h\x07\0\u{9b}"),
            ["x"]
        );
        assert_eq!(printed("\x1b[12\x1b[Kx"), ["x"], "one that was broken off");
        assert_eq!(printed("\x1b]0;no end\nx"), ["", "x"]);
    }

    #[test]
    fn tabs_are_spaces_up_to_the_next_stop() {
        assert_eq!(printed("a\tb\t\tc"), ["a       b               c"]);
        assert_eq!(printed("12345678\t9"), ["12345678        9"]);
    }

    #[test]
    fn what_is_cut_in_two_is_joined() {
        let text = "ä€😀\x1b[1mx\x1b[0m\x1b]0;title\x1b\\y\r\n".as_bytes();
        for cut in 0..=text.len() {
            assert_eq!(
                after(&[&text[..cut], &text[cut..]]),
                ["ä€😀xy"],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert_eq!(after(&[b"a\xffb\xc3(c"]), ["a\u{fffd}b\u{fffd}(c"]);
    }

    #[test]
    fn only_the_last_lines_and_the_beginning_of_each_are_kept() {
        let mut log = LogTail::new();
        for number in 0..5000 {
            log.push(format!("line {number}\n").as_bytes());
        }
        let lines: Vec<&str> = log.lines().collect();
        // The line that nothing is on yet is one of those that are kept.
        assert_eq!((lines.len(), lines[0]), (LINES - 1, "line 4001"));
        assert_eq!(lines.last(), Some(&"line 4999"));

        log.push("ä".repeat(LINE).as_bytes());
        assert_eq!(log.lines().next_back().map(str::len), Some(LINE));
        log.push(b"\n");
        log.push("x".repeat(LINE - 1).as_bytes());
        log.push("ä".as_bytes());
        assert_eq!(log.lines().next_back().map(str::len), Some(LINE - 1));
    }

    proptest! {
        #[test]
        fn anything_may_be_printed_in_any_pieces(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(0x1b), Just(b'['), Just(b'A'), Just(b'K'), Just(b'9'), any::<u8>(),
            ], 0..20), 0..20),
        ) {
            let whole: Vec<u8> = pieces.concat();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let lines = after(&pieces);
            prop_assert_eq!(&lines, &after(&[&whole]));
            prop_assert!(lines.len() <= LINES);
            prop_assert!(lines.iter().all(|line| line.len() <= LINE && !line.contains(char::is_control)));
        }
    }
}
