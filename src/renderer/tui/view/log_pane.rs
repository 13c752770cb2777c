//! What the training printed: its last lines, and older ones for whoever scrolls back.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::fit;
use super::panel::{below_rule, put, rule};
use crate::renderer::figures::count;
use crate::renderer::tui::log_tail::LogTail;
use crate::renderer::tui::theme::Theme;

/// What the person sees of it.
#[derive(Debug, Default)]
pub(super) struct LogPane {
    /// It takes all the room that there is.
    pub(super) is_large: bool,
    /// Lines below the last one that is shown.
    back: usize,
    /// Lines that there were when it was drawn last.
    lines: usize,
    /// Rows that it had then.
    rows: usize,
}

impl LogPane {
    /// Goes back by some lines, or forward if it is negative.
    pub(super) fn scroll(&mut self, lines: isize) {
        let farthest = self.lines.saturating_sub(self.rows);
        self.back = self.back.saturating_add_signed(lines).min(farthest);
    }

    /// As many lines as it shows at once, less one that is seen again.
    pub(super) fn page(&self) -> isize {
        self.rows.saturating_sub(1).max(1) as isize
    }

    /// Whether anything was printed.
    pub(super) fn has_lines(&self) -> bool {
        self.lines > 0
    }

    /// Whether there is more than it shows.
    pub(super) fn can_scroll(&self) -> bool {
        self.lines > self.rows
    }

    pub(super) fn draw(&mut self, buffer: &mut Buffer, area: Rect, log: &LogTail, theme: Theme) {
        let content = below_rule(area);
        let lines = log.lines();
        if self.back > 0 {
            // What is being read stays where it is.
            self.back += lines.len().saturating_sub(self.lines);
        }
        (self.lines, self.rows) = (lines.len(), usize::from(content.height));
        self.scroll(0);
        rule(buffer, area, &Line::from(self.title()), theme);
        if self.lines == 0 {
            let nothing = Line::styled("nothing was printed", theme.faint());
            return put(buffer, content, 0, &nothing);
        }
        let rows = self.rows.min(self.lines);
        let shown = lines.rev().skip(self.back).take(rows);
        for (line, row) in shown.zip((0..rows).rev()) {
            let text = fit::cut(line, usize::from(content.width));
            put(buffer, content, row, &Line::from(text));
        }
    }

    fn title(&self) -> String {
        match self.back {
            0 => "Log".to_owned(),
            below => format!("Log ({} more below)", count(below as u64)),
        }
    }
}
