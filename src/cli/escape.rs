use std::borrow::Cow;
use std::fmt::Write;

/// The text with everything replaced that a terminal could take for something else than a visible character: escape
/// sequences, line breaks, what changes the direction of writing.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_special) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_special(c) {
            escaped.extend(c.escape_debug());
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

fn is_special(c: char) -> bool {
    !matches!(c, ' '..='~') && c.escape_debug().next() == Some('\\')
}

/// The same for JSON, where a text that needs it has escapes of its own: all that is not printable is told by
/// its number.
pub(super) fn escape_json(json: &str) -> Cow<'_, str> {
    let hidden = |c: char| c != '\n' && !c.is_ascii_graphic() && is_special(c);
    if !json.chars().any(hidden) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // A text takes it.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2Jb\rc\nd\u{9b}31me\u{202e}f\u{7f}\0\u{200b}";

    #[test]
    fn nothing_that_moves_a_cursor_or_hides_is_left() {
        let escaped = escape(HOSTILE);
        assert!(
            escaped.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{escaped}"
        );
        assert_eq!(escape("a\u{1b}\\n\n"), "a\\u{1b}\\n\\n");
    }

    #[test]
    fn what_can_be_read_stays_as_it_is() {
        for text in ["model.w", "C:\\runs", "it's \"fine\"", "größe", "重み", ""] {
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn json_stays_the_same_json() {
        let json = serde_json::to_string(&[HOSTILE, "größe \"\\", "\u{e0001}"]).unwrap();
        let escaped = escape_json(&json);
        assert!(
            escaped
                .chars()
                .all(|c| c.is_ascii_graphic() || " öß".contains(c)),
            "{escaped}"
        );
        let (one, other): (Vec<String>, Vec<String>) = (
            serde_json::from_str(&json).unwrap(),
            serde_json::from_str(&escaped).unwrap(),
        );
        assert_eq!(one, other);
    }
}
