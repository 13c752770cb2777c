//! How near `pitstop::storage::fill` comes to what the disk can do, on new files and over the blocks of old ones.
//!
//! ```sh
//! cargo bench --bench disk -- [MIB] [ROUNDS] [DIRECTORY]
//! ```
//!
//! All ways write the same bytes as two files and sync them. They take turns, so that a disk that changes its
//! mood is fair to all; the table shows medians.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_macros,
    reason = "a program that prints, and may fail"
)]

#[cfg(target_os = "linux")]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("only Linux has the direct I/O that this compares with");
}
