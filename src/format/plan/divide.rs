//! What can be linked, what may be linked next time, and what has changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::{FileEntry, Item, Manifest, Place, PlanOptions, Stretch, TensorEntry};

/// No file holds more tensors than this, so that its header stays within the limit of every reader.
const TENSORS_PER_FILE: usize = 100_000;

/// What the previous checkpoint holds, to compare with.
pub(super) struct Known<'a> {
    files: &'a BTreeMap<String, FileEntry>,
    tensors: HashMap<&'a str, &'a TensorEntry>,
    /// Number of stretches in each file.
    counts: HashMap<&'a str, usize>,
}

impl<'a> Known<'a> {
    pub(super) fn new(manifest: &'a Manifest) -> Self {
        let tensors = manifest.tensors.iter();
        let mut known = Known {
            files: &manifest.files,
            tensors: tensors
                .map(|tensor| (tensor.key.as_str(), tensor))
                .collect(),
            counts: HashMap::new(),
        };
        for tensor in &manifest.tensors {
            for (_, stretch) in tensor.stretches() {
                *known.counts.entry(&stretch.file).or_default() += 1;
            }
        }
        known
    }

    /// The stretch that has the same name and the same bytes, if there is one.
    fn unchanged(&self, item: &Item<'_>) -> Option<&'a Stretch> {
        let tensor = *self.tensors.get(item.key)?;
        let (shape, stretch) = match &tensor.place {
            Place::Whole(stretch) => (&tensor.shape, stretch),
            // Pieces in another order count as changed.
            Place::Pieces(parts) => {
                let part = parts.get(item.piece?)?;
                (part.offset == item.offset).then_some((&part.shape, &part.stretch))?
            }
        };
        let same = tensor.dtype == item.dtype
            && stretch.name == item.local
            && shape == item.shape
            && stretch.checksum == item.checksum;
        same.then_some(stretch)
    }
}

/// A file of the previous checkpoint that can be linked, with the items that it holds.
pub(super) struct Reused<'a, 'b> {
    pub(super) name: &'a str,
    pub(super) entry: &'a FileEntry,
    pub(super) items: Vec<(&'b Item<'b>, &'a Stretch)>,
}

/// The files that a group is stored in.
pub(super) struct Division<'a, 'b> {
    /// Files of the previous checkpoint that can be linked as they are.
    pub(super) reused: Vec<Reused<'a, 'b>>,
    pub(super) written: Vec<Written<'b>>,
}

/// A file to write.
pub(super) struct Written<'b> {
    /// What it holds, in the order of the bytes.
    pub(super) items: Vec<&'b Item<'b>>,
    /// None of it has changed.
    pub(super) unchanged: bool,
}

/// Divides a group, in the order of the state, into files to link and files to write. What did not change but
/// lies among others that did is written apart from those, if it is worth a file.
pub(super) fn divide<'a, 'b>(
    items: Vec<&'b Item<'b>>,
    known: Option<&Known<'a>>,
    options: &PlanOptions,
) -> Division<'a, 'b> {
    let Some(known) = known else {
        return Division {
            reused: Vec::new(),
            written: written(items, false, options),
        };
    };
    let mut by_file: BTreeMap<&str, Vec<(&'b Item<'b>, &'a Stretch)>> = BTreeMap::new();
    let mut changed = Vec::new();
    for item in items {
        match known.unchanged(item) {
            Some(stretch) => by_file
                .entry(&stretch.file)
                .or_default()
                .push((item, stretch)),
            None => changed.push(item),
        }
    }
    let (mut reused, mut unchanged) = (Vec::new(), Vec::new());
    for (name, items) in by_file {
        match known.files.get(name) {
            Some(entry) if known.counts.get(name) == Some(&items.len()) => {
                reused.push(Reused { name, entry, items });
            }
            _ => unchanged.extend(items.into_iter().map(|(item, _)| item)),
        }
    }
    // Files that tensors drifted into one by one would add up for ever: pack the small ones together.
    let small = |file: &Reused<'_, '_>| file.entry.size < options.shard_bytes / 8;
    if reused.iter().filter(|file| small(file)).count() > options.fragments {
        let (pack, keep): (Vec<_>, Vec<_>) = reused.into_iter().partition(small);
        let packed = pack.into_iter().flat_map(|file| file.items);
        unchanged.extend(packed.map(|(item, _)| item));
        reused = keep;
    }
    let worth_a_file = unchanged.iter().map(|item| item.nbytes).sum::<u64>() >= options.split_bytes;
    if !worth_a_file {
        changed.append(&mut unchanged);
    }
    let mut files = written(unchanged, true, options);
    files.append(&mut written(changed, false, options));
    Division {
        reused,
        written: files,
    }
}

/// The files for these items, in the order of the state.
fn written<'b>(
    mut items: Vec<&'b Item<'b>>,
    unchanged: bool,
    options: &PlanOptions,
) -> Vec<Written<'b>> {
    items.sort_by_key(|item| item.slot);
    shards(items, options)
        .into_iter()
        .map(|items| Written { items, unchanged })
        .collect()
}

/// Cuts items into files no larger than a shard; within a file, wide elements come first, so that every
/// tensor is aligned to its element.
fn shards<'a>(items: Vec<&'a Item<'a>>, options: &PlanOptions) -> Vec<Vec<&'a Item<'a>>> {
    let mut shards: Vec<Vec<&'a Item<'a>>> = Vec::new();
    let mut room = 0;
    for item in items {
        match shards.last_mut() {
            Some(shard) if item.nbytes <= room && shard.len() < TENSORS_PER_FILE => {
                room -= item.nbytes;
                shard.push(item);
            }
            _ => {
                room = options.shard_bytes.saturating_sub(item.nbytes);
                shards.push(vec![item]);
            }
        }
    }
    for shard in &mut shards {
        shard.sort_by_key(|item| Reverse(item.dtype.bits()));
    }
    shards
}
