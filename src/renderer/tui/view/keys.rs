//! What keys and the mouse do.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;

use super::metrics::{Click, Plot};
use super::overlay::Overlay;
use super::{Role, View};
use crate::renderer::control::Request;
use crate::renderer::run_state::RunState;

/// Lines that the wheel scrolls.
const WHEEL: isize = 3;

impl View {
    pub(super) fn on_key(&mut self, key: KeyEvent, run: &RunState) -> Option<Request> {
        let code = match key.code {
            // Whatever the state of the caps lock.
            KeyCode::Char(letter) => KeyCode::Char(letter.to_ascii_lowercase()),
            code => code,
        };
        let held = key.modifiers - KeyModifiers::SHIFT;
        if code == KeyCode::Char('c') && held == KeyModifiers::CONTROL {
            return Some(self.interrupt(run));
        }
        if !held.is_empty() {
            return None;
        }
        match self.overlay {
            Some(Overlay::Quit) if run.end.is_none() => self.answer(code),
            Some(Overlay::Help) => {
                self.overlay = None;
                None
            }
            _ => self.on_plain_key(code, run),
        }
    }

    /// The first Ctrl-C stops the training, the second one kills it. A watcher only goes away.
    fn interrupt(&mut self, run: &RunState) -> Request {
        if self.role == Role::Watching || run.end.is_some() {
            return Request::Leave;
        }
        let again = self.asked.is_some() || run.stopping.is_some();
        self.ask(if again { Request::Kill } else { Request::Stop })
    }

    fn ask(&mut self, request: Request) -> Request {
        self.overlay = None;
        // A kill stays one.
        if self.asked != Some(Request::Kill) {
            self.asked = Some(request);
        }
        request
    }

    /// The answer to the question whether to stop.
    fn answer(&mut self, code: KeyCode) -> Option<Request> {
        match (code, self.role) {
            (KeyCode::Char('s'), _) => Some(self.ask(Request::Stop)),
            (KeyCode::Char('k'), Role::Training) => Some(self.ask(Request::Kill)),
            (KeyCode::Char('x' | 'q'), Role::Watching) => Some(Request::Leave),
            (KeyCode::Char('c') | KeyCode::Esc, _) => {
                self.overlay = None;
                None
            }
            _ => None,
        }
    }

    fn on_plain_key(&mut self, code: KeyCode, run: &RunState) -> Option<Request> {
        let is_over = run.end.is_some();
        match code {
            KeyCode::Char('q') if is_over => return Some(Request::Leave),
            KeyCode::Char('x') if is_over || self.role == Role::Watching => {
                return Some(Request::Leave);
            }
            KeyCode::Char('q') => self.overlay = Some(Overlay::Quit),
            KeyCode::Char('h' | '?') => self.overlay = Some(Overlay::Help),
            KeyCode::Char('l') => self.log.is_large = !self.log.is_large,
            KeyCode::Esc => self.log.is_large = false,
            KeyCode::Char('1') => self.choice.plot = Plot::Whole,
            KeyCode::Char('2') => self.choice.plot = Plot::Recent,
            KeyCode::Char('3') => self.choice.plot = Plot::Summary,
            KeyCode::Up => self.turn_plot(-1),
            KeyCode::Down => self.turn_plot(1),
            KeyCode::Left | KeyCode::BackTab => self.turn_metric(-1, run),
            KeyCode::Right | KeyCode::Tab => self.turn_metric(1, run),
            KeyCode::PageUp => self.log.scroll(self.log.page()),
            KeyCode::PageDown => self.log.scroll(-self.log.page()),
            KeyCode::Home => self.log.scroll(isize::MAX),
            KeyCode::End => self.log.scroll(isize::MIN),
            _ => {}
        }
        None
    }

    /// The next kind of plot, or the one before; after the last comes the first.
    fn turn_plot(&mut self, by: isize) {
        let index = self.choice.plot as usize;
        self.choice.plot = Plot::ALL[turned(index, by, Plot::ALL.len())];
    }

    /// The next metric, or the one before; after the last comes the first.
    fn turn_metric(&mut self, by: isize, run: &RunState) {
        self.choice.metric = turned(self.choice.metric, by, run.numeric.len());
    }

    pub(super) fn on_mouse(&mut self, mouse: MouseEvent, run: &RunState) {
        let place = Position::new(mouse.column, mouse.row);
        if self.overlay.is_some() {
            return;
        }
        let over_log = self.places.log.contains(place);
        let over_metrics = self.places.metrics.contains(place);
        match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => self.click(place),
            MouseEventKind::ScrollUp if over_log => self.log.scroll(WHEEL),
            MouseEventKind::ScrollDown if over_log => self.log.scroll(-WHEEL),
            MouseEventKind::ScrollUp | MouseEventKind::ScrollLeft if over_metrics => {
                self.turn_metric(-1, run);
            }
            MouseEventKind::ScrollDown | MouseEventKind::ScrollRight if over_metrics => {
                self.turn_metric(1, run);
            }
            _ => {}
        }
    }

    fn click(&mut self, place: Position) {
        let hit = self.clicks.iter().find(|(area, _)| area.contains(place));
        match hit {
            Some((_, Click::Metric(metric))) => self.choice.metric = *metric,
            Some((_, Click::Plot(plot))) => self.choice.plot = *plot,
            None => {}
        }
    }
}

/// The index `by` further, around in a circle.
fn turned(index: usize, by: isize, length: usize) -> usize {
    if length == 0 {
        return 0;
    }
    (index as isize + by).rem_euclid(length as isize) as usize
}
