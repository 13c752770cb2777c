//! Which part of the screen is where.

use ratatui::layout::Rect;

/// From so many columns on, the plot has a column of panels beside it, of these widths.
const WIDE: u16 = 76;
const SIDE: (u16, u16) = (32, 60);
/// With fewer columns or rows, the screen shows the essentials only.
const NARROWEST: u16 = 30;
const SHORTEST_WIDE: u16 = 6;
const SHORTEST_NARROW: u16 = 12;

/// How much room what was printed takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogSize {
    /// None: nothing was printed.
    None,
    /// A few rows.
    Small,
    /// All there is.
    Large,
}

/// Where everything is; what is empty is not shown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) metrics: Rect,
    pub(super) panels: Rect,
    pub(super) log: Rect,
    pub(super) progress: Rect,
    pub(super) controls: Rect,
}

/// Divides the screen; `None` if it is too small for that.
pub(super) fn places(screen: Rect, log: LogSize) -> Option<Places> {
    let is_wide = screen.width >= WIDE;
    let shortest = if is_wide {
        SHORTEST_WIDE
    } else {
        SHORTEST_NARROW
    };
    if screen.width < NARROWEST || screen.height < shortest {
        return None;
    }
    let mut rest = screen;
    let controls = bottom(&mut rest, 1);
    let progress = bottom(&mut rest, if screen.height >= 10 { 2 } else { 1 });
    let places = Places {
        progress,
        controls,
        ..Places::default()
    };
    if log == LogSize::Large {
        return Some(Places {
            log: rest,
            ..places
        });
    }
    let log = match (log, rest.height) {
        (LogSize::None, _) | (_, ..14) => bottom(&mut rest, 0),
        (_, ..18) => bottom(&mut rest, 4),
        (_, ..28) => bottom(&mut rest, 5),
        (_, height) => bottom(&mut rest, height / 4),
    };
    let panels = if is_wide {
        let panels = right(&mut rest, (screen.width / 5 * 2).clamp(SIDE.0, SIDE.1));
        right(&mut rest, 1);
        panels
    } else {
        let half = rest.height / 2;
        bottom(&mut rest, half)
    };
    Some(Places {
        metrics: rest,
        panels,
        log,
        ..places
    })
}

/// Cuts off the last rows.
fn bottom(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    rest.height -= rows;
    Rect {
        y: rest.bottom(),
        height: rows,
        ..*rest
    }
}

/// Cuts off the last columns.
fn right(rest: &mut Rect, columns: u16) -> Rect {
    let columns = columns.min(rest.width);
    rest.width -= columns;
    Rect {
        x: rest.right(),
        width: columns,
        ..*rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_belongs_to_one_part_at_most() {
        for (width, height) in
            (1..=160).flat_map(|width| (1..=60).map(move |height| (width, height)))
        {
            for log in [LogSize::None, LogSize::Small, LogSize::Large] {
                let screen = Rect::new(0, 0, width, height);
                let Some(places) = places(screen, log) else {
                    continue;
                };
                let all = [
                    places.metrics,
                    places.panels,
                    places.log,
                    places.progress,
                    places.controls,
                ];
                for (index, one) in all.iter().enumerate() {
                    assert_eq!(
                        one.intersection(screen).area(),
                        one.area(),
                        "{places:?} in {screen}"
                    );
                    let others = &all[index + 1..];
                    assert!(
                        !others.iter().any(|other| one.intersects(*other)),
                        "{places:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_plot_has_two_rows_at_least() {
        for (width, height) in [(30, 12), (75, 12), (76, 6), (80, 24), (76, 10)] {
            let places = places(Rect::new(0, 0, width, height), LogSize::Small).unwrap();
            // Tabs and legend take two more.
            assert!(places.metrics.height >= 4, "{width} x {height}: {places:?}");
        }
    }
}
