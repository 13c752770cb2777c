use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::FINE;
use super::arguments::Watch;
use super::failure::Failure;
use super::place::Place;
use super::screen::Screen;
use crate::renderer;

pub(super) fn run(arguments: &Watch, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    if screen.is_json() {
        let message = "watch prints no document; the events of a run are lines of JSON already, in its events.jsonl";
        return Err(Failure::Usage(message.into()));
    }
    // A run without any checkpoint can be watched too, and one that is yet to begin, whatever lies there already.
    let run = Place::of_any_run(&arguments.dir)?.into_any_run()?;
    if arguments.stop {
        ask_to_stop(run.directory(), screen.stop())?;
        screen.line("the run was asked to stop, and has heard it")?;
    } else {
        renderer::watch(run.directory(), arguments.plain, screen.stop()).map_err(of_watching)?;
    }
    Ok(FINE)
}

fn ask_to_stop(directory: &Path, stop: &AtomicBool) -> Result<(), Failure> {
    renderer::ask_to_stop(directory, stop).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => Failure::Interrupted,
        _ => Failure::Failed(format!(
            "{}: cannot ask the run to stop: {error}",
            directory.display()
        )),
    })
}

/// What became of a watcher that had to end.
fn of_watching(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => error.into(),
    }
}
