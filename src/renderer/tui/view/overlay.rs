//! What is drawn over all else: the question whether to stop, and the help.

use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use super::Role;
use super::fit;
use super::panel::put;
use super::scene::Scene;

/// What is drawn over all else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlay {
    Quit,
    Help,
}

/// A key, what it does in a word, and in more.
type Choice = (&'static str, &'static str, &'static str);

const TRAINING: [Choice; 3] = [
    ("s", "stop", "the loop ends by itself, when it next looks"),
    ("k", "kill", "the training ends at once, as after an error"),
    ("c", "cancel", "it goes on"),
];

const WATCHING: [Choice; 3] = [
    ("s", "stop", "the run is asked to end by itself"),
    ("x", "leave", "the run goes on, nobody watches"),
    ("c", "cancel", "the run goes on, and is watched"),
];

const HELP: [Choice; 10] = [
    ("q", "stop", "asks first; leaves once the run is over"),
    ("x", "leave", "a run that is over, or only watched"),
    ("← →", "metric", "also Tab, a click, the wheel"),
    ("↑ ↓", "plot", "also 1 whole, 2 recent, 3 summary"),
    (
        "PgUp PgDn",
        "scroll",
        "what was printed; also Home, End, the wheel",
    ),
    ("l", "log", "large or small"),
    ("Ctrl-C", "stop", "the second one kills"),
    ("Ctrl-L", "redraw", "if something else has drawn here"),
    ("+ o x", "marks", "values of train, valid, test"),
    ("*", "mark", "the best value"),
];

/// Draws it into the middle of the area.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, overlay: Overlay, scene: Scene<'_>) {
    let (title, choices) = match (overlay, scene.role) {
        (Overlay::Help, _) => (" Keys ", &HELP[..]),
        (Overlay::Quit, Role::Training) => (" Stop the training? ", &TRAINING[..]),
        (Overlay::Quit, Role::Watching) => (" Stop the run? ", &WATCHING[..]),
    };
    let boxed = [true, false].into_iter().find_map(|in_full| {
        let lines = lines(choices, in_full, scene);
        let width = lines.iter().map(Line::width).chain([title.len()]).max();
        let (width, height) = (width.unwrap_or(0) as u16 + 4, lines.len() as u16 + 2);
        (width <= area.width && height <= area.height).then_some((lines, width, height))
    });
    let Some((lines, width, height)) = boxed else {
        return bare(buffer, area, choices, scene);
    };
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    clear(buffer, place);
    let title = Line::styled(title, scene.theme.strong());
    Block::bordered().title(title).render(place, buffer);
    for (row, line) in lines.iter().enumerate() {
        put(buffer, place.inner(Margin::new(2, 1)), row, line);
    }
}

/// A line for each choice; in a word if not in full.
fn lines(choices: &[Choice], in_full: bool, scene: Scene<'_>) -> Vec<Line<'static>> {
    let keys = choices
        .iter()
        .map(|(key, ..)| fit::columns(key))
        .max()
        .unwrap_or(0);
    let words = choices
        .iter()
        .map(|(_, word, _)| word.len())
        .max()
        .unwrap_or(0);
    let lines = choices.iter().map(|(key, word, more)| {
        let key = Span::styled(format!("{key:<keys$}"), scene.theme.strong());
        if !in_full {
            return Line::from(vec![key, Span::raw(format!("  {word}"))]);
        }
        let word = Span::raw(format!("  {word:<words$}  "));
        Line::from(vec![key, word, Span::styled(*more, scene.theme.faint())])
    });
    lines.collect()
}

/// The same where there is no room for it: the words alone.
fn bare(buffer: &mut Buffer, area: Rect, choices: &[Choice], scene: Scene<'_>) {
    clear(buffer, area);
    let words = choices.iter().map(|(key, word, _)| {
        Line::from(vec![
            Span::styled(*key, scene.theme.strong()),
            Span::raw(format!(" {word}")),
        ])
    });
    for (row, line) in fit::flow(words, usize::from(area.width)).iter().enumerate() {
        put(buffer, area, row, line);
    }
}

/// Makes room, also where a wide character reaches into it.
fn clear(buffer: &mut Buffer, place: Rect) {
    let before = place.x.checked_sub(1);
    for y in place.top()..place.bottom() {
        let cell = before.and_then(|x| buffer.cell_mut((x, y)));
        if let Some(cell) = cell
            && cell.symbol().cell_width() > 1
        {
            cell.reset();
        }
    }
    Clear.render(place, buffer);
}
