//! What the fuzzer runs, on whatever bytes it comes up with: a panic is a finding. `fuzz/fuzz_targets` hands them
//! to libFuzzer; [`corpus`](super::corpus) runs them over what was kept of earlier runs.

pub(crate) mod checkpoint;
pub(crate) mod forge;
pub(crate) mod header;
pub(crate) mod manifest;
pub(crate) mod sample;
pub(crate) mod shelf;
