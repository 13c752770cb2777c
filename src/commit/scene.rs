//! A run directory on a simulated disk, for the tests of this room.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::storage::Storage;
use crate::storage::simulated::{Disk, Fault};

/// Input/output error.
const EIO: i32 = 5;

pub(super) struct Scene {
    pub(super) disk: Disk,
    /// The number of the first call that counts.
    first: usize,
}

impl Scene {
    /// An empty run directory.
    pub(super) fn new() -> Scene {
        let scene = Scene {
            disk: Disk::new(),
            first: 0,
        };
        scene.disk.create_dir(Scene::dir()).unwrap();
        scene
    }

    pub(super) fn dir() -> &'static Path {
        Path::new("/run")
    }

    pub(super) fn path(name: &str) -> PathBuf {
        Scene::dir().join(name)
    }

    /// Puts a directory there, with one file.
    pub(super) fn checkpoint(&self, name: &str, content: &str) {
        self.disk.create_dir(&Scene::path(name)).unwrap();
        self.file(&format!("{name}/content"), content);
    }

    pub(super) fn file(&self, name: &str, content: &str) {
        let file = self.disk.create(&Scene::path(name), content.len() as u64);
        file.unwrap().write_at(0, content.as_bytes()).unwrap();
    }

    /// What is in the file of a directory.
    pub(super) fn content(&self, name: &str) -> Option<String> {
        self.text(&format!("{name}/content"))
    }

    /// What is in a file.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.disk.heal();
        let file = self.disk.open(&Scene::path(name)).ok()?;
        let mut content = vec![0; file.len() as usize];
        file.read_at(0, &mut content).unwrap();
        Some(String::from_utf8(content).unwrap())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.disk.heal();
        let entries = self.disk.list(Scene::dir()).unwrap().into_iter();
        entries.map(|it| it.name.into_string().unwrap()).collect()
    }

    /// Calls count from now on.
    pub(super) fn begin(&mut self) {
        self.first = self.disk.calls().len();
    }

    /// What was done, in words, paths below the run directory by their names alone.
    pub(super) fn calls(&self) -> Vec<String> {
        let calls = &self.disk.calls()[self.first..];
        let in_words = |words: String| words.replace("/run/", "");
        calls
            .iter()
            .map(|call| in_words(call.to_string()))
            .collect()
    }

    /// These calls fail, counted from the beginning.
    pub(super) fn fail(&self, calls: Range<usize>) {
        let (first, error) = (self.first, Fault::Error(EIO));
        self.disk
            .on_call(move |number, _| calls.contains(&(number - first)).then_some(error));
    }
}
