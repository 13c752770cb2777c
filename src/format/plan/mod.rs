//! Which files a checkpoint is made of, before any of them is written.

mod divide;
mod lay;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::names::{TensorName, name_tensors};
use super::{FileEntry, Manifest, Part, Place, Stretch, TensorEntry};
use crate::state::{Checksum, DType, Data, State, Tensor};
use divide::{Known, divide, worn};
use lay::{Layout, Spot};

/// How a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions {
    /// A file grows no larger than this many bytes, unless it holds a single larger tensor.
    pub shard_bytes: u64,
    /// Unchanged tensors move into files of their own once they are at least this many bytes together.
    pub split_bytes: u64,
    /// More files than this for one entry, when small ones would do, are packed anew.
    pub fragments: usize,
    /// A file is linked so many times in a row at most, and about half as often as a rule; then it is written anew.
    pub links: u64,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions {
            shard_bytes: 4 << 30,
            split_bytes: 1 << 20,
            fragments: 16,
            links: 127,
        }
    }
}

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
    /// It holds only tensors that have not changed since the previous checkpoint.
    pub unchanged: bool,
}

/// What a stretch of a tensor will hold if it does not change, and the file that is linked if all in it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Number of the file.
    pub file: usize,
    /// Checksum of the bytes.
    pub checksum: Checksum,
}

impl Plan {
    /// For each stretch, in the order of the tensors and their pieces, what is expected of the next checkpoint:
    /// that what has not changed this time will not change. Nothing is expected of files that are to be written
    /// anew then.
    pub fn expected(&self, options: &PlanOptions) -> Vec<Option<Expected>> {
        let files = self.files.iter();
        let files = files.map(|file| (file.name.as_str(), &file.entry));
        let worn = worn(files, options.links);
        let unchanged = self.files.iter().enumerate();
        let unchanged: HashMap<&str, usize> = unchanged
            .map(|(number, file)| (file.name.as_str(), number, file.unchanged))
            .filter(|(name, _, unchanged)| *unchanged && !worn.contains(name))
            .map(|(name, number, _)| (name, number))
            .collect();
        let stretches = self.tensors.iter().flat_map(TensorEntry::stretches);
        stretches
            .map(|(_, stretch)| {
                Some(Expected {
                    file: *unchanged.get(&*stretch.file)?,
                    checksum: stretch.checksum,
                })
            })
            .collect()
    }
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
    /// Its number among all stretches of the state.
    slot: usize,
    tensor: usize,
    piece: Option<usize>,
    /// Index of the stem of its file.
    stem: usize,
    /// Name of the tensor within the checkpoint.
    key: &'a str,
    /// Name within the file.
    local: &'a str,
    dtype: DType,
    /// Where it starts in the tensor, if it is a piece.
    offset: &'a [u64],
    shape: &'a [u64],
    nbytes: u64,
    checksum: Checksum,
    torch: bool,
}

/// Plans the files of `state`, whose tensors all have their checksums; the result names the tensors.
///
/// With a `previous` checkpoint, its files whose tensors did not change are linked, and tensors that did
/// not change but lie among others that did are gathered in files of their own, to be linked next time.
/// In a file that is written, tensors of the same width lie in the order of the state.
///
/// # Panics
///
/// If a tensor, or a piece of one, has no checksum yet.
pub fn plan(state: &State, previous: Option<&Manifest>, options: &PlanOptions) -> Plan {
    let names = name_tensors(state);
    let torch = torch_tensors(state);
    let mut items = Vec::with_capacity(state.tensors.len());
    for (index, (tensor, name)) in state.tensors.iter().zip(&names.tensors).enumerate() {
        for (piece, offset, part) in stretches(tensor) {
            items.push(Item {
                slot: items.len(),
                tensor: index,
                piece,
                stem: name.stem,
                key: &name.key,
                local: piece.map_or(&name.local, |i| &name.pieces[i]),
                dtype: part.dtype,
                offset,
                shape: &part.shape,
                nbytes: part.nbytes(),
                checksum: checksum_of(part, &name.key),
                torch: torch[index],
            });
        }
    }
    let mut groups: Vec<Vec<&Item<'_>>> = names.stems.iter().map(|_| Vec::new()).collect();
    for item in &items {
        groups[item.stem].push(item);
    }
    let known = previous.map(|manifest| Known::new(manifest, options));
    let mut layout = Layout::new(items.len());
    for (stem, items) in names.stems.iter().zip(groups) {
        if !items.is_empty() {
            layout.group(stem, divide(items, known.as_ref(), options));
        }
    }
    let Layout { files, spots } = layout;
    let mut spots = spots.into_iter().flatten();
    let entries = state.tensors.iter().zip(names.tensors);
    let tensors = entries.map(|(tensor, name)| entry(tensor, name, &mut spots));
    Plan {
        tensors: tensors.collect(),
        files,
    }
}

/// The stretches that a tensor is stored in: the number of the piece and where it starts, unless it is whole.
fn stretches(tensor: &Tensor) -> impl Iterator<Item = (Option<usize>, &[u64], &Tensor)> {
    let (whole, pieces) = match &tensor.data {
        Data::Pieces(pieces) => (None, pieces.as_slice()),
        _ => (Some((None, [].as_slice(), tensor)), [].as_slice()),
    };
    let pieces = pieces.iter().enumerate();
    whole
        .into_iter()
        .chain(pieces.map(|(i, piece)| (Some(i), piece.offset.as_slice(), &piece.tensor)))
}

fn checksum_of(tensor: &Tensor, key: &str) -> Checksum {
    tensor
        .checksum
        .unwrap_or_else(|| panic!("{key} has no checksum"))
}

fn torch_tensors(state: &State) -> Vec<bool> {
    let mut torch = vec![false; state.tensors.len()];
    state.root.for_each_tensor(&mut |leaf| {
        if let Some(torch) = torch.get_mut(leaf.index) {
            *torch |= leaf.kind.starts_with("torch");
        }
    });
    torch
}

/// What the manifest says of a tensor whose stretches lie at the next `spots`.
fn entry(tensor: &Tensor, name: TensorName, spots: &mut impl Iterator<Item = Spot>) -> TensorEntry {
    let mut stretch = |part: &Tensor, local: String| {
        spots.next().map(|Spot { file, start }| Stretch {
            file,
            name: local,
            start,
            checksum: checksum_of(part, &name.key),
        })
    };
    let place = match &tensor.data {
        Data::Pieces(pieces) => {
            let parts = pieces.iter().zip(name.pieces).filter_map(|(piece, local)| {
                Some(Part {
                    offset: piece.offset.clone(),
                    shape: piece.tensor.shape.clone(),
                    stretch: stretch(&piece.tensor, local)?,
                })
            });
            Place::of_parts(&tensor.shape, parts.collect())
        }
        _ => stretch(tensor, name.local).map_or(Place::Pieces(Vec::new()), Place::Whole),
    };
    TensorEntry {
        key: name.key,
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        place,
    }
}
