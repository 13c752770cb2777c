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
        let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
        // Without branches, so that many bytes are looked at together.
        if text.bytes().fold(true, |all, byte| all & plain(byte)) {
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
