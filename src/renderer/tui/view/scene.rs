//! What every part of the picture is drawn from.

use super::Role;
use crate::renderer::control::Request;
use crate::renderer::run_state::RunState;
use crate::renderer::tui::theme::Theme;

/// The run as it stands now.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) run: &'a RunState,
    /// In seconds since 1970 (UTC).
    pub(super) now: f64,
    pub(super) theme: Theme,
    pub(super) role: Role,
    /// What the person has asked for.
    pub(super) asked: Option<Request>,
}

impl Scene<'_> {
    /// Nothing more will happen in the run.
    pub(super) fn is_over(&self) -> bool {
        self.run.end.is_some()
    }

    /// The training was told to end at once, and has not yet.
    pub(super) fn is_killing(&self) -> bool {
        self.asked == Some(Request::Kill) && !self.is_over()
    }
}
