use std::fmt;

use super::{Mode, Retention};

/// As it is written in Python, so that a plan reads like the program.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::All => f.write_str("KeepAll()"),
            Retention::Last(n) => write!(f, "KeepLast({n})"),
            Retention::Best { metric, mode, n } => {
                write!(f, "KeepBest({metric:?}, mode=\"{mode}\"")?;
                if *n != 1 {
                    write!(f, ", n={n}")?;
                }
                f.write_str(")")
            }
            Retention::Every(steps) => write!(f, "KeepEvery({steps})"),
            Retention::For(duration) => write!(f, "KeepFor({})", duration.as_secs_f64()),
            Retention::Any(a, b) => write!(f, "{a} | {b}"),
            Retention::Both(a, b) => {
                write_operand(f, a)?;
                f.write_str(" & ")?;
                write_operand(f, b)
            }
            Retention::Custom(name, _) => f.write_str(name),
        }
    }
}

/// `&` binds tighter than `|`.
fn write_operand(f: &mut fmt::Formatter<'_>, rule: &Retention) -> fmt::Result {
    match rule {
        Retention::Any(..) => write!(f, "({rule})"),
        _ => write!(f, "{rule}"),
    }
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Min => "min",
            Mode::Max => "max",
        })
    }
}
