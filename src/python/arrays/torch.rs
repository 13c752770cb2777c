//! torch tensors.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::numpy::{Numpy, kind, with_inner};
use super::{Array, Shown, incomplete, logical, unsupported};
use crate::python::dlpack::Exchange;
use crate::python::errors::Refusal;
use crate::python::known::{once_imported, text, type_name};
use crate::python::storages::Storages;
use crate::python::tensor::{Extent, Memory, lend};
use crate::state::{DType, count};

pub(in crate::python) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyAny>,
    pub(in crate::python) module: Py<PyAny>,
    pub(in crate::python) size: Py<PyType>,
    pub(in crate::python) device: Py<PyType>,
    pub(in crate::python) dtype: Py<PyType>,
    strided: Py<PyAny>,
    from_dlpack: Py<PyAny>,
    exchange: Option<Exchange>,
    /// `None`: each tensor is asked for its storage by calls, which takes half a microsecond.
    storages: Option<Storages>,
    /// torch's element types with the stored one, and the extent of a further axis.
    dtypes: Vec<(Py<PyAny>, Element)>,
}

#[derive(Clone, Copy)]
struct Element {
    name: &'static str,
    stored: DType,
    /// Extent of a further axis, where one element takes several.
    inner: Option<u64>,
    /// Stored elements in one of torch's.
    packed: u64,
}

impl Element {
    /// Size of one of torch's elements, in bytes.
    fn itemsize(&self) -> usize {
        (self.stored.itemsize() * self.inner.unwrap_or(1) as usize).max(1)
    }

    /// A tensor of such elements; `strides` are in bytes.
    fn array<'py>(
        &self,
        first: usize,
        shape: Vec<u64>,
        strides: Option<Vec<i64>>,
        owner: Bound<'py, PyAny>,
        copied: bool,
    ) -> Result<Array<'py>, Refusal> {
        if strides.is_some() && self.packed > 1 {
            return Err(unsupported(
                "a packed tensor that is not contiguous; pass .contiguous()",
            ));
        }
        let extent = Extent::new(first, self.itemsize(), &shape, strides.as_deref());
        let (mut shape, strides) = with_inner(shape, strides, self.inner, self.stored.itemsize());
        if self.packed > 1 {
            match shape.last_mut() {
                Some(extent) => *extent *= self.packed,
                None => shape.push(self.packed),
            }
        }
        let special = self.inner.is_some() || self.packed > 1;
        Ok(Array {
            dtype: self.stored,
            shape,
            strides,
            extent,
            big_endian: false,
            kind: kind("torch", special.then(|| self.name.to_owned())),
            immutable: false,
            writable: true,
            owner,
            copied,
        })
    }
}

fn in_bytes(strides: Vec<i64>, itemsize: usize) -> Vec<i64> {
    strides
        .into_iter()
        .map(|stride| stride * itemsize as i64)
        .collect()
}

const fn element(name: &'static str, stored: DType) -> Element {
    Element {
        name,
        stored,
        inner: None,
        packed: 1,
    }
}

const ELEMENTS: [Element; 22] = [
    element("float32", DType::F32),
    element("bfloat16", DType::BF16),
    element("float16", DType::F16),
    element("float64", DType::F64),
    element("int64", DType::I64),
    element("int32", DType::I32),
    element("int16", DType::I16),
    element("int8", DType::I8),
    element("uint8", DType::U8),
    element("uint16", DType::U16),
    element("uint32", DType::U32),
    element("uint64", DType::U64),
    element("bool", DType::Bool),
    element("complex64", DType::C64),
    element("float8_e4m3fn", DType::F8E4M3),
    element("float8_e5m2", DType::F8E5M2),
    element("float8_e4m3fnuz", DType::F8E4M3Fnuz),
    element("float8_e5m2fnuz", DType::F8E5M2Fnuz),
    element("float8_e8m0fnu", DType::F8E8M0),
    Element {
        name: "complex128",
        stored: DType::F64,
        inner: Some(2),
        packed: 1,
    },
    Element {
        name: "complex32",
        stored: DType::F16,
        inner: Some(2),
        packed: 1,
    },
    Element {
        name: "float4_e2m1fn_x2",
        stored: DType::F4,
        inner: None,
        packed: 2,
    },
];

impl Torch {
    /// torch, if the user has imported it.
    pub(in crate::python) fn get(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        let is_complete = |module: &Bound<'_, PyAny>| {
            module
                .getattr("nn")
                .is_ok_and(|nn| nn.hasattr("Parameter").unwrap_or(false))
                && module.hasattr("frombuffer").unwrap_or(false)
        };
        once_imported(py, &TORCH, "torch", is_complete, Torch::find)
    }

    /// torch, imported because a tensor is wanted.
    pub(in crate::python) fn import(py: Python<'_>) -> PyResult<&'static Torch> {
        py.import("torch")?;
        Torch::get(py)?.ok_or_else(|| incomplete("torch"))
    }

    fn find(module: &Bound<'_, PyAny>) -> PyResult<Torch> {
        let class = |name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let known = ELEMENTS
            .iter()
            .filter_map(|element| Some((module.getattr(element.name).ok()?.unbind(), *element)));
        let tensor = class("Tensor")?;
        Ok(Torch {
            exchange: Exchange::of(tensor.bind(module.py())),
            storages: Storages::of(module, tensor.bind(module.py())),
            tensor,
            parameter: module.getattr("nn")?.getattr("Parameter")?.unbind(),
            module: module.getattr("nn")?.getattr("Module")?.unbind(),
            size: class("Size")?,
            device: class("device")?,
            dtype: class("dtype")?,
            strided: module.getattr("strided")?.unbind(),
            from_dlpack: module.getattr("from_dlpack")?.unbind(),
            dtypes: known.collect(),
        })
    }

    pub(in crate::python) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        // `isinstance` of a Parameter asks the class of the object, which plain objects may not survive.
        let class = object.get_type();
        Ok(self.is_plain(object) || class.is_subclass(self.tensor.bind(object.py()))?)
    }

    /// A tensor or parameter, of no class derived from those.
    fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type_ptr().cast::<()>();
        [self.tensor.as_ptr(), self.parameter.as_ptr()]
            .iter()
            .any(|known| known.cast::<()>() == class)
    }

    /// A module whose names must match those of a checkpoint exactly.
    pub(in crate::python) fn is_module(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        object.is_instance(self.module.bind(object.py()))
    }

    pub(in crate::python) fn is_parameter(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type().is(self.parameter.bind(object.py()))
    }

    pub(super) fn describe<'py>(&self, tensor: &Bound<'py, PyAny>) -> Result<Array<'py>, Refusal> {
        match self.describe_quickly(tensor) {
            Some(array) => Ok(array),
            None => self.describe_slowly(tensor),
        }
    }

    /// Describes a plain tensor in host memory, in a tenth of the time. What it cannot speak for is left to the
    /// slow way, which also knows the reasons: [`Exchange`] shows the memory of a conjugated or negated tensor as
    /// it lies, takes some types for others, and shows a tensor whose storage was freed as if it were there.
    fn describe_quickly<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Array<'py>> {
        let py = tensor.py();
        let exchange = self.exchange.as_ref().filter(|_| self.is_plain(tensor))?;
        let element = self.element(tensor).ok()?;
        let is = |method| -> Option<bool> { tensor.call_method0(method).ok()?.extract().ok() };
        let complex = element.inner.is_some() || element.stored == DType::C64;
        let changed =
            is(pyo3::intern!(py, "is_neg"))? || complex && is(pyo3::intern!(py, "is_conj"))?;
        if changed || element.packed > 1 {
            return None;
        }
        let itemsize = element.itemsize();
        if self.storages.is_none() && outgrows_storage(tensor, itemsize) {
            return None;
        }
        // Last, since other threads may run in the calls above, and give the tensor other memory.
        let raw = exchange.look(tensor).filter(|raw| raw.data != 0)?;
        let memory = match &self.storages {
            Some(storages) => Some(storages.look(tensor)?),
            None => None,
        };
        let strides = raw.strides.map(|strides| in_bytes(strides, itemsize));
        let array = element
            .array(raw.data, raw.shape, strides, tensor.clone(), false)
            .ok()?;
        let (low, high) = array.extent.bounds();
        let lies_inside = memory.is_none_or(|memory| memory.start <= low && high <= memory.end);
        lies_inside.then_some(array)
    }

    fn describe_slowly<'py>(&self, tensor: &Bound<'py, PyAny>) -> Result<Array<'py>, Refusal> {
        let py = tensor.py();
        self.refuse_special(tensor)?;
        let element = self.element(tensor)?;
        // Before it is copied to the host, which would read what is not there.
        if outgrows_storage(tensor, element.itemsize()) {
            return Err(unsupported(
                "a tensor that is larger than its storage, which was freed or made smaller, as FSDP does between \
                 uses; gather it first",
            ));
        }
        let (host, copied) = on_host(tensor)?;
        let Ok(first) = host.call_method0(pyo3::intern!(py, "data_ptr")) else {
            return Err(unsupported(
                "a tensor without memory of its own, as inside the transforms of torch.func; save outside of them",
            ));
        };
        let first: usize = first.extract()?;
        let shape: Vec<u64> = host.getattr(pyo3::intern!(py, "shape"))?.extract()?;
        if first == 0 && !shape.contains(&0) {
            return Err(unsupported("a tensor without memory"));
        }
        let contiguous: bool = host
            .call_method0(pyo3::intern!(py, "is_contiguous"))?
            .extract()?;
        let strides = if contiguous {
            None
        } else {
            let strides = host.call_method0(pyo3::intern!(py, "stride"))?.extract()?;
            Some(in_bytes(strides, element.itemsize()))
        };
        element.array(first, shape, strides, host, copied)
    }

    fn refuse_special(&self, tensor: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        let py = tensor.py();
        if !self.is_plain(tensor) {
            let why = match type_name(tensor).as_str() {
                name if name.contains("DTensor") || name.contains("Sharded") => {
                    "a sharded tensor; gather it first, for DTensor with .full_tensor()"
                }
                name if name.contains("Uninitialized") => {
                    "a parameter without values yet; run a forward pass first"
                }
                name if name.contains("Fake") || name.contains("Functional") => {
                    "a tensor without values"
                }
                _ => "a subclass of Tensor would lose what it adds; pass a plain tensor",
            };
            return Err(unsupported(why));
        }
        if tensor.getattr(pyo3::intern!(py, "is_nested"))?.extract()? {
            return Err(unsupported(
                "a nested tensor; save its parts, as .unbind() gives them",
            ));
        }
        if !tensor
            .getattr(pyo3::intern!(py, "layout"))?
            .is(self.strided.bind(py))
        {
            return Err(unsupported(
                "a sparse tensor; save its indices and values, or .to_dense()",
            ));
        }
        if tensor.getattr(pyo3::intern!(py, "is_meta"))?.extract()? {
            return Err(unsupported("a tensor on the meta device has no values"));
        }
        if tensor
            .getattr(pyo3::intern!(py, "is_quantized"))?
            .extract()?
        {
            return Err(unsupported(
                "a quantized tensor; save .int_repr() and its scale",
            ));
        }
        Ok(())
    }

    fn element(&self, tensor: &Bound<'_, PyAny>) -> Result<Element, Refusal> {
        let dtype = tensor.getattr(pyo3::intern!(tensor.py(), "dtype"))?;
        let known = self.dtypes.iter().find(|(known, _)| known.is(&dtype));
        match known {
            Some((_, element)) => Ok(*element),
            None => Err(unsupported(format!("a tensor of type {}", text(&dtype)?))),
        }
    }

    /// The storage of a tensor: it stays when the tensor is given another one, as by `set_` or `data`.
    #[expect(
        clippy::unused_self,
        reason = "it shows that torch is there, as for the other methods"
    )]
    pub(super) fn hold<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        tensor.call_method0(pyo3::intern!(tensor.py(), "untyped_storage"))
    }

    /// The tensor's memory, to be filled in place by `copy_` if it is not on the host.
    #[expect(
        clippy::unused_self,
        reason = "it shows that torch is there, as for the other methods"
    )]
    pub(in crate::python) fn detached<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        tensor.call_method0(pyo3::intern!(tensor.py(), "detach"))
    }

    pub(super) fn make<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        shown: &Shown<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = memory.py();
        let dtype = self.dtype_for(py, shown)?;
        let element = self
            .dtypes
            .iter()
            .find(|(known, _)| known.is(&dtype))
            .map(|(_, element)| *element);
        let element = element.ok_or_else(|| {
            PyValueError::new_err(format!("torch has no element type for {}", shown.dtype))
        })?;
        shown.check_stored(element.stored, element.inner)?;
        let mut shape = shown.shape.to_vec();
        let mut strides = shown.strides.map(<[i64]>::to_vec);
        if element.inner.is_some() {
            shape.pop();
            strides.as_mut().map(Vec::pop);
        }
        if let (2.., Some(extent)) = (element.packed, shape.last_mut()) {
            *extent /= element.packed;
        }
        if shape.contains(&0) {
            let keywords = PyDict::new(py);
            keywords.set_item("dtype", &dtype)?;
            let shape = PyTuple::new(py, &shape)?;
            return py
                .import("torch")?
                .call_method("empty", (shape,), Some(&keywords));
        }
        let itemsize = (element.stored.itemsize() as u64 * element.inner.unwrap_or(1)) as i64;
        let itemsize = itemsize.max(1);
        if let Some(strides) = &mut strides {
            if strides
                .iter()
                .any(|stride| *stride < 0 || stride % itemsize != 0)
            {
                return copy_through_numpy(memory, shown);
            }
            for stride in strides {
                *stride /= itemsize;
            }
        }
        if let Some(code) = dlpack_code(element.name) {
            let capsule = lend(memory, shown.offset, code, &shape, strides.as_deref())?;
            return self.from_dlpack.bind(py).call1((capsule,));
        }
        from_buffer(memory, &dtype, shown.offset, &shape, strides.as_deref())
    }

    fn dtype_for<'py>(&self, py: Python<'py>, shown: &Shown<'_>) -> PyResult<Bound<'py, PyAny>> {
        let wanted = match logical(shown.kind).map(|name| name.trim_start_matches(['<', '>', '=']))
        {
            Some("c16") => Some("complex128"),
            Some(name) if ELEMENTS.iter().any(|element| element.name == name) => Some(name),
            Some(name) if name.len() > 2 && !name.starts_with(['f', 'i', 'u', 'c']) => {
                return Err(PyValueError::new_err(format!(
                    "torch has no element type for NumPy's {name}"
                )));
            }
            _ => None,
        };
        let found = self.dtypes.iter().find(|(_, element)| match wanted {
            Some(name) => element.name == name,
            None => element.stored == shown.dtype && element.inner.is_none(),
        });
        found
            .map(|(dtype, _)| dtype.bind(py).clone())
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "this torch has no element type for {}",
                    shown.dtype
                ))
            })
    }

    /// The type of that name, such as `"float32"`.
    pub(in crate::python) fn named_dtype<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dtype = py.import("torch")?.getattr(name)?;
        if !dtype.is_instance(self.dtype.bind(py))? {
            return Err(PyValueError::new_err(format!(
                "torch.{name} is no element type"
            )));
        }
        Ok(dtype)
    }

    pub(in crate::python) fn make_parameter<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.parameter
            .bind(tensor.py())
            .call1((tensor, requires_grad))
    }
}

/// Whether a tensor has elements beyond the end of its storage, since that was freed or made smaller: torch lets that
/// happen, and still gives an address. No tensor does of which that cannot be asked: one without a storage of its
/// own, as in transforms of `torch.func`, or on a device where storages may not know their size.
fn outgrows_storage(tensor: &Bound<'_, PyAny>, itemsize: usize) -> bool {
    let py = tensor.py();
    let asked = || -> PyResult<bool> {
        let is_cpu = tensor.getattr(pyo3::intern!(py, "is_cpu"))?;
        if !(is_cpu.is_truthy()? || tensor.getattr(pyo3::intern!(py, "is_cuda"))?.is_truthy()?) {
            return Ok(false);
        }
        let shape: Vec<u64> = tensor.getattr(pyo3::intern!(py, "shape"))?.extract()?;
        if shape.contains(&0) {
            return Ok(false);
        }
        let strides = tensor.call_method0(pyo3::intern!(py, "stride"))?;
        let strides: Vec<i64> = strides.extract()?;
        let offset = tensor.call_method0(pyo3::intern!(py, "storage_offset"))?;
        let offset: u64 = offset.extract()?;
        let storage = tensor.call_method0(pyo3::intern!(py, "untyped_storage"))?;
        let nbytes = storage.call_method0(pyo3::intern!(py, "nbytes"))?;
        let nbytes: u64 = nbytes.extract()?;
        let (_, end) = crate::state::reach(i128::from(offset), 1, &shape, &strides);
        Ok(end.saturating_mul(itemsize as i128) > i128::from(nbytes))
    };
    asked().unwrap_or(false)
}

/// The tensor in host memory, as its bytes say what its values are; and whether that took a copy.
fn on_host<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = tensor.py();
    let mut host = tensor.clone();
    if !host
        .getattr(pyo3::intern!(py, "is_cpu"))?
        .extract::<bool>()?
    {
        host = host.call_method0("detach")?.call_method0("cpu")?;
    }
    if host.call_method0(pyo3::intern!(py, "is_conj"))?.extract()? {
        host = host.call_method0("detach")?.call_method0("resolve_conj")?;
    }
    if host.call_method0(pyo3::intern!(py, "is_neg"))?.extract()? {
        host = host.call_method0("detach")?.call_method0("resolve_neg")?;
    }
    let copied = !host.is(tensor);
    Ok((host, copied))
}

/// Type code and bits in DLPack, of the types that every torch reads from there.
fn dlpack_code(name: &str) -> Option<(u8, u8)> {
    Some(match name {
        "float32" => (2, 32),
        "bfloat16" => (4, 16),
        "float16" => (2, 16),
        "float64" => (2, 64),
        "int64" => (0, 64),
        "int32" => (0, 32),
        "int16" => (0, 16),
        "int8" => (0, 8),
        "uint8" => (1, 8),
        "complex64" => (5, 64),
        "complex128" => (5, 128),
        _ => return None,
    })
}

/// A tensor of any type; `strides` in elements. It takes several calls of torch, where DLPack takes one.
fn from_buffer<'py>(
    memory: &Bound<'py, Memory>,
    dtype: &Bound<'py, PyAny>,
    offset: u64,
    shape: &[u64],
    strides: Option<&[i64]>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let reach = match strides {
        None => count(shape).unwrap_or(0),
        Some(strides) => crate::state::reach(0, 1, shape, strides).1 as u64,
    };
    let keywords = PyDict::new(py);
    keywords.set_item("dtype", dtype)?;
    keywords.set_item("offset", offset)?;
    keywords.set_item("count", reach)?;
    let torch = py.import("torch")?;
    let flat = torch.call_method("frombuffer", (memory,), Some(&keywords))?;
    let shape = PyTuple::new(py, shape)?;
    match strides {
        None => flat.call_method1("view", (shape,)),
        Some(strides) => flat.call_method1("as_strided", (shape, PyTuple::new(py, strides)?)),
    }
}

/// torch has no arrays that run backwards: those become copies.
fn copy_through_numpy<'py>(
    memory: &Bound<'py, Memory>,
    shown: &Shown<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let array = Numpy::import(memory.py())?.make(memory, shown)?;
    memory
        .py()
        .import("torch")?
        .call_method1("from_numpy", (array.call_method0("copy")?,))
}
