//! What the fuzzer runs, on whatever bytes it comes up with: a panic is a finding. `fuzz/fuzz_targets` hands them
//! to libFuzzer; [`corpus`](super::corpus) runs them over what was kept of earlier runs.

pub mod checkpoint;
pub mod forge;
pub mod header;
pub mod manifest;
pub mod sample;
pub mod shelf;
