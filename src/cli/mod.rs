//! The command line: lists, verifies, compares, prunes and exports checkpoints, and watches runs.
//!
//! Everything here reads arguments and prints; what is done is done by [`Run`](crate::Run),
//! [`FileCheckpointer`](crate::FileCheckpointer), [`renderer`](crate::renderer) and their neighbours. `docs/cli.md` in the repository
//! describes the commands and the JSON that they print.

mod arguments;
mod diff;
mod escape;
mod export;
mod failure;
mod json;
mod list;
mod place;
mod progress;
mod prune;
mod remove;
mod screen;
mod show;
mod table;
mod verify;
mod watch;

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::Failure;
use screen::Screen;

/// All went well, and what was looked at is intact.
const FINE: u8 = 0;
/// Something is damaged, or failed.
const FAILED: u8 = 1;
/// The arguments make no sense.
const USAGE: u8 = 2;
/// It was interrupted: 128 and the number of SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;
/// Nobody reads its output any more: 128 and the number of SIGPIPE.
const PIPE_CLOSED: u8 = 141;

/// Runs the command line, `arguments` with the name of the program in front, and returns the exit code: 0, 1 if
/// something is damaged or failed, 2 if the arguments make no sense.
///
/// It writes to standard output and standard error, and may ask a question on standard input. Once `stop` is set
/// it ends soon: what it was doing is done, or not done at all.
///
/// # Example
///
/// ```
/// use std::sync::atomic::AtomicBool;
///
/// let code = pitstop::cli::run(["pitstop", "ls", "/no/such/run"], &AtomicBool::new(false));
/// assert_eq!(code, 1);
/// ```
pub fn run(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    stop: &AtomicBool,
) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing better can be done if nobody reads it.
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { FINE };
        }
    };
    let mut screen = Screen::new(arguments.json, stop);
    let done = execute(&arguments.command, &mut screen);
    match done.and_then(|code| screen.finish().map(|()| code)) {
        Ok(code) => code,
        Err(failure) => {
            screen.report(&failure);
            failure.code()
        }
    }
}

fn execute(command: &Command, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    match command {
        Command::Ls(arguments) => list::run(arguments, screen),
        Command::Show(arguments) => show::run(arguments, screen),
        Command::Verify(arguments) => verify::run(arguments, screen),
        Command::Diff(arguments) => diff::run(arguments, screen),
        Command::Rm(arguments) => remove::run(arguments, screen),
        Command::Prune(arguments) => prune::run(arguments, screen),
        Command::Export(arguments) => export::run(arguments, screen),
        Command::Watch(arguments) => watch::run(arguments, screen),
    }
}
