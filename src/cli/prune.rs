use serde_json::json;

use super::FINE;
use super::arguments::Prune;
use super::failure::Failure;
use super::json;
use super::place::Place;
use super::remove::{delete, writer};
use super::screen::{Screen, Style};
use super::table::{Align, Cell, Table};
use crate::Decision;

pub(super) fn run(arguments: &Prune, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let retention = arguments.rules.retention().map_err(Failure::Usage)?;
    let run = Place::at(&arguments.dir)?.into_run()?;
    // Nothing is taken or written for a look.
    let files = if arguments.dry_run {
        None
    } else {
        Some(writer(&run)?)
    };
    let decisions = screen.watched("looking for an intact one", None, |watch| {
        run.plan(&retention, watch)
    })?;
    let surplus: Vec<u64> = decisions
        .iter()
        .filter(|it| !it.keep)
        .map(|it| it.step)
        .collect();
    if !screen.is_json() {
        screen.table(&table(&decisions))?;
    }
    let mut deleted = Vec::new();
    if let Some(files) = files.filter(|_| !surplus.is_empty()) {
        if !arguments.yes {
            let (directory, checkpoints) = (
                arguments.dir.display(),
                json::count(surplus.len(), "checkpoint"),
            );
            screen.confirm(&format!("{directory}: delete {checkpoints}?"))?;
        }
        delete(&files, &surplus, screen)?;
        deleted = surplus;
    }
    if screen.is_json() {
        let decision =
            |it: &Decision| json!({"step": it.step, "keep": it.keep, "reasons": it.reasons});
        screen.document(&json!({
            "path": json::path(&arguments.dir),
            "retention": retention.to_string(),
            "dry_run": arguments.dry_run,
            "decisions": decisions.iter().map(decision).collect::<Vec<_>>(),
            "deleted": deleted,
        }))?;
    }
    Ok(FINE)
}

fn table(decisions: &[Decision]) -> Table {
    let mut table = Table::new(&[
        ("STEP", Align::Right),
        ("", Align::Left),
        ("WHY", Align::Left),
    ]);
    for Decision {
        step,
        keep,
        reasons,
    } in decisions
    {
        let (verdict, why) = if *keep {
            (Cell::styled("keep", Style::Good), reasons.join("; "))
        } else {
            (
                Cell::styled("delete", Style::Bad),
                "no rule keeps it".into(),
            )
        };
        table.row([step.to_string().into(), verdict, why.into()]);
    }
    table
}
