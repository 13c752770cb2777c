//! Curves over steps.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{self, Canvas};

use super::axis::{self, Grid};
use super::curves::{self, Best, Curve};
use super::panel::put;
use crate::renderer::event::Split;
use crate::renderer::tui::theme::Theme;

/// What marks the best value.
pub(super) const BEST: char = '*';
/// Columns from one mark to the next, so that the curve stays visible.
const APART: u16 = 8;

/// What marks the values of a split, for all who do not see its colour.
pub(super) fn mark(split: Split) -> char {
    match split {
        Split::Train => '+',
        Split::Valid => 'o',
        Split::Test => 'x',
    }
}

/// Draws the curves and the best value, with axes.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    curves: &[Curve],
    best: Option<Best>,
    theme: Theme,
) {
    let Some((x, y)) = curves::ranges(curves, best) else {
        let nothing = Line::styled(" no finite value yet", theme.faint());
        return put(buffer, area, usize::from(area.height / 2), &nothing);
    };
    let grid = axis::draw(buffer, area, x, y, theme);
    let canvas = Canvas::default().marker(Marker::Braille);
    let canvas = canvas.x_bounds(grid.x).y_bounds(grid.y);
    canvas
        .paint(|context| {
            for curve in curves {
                line(context, curve, theme);
            }
        })
        .render(grid.area, buffer);
    for curve in curves {
        marks(buffer, &grid, curve, theme);
    }
    if let Some(best) = best {
        put_mark(
            buffer,
            &grid,
            (best.step as f64, best.value),
            BEST,
            best.split,
            theme,
        );
    }
}

/// The line from value to value; none over a gap.
fn line(context: &mut canvas::Context<'_>, curve: &Curve, theme: Theme) {
    let color = theme.colour(curve.split);
    let mut before = None;
    for &(x2, y2) in &curve.points {
        if y2.is_nan() {
            before = None;
            continue;
        }
        let (x1, y1) = before.unwrap_or((x2, y2));
        context.draw(&canvas::Line {
            x1,
            y1,
            x2,
            y2,
            color,
        });
        before = Some((x2, y2));
    }
}

/// A mark here and there on the line.
fn marks(buffer: &mut Buffer, grid: &Grid, curve: &Curve, theme: Theme) {
    let mut next = 0;
    for &point in &curve.points {
        let is_free = grid.column(point.0).is_some_and(|column| column >= next);
        if is_free
            && let Some(column) =
                put_mark(buffer, grid, point, mark(curve.split), curve.split, theme)
        {
            next = column + APART;
        }
    }
}

/// Draws a mark if it lies in the plot, and says in which column.
fn put_mark(
    buffer: &mut Buffer,
    grid: &Grid,
    (x, y): (f64, f64),
    mark: char,
    split: Split,
    theme: Theme,
) -> Option<u16> {
    let (column, row) = (grid.column(x)?, grid.row(y)?);
    let style = theme.split(split).add_modifier(Modifier::BOLD);
    buffer
        .cell_mut((column, row))?
        .set_char(mark)
        .set_style(style);
    Some(column)
}
