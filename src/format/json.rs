//! Writing JSON, one token after the other: a manifest of many tensors is mostly short texts and numbers.

use serde::Serialize;

/// JSON that is being written.
#[derive(Default)]
pub(super) struct Json(pub(super) Vec<u8>);

impl Json {
    /// What is JSON already: punctuation, and keys of which the code is sure.
    #[inline]
    pub(super) fn raw(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// A text, in quotes.
    pub(super) fn text(&mut self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.0.reserve(text.len() + 2);
            self.0.push(b'"');
            self.raw(text);
            self.0.push(b'"');
        } else {
            self.value(text);
        }
    }

    /// A number.
    pub(super) fn number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
    }

    /// Numbers, in a list.
    pub(super) fn numbers(&mut self, numbers: &[u64]) {
        self.list(numbers, |json, &number| json.number(number));
    }

    /// A list.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Json, T),
    ) {
        self.between("[", items, &mut item, "]");
    }

    /// An object; `entry` writes key, colon and value.
    pub(super) fn object<T>(
        &mut self,
        entries: impl IntoIterator<Item = T>,
        mut entry: impl FnMut(&mut Json, T),
    ) {
        self.between("{", entries, &mut entry, "}");
    }

    fn between<T>(
        &mut self,
        open: &str,
        items: impl IntoIterator<Item = T>,
        item: &mut impl FnMut(&mut Json, T),
        close: &str,
    ) {
        self.raw(open);
        for (i, value) in items.into_iter().enumerate() {
            if i > 0 {
                self.raw(",");
            }
            item(self, value);
        }
        self.raw(close);
    }

    /// Anything else, which must be something that JSON can say.
    pub(super) fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.0, value).expect("it is JSON, and memory takes it");
    }
}

/// Whether a text needs no escapes; eight bytes are looked at together.
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    let special = words
        .iter()
        .fold(specials(last), |all, &word| all | specials(word));
    special == 0
}

/// Not zero if one of the bytes is a control character, a quote or a backslash.
fn specials(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_ne_bytes(word);
    // The highest bit of each byte that is below `limit`, unless it was set before.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 32) | equal(b'"') | equal(b'\\')) & (ONES * 128)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl Fn(&mut Json)) -> String {
        let mut json = Json::default();
        write(&mut json);
        String::from_utf8(json.0).unwrap()
    }

    proptest! {
        #[test]
        fn it_is_what_serde_writes(text in any::<String>(), numbers in any::<Vec<u64>>()) {
            prop_assert_eq!(written(|json| json.text(&text)), serde_json::to_string(&text).unwrap());
            prop_assert_eq!(written(|json| json.numbers(&numbers)), serde_json::to_string(&numbers).unwrap());
        }
    }

    #[test]
    fn every_byte_that_needs_an_escape_gets_one() {
        for text in (0..=255u8).map(|byte| format!("a{}z", char::from(byte))) {
            assert_eq!(
                written(|json| json.text(&text)),
                serde_json::to_string(&text).unwrap()
            );
        }
    }
}
