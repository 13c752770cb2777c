use std::fmt;
use std::str::FromStr;

/// A 128-bit checksum, written as 32 lower-case hexadecimal digits.
///
/// How it is computed is part of the format: see `docs/format.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub u128);

impl Checksum {
    /// The digits that it is written as. A manifest has one for each tensor, so this is quick.
    pub(crate) fn digits(self) -> [u8; 32] {
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = ();

    /// Accepts only the canonical form, so that no two spellings of one checksum exist.
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits: &[u8; 32] = text.as_bytes().try_into().map_err(|_| ())?;
        let (high, low) = digits.split_at(16);
        Ok(Checksum(
            u128::from(half(high)?) << 64 | u128::from(half(low)?),
        ))
    }
}

fn half(digits: &[u8]) -> Result<u64, ()> {
    let mut wrong = 0;
    let number = digits.iter().fold(0, |number, &digit| {
        let value = VALUES[usize::from(digit)];
        wrong |= value;
        number << 4 | u64::from(value & 15)
    });
    if wrong < 16 { Ok(number) } else { Err(()) }
}

/// The value of each digit; 16 for what is none.
const VALUES: [u8; 256] = {
    let mut values = [16; 256];
    let mut value = 0;
    while value < 16 {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_and_has_one_spelling() {
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            let text = Checksum(number).to_string();
            assert_eq!(text.as_bytes(), Checksum(number).digits());
            assert_eq!(text.parse(), Ok(Checksum(number)));
        }
        let digits = "0".repeat(31);
        for text in [
            "",
            &digits,
            &format!("{digits}A"),
            &format!("{digits}g"),
            &format!("{digits}00"),
        ] {
            assert_eq!(text.parse::<Checksum>(), Err(()), "{text}");
        }
    }
}
