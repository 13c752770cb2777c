//! From a state back to Python objects.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicBool;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use super::arrays::{self, Shown, numpy::Numpy, torch::Torch};
use super::flatten::FACTORIES;
use super::known::Std;
use super::module_versions;
use super::tensor::Memory;
use crate::snapshot::{Layout, ReadError, Target, load_into};
use crate::state::{DType, Data, Node, ReadAt, State, Tensor, TensorRef};

/// Tensors below this many bytes share memory with others, since each piece of memory has its cost.
const SMALL: u64 = 64 << 10;
/// Size that shared pieces of memory grow to, in bytes.
const POOL: u64 = 256 << 10;
/// Tensors start at multiples of this many bytes.
const ALIGNMENT: u64 = 64;

/// Where the bytes of a tensor were put: which piece of memory, and how far into it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) memory: usize,
    pub(super) start: u64,
}

/// A state whose tensors lie in memory that Python can own.
pub(super) struct Loaded {
    pub(super) root: Node,
    pub(super) tensors: Vec<Tensor>,
    pub(super) memories: Vec<Memory>,
    /// For each tensor, where it is; `None` if no leaf asks for it.
    pub(super) places: Vec<Option<Place>>,
}

/// Reads the tensors that the tree refers to into fresh memory, and compares their checksums.
///
/// # Errors
///
/// [`ReadError`] for the first one that is damaged or cannot be read.
pub(super) fn load(
    state: State,
    framework: Option<&str>,
    stop: &AtomicBool,
) -> Result<Loaded, ReadError> {
    let State { root, tensors } = state;
    let mut wanted = vec![false; tensors.len()];
    let mut swapped = vec![false; tensors.len()];
    root.for_each_tensor(&mut |leaf| {
        wanted[leaf.index] = true;
        swapped[leaf.index] |=
            framework.is_none_or(|want| want == "numpy") && is_swapped(leaf, &tensors[leaf.index]);
    });
    let (places, lengths) = lay_out(&tensors, &wanted);
    let mut memories = Memory::zeroed(&lengths).map_err(|source| ReadError::Io {
        tensor: "(all)".into(),
        source,
    })?;
    let mut rest: Vec<(&mut [u8], u64)> = memories
        .iter_mut()
        .map(|memory| (memory.bytes_mut(), 0))
        .collect();
    let mut targets = Vec::new();
    for (tensor, place) in tensors.iter().zip(&places) {
        let Some(place) = place else { continue };
        // Tensors were laid out in this order, so what is left of the memory starts before or at the place.
        let (slice, at) = &mut rest[place.memory];
        let (_, tail) = std::mem::take(slice).split_at_mut((place.start - *at) as usize);
        let (into, tail) = tail.split_at_mut(tensor.nbytes() as usize);
        (*slice, *at) = (tail, place.start + tensor.nbytes());
        targets.push(Target { tensor, into });
    }
    load_into(targets, stop)?;
    swap_bytes(&mut memories, &tensors, &places, &swapped);
    Ok(Loaded {
        root,
        tensors,
        memories,
        places,
    })
}

/// Maps the files of the tensors that the tree refers to, instead of reading them. Nothing is compared.
///
/// # Errors
///
/// [`ReadError`] if a file cannot be mapped, or a tensor in pieces cannot be read.
pub(super) fn map(state: State, stop: &AtomicBool) -> Result<Loaded, ReadError> {
    let State { root, tensors } = state;
    let mut wanted = vec![false; tensors.len()];
    let mut swapped = vec![false; tensors.len()];
    root.for_each_tensor(&mut |leaf| {
        wanted[leaf.index] = true;
        swapped[leaf.index] |= is_swapped(leaf, &tensors[leaf.index]);
    });
    let mut files: HashMap<&str, (&dyn ReadAt, u64)> = HashMap::new();
    for (tensor, _) in tensors.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
        if let Data::Stored(stored) = &tensor.data {
            let source = stored.source.as_ref();
            let (_, end) = files.entry(source.name()).or_insert((source, 0));
            *end = (*end).max(stored.offset + tensor.nbytes());
        }
    }
    let mut memories = Vec::new();
    let mut maps = HashMap::new();
    for (path, (source, len)) in files {
        // The file that was opened and compared: by now another may have its name.
        let file = source
            .file()
            .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        let mapped = file.and_then(|file| Memory::map_file(file, len));
        memories.push(mapped.map_err(|source| ReadError::Io {
            tensor: path.to_owned(),
            source,
        })?);
        maps.insert(path, memories.len() - 1);
    }
    let mut places = vec![None; tensors.len()];
    for (index, tensor) in tensors
        .iter()
        .enumerate()
        .filter(|(index, _)| wanted[*index])
    {
        places[index] = Some(if let Data::Stored(stored) = &tensor.data {
            Place {
                memory: maps[stored.source.name()],
                start: stored.offset,
            }
        } else {
            let fresh = Memory::zeroed(&[tensor.nbytes() as usize]);
            let mut fresh = fresh.map_err(|source| ReadError::Io {
                tensor: tensor.name.clone(),
                source,
            })?;
            load_into(
                vec![Target {
                    tensor,
                    into: fresh[0].bytes_mut(),
                }],
                stop,
            )?;
            memories.append(&mut fresh);
            Place {
                memory: memories.len() - 1,
                start: 0,
            }
        });
    }
    swap_bytes(&mut memories, &tensors, &places, &swapped);
    Ok(Loaded {
        root,
        tensors,
        memories,
        places,
    })
}

/// Turns round the bytes of each element of the tensors that were saved from big-endian arrays.
fn swap_bytes(
    memories: &mut [Memory],
    tensors: &[Tensor],
    places: &[Option<Place>],
    swapped: &[bool],
) {
    for (index, place) in places.iter().enumerate() {
        if let (Some(place), true) = (place, swapped[index]) {
            let end = (place.start + tensors[index].nbytes()) as usize;
            let bytes = &mut memories[place.memory].bytes_mut()[place.start as usize..end];
            bytes
                .chunks_exact_mut(tensors[index].dtype.swap_width())
                .for_each(<[u8]>::reverse);
        }
    }
}

/// Whether the leaf wants its bytes in the other order than the stored one.
fn is_swapped(leaf: &TensorRef, tensor: &Tensor) -> bool {
    let big = arrays::framework(&leaf.kind) == "numpy"
        && arrays::logical(&leaf.kind).is_some_and(|l| l.starts_with('>'));
    big && tensor.dtype != DType::U8 && tensor.dtype.itemsize() > 1
}

fn lay_out(tensors: &[Tensor], wanted: &[bool]) -> (Vec<Option<Place>>, Vec<usize>) {
    let mut lengths: Vec<u64> = Vec::new();
    let mut pool: Option<usize> = None;
    let places = tensors.iter().zip(wanted).map(|(tensor, &wanted)| {
        let nbytes = tensor.nbytes();
        if !wanted {
            return None;
        }
        if nbytes >= SMALL {
            lengths.push(nbytes);
            return Some(Place {
                memory: lengths.len() - 1,
                start: 0,
            });
        }
        let open = pool.filter(|&memory| lengths[memory] + nbytes <= POOL);
        let memory = open.unwrap_or_else(|| {
            lengths.push(0);
            lengths.len() - 1
        });
        pool = Some(memory);
        let start = lengths[memory].next_multiple_of(ALIGNMENT);
        lengths[memory] = start + nbytes;
        Some(Place { memory, start })
    });
    let places = places.collect();
    (
        places,
        lengths.into_iter().map(|len| len as usize).collect(),
    )
}

/// An array, and what it was made for.
struct Made<'py> {
    leaf: TensorRef,
    framework: String,
    array: Bound<'py, PyAny>,
}

/// Makes Python objects of nodes.
pub(super) struct Builder<'py, 'a> {
    py: Python<'py>,
    tensors: &'a [Tensor],
    memories: Vec<Bound<'py, Memory>>,
    places: &'a [Option<Place>],
    framework: Option<&'a str>,
    /// Arrays already made of each tensor, so that what was one object is one again.
    made: HashMap<usize, Vec<Made<'py>>>,
    /// How many bytes may still be copied for leaves that share a tensor, and do not share memory here.
    copies: u64,
}

/// Leaves that are copied may overlap; but all of them together are no more than so many times the checkpoint.
const OVERLAP: u64 = 8;

impl<'py, 'a> Builder<'py, 'a> {
    pub(super) fn new(
        py: Python<'py>,
        tensors: &'a [Tensor],
        places: &'a [Option<Place>],
        memories: Vec<Memory>,
        framework: Option<&'a str>,
    ) -> PyResult<Self> {
        let memories = memories
            .into_iter()
            .map(|memory| Bound::new(py, memory))
            .collect::<PyResult<_>>()?;
        Ok(Builder {
            py,
            tensors,
            memories,
            places,
            framework,
            made: HashMap::new(),
            copies: OVERLAP.saturating_mul(tensors.iter().map(Tensor::nbytes).sum()),
        })
    }

    pub(super) fn py(&self) -> Python<'py> {
        self.py
    }

    /// The object that `node` stands for; types that were defined by the user come back as generic ones.
    pub(super) fn build(&mut self, node: &Node) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match node {
            Node::None => py.None().into_bound(py),
            Node::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Node::Int(value) => value.into_pyobject(py)?.into_any(),
            Node::BigInt(hex) => py.get_type::<PyInt>().call1((hex, 16))?,
            Node::Float(value) => PyFloat::new(py, *value).into_any(),
            Node::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
            Node::Str(text) => PyString::new(py, text).into_any(),
            Node::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Node::Tensor(leaf) => self.array(leaf)?,
            Node::List(items) => PyList::new(py, self.all(items)?)?.into_any(),
            Node::Tuple(items) => PyTuple::new(py, self.all(items)?)?.into_any(),
            Node::Set(items) => PySet::new(py, self.all(items)?)?.into_any(),
            Node::Dict(entries) => self.dict(entries)?.into_any(),
            Node::Tagged { tag, value } => self.tagged(tag, value)?,
        })
    }

    fn all(&mut self, items: &[Node]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        items.iter().map(|item| self.build(item)).collect()
    }

    fn dict(&mut self, entries: &[(Node, Node)]) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        for (key, value) in entries {
            dict.set_item(self.build(key)?, self.build(value)?)?;
        }
        Ok(dict)
    }

    /// The array that a leaf stands for, in the framework that was asked for or else its own.
    fn array(&mut self, leaf: &TensorRef) -> PyResult<Bound<'py, PyAny>> {
        match self.framework {
            Some(framework) => self.array_as(leaf, framework),
            None => self.array_as(leaf, arrays::framework(&leaf.kind)),
        }
    }

    /// The array that a leaf stands for, in the given framework.
    pub(super) fn array_as(
        &mut self,
        leaf: &TensorRef,
        framework: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let made = self.made.get(&leaf.index).into_iter().flatten();
        let mut again = made.filter(|made| made.leaf == *leaf && made.framework == framework);
        if let Some(made) = again.next() {
            return Ok(made.array.clone());
        }
        let missing = || PyValueError::new_err("a tensor of the checkpoint was not loaded");
        let tensor = self.tensors.get(leaf.index).ok_or_else(missing)?;
        let place = self
            .places
            .get(leaf.index)
            .copied()
            .flatten()
            .ok_or_else(missing)?;
        let shown = Shown::of(leaf, tensor, place.start);
        if arrays::is_copied(&shown, framework) {
            let left = self.copies.checked_sub(shown.nbytes() as u64);
            self.copies = left.ok_or_else(|| {
                PyValueError::new_err(
                    "the checkpoint holds so little for so many arrays, or such large ones, that copies of them \
                     might not fit into memory; pass framework=\"numpy\"",
                )
            })?;
        }
        let memory = &self.memories[place.memory];
        let converted =
            self.framework.is_none() && framework != "numpy" && is_swapped(leaf, tensor);
        let array = if converted {
            // Its memory is big-endian, which only NumPy shows.
            self.swapped(&arrays::make(memory, &shown, "numpy")?, framework)?
        } else {
            arrays::make(memory, &shown, framework)?
        };
        self.made.entry(leaf.index).or_default().push(Made {
            leaf: leaf.clone(),
            framework: framework.to_owned(),
            array: array.clone(),
        });
        Ok(array)
    }

    fn swapped(&self, array: &Bound<'py, PyAny>, framework: &str) -> PyResult<Bound<'py, PyAny>> {
        let native = array
            .getattr("dtype")?
            .call_method1("newbyteorder", ("=",))?;
        let native = array.call_method1("astype", (native,))?;
        match framework {
            "torch" => self
                .py
                .import("torch")?
                .call_method1("from_numpy", (native,)),
            _ => self
                .py
                .import("jax.numpy")?
                .call_method1("array", (native,)),
        }
    }

    fn tagged(&mut self, tag: &str, value: &Node) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let std = Std::get(py)?;
        let (name, argument) = tag.split_once(':').unwrap_or((tag, ""));
        match (name, value) {
            ("frozenset", Node::Set(items)) => {
                Ok(PyFrozenSet::new(py, self.all(items)?)?.into_any())
            }
            ("str.surrogatepass", Node::Bytes(bytes)) => {
                PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogatepass"))
            }
            ("collections.OrderedDict", Node::Dict(entries)) => {
                let dict = std.ordered_dict.bind(py).call1((self.dict(entries)?,))?;
                match module_versions::read(py, argument)? {
                    Some(versions) => module_versions::with(dict, versions),
                    None => Ok(dict),
                }
            }
            ("collections.Counter", Node::Dict(entries)) => {
                std.counter.bind(py).call1((self.dict(entries)?,))
            }
            ("collections.defaultdict", Node::Dict(entries)) => {
                let factory = match FACTORIES.iter().find(|known| **known == argument) {
                    Some(name) => py.import("builtins")?.getattr(*name)?,
                    None if argument == "None" => py.None().into_bound(py),
                    None => return Err(unknown(tag)),
                };
                std.default_dict
                    .bind(py)
                    .call1((factory, self.dict(entries)?))
            }
            ("collections.deque", Node::List(items)) => {
                let maxlen: Option<usize> = match argument {
                    "" => None,
                    number => Some(number.parse().map_err(|_| unknown(tag))?),
                };
                if maxlen.is_some_and(|maxlen| items.len() > maxlen) {
                    return Err(unknown(tag));
                }
                std.deque.bind(py).call1((self.all(items)?, maxlen))
            }
            ("namedtuple", Node::Dict(entries)) => self.namedtuple(argument, entries),
            ("dataclass" | "types.SimpleNamespace", Node::Dict(entries)) => {
                let fields = self.dict(entries)?;
                std.simple_namespace.bind(py).call((), Some(&fields))
            }
            ("object", state) => self.build(state),
            ("numpy.scalar", Node::Bytes(bytes)) => {
                Numpy::import(py)?.make_scalar(py, argument, bytes)
            }
            ("numpy.dtype", Node::Str(text)) => {
                let dtype = Numpy::import(py)?.read_dtype(py, text)?;
                if dtype.getattr("hasobject")?.is_truthy()? {
                    return Err(unknown(&format!("{tag} {text}")));
                }
                Ok(dtype)
            }
            ("torch.Parameter", value) => {
                let tensor = self.build(value)?;
                self.as_parameter(tensor, argument != "frozen")
            }
            ("torch.requires_grad", value) => {
                let tensor = self.build(value)?;
                match self.framework {
                    // A tensor of its own, since the same memory may have been saved without gradient too.
                    None | Some("torch") => tensor
                        .call_method0("detach")?
                        .call_method0("requires_grad_"),
                    _ => Ok(tensor),
                }
            }
            ("torch.Size", Node::Tuple(items)) => {
                let extents = PyTuple::new(py, self.all(items)?)?;
                Torch::import(py)?.size.bind(py).call1((extents,))
            }
            ("torch.dtype", Node::Str(name)) => Torch::import(py)?.named_dtype(py, name),
            ("torch.device", Node::Str(name)) => Torch::import(py)?.device.bind(py).call1((name,)),
            ("jax.key", value) => {
                let data = self.build(value)?;
                match self.framework {
                    None | Some("jax") => {
                        let keywords = PyDict::new(py);
                        keywords.set_item("impl", argument)?;
                        py.import("jax.random")?.call_method(
                            "wrap_key_data",
                            (data,),
                            Some(&keywords),
                        )
                    }
                    _ => Ok(data),
                }
            }
            _ => Err(unknown(tag)),
        }
    }

    fn as_parameter(
        &self,
        tensor: Bound<'py, PyAny>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.framework {
            None | Some("torch") => Torch::import(self.py)?.make_parameter(&tensor, requires_grad),
            _ => Ok(tensor),
        }
    }

    /// A named tuple of a class made here; equal to the original, as tuples are.
    fn namedtuple(&mut self, name: &str, entries: &[(Node, Node)]) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let fields: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_str()).collect();
        let values = entries
            .iter()
            .map(|(_, value)| self.build(value))
            .collect::<PyResult<Vec<_>>>()?;
        let values = PyTuple::new(py, values)?;
        // The names come from a file: `namedtuple` itself refuses all that are no plain identifiers.
        let keywords = PyDict::new(py);
        keywords.set_item("rename", true)?;
        let class =
            py.import("collections")?
                .call_method("namedtuple", (name, fields), Some(&keywords))?;
        class.call1(values)
    }
}

/// While it lives, Python's garbage collector does not run by itself: thousands of new objects, none of them
/// garbage, would have it go through all of them again and again.
pub(super) struct CollectorPaused<'py>(Option<Bound<'py, PyModule>>);

impl<'py> CollectorPaused<'py> {
    pub(super) fn new(py: Python<'py>) -> PyResult<CollectorPaused<'py>> {
        let gc = py.import("gc")?;
        if !gc.call_method0("isenabled")?.is_truthy()? {
            return Ok(CollectorPaused(None));
        }
        gc.call_method0("disable")?;
        Ok(CollectorPaused(Some(gc)))
    }
}

impl Drop for CollectorPaused<'_> {
    fn drop(&mut self) {
        if let Some(gc) = &self.0 {
            // It takes no arguments and has nothing to fail at.
            let _ = gc.call_method0("enable");
        }
    }
}

fn unknown(tag: &str) -> PyErr {
    PyValueError::new_err(format!(
        "the checkpoint holds a {tag:?}, which this pitstop does not know; a newer one may"
    ))
}

/// Copies the stored form of a view's elements out of the whole tensor's stored form.
pub(super) fn gather_view(shown: &Shown<'_>, whole: &[u8], into: &mut [u8]) {
    Layout::new(
        shown.dtype,
        shown.shape,
        shown.strides,
        shown.offset as usize,
        false,
    )
    .gather(whole, 0..into.len(), into);
}
