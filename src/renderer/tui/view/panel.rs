//! A panel: a rule with a title, and lines below it. Panels are stacked, and share the rows that there are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::renderer::tui::theme::Theme;

/// A panel that must be shorter than this is left out.
const SHORTEST: u16 = 2;

/// Lines under a title.
pub(super) struct Panel<'a> {
    title: Line<'a>,
    lines: Vec<Line<'a>>,
}

impl<'a> Panel<'a> {
    pub(super) fn new(title: impl Into<Line<'a>>, lines: Vec<Line<'a>>) -> Panel<'a> {
        Panel {
            title: title.into(),
            lines,
        }
    }

    /// Rows that it would take, with its rule.
    fn rows(&self) -> u16 {
        u16::try_from(self.lines.len() + 1).unwrap_or(u16::MAX)
    }

    /// Draws as much of it as there is room for, and says how much there is not.
    fn draw(&self, buffer: &mut Buffer, area: Rect, theme: Theme) {
        rule(buffer, area, &self.title, theme);
        let content = below_rule(area);
        for (row, line) in self.lines.iter().enumerate() {
            put(buffer, content, row, line);
        }
        let hidden = self.lines.len().saturating_sub(usize::from(content.height));
        if hidden > 0 {
            let more = Line::styled(format!(" + {hidden} more "), theme.faint());
            let before = area.width.saturating_sub(more.width() as u16 + 1);
            put(buffer, inset(area, before), 0, &more);
        }
    }
}

/// Draws panels one below the other.
pub(super) fn stack(buffer: &mut Buffer, area: Rect, panels: &[Panel<'_>], theme: Theme) {
    let wanted = panels.iter().map(Panel::rows).collect();
    let mut y = area.y;
    for (panel, height) in panels.iter().zip(share(area.height, wanted)) {
        panel.draw(buffer, Rect { y, height, ..area }, theme);
        y += height;
    }
}

/// Leaves out the last ones that there is no room for, and takes from the tallest until the others fit.
fn share(room: u16, mut wanted: Vec<u16>) -> Vec<u16> {
    wanted.truncate(usize::from(room / SHORTEST));
    for rows in &mut wanted {
        *rows = (*rows).min(room);
    }
    let total = |rows: &[u16]| rows.iter().copied().fold(0, u16::saturating_add);
    while total(&wanted) > room {
        if let Some(tallest) = wanted.iter_mut().max() {
            *tallest -= 1;
        }
    }
    wanted
}

/// Draws a line with a title in it, on the first row of the area.
pub(super) fn rule(buffer: &mut Buffer, area: Rect, title: &Line<'_>, theme: Theme) {
    let dashes = "─".repeat(usize::from(area.width));
    put(buffer, area, 0, &Line::styled(dashes, theme.faint()));
    if title.width() > 0 {
        let mut spaced = Line::from(" ").style(theme.strong());
        spaced.spans.extend(title.spans.iter().cloned());
        spaced.push_span(" ");
        put(buffer, inset(area, 1), 0, &spaced);
    }
}

/// What is left of an area below a rule, one column in.
pub(super) fn below_rule(area: Rect) -> Rect {
    let top = area.height.min(1);
    inset(
        Rect {
            y: area.y + top,
            height: area.height - top,
            ..area
        },
        1,
    )
}

/// Without its first columns.
fn inset(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect {
        x: area.x + columns,
        width: area.width - columns,
        ..area
    }
}

/// Writes a line into a row of the area. Every text comes this way: control characters do not get through, and
/// nothing is written elsewhere.
pub(super) fn put(buffer: &mut Buffer, area: Rect, row: usize, line: &Line<'_>) {
    let area = area.intersection(buffer.area);
    if row < usize::from(area.height) {
        let y = area.y + row as u16;
        let width = line.width().min(usize::from(area.width)) as u16;
        // Nothing of what was drawn there before shines through.
        buffer.set_style(Rect::new(area.x, y, width, 1), Style::reset());
        buffer.set_line(area.x, y, line, area.width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tallest_gives_way_and_the_last_one_goes_first() {
        for (room, wanted, expected) in [
            (20, vec![5, 6, 7], vec![5, 6, 7]),
            (14, vec![4, 9, 5], vec![4, 5, 5]),
            (6, vec![4, 9, 5], vec![2, 2, 2]),
            (5, vec![4, 9, 5], vec![3, 2]),
            (1, vec![4, 9], vec![]),
            (0, vec![], vec![]),
            (9, vec![u16::MAX, u16::MAX], vec![5, 4]),
        ] {
            assert_eq!(
                share(room, wanted.clone()),
                expected,
                "{wanted:?} in {room}"
            );
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let lines = (1..=5).map(|line| Line::from(line.to_string()));
        let panel = Panel::new("Kept", lines.collect());
        let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 4));
        let area = buffer.area;
        panel.draw(&mut buffer, area, Theme::PLAIN);
        let mut expected = Buffer::with_lines(["─ Kept ── + 2 more ─", " 1", " 2", " 3"]);
        for (cell, expected) in buffer.content.iter().zip(&mut expected.content) {
            expected.modifier = cell.modifier;
        }
        assert_eq!(buffer, expected);
    }

    #[test]
    fn nothing_is_written_outside_and_no_control_character_inside() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 1));
        put(
            &mut buffer,
            Rect::new(2, 0, 9, 9),
            0,
            &Line::from("\u{1b}ab"),
        );
        put(&mut buffer, Rect::new(2, 0, 9, 9), 5, &Line::from("ab"));
        put(&mut buffer, Rect::new(7, 7, 2, 2), 0, &Line::from("ab"));
        assert_eq!(buffer, Buffer::with_lines(["  a"]));
    }
}
