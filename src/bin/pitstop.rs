//! The program `pitstop`.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    // Ctrl-C ends it as it ends any program: whatever it was doing is done, or not done at all.
    ExitCode::from(pitstop::cli::run(
        std::env::args_os(),
        &AtomicBool::new(false),
    ))
}
