//! Tables for people: aligned columns, cut to the width of the terminal.

use super::escape::escape;
use super::screen::Style;

/// Two spaces between columns.
const GAP: usize = 2;
/// No column is cut below this.
const NARROWEST: usize = 8;

/// Rows of cells under a heading.
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A text, which may be in a colour.
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn styled(text: impl AsRef<str>, style: Style) -> Cell {
        Cell {
            text: escape(text.as_ref()).into_owned(),
            style,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::styled(text, Style::Plain)
    }
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Cells that are left out at the end of a row are empty.
    pub(super) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        let mut cells = Vec::from(cells);
        cells.resize_with(self.columns.len(), || "".into());
        self.rows.push(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its lines, at most `width` characters each if that is possible, coloured by `paint`.
    pub(super) fn lines(
        &self,
        width: Option<usize>,
        paint: impl Fn(Style, &str) -> String,
    ) -> Vec<String> {
        let heading = self
            .columns
            .iter()
            .map(|(name, _)| Cell::styled(name, Style::Heading));
        let heading: Vec<Cell> = heading.collect();
        let rows = || std::iter::once(&heading).chain(&self.rows);
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                rows()
                    .map(|row| length(&row[column].text))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        if let Some(width) = width {
            shrink(&mut widths, width);
        }
        rows().map(|row| self.line(row, &widths, &paint)).collect()
    }

    fn line(
        &self,
        row: &[Cell],
        widths: &[usize],
        paint: &impl Fn(Style, &str) -> String,
    ) -> String {
        let mut line = String::new();
        let mut space = 0;
        for ((cell, &width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            let text = cut(&cell.text, width);
            let missing = width - length(&text);
            let (before, after) = match align {
                Align::Left => (0, missing),
                Align::Right => (missing, 0),
            };
            space += before;
            // Nothing is put behind the last text of a line.
            if !text.is_empty() {
                line.extend(std::iter::repeat_n(' ', space));
                line.push_str(&paint(cell.style, &text));
                space = 0;
            }
            space += after + GAP;
        }
        line
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Takes from the widest column until all fit, as long as one can be cut.
fn shrink(widths: &mut [usize], width: usize) {
    let total = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>() - GAP;
    while total(widths) > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
    }
}

/// The text in at most `width` characters; the middle is left out.
fn cut(text: &str, width: usize) -> String {
    let length = length(text);
    if length <= width {
        return text.to_owned();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    text.chars()
        .take(head)
        .chain(['…'])
        .chain(text.chars().skip(length - tail))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            ("STEP", Align::Right),
            ("NAME", Align::Left),
            ("SIZE", Align::Right),
        ]);
        table.row(["5".into(), "a\u{1b}b".into(), "10 B".into()]);
        table.row(["1000".into(), "transformer.h.0.attn.weight".into()]);
        table
    }

    fn plain(_: Style, text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn columns_are_aligned_and_nothing_hidden_gets_through() {
        let lines = table().lines(None, plain);
        assert_eq!(lines[0], "STEP  NAME                         SIZE");
        assert_eq!(lines[1], "   5  a\\u{1b}b                     10 B");
        assert_eq!(lines[2], "1000  transformer.h.0.attn.weight");
    }

    #[test]
    fn the_widest_column_gives_way() {
        let lines = table().lines(Some(30), plain);
        assert_eq!(lines[2], "1000  transform…n.weight");
        assert!(lines.iter().all(|line| length(line) <= 30), "{lines:?}");
        // What cannot fit is not cut to nothing.
        let narrow = table().lines(Some(3), plain);
        assert!(narrow[1].contains("a\\u{1b}b"), "{narrow:?}");
    }
}
