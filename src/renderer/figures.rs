//! How numbers and texts are shown to people.

use std::borrow::Cow;
use std::time::SystemTime;

/// A value of a metric, to four digits.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        // Zero has no sign.
        return (value + 0.0).to_string();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&exponent) {
        let text = format!("{value:.3e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", without_zeros(digits));
    }
    let decimals = (3 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// Without the zeros at the end that say nothing.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// A whole number, in groups of three digits.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 step`, `2,000 steps`.
pub(crate) fn several(many: u64, what: &str) -> String {
    let plural = if many == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(many))
}

/// How long something lasts, in whole seconds or coarser.
pub(crate) fn duration(seconds: f64) -> String {
    // What is no number is no time.
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{}d {:02}h", count(days), hours % 24),
    }
}

/// How long something lasts that may be over in milliseconds.
pub(crate) fn brief(seconds: f64) -> String {
    let milliseconds = seconds * 1e3;
    match milliseconds {
        ..0.0 => duration(0.0),
        ..9.95 => format!("{milliseconds:.1}ms"),
        ..999.5 => format!("{milliseconds:.0}ms"),
        ..9_950.0 => format!("{seconds:.1}s"),
        _ => duration(seconds.round()),
    }
}

/// A time of day with its date, to the second, in UTC.
pub(crate) fn time(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.trim_end_matches('Z').replace('T', " ")
}

/// A number of bytes, to three digits.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    let decimals = match value {
        _ if unit == "B" => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// The text without anything that a terminal could take for a command: of control characters, white space becomes
/// a space and others `?`; what is invisible, or turns the direction of writing, is left out.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c.is_control() || is_hidden(c)) {
        return text.into();
    }
    let visible = text.chars().filter(|c| !is_hidden(*c));
    let harmless = visible.map(|c| match c {
        _ if !c.is_control() => c,
        _ if c.is_whitespace() => ' ',
        _ => '?',
    });
    harmless.collect::<String>().into()
}

/// The text in at most `most` characters, of which there must be one; `…` stands for what is left out of its middle:
/// long names often differ only in the end.
pub(crate) fn abridged(text: &str, most: usize) -> Cow<'_, str> {
    // No text has more characters than bytes.
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.into();
    }
    let kept = most.saturating_sub(1);
    let head: String = text.chars().take(kept.div_ceil(2)).collect();
    let tail = text.char_indices().rev().take(kept / 2).last();
    let tail = tail.map_or("", |(at, _)| &text[at..]);
    format!("{head}…{tail}").into()
}

fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.512_349, "0.5123"),
            (12.5, "12.5"),
            (-98.765_4, "-98.77"),
            (9.999_96, "10"),
            (1234.0, "1234"),
            (123_456.7, "123457"),
            (3e-4, "0.0003"),
            (3e-5, "3e-5"),
            (1_234_567.0, "1.235e6"),
            (-1.5e300, "-1.5e300"),
            (5e-324, "4.941e-324"),
            (f64::MAX, "1.798e308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number(value), text, "{value:e}");
        }
    }

    #[test]
    fn counts_are_grouped() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn one_of_something_is_no_plural() {
        for (many, text) in [(0, "0 steps"), (1, "1 step"), (2000, "2,000 steps")] {
            assert_eq!(several(many, "step"), text);
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        for (name, most, text) in [
            ("loss", 4, "loss"),
            ("größe", 5, "größe"),
            ("größen", 5, "gr…en"),
            ("encoder.layers.11.loss", 11, "encod….loss"),
            ("abcdef", 4, "ab…f"),
            ("abcdef", 2, "a…"),
            ("abcdef", 1, "…"),
        ] {
            assert_eq!(abridged(name, most), text, "{name} in {most}");
        }
        let long = "ä".repeat(1 << 20);
        let short = abridged(&long, 40);
        assert_eq!(short.chars().count(), 40);
        assert_eq!(abridged(&short, 40), short);
    }

    #[test]
    fn times_are_as_coarse_as_they_are_long() {
        for (seconds, text) in [
            (-1.0, "0s"),
            (f64::NAN, "0s"),
            (59.9, "59s"),
            (60.0, "1m 00s"),
            (3_599.0, "59m 59s"),
            (3_720.0, "1h 02m"),
            (86_400.0, "1d 00h"),
            (1e9, "11,574d 01h"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
        for (seconds, text) in [
            (-1.0, "0s"),
            (f64::NAN, "0s"),
            (0.0, "0.0ms"),
            (0.001_24, "1.2ms"),
            (0.012, "12ms"),
            (0.999, "999ms"),
            (3.12, "3.1s"),
            (12.6, "13s"),
            (65.0, "1m 05s"),
        ] {
            assert_eq!(brief(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_time_of_day_has_a_date_and_no_fractions() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_533_373_999);
        assert_eq!(time(at), "2025-11-30 20:09:33");
    }

    #[test]
    fn sizes_have_three_digits() {
        for (size, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_996, "10.0 kB"),
            (99_960, "100 kB"),
            (999_600, "1.00 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(size), text, "{size}");
        }
    }

    #[test]
    fn nothing_that_moves_a_cursor_or_hides_is_left() {
        let hostile = "a\u{1b}[2Jb\rc\nd\u{9b}31me\u{202e}f\u{7f}\0\u{200b}";
        assert_eq!(clean(hostile), "a?[2Jb c d?31mef??");
        for text in ["model.w", "größe", "重み", "e\u{301}", "👩\u{200d}🔬", ""] {
            assert_eq!(clean(text), text);
        }
    }
}
