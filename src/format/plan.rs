//! Which files a checkpoint is made of, before any of them is written.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::names::{TensorName, name_tensors};
use super::safetensors::{Slot, header};
use super::{FileEntry, Manifest, Part, TensorEntry, checksum};
use crate::state::{Checksum, DType, Data, State, Tensor};

/// How a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions {
    /// A file grows no larger than this many bytes, unless it holds a single larger tensor.
    pub shard_bytes: u64,
    /// Unchanged tensors move into files of their own once they are at least this many bytes together.
    pub split_bytes: u64,
    /// More files than this for one entry, when small ones would do, are packed anew.
    pub fragments: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions {
            shard_bytes: 4 << 30,
            split_bytes: 1 << 20,
            fragments: 16,
        }
    }
}

/// No file holds more tensors than this, so that its header stays within the limit of every reader.
const TENSORS_PER_FILE: usize = 100_000;

/// The files to make, and where in them every tensor lies.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Tensor files and indexes.
    pub files: Vec<PlannedFile>,
    /// The tensors, in the order of [`State::tensors`].
    pub tensors: Vec<TensorEntry>,
}

/// One file to make.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// Its name within the checkpoint.
    pub name: String,
    /// What the manifest says of it.
    pub entry: FileEntry,
    /// Where its bytes come from.
    pub source: Source,
}

/// Where the bytes of a planned file come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// `head`, then the bytes of these tensors of the state, back to back.
    Write {
        /// Header of a tensor file, or all of another file.
        head: Vec<u8>,
        /// Tensor, and piece of it if it is stored in pieces.
        parts: Vec<(usize, Option<usize>)>,
    },
    /// The file of this name in the previous checkpoint has exactly these bytes.
    Link {
        /// Its name there.
        previous: String,
    },
}

/// One stretch of bytes that goes into a file: a tensor, or a piece of one.
struct Item<'a> {
    tensor: usize,
    piece: Option<usize>,
    key: &'a str,
    local: String,
    dtype: DType,
    offset: Vec<u64>,
    shape: &'a [u64],
    nbytes: u64,
    checksum: Checksum,
    torch: bool,
}

/// Plans the files of `state`, whose tensors all have their checksums; the result names the tensors.
///
/// With a `previous` checkpoint, its files whose tensors did not change are linked, and tensors that did
/// not change but lie among others that did are gathered in files of their own, to be linked next time.
///
/// # Panics
///
/// If a tensor, or a piece of one, has no checksum yet.
pub fn plan(state: &State, previous: Option<&Manifest>, options: &PlanOptions) -> Plan {
    let names = name_tensors(state);
    let mut groups: Vec<(&str, Vec<Item<'_>>)> = Vec::new();
    let mut group_of: HashMap<&str, usize> = HashMap::new();
    let torch = torch_tensors(state);
    for (index, (tensor, name)) in state.tensors.iter().zip(&names).enumerate() {
        let group = *group_of.entry(&name.stem).or_insert_with(|| {
            groups.push((&name.stem, Vec::new()));
            groups.len() - 1
        });
        push_items(
            &mut groups[group].1,
            index,
            tensor,
            name,
            torch.contains(&index),
        );
    }
    let known = previous.map(Known::new);
    let mut builder = Builder {
        files: Vec::new(),
        parts: state
            .tensors
            .iter()
            .map(|tensor| vec![None; pieces_of(tensor)])
            .collect(),
    };
    for (stem, items) in groups {
        builder.group(stem, items, known.as_ref(), options);
    }
    let entries =
        state
            .tensors
            .iter()
            .zip(names)
            .zip(builder.parts)
            .map(|((tensor, name), parts)| {
                let parts = parts.into_iter().flatten().collect();
                TensorEntry {
                    key: name.key,
                    dtype: tensor.dtype,
                    shape: tensor.shape.clone(),
                    parts,
                }
            });
    Plan {
        tensors: entries.collect(),
        files: builder.files,
    }
}

fn torch_tensors(state: &State) -> HashSet<usize> {
    let mut torch = HashSet::new();
    state.root.for_each_tensor(&mut |leaf| {
        if leaf.kind.starts_with("torch") {
            torch.insert(leaf.index);
        }
    });
    torch
}

fn pieces_of(tensor: &Tensor) -> usize {
    match &tensor.data {
        Data::Pieces(pieces) => pieces.len(),
        _ => 1,
    }
}

fn push_items<'a>(
    items: &mut Vec<Item<'a>>,
    index: usize,
    tensor: &'a Tensor,
    name: &'a TensorName,
    torch: bool,
) {
    let item = |piece: Option<usize>, local: String, offset: Vec<u64>, part: &'a Tensor| Item {
        tensor: index,
        piece,
        key: &name.key,
        local,
        dtype: part.dtype,
        offset,
        shape: &part.shape,
        nbytes: part.nbytes(),
        checksum: part
            .checksum
            .unwrap_or_else(|| panic!("{} has no checksum", name.key)),
        torch,
    };
    match &tensor.data {
        Data::Pieces(pieces) => items.extend(pieces.iter().enumerate().map(|(i, piece)| {
            item(
                Some(i),
                name.pieces[i].clone(),
                piece.offset.clone(),
                &piece.tensor,
            )
        })),
        _ => items.push(item(
            None,
            name.local.clone(),
            vec![0; tensor.shape.len()],
            tensor,
        )),
    }
}

/// What the previous checkpoint holds, to compare with.
struct Known<'a> {
    manifest: &'a Manifest,
    /// Tensor name and offset of the piece, to type and part.
    parts: HashMap<(&'a str, &'a [u64]), (DType, &'a Part)>,
    /// Number of parts in each file.
    counts: HashMap<&'a str, usize>,
}

impl<'a> Known<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        let mut known = Known {
            manifest,
            parts: HashMap::new(),
            counts: HashMap::new(),
        };
        for tensor in &manifest.tensors {
            for part in &tensor.parts {
                known
                    .parts
                    .insert((&tensor.key, &part.offset), (tensor.dtype, part));
                *known.counts.entry(part.file.as_str()).or_default() += 1;
            }
        }
        known
    }

    /// The part that has the same name and the same bytes, if there is one.
    fn unchanged(&self, item: &Item<'_>) -> Option<&'a Part> {
        let (dtype, part) = *self.parts.get(&(item.key, item.offset.as_slice()))?;
        let same = dtype == item.dtype
            && part.name == item.local
            && part.shape == item.shape
            && part.checksum == item.checksum;
        same.then_some(part)
    }
}

/// A file of the previous checkpoint that can be linked, with the items that it holds.
struct Reused<'a, 'b> {
    name: &'a str,
    entry: &'a FileEntry,
    items: Vec<(Item<'b>, &'a Part)>,
}

struct Builder {
    files: Vec<PlannedFile>,
    /// For each tensor, for each piece of it, where it lies.
    parts: Vec<Vec<Option<Part>>>,
}

impl Builder {
    fn group(
        &mut self,
        stem: &str,
        items: Vec<Item<'_>>,
        known: Option<&Known<'_>>,
        options: &PlanOptions,
    ) {
        let (reused, unchanged, changed) = divide(items, known, options);
        let unchanged_bytes: u64 = unchanged.iter().map(|item| item.nbytes).sum();
        let mut written = if unchanged_bytes < options.split_bytes {
            shards(unchanged.into_iter().chain(changed).collect(), options)
        } else {
            let mut written = shards(unchanged, options);
            written.append(&mut shards(changed, options));
            written
        };
        let total = reused.len() + written.len();
        let name = |number: usize| match total {
            1 => format!("{stem}.safetensors"),
            _ => format!("{stem}-{number:05}-of-{total:05}.safetensors"),
        };
        let mut weight_map = BTreeMap::new();
        let mut number = 0;
        for file in reused {
            number += 1;
            self.link(&name(number), file, &mut weight_map);
        }
        for items in written.drain(..) {
            number += 1;
            self.write(&name(number), items, &mut weight_map);
        }
        if total > 1 {
            self.index(stem, &weight_map);
        }
    }

    fn link(
        &mut self,
        name: &str,
        file: Reused<'_, '_>,
        weight_map: &mut BTreeMap<String, String>,
    ) {
        for (item, part) in file.items {
            weight_map.insert(item.local.clone(), name.to_owned());
            self.place(
                &item,
                Part {
                    file: name.to_owned(),
                    ..part.clone()
                },
            );
        }
        self.files.push(PlannedFile {
            name: name.to_owned(),
            entry: file.entry.clone(),
            source: Source::Link {
                previous: file.name.to_owned(),
            },
        });
    }

    fn write(
        &mut self,
        name: &str,
        items: Vec<Item<'_>>,
        weight_map: &mut BTreeMap<String, String>,
    ) {
        let slots: Vec<_> = items
            .iter()
            .map(|item| Slot {
                name: &item.local,
                dtype: item.dtype,
                shape: item.shape,
            })
            .collect();
        let framework = if items.iter().any(|item| item.torch) {
            "pt"
        } else {
            "np"
        };
        let head = header(&slots, framework);
        let data_start = head.len() as u64;
        let size = data_start + items.iter().map(|item| item.nbytes).sum::<u64>();
        let digests =
            std::iter::once(checksum::of(&head)).chain(items.iter().map(|item| item.checksum));
        let checksum = checksum::of_file(digests, size);
        let parts = items.iter().map(|item| (item.tensor, item.piece)).collect();
        let mut start = data_start;
        for item in items {
            weight_map.insert(item.local.clone(), name.to_owned());
            let part = Part {
                offset: item.offset.clone(),
                shape: item.shape.to_vec(),
                file: name.to_owned(),
                name: item.local.clone(),
                start,
                checksum: item.checksum,
            };
            start += item.nbytes;
            self.place(&item, part);
        }
        self.files.push(PlannedFile {
            name: name.to_owned(),
            entry: FileEntry {
                size,
                data_start: Some(data_start),
                checksum,
            },
            source: Source::Write { head, parts },
        });
    }

    fn place(&mut self, item: &Item<'_>, part: Part) {
        self.parts[item.tensor][item.piece.unwrap_or(0)] = Some(part);
    }

    /// The index that loaders of sharded models look for.
    fn index(&mut self, stem: &str, weight_map: &BTreeMap<String, String>) {
        let names: HashSet<&str> = weight_map.values().map(String::as_str).collect();
        let total: u64 = self
            .files
            .iter()
            .filter(|file| names.contains(file.name.as_str()))
            .map(|file| file.entry.size - file.entry.data_start.unwrap_or(0))
            .sum();
        let index =
            serde_json::json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        let head = index.to_string().into_bytes();
        self.files.push(PlannedFile {
            name: format!("{stem}.safetensors.index.json"),
            entry: FileEntry {
                size: head.len() as u64,
                data_start: None,
                checksum: checksum::of(&head),
            },
            source: Source::Write {
                head,
                parts: Vec::new(),
            },
        });
    }
}

/// Divides a group into files of the previous checkpoint that can be linked as they are, tensors that did
/// not change but lie in other files, and tensors that changed.
fn divide<'a, 'b>(
    items: Vec<Item<'b>>,
    known: Option<&Known<'a>>,
    options: &PlanOptions,
) -> (Vec<Reused<'a, 'b>>, Vec<Item<'b>>, Vec<Item<'b>>) {
    let Some(known) = known else {
        return (Vec::new(), Vec::new(), items);
    };
    let mut by_file: BTreeMap<&str, Vec<(Item<'b>, &'a Part)>> = BTreeMap::new();
    let mut changed = Vec::new();
    for item in items {
        match known.unchanged(&item) {
            Some(part) => by_file.entry(&part.file).or_default().push((item, part)),
            None => changed.push(item),
        }
    }
    let (mut reused, mut unchanged) = (Vec::new(), Vec::new());
    for (name, items) in by_file {
        match known.manifest.files.get(name) {
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
        unchanged.extend(
            pack.into_iter()
                .flat_map(|file| file.items)
                .map(|(item, _)| item),
        );
        reused = keep;
    }
    (reused, unchanged, changed)
}

/// Cuts items into files no larger than a shard; within a file, wide elements come first, so that every
/// tensor is aligned to its element.
fn shards<'a>(items: Vec<Item<'a>>, options: &PlanOptions) -> Vec<Vec<Item<'a>>> {
    let mut shards: Vec<Vec<Item<'a>>> = Vec::new();
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
        shard.sort_by_key(|item| std::cmp::Reverse(item.dtype.bits()));
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Node;

    fn state(tensors: &[(&str, Vec<u8>)]) -> State {
        let mut state = State::default();
        let mut entries = Vec::new();
        for (name, bytes) in tensors {
            let mut tensor = Tensor::from_vec(bytes.clone(), &[bytes.len() as u64]).unwrap();
            tensor.checksum = Some(checksum::of(bytes));
            entries.push((*name, state.push(tensor)));
        }
        state.root = Node::dict([("model", Node::dict(entries))]);
        state
    }

    fn manifest(plan: &Plan) -> Manifest {
        Manifest {
            step: 1,
            created: std::time::UNIX_EPOCH,
            writer: String::new(),
            metrics: BTreeMap::new(),
            metadata: Node::None,
            root: Node::None,
            files: plan
                .files
                .iter()
                .map(|f| (f.name.clone(), f.entry.clone()))
                .collect(),
            tensors: plan.tensors.clone(),
        }
    }

    fn written(plan: &Plan) -> Vec<&str> {
        let tensor_file = |f: &&PlannedFile| {
            matches!(f.source, Source::Write { .. }) && f.entry.data_start.is_some()
        };
        plan.files
            .iter()
            .filter(tensor_file)
            .map(|f| f.name.as_str())
            .collect()
    }

    const SMALL: PlanOptions = PlanOptions {
        shard_bytes: 100,
        split_bytes: 1,
        fragments: 4,
    };

    #[test]
    fn a_small_entry_is_one_file() {
        let plan = plan(
            &state(&[("a", vec![1; 10]), ("b", vec![2; 10])]),
            None,
            &PlanOptions::default(),
        );
        assert_eq!(written(&plan), ["model.safetensors"]);
        assert_eq!(
            plan.tensors[1].parts[0].start,
            plan.tensors[0].parts[0].start + 10
        );
    }

    #[test]
    fn large_entries_are_cut_into_shards_with_an_index() {
        let plan = plan(
            &state(&[("a", vec![1; 80]), ("b", vec![2; 80]), ("c", vec![3; 500])]),
            None,
            &SMALL,
        );
        let names: Vec<_> = plan.files.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors",
                "model.safetensors.index.json",
            ]
        );
    }

    #[test]
    fn an_unchanged_file_is_linked() {
        let same = state(&[("a", vec![1; 10]), ("b", vec![2; 10])]);
        let first = manifest(&plan(&same, None, &SMALL));
        let second = plan(&same, Some(&first), &SMALL);
        assert!(written(&second).is_empty());
        assert_eq!(manifest(&second).tensors, first.tensors);
    }

    #[test]
    fn unchanged_tensors_drift_into_a_file_of_their_own() {
        let step = |n: u8| state(&[("frozen", vec![1; 10]), ("trained", vec![n; 10])]);
        let first = manifest(&plan(&step(1), None, &SMALL));
        let second = plan(&step(2), Some(&first), &SMALL);
        assert_eq!(
            written(&second),
            [
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors"
            ]
        );
        let third = plan(&step(3), Some(&manifest(&second)), &SMALL);
        assert_eq!(written(&third), ["model-00002-of-00002.safetensors"]);
        let fourth = plan(&step(4), Some(&manifest(&third)), &SMALL);
        assert_eq!(written(&fourth), ["model-00002-of-00002.safetensors"]);
    }

    #[test]
    fn a_tensor_that_moved_to_another_name_is_written() {
        let first = manifest(&plan(&state(&[("a", vec![1; 10])]), None, &SMALL));
        let second = plan(&state(&[("b", vec![1; 10])]), Some(&first), &SMALL);
        assert_eq!(written(&second), ["model.safetensors"]);
    }

    #[test]
    fn many_small_fragments_are_packed_together() {
        let names: Vec<String> = (0..8).map(|i| format!("t{i}")).collect();
        let tensors: Vec<_> = names.iter().map(|n| (n.as_str(), vec![7; 90])).collect();
        let apart = manifest(&plan(&state(&tensors), None, &SMALL));
        assert_eq!(apart.files.len(), 9);
        let roomy = PlanOptions {
            shard_bytes: 1 << 20,
            ..SMALL
        };
        let packed = plan(&state(&tensors), Some(&apart), &roomy);
        assert_eq!(written(&packed), ["model.safetensors"]);
    }
}
