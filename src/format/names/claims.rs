//! One name for each.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Names that are taken, each within a group.
#[derive(Default)]
pub(super) struct Claims<'a> {
    taken: HashSet<(usize, Cow<'a, str>)>,
    /// Up to which number the variants of a name that was wanted again are taken.
    numbers: HashMap<(usize, String), u64>,
}

impl<'a> Claims<'a> {
    /// Claims `name`, or else the first of `name~2`, `name~3`, … that is free, and says which number it was.
    pub(super) fn claim(&mut self, group: usize, name: Cow<'a, str>) -> Option<u64> {
        if self.taken.insert((group, name.clone())) {
            return None;
        }
        let wanted = name.into_owned();
        let number = self.numbers.entry((group, wanted.clone())).or_insert(1);
        loop {
            *number += 1;
            let name = numbered(&wanted, *number).into();
            if self.taken.insert((group, name)) {
                return Some(*number);
            }
        }
    }

    /// As [`claim`](Self::claim); the name if it has to be another one.
    pub(super) fn rename(&mut self, group: usize, name: &'a str) -> Option<String> {
        let number = self.claim(group, name.into())?;
        Some(numbered(name, number))
    }
}

pub(super) fn numbered(name: &str, number: u64) -> String {
    format!("{name}~{number}")
}
