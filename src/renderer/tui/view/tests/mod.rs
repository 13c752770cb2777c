//! Whole pictures, keys, and anything that might come.

mod anything;
mod keys;
mod pictures;
mod runs;

use std::path::Path;
use std::{env, fs};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyModifiers};

use super::{Role, View};
use crate::renderer::control::Request;
use crate::renderer::event::Event;
use crate::renderer::run_state::RunState;
use crate::renderer::tui::log_tail::LogTail;
use crate::renderer::tui::theme::Theme;

/// When the pictures are taken.
const NOW: f64 = 1_700_000_000.0;

/// A person in front of a screen that shows a run.
struct Sitting {
    view: View,
    run: RunState,
    log: LogTail,
}

impl Sitting {
    fn new(role: Role) -> Sitting {
        Sitting::with_theme(role, Theme::PLAIN)
    }

    fn with_theme(role: Role, theme: Theme) -> Sitting {
        Sitting {
            view: View::new(theme, role),
            run: RunState::default(),
            log: LogTail::new(),
        }
    }

    /// Something happened so many seconds ago.
    fn happened(&mut self, ago: f64, event: Event) {
        self.run.apply(NOW - ago, event);
    }

    fn press(&mut self, code: KeyCode) -> Option<Request> {
        self.press_with(code, KeyModifiers::NONE)
    }

    fn press_with(&mut self, code: KeyCode, held: KeyModifiers) -> Option<Request> {
        let event = TerminalEvent::Key(KeyEvent::new(code, held));
        self.view.on_event(&event, &self.run)
    }

    fn control_c(&mut self) -> Option<Request> {
        self.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL)
    }

    /// What a terminal of this size shows.
    fn buffer(&mut self, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = terminal.draw(|frame| self.view.draw(frame, &self.run, &self.log, NOW));
        drawn.unwrap().buffer.clone()
    }

    /// The same as text.
    fn picture(&mut self, width: u16, height: u16) -> String {
        text(&self.buffer(width, height))
    }

    /// Compares the picture with the one that was looked at and found right.
    fn looks_like(&mut self, name: &str, width: u16, height: u16) {
        let picture = self.picture(width, height);
        let file = format!("{name}_{width}x{height}.txt");
        let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/renderer/tui/view/pictures");
        let path = pictures.join(&file);
        if env::var_os("PITSTOP_WRITE_PICTURES").is_some() {
            fs::write(path, picture).unwrap();
            return;
        }
        let expected = fs::read_to_string(path).unwrap_or_default();
        assert!(
            picture == expected,
            "{file} looks different. It was:\n{expected}\nand is:\n{picture}\n\
             If that is right, let PITSTOP_WRITE_PICTURES=1 write it anew."
        );
    }
}

/// The characters of a buffer, a line for each row.
fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in buffer.area.rows().map(|row| row.y) {
        let mut line = String::new();
        let mut hidden = 0;
        for x in buffer.area.left()..buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            // A wide character covers the cell behind it.
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            hidden = symbol.cell_width().saturating_sub(1);
            line.push_str(symbol);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
