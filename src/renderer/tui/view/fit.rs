//! Texts that fit into a number of columns. Whatever comes out of here is harmless.

use std::borrow::Cow;

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::renderer::figures::clean;

/// Between two facts in a line.
const GAP: &str = "  ";

/// Columns that the text takes.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in at most `most` columns; `…` stands for what is cut off.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let text = clean(text);
    if columns(&text) <= most {
        return text;
    }
    if most == 0 {
        return "".into();
    }
    let (head, _) = split(&text, most - 1);
    format!("{head}…").into()
}

/// The text in at most `most` columns; `…` stands for what is left out of its middle. For names: many differ only in
/// their end.
pub(super) fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    let text = clean(text);
    let all = columns(&text);
    if all <= most {
        return text;
    }
    if most == 0 {
        return "".into();
    }
    let (head, rest) = split(&text, most / 2);
    let room = most - 1 - columns(head);
    // Columns of the rest that are left out: one more if that would halve a wide character.
    let mut out = columns(rest).saturating_sub(room);
    let mut tail = split(rest, out).1;
    while columns(tail) > room {
        out += 1;
        tail = split(rest, out).1;
    }
    format!("{head}…{tail}").into()
}

/// The clean text in lines of at most `most` columns, at most `rows` of them; between words, if possible.
pub(super) fn wrap(text: &str, most: usize, rows: usize) -> Vec<String> {
    // A bound on the work, not on the result.
    let text = cut(text, most.saturating_mul(rows));
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(pieces(word, most)),
        }
    }
    if lines.len() > rows {
        lines.truncate(rows);
        if let Some(line) = lines.last_mut() {
            *line = cut(&format!("{line}……"), most.min(columns(line) + 1)).into_owned();
        }
    }
    lines
}

/// A word, broken where it has to be.
fn pieces(mut word: &str, most: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    while columns(word) > most {
        let (head, tail) = split(word, most);
        if head.is_empty() {
            break;
        }
        pieces.push(head.to_owned());
        word = tail;
    }
    pieces.push(word.to_owned());
    pieces
}

/// What fits into `most` columns of a clean text, and the rest.
fn split(text: &str, most: usize) -> (&str, &str) {
    let span = Span::raw(text);
    let (mut room, mut end) = (most, 0);
    for grapheme in span.styled_graphemes(Style::new()) {
        let width = usize::from(grapheme.symbol.cell_width());
        let Some(rest) = room.checked_sub(width) else {
            break;
        };
        room = rest;
        end += grapheme.symbol.len();
    }
    text.split_at(end)
}

/// Puts facts side by side, as many in a line as fit.
pub(super) fn flow<'a>(facts: impl IntoIterator<Item = Line<'a>>, most: usize) -> Vec<Line<'a>> {
    join(facts, GAP, most)
}

/// The same, with a gap of one's own.
pub(super) fn join<'a>(
    facts: impl IntoIterator<Item = Line<'a>>,
    gap: &'static str,
    most: usize,
) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    let mut used = 0;
    for fact in facts {
        let width = fact.width();
        match lines.last_mut() {
            Some(line) if used + gap.len() + width <= most => {
                line.push_span(gap);
                line.spans.extend(spans(fact));
                used += gap.len() + width;
            }
            _ => {
                used = width;
                lines.push(Line::from(spans(fact)));
            }
        }
    }
    lines
}

/// The parts of a line, each with the style of the whole.
fn spans(line: Line<'_>) -> Vec<Span<'_>> {
    let whole = line.style;
    let spans = line.spans.into_iter().map(|span| {
        let style = whole.patch(span.style);
        span.style(style)
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        for (text, most, expected) in [
            ("loss", 4, "loss"),
            ("losses", 4, "los…"),
            ("losses", 1, "…"),
            ("losses", 0, ""),
            ("", 0, ""),
            // A wide character that would be halved is left out.
            ("重み重み", 8, "重み重み"),
            ("重み重み", 6, "重み…"),
            ("重み重み", 4, "重…"),
            // A letter keeps its accent.
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("a\u{1b}[31mb", 4, "a?[…"),
            ("a\nb", 9, "a b"),
        ] {
            assert_eq!(cut(text, most), expected, "{text:?} in {most}");
        }
    }

    #[test]
    fn what_is_shortened_keeps_both_ends() {
        for (text, most, expected) in [
            ("loss", 4, "loss"),
            ("encoder.norm", 11, "encod….norm"),
            ("encoder.norm", 8, "enco…orm"),
            ("encoder.norm", 2, "e…"),
            ("encoder.norm", 1, "…"),
            ("encoder.norm", 0, ""),
            // A wide character that would be halved is left out.
            ("重み重み重み", 8, "重み…み"),
            ("重み重み重み", 9, "重み…重み"),
            ("重み", 3, "…み"),
            ("e\u{301}e\u{301}e\u{301}e\u{301}", 3, "e\u{301}…e\u{301}"),
            ("a\u{1b}[31mb", 4, "a?…b"),
        ] {
            assert_eq!(shorten(text, most), expected, "{text:?} in {most}");
        }
    }

    #[test]
    fn lines_break_between_words_and_long_words_anywhere() {
        let wrapped = wrap("Error when saving the state: no-space-left", 12, 9);
        let expected = ["Error when", "saving the", "state:", "no-space-lef", "t"];
        assert_eq!(wrapped, expected);
        assert_eq!(wrap("one two three four", 5, 2), ["one", "two…"]);
        assert_eq!(wrap("重み重み", 3, 9), ["重", "み", "重", "み"]);
        assert_eq!(wrap("", 5, 9), [""; 0]);
        assert_eq!(wrap("a b", 0, 9), [""; 0]);
        // Wider than the line: it is for the buffer to leave it out.
        assert_eq!(wrap("重", 1, 9), ["重"]);
        assert!(wrap(&"long ".repeat(100_000), 10, 3).len() == 3);
    }

    #[test]
    fn facts_stand_side_by_side_while_they_fit() {
        let facts = ["train", "step 5", "epoch 1/3"];
        let flowed = |most| {
            let lines = flow(facts.map(Line::from), most);
            lines.iter().map(Line::to_string).collect::<Vec<_>>()
        };
        assert_eq!(flowed(40), ["train  step 5  epoch 1/3"]);
        assert_eq!(flowed(13), ["train  step 5", "epoch 1/3"]);
        assert_eq!(flowed(1), facts);
    }
}
