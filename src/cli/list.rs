use std::path::Path;

use serde_json::{Value, json};

use super::arguments::Ls;
use super::failure::Failure;
use super::json;
use super::place::Place;
use super::screen::{Screen, Style};
use super::table::{Align, Cell, Table};
use super::{FAILED, FINE};
use crate::{Listed, Listing};

pub(super) fn run(arguments: &Ls, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let place = Place::at(&arguments.dir)?;
    let listing = if place.is_checkpoint {
        let info = place.run.info_here()?;
        let checkpoints = vec![Listed { info, linked: None }];
        Listing {
            checkpoints,
            damaged: Vec::new(),
        }
    } else {
        place.run.listing()?
    };
    if screen.is_json() {
        screen.document(&document(&arguments.dir, &listing))?;
    } else {
        screen.table(&table(&listing))?;
        for damaged in &listing.damaged {
            screen.note(&damaged.error.to_string());
        }
    }
    Ok(if listing.damaged.is_empty() {
        FINE
    } else {
        FAILED
    })
}

fn table(listing: &Listing) -> Table {
    let mut table = Table::new(&[
        ("STEP", Align::Right),
        ("SAVED (UTC)", Align::Left),
        ("SIZE", Align::Right),
        ("NEW", Align::Right),
        ("LINKED", Align::Right),
        ("METRICS", Align::Left),
    ]);
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "?".into(), json::size);
    for listed in &listing.checkpoints {
        let info = &listed.info;
        table.row([
            info.step.to_string().into(),
            json::time(info.created).into(),
            json::size(info.nbytes).into(),
            known(listed.new_bytes()).into(),
            known(listed.linked).into(),
            json::short_metrics(&info.metrics).into(),
        ]);
    }
    for damaged in &listing.damaged {
        let step = damaged.step.to_string();
        let bad = |text: &str| Cell::styled(text, Style::Bad);
        table.row([bad(&step), bad("DAMAGED")]);
    }
    table
}

fn document(directory: &Path, listing: &Listing) -> Value {
    let checkpoint = |listed: &Listed| {
        let mut entry = json::info(&listed.info);
        entry.insert("new_bytes".into(), listed.new_bytes().into());
        entry.insert("linked_bytes".into(), listed.linked.into());
        Value::Object(entry)
    };
    let damaged = listing
        .damaged
        .iter()
        .map(|damaged| json!({"step": damaged.step, "error": damaged.error.to_string()}));
    json!({
        "path": json::path(directory),
        "checkpoints": listing.checkpoints.iter().map(checkpoint).collect::<Vec<_>>(),
        "damaged": damaged.collect::<Vec<_>>(),
    })
}
