use serde_json::json;

use super::FINE;
use super::arguments::Rm;
use super::failure::Failure;
use super::json;
use super::place::{Place, missing};
use super::screen::Screen;
use crate::{Checkpointer, FileCheckpointer, Options, Run, State};

pub(super) fn run(arguments: &Rm, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let run = Place::at(&arguments.dir)?.into_run()?;
    let mut steps = arguments.steps.clone();
    steps.sort_unstable();
    steps.dedup();
    all_there(&run, &steps)?;
    let files = writer(&run)?;
    // Whoever held the lock before may have deleted some.
    let left = all_there(&run, &steps)? - steps.len();
    if !arguments.yes {
        let (checkpoints, left) = (
            json::count(steps.len(), "checkpoint"),
            json::count(left, "checkpoint"),
        );
        let (directory, list) = (arguments.dir.display(), list(&steps));
        screen.confirm(&format!(
            "{directory}: delete {checkpoints} ({list})? {left} will be left."
        ))?;
    }
    delete(&files, &steps, screen)?;
    if screen.is_json() {
        screen.document(&json!({"path": json::path(&arguments.dir), "deleted": steps}))?;
    }
    Ok(FINE)
}

/// How many checkpoints there are, if those are among them.
fn all_there(run: &Run, steps: &[u64]) -> Result<usize, Failure> {
    let there = run.candidates()?;
    match steps.iter().find(|step| !there.contains(step)) {
        Some(&step) => Err(missing(run, step, &there)),
        None => Ok(there.len()),
    }
}

/// The run with its lock, which nobody else may hold.
pub(super) fn writer(run: &Run) -> Result<FileCheckpointer, Failure> {
    FileCheckpointer::open(run.directory(), Options::default())
        .map_err(|error| Failure::of_lock(error, run.directory()))
}

/// Deletes them, the oldest first.
pub(super) fn delete(
    files: &FileCheckpointer,
    steps: &[u64],
    screen: &mut Screen<'_>,
) -> Result<(), Failure> {
    for &step in steps {
        screen.check()?;
        Checkpointer::<State>::delete(files, step as usize)?;
        if !screen.is_json() {
            screen.line(&format!("step {step}: deleted"))?;
            screen.finish()?;
        }
    }
    Ok(())
}

fn list(steps: &[u64]) -> String {
    let word = if steps.len() == 1 { "step" } else { "steps" };
    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
    format!("{word} {}", steps.join(", "))
}
