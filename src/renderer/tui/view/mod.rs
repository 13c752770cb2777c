//! What the terminal shows: draws a run, and knows what the person at the keyboard has chosen to see.
//!
//! Each part is a file, and says how it looks; [`View`] holds what is chosen, `keys` changes it. Every text is written
//! by `panel::put`, so that nothing of what a run sends can reach the terminal as a command.

mod axis;
mod bars;
mod checkpoints;
mod controls;
mod curves;
mod ending;
mod essentials;
mod fit;
mod gauge;
mod keys;
mod layout;
mod log_pane;
mod metrics;
mod overlay;
mod panel;
mod plot;
mod progress;
mod scene;
mod status;
mod tabs;
#[cfg(test)]
mod tests;
mod values;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyEventKind};

use self::layout::{LogSize, Places};
use self::log_pane::LogPane;
use self::metrics::{Choice, Clicks};
use self::overlay::Overlay;
use self::scene::Scene;
use super::log_tail::LogTail;
use super::theme::Theme;
use crate::renderer::control::Request;
use crate::renderer::run_state::RunState;

/// Who sits in front of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The person whose training this is: may stop and kill it.
    Training,
    /// A person who looks at a run of another process: may ask it to stop, and go away.
    Watching,
}

/// What the person has chosen to see, and where it was drawn last.
#[derive(Debug)]
pub(super) struct View {
    theme: Theme,
    role: Role,
    choice: Choice,
    log: LogPane,
    overlay: Option<Overlay>,
    /// To stop or to kill; the run may not have heard of it yet.
    asked: Option<Request>,
    places: Places,
    clicks: Clicks,
}

impl View {
    pub(super) fn new(theme: Theme, role: Role) -> View {
        View {
            theme,
            role,
            choice: Choice::default(),
            log: LogPane::default(),
            overlay: None,
            asked: None,
            places: Places::default(),
            clicks: Clicks::new(),
        }
    }

    /// Draws the run as it stands at `now`, in seconds since 1970 (UTC), into a terminal of any size.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, run: &RunState, log: &LogTail, now: f64) {
        // The run has heard of it. If it is taken back, the next one is the first again.
        if run.stopping.is_some() && self.asked == Some(Request::Stop) {
            self.asked = None;
        }
        let scene = Scene {
            run,
            now,
            theme: self.theme,
            role: self.role,
            asked: self.asked,
        };
        let area = frame.area();
        let buffer = frame.buffer_mut();
        self.clicks.clear();
        if scene.is_over() && self.overlay == Some(Overlay::Quit) {
            self.overlay = None;
        }
        let places = layout::places(area, self.log_size(log));
        self.places = places.unwrap_or_default();
        if places.is_some() {
            self.draw_parts(buffer, scene, log);
        } else {
            essentials::draw(buffer, area, scene, &self.choice);
        }
        if let Some(overlay) = self.overlay {
            overlay::draw(buffer, area, overlay, scene);
        }
    }

    fn log_size(&self, log: &LogTail) -> LogSize {
        if self.log.is_large {
            LogSize::Large
        } else if log.lines().len() > 0 {
            LogSize::Small
        } else {
            LogSize::None
        }
    }

    fn draw_parts(&mut self, buffer: &mut Buffer, scene: Scene<'_>, log: &LogTail) {
        let places = self.places;
        if !places.metrics.is_empty() {
            metrics::draw(
                buffer,
                places.metrics,
                scene,
                &mut self.choice,
                &mut self.clicks,
            );
        }
        if !places.panels.is_empty() {
            // A rule is one column longer.
            let columns = usize::from(places.panels.width).saturating_sub(1);
            let panels = [
                Some(status::panel(scene, columns)),
                ending::panel(scene, columns),
                checkpoints::panel(scene, columns),
                values::panel(scene, columns).filter(|_| !scene.is_over()),
            ];
            let panels: Vec<_> = panels.into_iter().flatten().collect();
            panel::stack(buffer, places.panels, &panels, self.theme);
        }
        if !places.log.is_empty() {
            self.log.draw(buffer, places.log, log, self.theme);
        }
        progress::draw(buffer, places.progress, scene);
        controls::draw(
            buffer,
            places.controls,
            scene,
            &self.log,
            self.overlay.is_some(),
        );
    }

    /// Takes in what the person did; it may have to be drawn anew.
    pub(super) fn on_event(&mut self, event: &Event, run: &RunState) -> Option<Request> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key, run),
            Event::Mouse(mouse) => {
                self.on_mouse(*mouse, run);
                None
            }
            _ => None,
        }
    }
}
