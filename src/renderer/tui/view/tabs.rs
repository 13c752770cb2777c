//! A tab for each metric, in one row; where there are too many, those around the chosen one.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::fit;
use super::metrics::{Choice, Click, Clicks};
use super::panel::put;
use super::scene::Scene;

/// Columns of a name; and of one that is not chosen, where not all tabs fit.
const NAME: usize = 24;
const OTHER: usize = 16;
/// A name that is shortened has so many at least.
const SHORTEST: usize = 8;
/// A bracket or a space on either side of a name.
const SIDES: usize = 2;
/// Columns for how many there are on either side: `<999 `.
const ARROW: usize = 5;

/// Draws the tabs, and notes where each can be clicked.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    scene: Scene<'_>,
    choice: &mut Choice,
    clicks: &mut Clicks,
) {
    let room = usize::from(area.width);
    let (names, room) = if columns(scene) <= room {
        (names(scene, |_| NAME), room)
    } else {
        let room = room.saturating_sub(2 * ARROW);
        (shortened(scene, choice.metric, room), room)
    };
    let widths: Vec<usize> = names.iter().map(|name| width(name)).collect();
    choice.first_tab = first(&widths, choice.metric, choice.first_tab, room);

    let mut row = Row {
        buffer,
        area,
        clicks,
    };
    if choice.first_tab > 0 {
        let before = format!("<{} ", choice.first_tab);
        row.add(
            &Line::styled(before, scene.theme.faint()),
            choice.first_tab - 1,
        );
    }
    let end = usize::from(row.area.x) + room;
    let mut next = choice.first_tab;
    while next < names.len() {
        let left = end.saturating_sub(usize::from(row.area.x));
        // The chosen one is shown in any case.
        if widths[next] > left && next != choice.metric {
            break;
        }
        let tab = if next == choice.metric {
            let most = usize::from(row.area.width).saturating_sub(SIDES);
            let name = fit::shorten(&names[next], most);
            Line::styled(format!("[{name}]"), scene.theme.chosen_one())
        } else {
            Line::from(format!(" {} ", names[next]))
        };
        row.add(&tab, next);
        next += 1;
    }
    if next < names.len() {
        let behind = format!(" {}>", names.len() - next);
        row.add(&Line::styled(behind, scene.theme.faint()), next);
    }
}

/// Columns of all tabs, if none is shortened because of the others.
pub(super) fn columns(scene: Scene<'_>) -> usize {
    let names = names(scene, |_| NAME);
    names.iter().map(|name| width(name)).sum()
}

/// The names, each in at most so many columns.
fn names(scene: Scene<'_>, most: impl Fn(usize) -> usize) -> Vec<Cow<'_, str>> {
    let metrics = scene.run.numeric.iter().enumerate();
    metrics
        .map(|(index, numeric)| fit::shorten(&numeric.metric.name, most(index)))
        .collect()
}

/// The names, short enough for one more tab than the chosen one in so many columns, at least.
fn shortened(scene: Scene<'_>, chosen: usize, room: usize) -> Vec<Cow<'_, str>> {
    let one_more = room.saturating_sub(SHORTEST + 2 * SIDES);
    let most = one_more.clamp(SHORTEST, NAME);
    let chosen_name = names(scene, |_| most).into_iter().nth(chosen);
    let taken = chosen_name.map_or(0, |name| width(&name));
    let others = room.saturating_sub(taken + SIDES).clamp(SHORTEST, OTHER);
    names(scene, |index| if index == chosen { most } else { others })
}

/// Columns of the tab of a name.
fn width(name: &str) -> usize {
    fit::columns(name) + SIDES
}

/// The rest of a row, which is filled from the left.
struct Row<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    clicks: &'a mut Clicks,
}

impl Row<'_> {
    /// Adds a text that leads to a metric.
    fn add(&mut self, text: &Line<'_>, metric: usize) {
        let width = u16::try_from(text.width())
            .unwrap_or(u16::MAX)
            .min(self.area.width);
        put(self.buffer, self.area, 0, text);
        let place = Rect {
            width,
            height: 1,
            ..self.area
        };
        self.clicks.push((place, Click::Metric(metric)));
        self.area.x += width;
        self.area.width -= width;
    }
}

/// The first tab to show so that the chosen one is seen: the one that was the first before, if that will do.
fn first(widths: &[usize], chosen: usize, before: usize, room: usize) -> usize {
    let mut first = before.min(chosen);
    let mut used: usize = widths.iter().take(chosen + 1).skip(first).sum();
    while used > room && first < chosen {
        used -= widths[first];
        first += 1;
    }
    // No room is left free at the end while there are tabs before.
    let mut behind: usize = widths.iter().skip(first).sum();
    while first > 0 && behind + widths[first - 1] <= room {
        first -= 1;
        behind += widths[first];
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_scroll_no_more_than_needed() {
        let widths = [10; 20];
        for (chosen, before, room, expected) in [
            (0, 0, 35, 0),
            (2, 0, 35, 0),
            (3, 0, 35, 1),
            (19, 0, 35, 17),
            (18, 17, 35, 17),
            (16, 17, 35, 16),
            (5, 9, 35, 5),
            // A terminal that has become wider shows more of them.
            (19, 17, 100, 10),
            (19, 17, 1000, 0),
            (7, 0, 3, 7),
        ] {
            assert_eq!(
                first(&widths, chosen, before, room),
                expected,
                "{chosen} from {before}"
            );
        }
        assert_eq!(first(&[], 0, 0, 10), 0);
    }
}
