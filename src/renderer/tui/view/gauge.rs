//! A bar of blocks, as full as something is done.

use ratatui::style::Style;
use ratatui::text::Span;

/// Eighths of a block, and a whole one.
const BLOCKS: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// A bar of `columns` columns, of which `fraction` is full.
pub(super) fn gauge(fraction: f64, columns: usize, full: Style, rest: Style) -> [Span<'static>; 2] {
    // What is no number is nothing.
    let eighths = (fraction.clamp(0.0, 1.0) * (columns * 8) as f64) as usize;
    let mut bar = BLOCKS[8].repeat(eighths / 8);
    bar.push_str(BLOCKS[eighths % 8]);
    let missing = columns - eighths.div_ceil(8);
    [
        Span::styled(bar, full),
        Span::styled("░".repeat(missing), rest),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_only_when_all_is_done() {
        for (fraction, columns, expected) in [
            (0.0, 4, "░░░░"),
            (0.5, 4, "██░░"),
            (0.28, 4, "█░░░"),
            (0.29, 4, "█▏░░"),
            (0.999_9, 4, "███▉"),
            (1.0, 4, "████"),
            (7.0, 4, "████"),
            (-1.0, 4, "░░░░"),
            (f64::NAN, 2, "░░"),
            (1.0, 0, ""),
        ] {
            let [full, rest] = gauge(fraction, columns, Style::new(), Style::new());
            let bar = format!("{}{}", full.content, rest.content);
            assert_eq!(bar, expected, "{fraction}");
        }
    }
}
