//! Reading tensors into the memory of arrays that are there.

use std::sync::atomic::AtomicBool;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::python::arrays::{Array, Shown, framework};
use crate::python::build::gather_view;
use crate::python::tensor::Extent;
use crate::snapshot::{Layout, ReadError, Target, load_into};
use crate::state::{Tensor, TensorRef};

/// An array whose memory is filled.
pub(super) struct Write<'py> {
    pub(super) leaf: TensorRef,
    pub(super) array: Array<'py>,
}

/// One array to fill, apart from Python.
pub(super) struct Job {
    leaf: TensorRef,
    extent: Extent,
    layout: Layout,
    nbytes: usize,
    /// The memory takes the stored form of the whole tensor as it is.
    direct: bool,
}

impl Job {
    pub(super) fn new(write: &Write<'_>, tensors: &[Tensor]) -> Job {
        let Write { leaf, array } = write;
        let direct = array.strides.is_none() && !array.big_endian && leaf.view.is_none();
        Job {
            leaf: leaf.clone(),
            extent: array.extent,
            layout: Layout::new(
                array.dtype,
                &array.shape,
                array.strides.as_deref(),
                array.extent.offset(),
                array.big_endian,
            ),
            nbytes: Shown::of(leaf, &tensors[leaf.index], 0).nbytes(),
            direct,
        }
    }
}

/// Tells torch that its tensors are changed behind its back: a backward pass that needs their former values then
/// fails, as after any change in place, instead of going on with the new ones.
pub(super) fn announce<'py>(py: Python<'py>, writes: &[Write<'py>]) -> PyResult<()> {
    let arrays = writes.iter().map(|write| &write.array);
    let of_torch = arrays.filter(|array| framework(&array.kind) == "torch");
    let tensors: Vec<_> = of_torch.map(|array| array.owner.clone()).collect();
    if tensors.is_empty() {
        return Ok(());
    }
    let graph = py.import("torch.autograd.graph")?;
    let Some(increment) = graph.getattr_opt("increment_version")? else {
        return Ok(());
    };
    if increment.call1((PyList::new(py, &tensors)?,)).is_ok() {
        return Ok(());
    }
    // An older torch takes them one by one, and none of inference mode, which have no version.
    for tensor in tensors {
        if !tensor.call_method0("is_inference")?.is_truthy()? {
            increment.call1((tensor,))?;
        }
    }
    Ok(())
}

/// Fills all arrays. Those whose memory nobody else shares are read straight into it, side by side; the
/// others one after the other.
pub(super) fn run(jobs: Vec<Job>, tensors: &[Tensor], stop: &AtomicBool) -> Result<(), ReadError> {
    let alone = without_overlap(&jobs);
    let (direct, other): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .zip(alone)
        .partition(|(job, alone)| *alone && job.direct);
    let targets = direct.iter().map(|(job, _)| Target {
        tensor: &tensors[job.leaf.index],
        into: job.extent.target(),
    });
    load_into(targets.collect(), stop)?;
    for (job, _) in other {
        let tensor = &tensors[job.leaf.index];
        let mut whole = vec![0; tensor.nbytes() as usize];
        let target = Target {
            tensor,
            into: &mut whole,
        };
        load_into(vec![target], stop)?;
        let mut stored = if job.leaf.view.is_some() {
            let mut stored = vec![0; job.nbytes];
            gather_view(&Shown::of(&job.leaf, tensor, 0), &whole, &mut stored);
            stored
        } else {
            whole
        };
        job.layout.scatter(&mut stored, job.extent.target());
    }
    Ok(())
}

/// For each job, whether its memory is that of no other job.
fn without_overlap(jobs: &[Job]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&i| jobs[i].extent.bounds());
    let mut alone = vec![true; jobs.len()];
    let mut reach: Option<usize> = None;
    for i in order {
        if let Some(before) = reach
            && jobs[before].extent.overlaps(&jobs[i].extent)
        {
            alone[before] = false;
            alone[i] = false;
        }
        if reach.is_none_or(|before| jobs[before].extent.bounds().1 < jobs[i].extent.bounds().1) {
            reach = Some(i);
        }
    }
    alone
}
