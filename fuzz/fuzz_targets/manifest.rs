#![no_main]

#[path = "../../tests/hostile/memory.rs"]
mod memory;
#[path = "../../tests/hostile/targets/mod.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::manifest::run(data));
