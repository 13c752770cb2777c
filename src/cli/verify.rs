use std::path::Path;

use serde_json::{Value, json};

use super::arguments::Verify;
use super::failure::Failure;
use super::json;
use super::place::{Place, empty, missing};
use super::screen::{Screen, Style};
use super::{FAILED, FINE};
use crate::storage::errno_of;
use crate::{RestoreError, Run, Verification, Watch};

pub(super) fn run(arguments: &Verify, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let place = Place::at(&arguments.dir)?;
    let steps = steps(&place, &arguments.steps)?;
    let mut found = Vec::new();
    for &step in &steps {
        let what = step.map_or_else(
            || "verifying".to_owned(),
            |step| format!("verifying step {step}"),
        );
        let verified = screen.watched(&what, Some(nbytes(&place.run, step)), |watch| {
            verify(&place.run, step, watch)
        });
        // A run may delete what nobody asked for by name.
        let may_go = step.is_some() && arguments.steps.is_empty();
        if let Some(verification) = unless_gone(verified, may_go)? {
            if !screen.is_json() {
                print(&verification, step, screen)?;
            }
            found.push((step, verification));
        }
    }
    if found.is_empty() {
        let directory = arguments.dir.display();
        return Err(Failure::Failed(format!(
            "{directory}: all checkpoints were removed while they were verified; try again"
        )));
    }
    let intact = found
        .iter()
        .all(|(_, verification)| verification.damage.is_empty());
    if screen.is_json() {
        let checkpoints: Vec<Value> = found.iter().map(|(step, it)| document(*step, it)).collect();
        screen.document(&json!({
            "path": json::path(&arguments.dir),
            "intact": intact,
            "checkpoints": checkpoints,
        }))?;
    }
    Ok(if intact { FINE } else { FAILED })
}

/// What was found in a checkpoint that was there before; `None` if it has gone, and may.
fn unless_gone(
    verified: Result<Verification, RestoreError>,
    may_go: bool,
) -> Result<Option<Verification>, Failure> {
    match verified {
        Ok(verification) => Ok(Some(verification)),
        Err(RestoreError::NotFound { .. }) if may_go => Ok(None),
        Err(RestoreError::NotFound { path }) => {
            let why = "it was removed while it was verified";
            Err(Failure::Failed(format!("{}: {why}", path.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// What is to be verified; `None` is the directory itself.
fn steps(place: &Place, wanted: &[u64]) -> Result<Vec<Option<u64>>, Failure> {
    if place.is_checkpoint {
        for &step in wanted {
            place.check_step(Some(step))?;
        }
        return Ok(vec![None]);
    }
    let there = place.run.candidates()?;
    if let Some(&step) = wanted.iter().find(|step| !there.contains(step)) {
        return Err(missing(&place.run, step, &there));
    }
    // What was not looked at is not said to be intact.
    if there.is_empty() {
        return Err(empty(&place.run));
    }
    let steps = if wanted.is_empty() { &there } else { wanted };
    Ok(steps.iter().copied().map(Some).collect())
}

/// About how much there is to read.
fn nbytes(run: &Run, step: Option<u64>) -> u64 {
    let info = step.map_or_else(|| run.info_here(), |step| run.info(step));
    info.map_or(0, |info| info.nbytes)
}

fn verify(run: &Run, step: Option<u64>, watch: Watch<'_>) -> Result<Verification, RestoreError> {
    match step {
        Some(step) => run.verify(step, watch),
        None => run.verify_here(watch),
    }
}

fn print(it: &Verification, step: Option<u64>, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let name = step.map_or_else(
        || it.path.display().to_string(),
        |step| format!("step {step}"),
    );
    let (files, tensors) = (
        json::count(it.files, "file"),
        json::count(it.tensors, "tensor"),
    );
    let size = json::size(it.nbytes);
    if it.damage.is_empty() {
        screen.styled(
            Style::Good,
            &format!("{name}: intact ({files}, {tensors}, {size})"),
        )?;
    } else {
        screen.styled(
            Style::Bad,
            &format!("{name}: DAMAGED ({files}, {tensors}, {size})"),
        )?;
    }
    for error in &it.damage {
        screen.line(&format!("  {error}"))?;
    }
    for path in &it.unexpected {
        screen.line(&format!("  {}: not part of the checkpoint", path.display()))?;
    }
    // Whoever waits for the next one sees this one.
    screen.finish()
}

fn document(step: Option<u64>, it: &Verification) -> Value {
    let name = |path: &Path| json::path(path.strip_prefix(&it.path).unwrap_or(path));
    let damage = it.damage.iter().map(|error| {
        let (file, tensor) = match error {
            RestoreError::Corrupt { path, tensor, .. } => (Some(name(path)), tensor.clone()),
            RestoreError::Io(error) => (errno_of(error).map(|(_, path)| name(&path)), None),
            _ => (None, None),
        };
        json!({
            "file": file.filter(|file| !file.is_empty()),
            "tensor": tensor,
            "problem": error.to_string(),
        })
    });
    json!({
        "step": step,
        "path": json::path(&it.path),
        "intact": it.damage.is_empty(),
        "files": it.files,
        "tensors": it.tensors,
        "bytes": it.nbytes,
        "damage": damage.collect::<Vec<_>>(),
        "unexpected": it.unexpected.iter().map(|path| name(path)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint that was named by its path, and vanished, passed for intact.
    #[test]
    fn only_what_nobody_named_may_vanish_meanwhile() {
        let gone = || {
            Err(RestoreError::NotFound {
                path: "run/step-7".into(),
            })
        };
        assert!(unless_gone(gone(), true).unwrap().is_none());
        let failure = unless_gone(gone(), false).unwrap_err();
        let message = failure.message().unwrap();
        assert_eq!(message, "run/step-7: it was removed while it was verified");
    }
}
