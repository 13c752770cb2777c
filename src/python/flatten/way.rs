//! The way to an object inside a state, to name it by in an error.

use std::fmt::Write as _;

use pyo3::prelude::*;

/// A step from a container to what it holds.
pub(super) enum Step<'a, 'py> {
    Key(&'a Bound<'py, PyAny>),
    Index(usize),
    Field(&'a str),
    State,
}

/// The way to an object: the container that holds it, and the step from there.
pub(super) struct Way<'a, 'py> {
    pub(super) parent: Option<&'a Way<'a, 'py>>,
    pub(super) container: &'a Bound<'py, PyAny>,
    pub(super) step: Step<'a, 'py>,
}

impl Way<'_, '_> {
    pub(super) fn depth(&self) -> usize {
        1 + self.parent.map_or(0, Way::depth)
    }

    pub(super) fn passes(&self, object: &Bound<'_, PyAny>) -> bool {
        self.container.is(object) || self.parent.is_some_and(|parent| parent.passes(object))
    }

    pub(super) fn write(&self, into: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(into);
        }
        // Writing to a string never fails.
        let _ = match &self.step {
            Step::Key(key) => match key.repr() {
                Ok(repr) => write!(into, "[{}]", quoted(&repr.to_string_lossy())),
                Err(_) => write!(into, "[?]"),
            },
            Step::Index(index) => write!(into, "[{index}]"),
            Step::Field(name) => write!(into, ".{name}"),
            // What an object gives as its state reads like the object itself.
            Step::State => Ok(()),
        };
    }
}

/// A text key in double quotes, as the documentation writes paths, and cut if it is endless.
fn quoted(repr: &str) -> String {
    let plain = repr
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    let text = match plain {
        Some(inner) if !inner.contains(['"', '\\']) => format!("\"{inner}\""),
        _ => repr.to_owned(),
    };
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
