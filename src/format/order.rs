//! Many names at once: whether they differ, and in which order they come.

use super::checksum;

/// Whether all of these differ; `false` says nothing, since two may merely have the same hash. Sorted hashes
/// take a fraction of the time and the memory that a set of the names does.
pub(super) fn surely_distinct<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut hashes: Vec<u64> = names
        .map(|name| checksum::of(name.as_bytes()).0 as u64)
        .collect();
    hashes.sort_unstable();
    hashes.windows(2).all(|pair| pair[0] != pair[1])
}

/// Sorts by name. The names of a checkpoint mostly start alike, so the eight bytes after that decide.
pub(super) fn sort_by_name<'a, T: Copy>(items: &mut Vec<T>, name: impl Fn(T) -> &'a str) {
    let Some(first) = items.first().map(|&item| name(item).as_bytes()) else {
        return;
    };
    let alike = items.iter().fold(first.len(), |alike, &item| {
        let pairs = std::iter::zip(&first[..alike], name(item).as_bytes());
        pairs.take_while(|(a, b)| a == b).count()
    });
    let word = |item: T| {
        let mut word = [0; 8];
        let rest = &name(item).as_bytes()[alike..];
        let length = rest.len().min(8);
        word[..length].copy_from_slice(&rest[..length]);
        u64::from_be_bytes(word)
    };
    let mut keyed: Vec<(u64, T)> = items.iter().map(|&item| (word(item), item)).collect();
    keyed.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| name(*one).cmp(name(*other))));
    items.clear();
    items.extend(keyed.into_iter().map(|(_, item)| item));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_come_in_their_order(alike in "[a\u{e9}]{0,3}", mut ends in any::<Vec<String>>()) {
            ends.extend(["", "\0", "12345678", "123456789", "12345678\0"].map(str::to_owned));
            let names: Vec<String> = ends.iter().map(|end| format!("{alike}{end}")).collect();
            let mut expected: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut sorted = expected.clone();
            expected.sort_unstable();
            sort_by_name(&mut sorted, |name| name);
            prop_assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn what_is_there_twice_is_never_called_distinct() {
        assert!(surely_distinct([].into_iter()));
        assert!(surely_distinct(["a", "b", ""].into_iter()));
        assert!(!surely_distinct(["a", "b", "a"].into_iter()));
    }
}
