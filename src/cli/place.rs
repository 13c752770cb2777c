use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::arguments;
use super::failure::Failure;
use super::screen::Screen;
use crate::file_checkpointer::Damaged;
use crate::renderer::EVENTS;
use crate::{Local, Opened, RestoreError, Run};

/// A directory that was named: a run, or one checkpoint.
pub(super) struct Place {
    pub(super) run: Run,
    /// The directory itself is a checkpoint, or was one.
    pub(super) is_checkpoint: bool,
}

impl Place {
    /// Looks at the directory.
    pub(super) fn at(directory: &Path) -> Result<Place, Failure> {
        let place = Place::of_any_run(directory)?;
        let has_none = !place.is_checkpoint && place.run.candidates()?.is_empty();
        if has_none && !may_become_a_run(directory)? {
            let why = "there are no checkpoints here: no manifest.json, and no directory named for a step";
            return Err(Failure::Failed(format!("{}: {why}", directory.display())));
        }
        Ok(place)
    }

    /// Looks at the directory, which may be one where nothing was saved yet, whatever else is in it.
    pub(super) fn of_any_run(directory: &Path) -> Result<Place, Failure> {
        let fail = |why: &str| Failure::Failed(format!("{}: {why}", directory.display()));
        match fs::metadata(directory) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                return Err(fail(
                    "this is a file; name the directory of a run, or that of a checkpoint",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(fail("there is no such directory"));
            }
            Err(error) => return Err(fail(&error.to_string())),
        }
        let run = Run::new(Arc::new(Local::new()), directory);
        let mut is_checkpoint = run.is_checkpoint()?;
        if !is_checkpoint && run.candidates()?.is_empty() {
            // What has lost its manifest is told by its name.
            let name = directory.file_name().and_then(|name| name.to_str());
            let step = name.and_then(|name| name.strip_prefix("step-"));
            is_checkpoint = step.is_some_and(|step| step.parse::<u64>().is_ok());
        }
        Ok(Place { run, is_checkpoint })
    }

    /// The run; for what makes no sense with a single checkpoint, or without any.
    pub(super) fn into_run(self) -> Result<Run, Failure> {
        let run = self.into_any_run()?;
        if run.candidates()?.is_empty() {
            return Err(empty(&run));
        }
        Ok(run)
    }

    /// The run; for what makes no sense with a single checkpoint.
    pub(super) fn into_any_run(self) -> Result<Run, Failure> {
        if self.is_checkpoint {
            let message = "this is one checkpoint; name the directory of its run";
            let directory = self.run.directory().display();
            return Err(Failure::Usage(format!("{directory}: {message}")));
        }
        Ok(self.run)
    }

    /// The checkpoint of a step; by default the newest whose manifest, headers and sizes are intact.
    pub(super) fn open(
        &self,
        step: Option<u64>,
        screen: &mut Screen<'_>,
    ) -> Result<Opened, Failure> {
        self.with(step, screen, |run, step, _| open(run, step))
    }

    /// Does something with the checkpoint of a step; by default with the newest for which that does not end in
    /// damage. It is given the step, or `None` if the directory itself is the checkpoint.
    pub(super) fn with<T>(
        &self,
        step: Option<u64>,
        screen: &mut Screen<'_>,
        mut act: impl FnMut(&Run, Option<u64>, &mut Screen<'_>) -> Result<T, RestoreError>,
    ) -> Result<T, Failure> {
        match step {
            _ if self.is_checkpoint => {
                self.check_step(step)?;
                Ok(act(&self.run, None, screen)?)
            }
            Some(step) => {
                act(&self.run, Some(step), screen).map_err(|error| self.missing(step, error))
            }
            None => {
                let (done, damaged) = self
                    .run
                    .newest_intact(|step| act(&self.run, Some(step), screen))?;
                for Damaged { error, .. } in damaged {
                    screen.note(&format!("passed over: {error}"));
                }
                done.ok_or_else(|| {
                    let directory = self.run.directory().display();
                    Failure::Failed(format!("{directory}: there is no intact checkpoint here"))
                })
            }
        }
    }

    /// A step beside a single checkpoint must be its own.
    pub(super) fn check_step(&self, step: Option<u64>) -> Result<(), Failure> {
        let Some(step) = step else { return Ok(()) };
        let found = self.run.info_here()?.step;
        if found == step {
            return Ok(());
        }
        let directory = self.run.directory().display();
        let message =
            format!("{directory} is the checkpoint of step {found}, not of {step}; name its run");
        Err(Failure::Usage(message))
    }

    /// What there is instead of a step that is not there.
    pub(super) fn missing(&self, step: u64, error: RestoreError) -> Failure {
        let steps = match (&error, self.run.candidates()) {
            (RestoreError::NotFound { .. }, Ok(steps)) if !steps.contains(&step) => steps,
            _ => return error.into(),
        };
        missing(&self.run, step, &steps)
    }
}

/// Whether nothing is in it but what a run may have before its first checkpoint: hidden names, such as that of a
/// lock, and events.
fn may_become_a_run(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") && name != EVENTS {
            return Ok(false);
        }
    }
    Ok(true)
}

/// There is nothing in the run.
pub(super) fn empty(run: &Run) -> Failure {
    let directory = run.directory().display();
    Failure::Failed(format!("{directory}: there are no checkpoints here"))
}

/// Opens the checkpoint of a step of the run; without one, that which the directory itself is.
pub(super) fn open(run: &Run, step: Option<u64>) -> Result<Opened, RestoreError> {
    match step {
        Some(step) => run.open(step, true),
        None => run.open_here(true),
    }
}

/// There is no such step, but maybe others.
pub(super) fn missing(run: &Run, step: u64, steps: &[u64]) -> Failure {
    let others = match steps {
        [] => "there are none".to_owned(),
        [only] => format!("there is only step {only}"),
        several => {
            let several: Vec<String> = several.iter().map(u64::to_string).collect();
            format!("there are steps {}", several.join(", "))
        }
    };
    let directory = run.directory().display();
    Failure::Failed(format!("{directory}: there is no step {step}; {others}"))
}

/// A step, where a path might be too.
pub(super) fn step(text: &Path) -> Result<u64, Failure> {
    arguments::step(&text.to_string_lossy()).map_err(Failure::Usage)
}
