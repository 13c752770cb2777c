use serde_json::{Map, Value, json};

use super::FINE;
use super::arguments::Diff;
use super::failure::Failure;
use super::json;
use super::place::{Place, step};
use super::screen::{Screen, Style};
use super::table::{Align, Cell, Table};
use crate::format::float_value;
use crate::{Changed, Comparison, DType, Opened, TensorChange, compare};

pub(super) fn run(arguments: &Diff, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let Diff {
        first,
        second,
        third,
    } = arguments;
    let (before, after) = if let Some(third) = third {
        let (one, other) = (step(second)?, step(third)?);
        let place = Place::at(first)?;
        (
            place.open(Some(one), screen)?,
            place.open(Some(other), screen)?,
        )
    } else {
        let one = Place::at(first)?.open(None, screen)?;
        (one, Place::at(second)?.open(None, screen)?)
    };
    let comparison = screen.watched("comparing", None, |watch| compare(&before, &after, watch))?;
    if screen.is_json() {
        screen.document(&document(&before, &after, &comparison))?;
    } else {
        print(&before, &after, &comparison, screen)?;
    }
    Ok(FINE)
}

fn print(
    before: &Opened,
    after: &Opened,
    comparison: &Comparison,
    screen: &mut Screen<'_>,
) -> Result<(), Failure> {
    for (sign, opened) in [("---", before), ("+++", after)] {
        let (step, path) = (opened.info.step, opened.info.path.display());
        screen.line(&format!("{sign} step {step}, {path}"))?;
    }
    let table = tensors(comparison);
    if !table.is_empty() {
        screen.line("")?;
        screen.table(&table)?;
    }
    for (title, changed) in [
        ("VALUE", &comparison.values),
        ("METRIC", &comparison.metrics),
        ("METADATA", &comparison.metadata),
    ] {
        if !changed.is_empty() {
            screen.line("")?;
            screen.table(&values(title, changed))?;
        }
    }
    let (differ, same) = (comparison.tensors.len(), comparison.same);
    let others = comparison.values.len() + comparison.metrics.len() + comparison.metadata.len();
    screen.line("")?;
    screen.line(&format!(
        "{} changed, {same} the same; {} changed",
        json::count(differ, "tensor"),
        json::count(others, "other value")
    ))
}

fn what(dtype: DType, shape: &[u64]) -> String {
    format!("{dtype} {shape:?}")
}

fn tensors(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("TENSOR", Align::Left),
        ("TYPE AND SHAPE", Align::Left),
        ("ELEMENTS THAT DIFFER", Align::Left),
        ("LARGEST DIFFERENCE", Align::Left),
    ]);
    for (name, change) in &comparison.tensors {
        let name = Cell::from(name);
        match change {
            TensorChange::Added(dtype, shape) => {
                let sign = Cell::styled("+", Style::Good);
                table.row([sign, name, what(*dtype, shape).into()]);
            }
            TensorChange::Removed(dtype, shape) => {
                let sign = Cell::styled("-", Style::Bad);
                table.row([sign, name, what(*dtype, shape).into()]);
            }
            TensorChange::Reshaped { before, after } => {
                let (before, after) = (what(before.0, &before.1), what(after.0, &after.1));
                table.row(["~".into(), name, format!("{before} -> {after}").into()]);
            }
            TensorChange::Elements {
                dtype,
                shape,
                distance,
            } => {
                let nan = match distance.nan {
                    0 => String::new(),
                    nan => format!(", {nan} with NaN"),
                };
                let elements = shape.iter().product::<u64>();
                let differing = format!("{} of {elements}{nan}", distance.differing);
                table.row([
                    "~".into(),
                    name,
                    what(*dtype, shape).into(),
                    differing.into(),
                    json::short(distance.largest).into(),
                ]);
            }
        }
    }
    table
}

fn values(title: &'static str, changed: &[Changed]) -> Table {
    let mut table = Table::new(&[
        (title, Align::Left),
        ("BEFORE", Align::Left),
        ("AFTER", Align::Left),
    ]);
    let cell = |value: &Option<String>| Cell::from(value.as_deref().unwrap_or(""));
    for Changed {
        path,
        before,
        after,
    } in changed
    {
        table.row([path.into(), cell(before), cell(after)]);
    }
    table
}

fn document(before: &Opened, after: &Opened, comparison: &Comparison) -> Value {
    let side =
        |opened: &Opened| json!({"step": opened.info.step, "path": json::path(&opened.info.path)});
    let changed = |changed: &[Changed]| {
        let entry = |it: &Changed| json!({"path": it.path, "before": it.before, "after": it.after});
        changed.iter().map(entry).collect::<Vec<_>>()
    };
    let tensors = comparison
        .tensors
        .iter()
        .map(|(name, change)| (name.clone(), tensor(change)));
    json!({
        "before": side(before),
        "after": side(after),
        "same": comparison.is_empty(),
        "same_tensors": comparison.same,
        "tensors": tensors.collect::<Map<_, _>>(),
        "values": changed(&comparison.values),
        "metrics": changed(&comparison.metrics),
        "metadata": changed(&comparison.metadata),
    })
}

fn tensor(change: &TensorChange) -> Value {
    let kind = |(dtype, shape): &(DType, Vec<u64>)| json!({"dtype": dtype.name(), "shape": shape});
    match change {
        TensorChange::Added(dtype, shape) => {
            json!({"change": "added", "dtype": dtype.name(), "shape": shape})
        }
        TensorChange::Removed(dtype, shape) => {
            json!({"change": "removed", "dtype": dtype.name(), "shape": shape})
        }
        TensorChange::Reshaped { before, after } => {
            json!({"change": "reshaped", "before": kind(before), "after": kind(after)})
        }
        TensorChange::Elements {
            dtype,
            shape,
            distance,
        } => json!({
            "change": "elements",
            "dtype": dtype.name(),
            "shape": shape,
            "differing": distance.differing,
            "nan": distance.nan,
            "max_abs_difference": float_value(distance.largest),
        }),
    }
}
