use std::fmt;
use std::str::FromStr;

/// A 128-bit checksum, written as 32 lower-case hexadecimal digits.
///
/// How it is computed is part of the format: see `docs/format.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub u128);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = ();

    /// Accepts only the canonical form, so that no two spellings of one checksum exist.
    fn from_str(text: &str) -> Result<Self, ()> {
        let canonical = text.len() == 32
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !canonical {
            return Err(());
        }
        u128::from_str_radix(text, 16).map(Checksum).map_err(|_| ())
    }
}
