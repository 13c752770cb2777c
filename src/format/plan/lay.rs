//! Names of the files, and where in them everything lies.

use std::sync::Arc;

use super::divide::{Division, Reused, Written};
use super::{FileEntry, Item, PlannedFile, Source};
use crate::format::checksum;
use crate::format::json::Json;
use crate::format::order::sort_by_name;
use crate::format::safetensors::{Slot, header};

/// Where a stretch of bytes lies.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) file: Arc<str>,
    /// In bytes from the start of the file.
    pub(super) start: u64,
}

/// Files, as one group after the other is laid out.
pub(super) struct Layout {
    pub(super) files: Vec<PlannedFile>,
    /// By the slot of the item.
    pub(super) spots: Vec<Option<Spot>>,
}

impl Layout {
    pub(super) fn new(slots: usize) -> Layout {
        Layout {
            files: Vec::new(),
            spots: vec![None; slots],
        }
    }

    /// Lays out the files of one group.
    pub(super) fn group(&mut self, stem: &str, division: Division<'_, '_>) {
        let total = division.reused.len() + division.written.len();
        let names: Vec<Arc<str>> = (1..=total)
            .map(|number| match total {
                1 => format!("{stem}.safetensors").into(),
                _ => format!("{stem}-{number:05}-of-{total:05}.safetensors").into(),
            })
            .collect();
        let index = (total > 1).then(|| index(stem, &names, &division));
        let mut names = names.iter();
        for (file, name) in division.reused.into_iter().zip(&mut names) {
            self.link(name, file);
        }
        for (file, name) in division.written.into_iter().zip(names) {
            self.write(name, &file);
        }
        self.files.extend(index);
    }

    fn link(&mut self, name: &Arc<str>, file: Reused<'_, '_>) {
        for (item, stretch) in file.items {
            self.place(item, name, stretch.start);
        }
        self.files.push(PlannedFile {
            name: name.to_string(),
            entry: FileEntry {
                links: file.entry.links + 1,
                ..file.entry.clone()
            },
            source: Source::Link {
                previous: file.name.to_owned(),
            },
            unchanged: true,
        });
    }

    fn write(&mut self, name: &Arc<str>, file: &Written<'_>) {
        let items = &file.items;
        let slots = items.iter().map(|item| Slot {
            name: item.local,
            dtype: item.dtype,
            shape: item.shape,
        });
        let torch = items.iter().any(|item| item.torch);
        let head = header(slots, if torch { "pt" } else { "np" });
        let data_start = head.len() as u64;
        let mut at = data_start;
        for item in items {
            self.place(item, name, at);
            at += item.nbytes;
        }
        let tensors = items.iter().map(|item| item.checksum);
        let digests = std::iter::once(checksum::of(&head)).chain(tensors);
        self.files.push(PlannedFile {
            name: name.to_string(),
            entry: FileEntry {
                size: at,
                data_start: Some(data_start),
                checksum: checksum::of_file(digests, at),
                links: 0,
            },
            source: Source::Write {
                head,
                parts: items.iter().map(|item| (item.tensor, item.piece)).collect(),
            },
            unchanged: file.unchanged,
        });
    }

    fn place(&mut self, item: &Item<'_>, file: &Arc<str>, start: u64) {
        let file = Arc::clone(file);
        self.spots[item.slot] = Some(Spot { file, start });
    }
}

/// The index that loaders of sharded models look for.
fn index(stem: &str, names: &[Arc<str>], division: &Division<'_, '_>) -> PlannedFile {
    let (linked, written) = names.split_at(division.reused.len());
    let linked = division.reused.iter().zip(linked);
    let linked =
        linked.flat_map(|(file, name)| file.items.iter().map(move |(item, _)| (*item, name)));
    let written = division.written.iter().zip(written);
    let written = written.flat_map(|(file, name)| file.items.iter().map(move |item| (*item, name)));
    let mut entries: Vec<(&Item<'_>, &Arc<str>)> = linked.chain(written).collect();
    sort_by_name(&mut entries, |(item, _)| item.local);

    let mut json = Json::default();
    json.raw("{\"metadata\":{\"total_size\":");
    json.number(entries.iter().map(|(item, _)| item.nbytes).sum());
    json.raw("},\"weight_map\":");
    json.object(entries, |json, (item, file)| {
        json.text(item.local);
        json.raw(":");
        json.text(file);
    });
    json.raw("}");
    let head = json.0;
    PlannedFile {
        name: format!("{stem}.safetensors.index.json"),
        entry: FileEntry {
            size: head.len() as u64,
            data_start: None,
            checksum: checksum::of(&head),
            links: 0,
        },
        source: Source::Write {
            head,
            parts: Vec::new(),
        },
        unchanged: false,
    }
}
