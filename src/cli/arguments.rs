//! What can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::{Mode, Retention};

/// Looks at training runs and their checkpoints, and takes care of them.
#[derive(Debug, Parser)]
#[command(
    name = "pitstop",
    version,
    propagate_version = true,
    after_help = "\
Exit code: 0 if all is well; 1 if something is damaged, or failed; 2 if the arguments make no sense."
)]
pub(super) struct Arguments {
    /// Print JSON: one document, made for programs
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the committed checkpoints of a run
    Ls(Ls),
    /// Show what a checkpoint holds: its tree, shapes, types, sizes, metrics, metadata
    Show(Show),
    /// Read every byte and compare it with what was written; exit code 1 on damage
    Verify(Verify),
    /// Say what differs between two checkpoints, tensor by tensor
    Diff(Diff),
    /// Delete checkpoints
    Rm(Rm),
    /// Delete the checkpoints that no rule keeps
    Prune(Prune),
    /// Write a checkpoint as plain safetensors
    Export(Export),
    /// Show a run of another process while it trains, or when it is over
    Watch(Watch),
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// A run, or one checkpoint
    #[arg(default_value = ".")]
    pub(super) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// A run, or one checkpoint
    pub(super) dir: PathBuf,
    /// Which checkpoint of the run; by default the newest intact one
    #[arg(value_parser = step)]
    pub(super) step: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// A run, or one checkpoint
    pub(super) dir: PathBuf,
    /// Which checkpoints of the run; by default all
    #[arg(value_name = "STEP", value_parser = step)]
    pub(super) steps: Vec<u64>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "pitstop diff [OPTIONS] <A> <B>\n       pitstop diff [OPTIONS] <DIR> <STEP_A> <STEP_B>"
)]
pub(super) struct Diff {
    // Not one argument of two or three values: those may have no option between them.
    /// A checkpoint, or a run, whose newest intact checkpoint is meant; in front of two steps, their run
    #[arg(value_name = "A|DIR")]
    pub(super) first: PathBuf,
    /// What it is compared with; behind a run, a step of it
    #[arg(value_name = "B|STEP_A")]
    pub(super) second: PathBuf,
    /// Another step of the run
    #[arg(value_name = "STEP_B")]
    pub(super) third: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Rm {
    /// The run
    pub(super) dir: PathBuf,
    /// Which checkpoints
    #[arg(value_name = "STEP", value_parser = step, required = true)]
    pub(super) steps: Vec<u64>,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct Prune {
    /// The run
    pub(super) dir: PathBuf,
    #[command(flatten)]
    pub(super) rules: Rules,
    /// Only say what would be kept, and why
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

/// Rules for what stays: what any of them keeps.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "they are the options")]
#[group(required = true, multiple = true)]
pub(super) struct Rules {
    /// Keep the N checkpoints with the highest steps
    #[arg(long, value_name = "N")]
    keep_last: Vec<usize>,
    /// Keep those with the best values of a metric: the lowest, or with `max` the highest; one, or N of them
    #[arg(long, value_name = "METRIC[:min|max[:N]]", value_parser = keep_best)]
    keep_best: Vec<Best>,
    /// Keep those whose step is a multiple of N
    #[arg(long, value_name = "N")]
    keep_every: Vec<u64>,
    /// Keep those saved at most so long before the newest, such as `36h` or `7d`
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    keep_for: Vec<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "pitstop export [OPTIONS] <DIR> [STEP] <OUT>")]
pub(super) struct Export {
    /// A run, or one checkpoint
    pub(super) dir: PathBuf,
    // What may be left out stands before what may not, and options between any two of them.
    /// Which checkpoint of the run, by default the newest intact one; without it, what is to be written
    #[arg(value_name = "STEP|OUT")]
    pub(super) step_or_out: PathBuf,
    /// What is to be written
    pub(super) out: Option<PathBuf>,
    /// Write a directory of safetensors files, and all that is no tensor as JSON
    #[arg(short, long)]
    pub(super) directory: bool,
    /// Replace what was there: a file, or a directory that was exported
    #[arg(short, long)]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The run; it need not have begun
    #[arg(default_value = ".")]
    pub(super) dir: PathBuf,
    /// Print lines, in a terminal too, and end with the run, or if it has died
    #[arg(long)]
    pub(super) plain: bool,
    /// Show nothing, but ask the run to stop soon, and wait until it has heard that
    #[arg(long, conflicts_with = "plain")]
    pub(super) stop: bool,
}

/// A step, where one must be.
pub(super) fn step(text: &str) -> Result<u64, String> {
    let step = text.parse::<u64>();
    step.map_err(|_| format!("a step is a whole number, not {text:?}"))
}

#[derive(Debug, Clone, PartialEq)]
struct Best {
    metric: String,
    mode: Mode,
    n: usize,
}

/// `METRIC`, `METRIC:max` or `METRIC:max:3`; the metric itself may have colons.
fn keep_best(text: &str) -> Result<Best, String> {
    let mode = |word: &str| match word {
        "min" => Some(Mode::Min),
        "max" => Some(Mode::Max),
        _ => None,
    };
    let best = |metric: &str, mode, n| {
        if metric.is_empty() {
            return Err("it names no metric".to_owned());
        }
        let metric = metric.to_owned();
        Ok(Best { metric, mode, n })
    };
    let Some((front, last)) = text.rsplit_once(':') else {
        return best(text, Mode::Min, 1);
    };
    if let Some(mode) = mode(last) {
        return best(front, mode, 1);
    }
    match front
        .rsplit_once(':')
        .map(|(metric, word)| (metric, mode(word)))
    {
        Some((metric, Some(mode))) => {
            let n = last.parse().map_err(|_| format!("{last:?} is no number"))?;
            best(metric, mode, n)
        }
        _ => Err(format!("after {front:?} comes min or max, not {last:?}")),
    }
}

impl Rules {
    /// What any of the rules keeps.
    pub(super) fn retention(&self) -> Result<Retention, String> {
        let mut rules = Vec::new();
        rules.extend(self.keep_last.iter().map(|&n| Retention::keep_last(n)));
        rules.extend(
            self.keep_best
                .iter()
                .map(|Best { metric, mode, n }| Retention::keep_best(metric.as_str(), *mode, *n)),
        );
        rules.extend(
            self.keep_every
                .iter()
                .map(|&steps| Retention::keep_every(steps)),
        );
        rules.extend(
            self.keep_for
                .iter()
                .map(|&duration| Retention::keep_for(duration)),
        );
        let rules: Result<Vec<Retention>, _> = rules.into_iter().collect();
        let rules = rules.map_err(|error| error.to_string())?;
        let joined = rules.into_iter().reduce(|all, rule| all | rule);
        joined.ok_or_else(|| "there is no rule".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_fit_together() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_metric_may_say_which_values_are_better_and_how_many_stay() {
        for (text, metric, mode, n) in [
            ("loss", "loss", Mode::Min, 1),
            ("accuracy:max", "accuracy", Mode::Max, 1),
            ("a:b:min:3", "a:b", Mode::Min, 3),
            ("a:max:max", "a:max", Mode::Max, 1),
        ] {
            let metric = metric.to_owned();
            assert_eq!(keep_best(text), Ok(Best { metric, mode, n }), "{text}");
        }
        for text in ["", ":max", "loss:best", "loss:max:many", "loss:3"] {
            assert!(keep_best(text).is_err(), "{text}");
        }
    }
}
