//! What can be linked, what may be linked next time, and what has changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{FileEntry, Item, Manifest, Place, PlanOptions, Stretch, TensorEntry};

/// No file holds more tensors than this, so that its header stays within the limit of every reader.
const TENSORS_PER_FILE: usize = 100_000;

/// What the previous checkpoint holds, to compare with.
pub(super) struct Known<'a> {
    files: &'a BTreeMap<String, FileEntry>,
    tensors: HashMap<&'a str, &'a TensorEntry>,
    /// Number of stretches in each file.
    counts: HashMap<&'a str, usize>,
    /// Files that have been linked long enough.
    worn: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    pub(super) fn new(manifest: &'a Manifest, options: &PlanOptions) -> Self {
        let tensors = manifest.tensors.iter();
        let mut known = Known {
            files: &manifest.files,
            tensors: tensors
                .map(|tensor| (tensor.key.as_str(), tensor))
                .collect(),
            counts: HashMap::new(),
            worn: worn(by_name(&manifest.files), options.links),
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

fn by_name(files: &BTreeMap<String, FileEntry>) -> impl Iterator<Item = (&str, &FileEntry)> {
    files.iter().map(|(name, file)| (name.as_str(), file))
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
    let (mut reused, mut renewed, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
    for (name, items) in by_file {
        let whole = known.counts.get(name) == Some(&items.len());
        match known.files.get(name).filter(|_| whole) {
            Some(_) if known.worn.contains(name) => {
                renewed.push(items.into_iter().map(|(item, _)| item).collect());
            }
            Some(entry) => reused.push(Reused { name, entry, items }),
            None => unchanged.extend(items.into_iter().map(|(item, _)| item)),
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
    // A file that is only written anew holds what it held, so that nothing else is.
    let renewed = renewed.into_iter();
    let mut files: Vec<_> = renewed
        .flat_map(|items| written(items, true, options))
        .collect();
    files.append(&mut written(unchanged, true, options));
    files.append(&mut written(changed, false, options));
    Division {
        reused,
        written: files,
    }
}

/// The files that are to be written anew next time, though nothing in them may have changed: damage to a file
/// on disk is damage to every checkpoint that shares it, and to all that would still be linked to it.
///
/// One that was linked `most` times. And as many of those linked half as often as make up a fair share of the
/// checkpoint, or one, the oldest first: what was written together so comes to be written anew bit by bit.
pub(super) fn worn<'a>(
    files: impl Iterator<Item = (&'a str, &'a FileEntry)>,
    most: u64,
) -> HashSet<&'a str> {
    let half = most / 2;
    let mut old: Vec<_> = files.collect();
    let total = old.iter().map(|(_, file)| file.size);
    let share = total.fold(0, u64::saturating_add) / half.max(1);
    old.retain(|(_, file)| file.links >= half);
    old.sort_by_key(|&(name, file)| (Reverse(file.links), name));
    let mut spent = 0u64;
    old.retain(|(_, file)| {
        let due = file.links >= most || spent == 0 || spent < share;
        spent = spent.saturating_add(if due { file.size } else { 0 });
        due
    });
    old.into_iter().map(|(name, _)| name).collect()
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
