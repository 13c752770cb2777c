//! What colours and weights mean.

use std::env;
use std::ffi::OsStr;

use ratatui::style::{Color, Modifier, Style};

use crate::renderer::event::Split;

/// Only the colours that the person has given the terminal, on its own background: light themes stay light. Nothing is
/// told by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Theme {
    colours: bool,
}

impl Theme {
    /// As `NO_COLOR` and `TERM` want it.
    pub(super) fn from_environment() -> Theme {
        let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
        Theme::chosen(no_color.as_deref(), term.as_deref())
    }

    fn chosen(no_color: Option<&OsStr>, term: Option<&OsStr>) -> Theme {
        let unwanted = no_color.is_some_and(|value| !value.is_empty());
        Theme {
            colours: !unwanted && term.is_none_or(has_colours),
        }
    }

    #[cfg(test)]
    pub(super) const PLAIN: Theme = Theme { colours: false };
    #[cfg(test)]
    pub(super) const COLOURED: Theme = Theme { colours: true };

    fn coloured(self, colour: Color) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    /// The colour of a split.
    pub(super) fn colour(self, split: Split) -> Color {
        self.split(split).fg.unwrap_or(Color::Reset)
    }

    /// What belongs to a split.
    pub(super) fn split(self, split: Split) -> Style {
        self.coloured(match split {
            Split::Train => Color::Cyan,
            Split::Valid => Color::Magenta,
            Split::Test => Color::Green,
        })
    }

    /// What went well.
    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// What a person should notice.
    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow)
            .add_modifier(Modifier::BOLD)
            .add_modifier(Modifier::REVERSED)
    }

    /// What failed.
    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is read first.
    #[expect(clippy::unused_self, reason = "asked for as the others are")]
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What only frames the rest.
    #[expect(clippy::unused_self, reason = "asked for as the others are")]
    pub(super) fn faint(self) -> Style {
        Style::new()
            .add_modifier(Modifier::DIM)
            .remove_modifier(Modifier::BOLD)
    }

    /// What is chosen among others.
    #[expect(clippy::unused_self, reason = "asked for as the others are")]
    pub(super) fn chosen_one(self) -> Style {
        Style::new()
            .add_modifier(Modifier::BOLD)
            .add_modifier(Modifier::REVERSED)
    }
}

/// Terminals that are known to have none; all others have 16 colours at least.
fn has_colours(term: &OsStr) -> bool {
    let term = term.to_string_lossy();
    let monochrome = |name: &str| {
        ["vt1", "vt2", "vt3", "vt4"]
            .iter()
            .any(|old| name.starts_with(*old))
            || ["-m", "-mono"].iter().any(|end| name.ends_with(*end))
    };
    !term.is_empty() && term != "dumb" && !monochrome(&term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_where_they_are_unwanted_or_unknown() {
        let chosen = |no_color: Option<&str>, term: Option<&str>| {
            Theme::chosen(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        for term in [
            "xterm",
            "xterm-256color",
            "tmux-256color",
            "linux",
            "screen",
        ] {
            assert_eq!(chosen(None, Some(term)), Theme::COLOURED, "{term}");
            assert_eq!(chosen(Some(""), Some(term)), Theme::COLOURED, "{term}");
            assert_eq!(chosen(Some("1"), Some(term)), Theme::PLAIN, "{term}");
        }
        for term in ["vt100", "vt220", "dumb", "linux-m", "xterm-mono", ""] {
            assert_eq!(chosen(None, Some(term)), Theme::PLAIN, "{term}");
        }
        assert_eq!(chosen(None, None), Theme::COLOURED);
    }

    #[test]
    fn without_colours_no_style_has_one() {
        let theme = Theme::PLAIN;
        let splits = Split::ALL.map(|split| theme.split(split));
        let others = [
            theme.good(),
            theme.warning(),
            theme.bad(),
            theme.strong(),
            theme.faint(),
        ];
        for style in splits.into_iter().chain(others).chain([theme.chosen_one()]) {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert_eq!(theme.colour(Split::Train), Color::Reset);
    }

    #[test]
    fn splits_have_colours_of_their_own() {
        let [train, valid, test] = Split::ALL.map(|split| Theme::COLOURED.colour(split));
        assert!(train != valid && valid != test && test != train);
    }
}
