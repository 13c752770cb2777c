//! The two axes of a plot: round numbers beside and below it, and where in it a value lies.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::panel::put;
use crate::renderer::figures::count;
use crate::renderer::tui::theme::Theme;

/// Rows from one number to the next.
const ROWS: u16 = 3;
/// Columns from one number to the next.
const COLUMNS: u16 = 14;
/// A plot of fewer rows has no numbers below it.
const TALL: u16 = 6;
/// What is nearer to each other than this part of it is the same.
const SAME: f64 = 1e-9;
/// What is nearer to each other than this is the same, too: floats have nothing finer to offer.
const FINEST: f64 = 1e-300;
/// No value is farther from zero, so that differences and their products stay finite.
pub(super) const FARTHEST: f64 = 1e300;

/// The smallest and the largest value that are drawn.
pub(super) type Range = [f64; 2];

/// A part of the screen, and the values at its edges.
pub(super) struct Grid {
    pub(super) area: Rect,
    pub(super) x: Range,
    pub(super) y: Range,
}

impl Grid {
    /// The column where a value lies.
    pub(super) fn column(&self, x: f64) -> Option<u16> {
        // Two dots of Braille are side by side in it.
        let column = cell(x, self.x, self.area.width, 2.0)?;
        Some(self.area.x + column)
    }

    /// The row where a value lies.
    pub(super) fn row(&self, y: f64) -> Option<u16> {
        // Four dots of Braille are one above the other in it.
        let above = cell(y, self.y, self.area.height, 4.0)?;
        Some(self.area.bottom() - 1 - above)
    }
}

fn cell(value: f64, [low, high]: Range, cells: u16, dots: f64) -> Option<u16> {
    if cells == 0 || !(low..=high).contains(&value) {
        return None;
    }
    let most = f64::from(cells) * dots - 1.0;
    let dot = ((value - low) / (high - low) * most).round();
    Some(((dot / dots) as u16).min(cells - 1))
}

/// The range from `low` to `high`, or one around them if they are the same.
pub(super) fn range(low: f64, high: f64) -> Range {
    let size = low.abs().max(high.abs());
    if high - low > (size * SAME).max(FINEST) {
        return [low, high];
    }
    let margin = if size > FINEST { size * 0.1 } else { 1.0 };
    [low - margin, high + margin]
}

/// Draws the axes of `area`, as far as there is room for them, and says what is left.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, x: Range, y: Range, theme: Theme) -> Grid {
    let below = if area.height >= TALL { 2 } else { 0 };
    let height = area.height - below;
    let ticks = Ticks::new(y, height / ROWS, 0.0);
    let labels = ticks.labels(y);
    let widest = labels.iter().map(String::len).max().unwrap_or(0);
    // The axis itself takes a column.
    let beside = match u16::try_from(widest + 1) {
        Ok(beside) if beside <= area.width / 3 => beside,
        _ => 0,
    };
    let area = Rect {
        x: area.x + beside,
        width: area.width - beside,
        height,
        ..area
    };
    let grid = Grid { area, x, y };
    if beside > 0 {
        left(buffer, &grid, beside, &ticks.values, &labels, theme);
    }
    if below > 0 {
        bottom(buffer, &grid, beside > 0, theme);
    }
    grid
}

/// The numbers beside the plot.
fn left(
    buffer: &mut Buffer,
    grid: &Grid,
    width: u16,
    ticks: &[f64],
    labels: &[String],
    theme: Theme,
) {
    let area = Rect {
        x: grid.area.x - width,
        width,
        ..grid.area
    };
    let digits = usize::from(width - 1);
    let mut lines = vec![format!("{:digits$}│", ""); usize::from(area.height)];
    for (tick, label) in ticks.iter().zip(labels) {
        if let Some(row) = grid.row(*tick) {
            lines[usize::from(row - area.y)] = format!("{label:>digits$}┤");
        }
    }
    for (row, line) in lines.into_iter().enumerate() {
        put(buffer, area, row, &Line::styled(line, theme.faint()));
    }
}

/// The numbers below the plot, which are steps.
fn bottom(buffer: &mut Buffer, grid: &Grid, corner: bool, theme: Theme) {
    let start = grid.area.x - u16::from(corner);
    let area = Rect {
        x: start,
        y: grid.area.bottom(),
        width: grid.area.right() - start,
        height: 2,
    };
    let width = usize::from(area.width);
    let mut axis = vec!['─'; width];
    if corner {
        axis[0] = '└';
    }
    let mut numbers = String::with_capacity(width);
    let ticks = Ticks::new(grid.x, area.width / COLUMNS, 1.0);
    for (tick, label) in ticks.values.iter().zip(ticks.steps(grid.x)) {
        let Some(column) = grid.column(*tick) else {
            continue;
        };
        let column = usize::from(column - start);
        let begin = column.saturating_sub(label.len() / 2);
        let begin = begin.min(width.saturating_sub(label.len()));
        let free = numbers.len() + usize::from(!numbers.is_empty());
        if begin >= free && begin + label.len() <= width {
            axis[column] = '┬';
            numbers.extend(std::iter::repeat_n(' ', begin - numbers.len()));
            numbers.push_str(&label);
        }
    }
    put(
        buffer,
        area,
        0,
        &Line::styled(axis.into_iter().collect::<String>(), theme.faint()),
    );
    put(buffer, area, 1, &Line::styled(numbers, theme.faint()));
}

/// Round numbers in a range, at equal distances of 1, 2 or 5 times a power of ten.
struct Ticks {
    /// The power of ten.
    exponent: i32,
    values: Vec<f64>,
}

impl Ticks {
    /// About `wanted` of them, two at least if that is possible, none nearer to each other than `nearest`.
    fn new([low, high]: Range, wanted: u16, nearest: f64) -> Ticks {
        let mut wanted = wanted.max(1);
        loop {
            let distance = ((high - low) / f64::from(wanted)).max(nearest);
            let ticks = Ticks::at([low, high], distance);
            if ticks.values.len() >= 2 || wanted > 5 {
                return ticks;
            }
            wanted += 1;
        }
    }

    /// At the smallest round distance that is no smaller than this one.
    fn at([low, high]: Range, distance: f64) -> Ticks {
        let exponent = distance.log10().floor() as i32;
        // What rounding has added does not make it larger.
        let enough = |factor: &f64| scaled(*factor, exponent) >= distance * (1.0 - SAME);
        let factor = [1.0, 2.0, 5.0].into_iter().find(enough);
        let (factor, exponent) = factor.map_or((1.0, exponent + 1), |factor| (factor, exponent));
        let step = scaled(factor, exponent);
        // One that lies at an edge counts, however it was rounded.
        let first = (low / step - SAME).ceil();
        let all = (0..64).map(|index| scaled((first + f64::from(index)) * factor, exponent));
        Ticks {
            exponent,
            values: all
                .take_while(|value| *value <= high + step * SAME)
                .collect(),
        }
    }

    /// The numbers as values of a metric, all with the same number of decimals.
    fn labels(&self, [low, high]: Range) -> Vec<String> {
        let size = low.abs().max(high.abs()).log10().floor() as i32;
        let label = |value: &f64| {
            if (-4..6).contains(&size) || *value == 0.0 {
                let decimals = if *value == 0.0 && size < -4 {
                    0
                } else {
                    self.decimals(0)
                };
                return format!("{value:.decimals$}");
            }
            let power = value.abs().log10().floor() as i32;
            let digits = self.decimals(power);
            format!("{value:.digits$e}")
        };
        self.values.iter().map(label).collect()
    }

    /// The numbers as steps: `1,200`, `12.5k`, `3M`.
    fn steps(&self, [_, high]: Range) -> Vec<String> {
        let units = [(1e9, 9, "G"), (1e6, 6, "M"), (1e4, 3, "k")];
        let unit = units.into_iter().find(|(from, ..)| high >= *from);
        let label = |value: &f64| match unit {
            Some((_, power, name)) if *value != 0.0 && self.decimals(power) <= 2 => {
                let decimals = self.decimals(power);
                format!("{:.decimals$}{name}", value / scaled(1.0, power))
            }
            _ => count(*value as u64),
        };
        self.values.iter().map(label).collect()
    }

    /// Decimals that tell them from each other, in units of a power of ten.
    fn decimals(&self, power: i32) -> usize {
        (power - self.exponent).clamp(0, 12) as usize
    }
}

/// A whole number times a power of ten, as exact as it can be, and without a sign if it is zero.
fn scaled(number: f64, exponent: i32) -> f64 {
    let scaled = if exponent < 0 {
        number / 10f64.powi(-exponent)
    } else {
        number * 10f64.powi(exponent)
    };
    scaled + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64, wanted: u16) -> Vec<String> {
        let range = range(low, high);
        Ticks::new(range, wanted, 0.0).labels(range)
    }

    #[test]
    fn values_of_any_size_have_round_labels() {
        for (low, high, wanted, expected) in [
            (0.0, 1.0, 4, &["0.0", "0.5", "1.0"][..]),
            (0.13, 2.31, 3, &["1", "2"]),
            (0.13, 2.31, 5, &["0.5", "1.0", "1.5", "2.0"]),
            (-3.0, 4.0, 4, &["-2", "0", "2", "4"]),
            (-0.3, -0.1, 2, &["-0.3", "-0.2", "-0.1"]),
            (97.31, 97.39, 3, &["97.35"]),
            (0.0, 250_000.0, 3, &["0", "100000", "200000"]),
            (0.0, 2.5e6, 3, &["0", "1e6", "2e6"]),
            (1e-5, 3e-5, 2, &["1e-5", "2e-5", "3e-5"]),
            (0.0, 3e-7, 3, &["0", "1e-7", "2e-7", "3e-7"]),
            (-1e300, 1e300, 2, &["-1e300", "0", "1e300"]),
        ] {
            let labels = labels(low, high, wanted);
            if expected.len() > 1 {
                assert_eq!(labels, expected, "{low} to {high}");
            }
            assert!(labels.len() >= 2, "{low} to {high}: {labels:?}");
        }
    }

    #[test]
    fn a_constant_has_a_range_around_it() {
        for value in [0.0, 1.0, -5.0, 1e-12, 5e-324, 1e15, FARTHEST, -FARTHEST] {
            let [low, high] = range(value, value);
            assert!(low < value && value < high, "{value:e}");
            assert!(labels(value, value, 3).len() >= 2, "{value:e}");
        }
    }

    #[test]
    fn steps_in_millions_stay_short() {
        let steps = |low, high, wanted| {
            let range = range(low, high);
            Ticks::new(range, wanted, 1.0).steps(range)
        };
        assert_eq!(steps(0.0, 3.0, 4), ["0", "1", "2", "3"]);
        // There is nothing between two steps.
        assert_eq!(steps(0.0, 1.0, 4), ["0", "1"]);
        assert_eq!(steps(0.0, 9_000.0, 3), ["0", "5,000"]);
        assert_eq!(steps(0.0, 50_000.0, 3), ["0", "20k", "40k"]);
        assert_eq!(steps(12_090.0, 12_345.0, 3), ["12.1k", "12.2k", "12.3k"]);
        assert_eq!(steps(0.0, 25e6, 3), ["0", "10M", "20M"]);
        assert_eq!(
            steps(1_234_000.0, 1_234_250.0, 2),
            ["1,234,000", "1,234,200"]
        );
    }

    #[test]
    fn values_lie_where_their_dots_are() {
        let grid = Grid {
            area: Rect::new(5, 2, 10, 4),
            x: [0.0, 100.0],
            y: [-1.0, 1.0],
        };
        assert_eq!((grid.column(0.0), grid.column(100.0)), (Some(5), Some(14)));
        assert_eq!((grid.row(-1.0), grid.row(1.0)), (Some(5), Some(2)));
        assert_eq!((grid.column(-0.1), grid.row(f64::NAN)), (None, None));
        assert_eq!(grid.column(50.0), Some(10));
    }
}
