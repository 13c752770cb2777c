use serde_json::json;

use super::FINE;
use super::arguments::Export;
use super::failure::Failure;
use super::json;
use super::place::{Place, open, step};
use super::screen::Screen;
use crate::storage::parent_of;
use crate::{Local, export_directory, export_file};

pub(super) fn run(arguments: &Export, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let (wanted, out) = match &arguments.out {
        Some(out) => (Some(step(&arguments.step_or_out)?), out),
        None if step(&arguments.step_or_out).is_ok() => {
            let number = arguments.step_or_out.display();
            return Err(Failure::Usage(format!(
                "{number} may be a step or a file: behind a step comes what is to be written; a file is ./{number}"
            )));
        }
        None => (None, &arguments.step_or_out),
    };
    let parent = parent_of(out);
    if matches!(parent.try_exists(), Ok(false)) {
        let message = format!("{}: there is no such directory", parent.display());
        return Err(Failure::Failed(message));
    }
    if !arguments.force && out.symlink_metadata().is_ok() {
        let message = format!("{} is there already; --force replaces it", out.display());
        return Err(Failure::Failed(message));
    }
    let place = Place::at(&arguments.dir)?;
    let (opened, exported) = place.with(wanted, screen, |run, step, screen| {
        let opened = open(run, step)?;
        let total = opened.state.nbytes();
        let exported = screen.watched("exporting", Some(total), |watch| {
            let export = if arguments.directory {
                export_directory
            } else {
                export_file
            };
            export(&Local::new(), &opened, out, arguments.force, watch)
        });
        match exported {
            Err(error) if error.is_damage() => Err(error),
            // What may not be written is no reason to pass over the checkpoint.
            exported => Ok((opened, exported)),
        }
    })?;
    let bytes = exported?;
    if screen.is_json() {
        screen.document(&json!({
            "step": opened.info.step,
            "path": json::path(&opened.info.path),
            "output": json::path(out),
            "directory": arguments.directory,
            "bytes": bytes,
        }))?;
    } else {
        let (step, out, size) = (opened.info.step, out.display(), json::size(bytes));
        screen.line(&format!("step {step}: exported to {out} ({size})"))?;
    }
    Ok(FINE)
}
