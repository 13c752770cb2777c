use super::DType;

/// How the elements of two tensors of one type differ.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Distance {
    /// Elements whose bits differ.
    pub differing: u64,
    /// Of those, the ones that are NaN in one of the two, or in both.
    pub nan: u64,
    /// The largest absolute difference of all others; of complex numbers the absolute value of their difference.
    pub largest: f64,
}

impl Distance {
    /// Adds what differs between two stretches of stored bytes, which are of the same length and hold whole
    /// elements; of packed types, whole multiples of 24 bits.
    pub(crate) fn add(&mut self, dtype: DType, one: &[u8], other: &[u8]) {
        if one == other {
            return;
        }
        match dtype {
            DType::Bool | DType::U8 => self.each(one, other, |[a], [b]| f64::from(a.abs_diff(b))),
            DType::I8 => self.whole(one, other, i8::from_le_bytes),
            DType::U16 => self.whole(one, other, u16::from_le_bytes),
            DType::I16 => self.whole(one, other, i16::from_le_bytes),
            DType::U32 => self.whole(one, other, u32::from_le_bytes),
            DType::I32 => self.whole(one, other, i32::from_le_bytes),
            DType::U64 => self.whole(one, other, u64::from_le_bytes),
            DType::I64 => self.whole(one, other, i64::from_le_bytes),
            DType::F64 => self.real(one, other, f64::from_le_bytes),
            DType::F32 => self.real(one, other, |bytes| f64::from(f32::from_le_bytes(bytes))),
            DType::C64 => self.each(one, other, |a: [u8; 8], b: [u8; 8]| {
                let part = |bytes: &[u8; 8], at: usize| {
                    let part = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                    f64::from(f32::from_le_bytes(part))
                };
                let distance = |at| apart(part(&a, at), part(&b, at));
                // `hypot` of an infinity and NaN is infinite, but a part that is NaN has no distance.
                let (re, im) = (distance(0), distance(4));
                if re.is_nan() || im.is_nan() {
                    f64::NAN
                } else {
                    re.hypot(im)
                }
            }),
            DType::BF16 => self.real(one, other, |bytes| {
                f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16))
            }),
            DType::F16 => self.real(one, other, |bytes| {
                F16.value(u16::from_le_bytes(bytes).into())
            }),
            DType::F8E5M2 => self.real(one, other, |[bits]| F8E5M2.value(bits.into())),
            DType::F8E4M3 => self.real(one, other, |[bits]| F8E4M3.value(bits.into())),
            DType::F8E5M2Fnuz => self.real(one, other, |[bits]| F8E5M2FNUZ.value(bits.into())),
            DType::F8E4M3Fnuz => self.real(one, other, |[bits]| F8E4M3FNUZ.value(bits.into())),
            DType::F8E8M0 => self.real(one, other, |[bits]| scale(bits)),
            DType::F4 => self.packed(one, other, F4),
            DType::F6E2M3 => self.packed(one, other, F6E2M3),
            DType::F6E3M2 => self.packed(one, other, F6E3M2),
        }
    }

    fn note(&mut self, distance: f64) {
        self.differing += 1;
        if distance.is_nan() {
            self.nan += 1;
        } else {
            self.largest = self.largest.max(distance);
        }
    }

    fn each<const N: usize>(
        &mut self,
        one: &[u8],
        other: &[u8],
        distance: impl Fn([u8; N], [u8; N]) -> f64,
    ) {
        for (a, b) in one.as_chunks().0.iter().zip(other.as_chunks().0) {
            if a != b {
                self.note(distance(*a, *b));
            }
        }
    }

    fn whole<const N: usize, T: Into<i128>>(
        &mut self,
        one: &[u8],
        other: &[u8],
        value: impl Fn([u8; N]) -> T,
    ) {
        self.each(one, other, |a, b| {
            let (a, b): (i128, i128) = (value(a).into(), value(b).into());
            a.abs_diff(b) as f64
        });
    }

    fn real<const N: usize>(&mut self, one: &[u8], other: &[u8], value: impl Fn([u8; N]) -> f64) {
        self.each(one, other, |a, b| apart(value(a), value(b)));
    }

    /// Elements of less than a byte, the first in the lowest bits.
    fn packed(&mut self, one: &[u8], other: &[u8], float: Float) {
        let bits = 1 + float.exponent + float.mantissa;
        for (a, b) in one.chunks(3).zip(other.chunks(3)) {
            let word = |bytes: &[u8]| {
                let byte = |(i, byte): (usize, &u8)| u32::from(*byte) << (8 * i);
                bytes.iter().enumerate().map(byte).sum::<u32>()
            };
            let (mut one, mut other) = (word(a), word(b));
            for _ in 0..a.len() as u32 * 8 / bits {
                let mask = (1 << bits) - 1;
                let (a, b) = (one & mask, other & mask);
                if a != b {
                    self.note(apart(float.value(a), float.value(b)));
                }
                (one, other) = (one >> bits, other >> bits);
            }
        }
    }
}

/// Equal infinities are not apart.
fn apart(a: f64, b: f64) -> f64 {
    #[expect(
        clippy::float_cmp,
        reason = "0.0 and -0.0 are no distance apart either"
    )]
    if a == b { 0.0 } else { (a - b).abs() }
}

/// A floating-point format of at most 16 bits.
#[derive(Clone, Copy)]
struct Float {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// Which bits do not stand for a finite number.
#[derive(Clone, Copy)]
enum Special {
    /// The largest exponent: infinity, or NaN if the mantissa is not 0.
    Ieee,
    /// All ones but the sign: NaN.
    Ones,
    /// What would be the negative zero: NaN.
    NegativeZero,
    /// None.
    Never,
}

const fn float(exponent: u32, mantissa: u32, bias: i32, special: Special) -> Float {
    Float {
        exponent,
        mantissa,
        bias,
        special,
    }
}

const F16: Float = float(5, 10, 15, Special::Ieee);
const F8E5M2: Float = float(5, 2, 15, Special::Ieee);
const F8E4M3: Float = float(4, 3, 7, Special::Ones);
const F8E5M2FNUZ: Float = float(5, 2, 16, Special::NegativeZero);
const F8E4M3FNUZ: Float = float(4, 3, 8, Special::NegativeZero);
const F4: Float = float(2, 1, 1, Special::Never);
const F6E2M3: Float = float(2, 3, 1, Special::Never);
const F6E3M2: Float = float(3, 2, 3, Special::Never);

impl Float {
    fn value(self, bits: u32) -> f64 {
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let largest = (1 << self.exponent) - 1;
        let exponent = bits >> self.mantissa & largest;
        let negative = bits >> (self.mantissa + self.exponent) == 1;
        let magnitude = match self.special {
            Special::Ieee if exponent == largest && mantissa == 0 => f64::INFINITY,
            Special::Ieee if exponent == largest => f64::NAN,
            Special::Ones if exponent == largest && mantissa == (1 << self.mantissa) - 1 => {
                f64::NAN
            }
            Special::NegativeZero if negative && exponent == 0 && mantissa == 0 => f64::NAN,
            _ => {
                let fraction = f64::from(mantissa) / f64::from(1 << self.mantissa);
                let (whole, exponent) = if exponent == 0 {
                    (0.0, 1)
                } else {
                    (1.0, exponent as i32)
                };
                (whole + fraction) * f64::from(exponent - self.bias).exp2()
            }
        };
        if negative { -magnitude } else { magnitude }
    }
}

/// A power of two, or NaN.
fn scale(bits: u8) -> f64 {
    match bits {
        255 => f64::NAN,
        bits => f64::from(i32::from(bits) - 127).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(dtype: DType, one: &[u8], other: &[u8]) -> (u64, u64, f64) {
        let mut distance = Distance::default();
        distance.add(dtype, one, other);
        (distance.differing, distance.nan, distance.largest)
    }

    #[test]
    fn bits_tell_what_differs_and_values_how_far() {
        let f32s = |values: &[f32]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let one = f32s(&[1.0, 2.0, f32::NAN, f32::INFINITY, 0.0]);
        assert_eq!(distance(DType::F32, &one, &one), (0, 0, 0.0));
        let other = f32s(&[1.5, 2.0, 1.0, f32::INFINITY, -0.0]);
        assert_eq!(distance(DType::F32, &one, &other), (3, 1, 0.5));
        let infinite = f32s(&[1.0, 2.0, f32::NAN, f32::NEG_INFINITY, 0.0]);
        assert_eq!(distance(DType::F32, &one, &infinite), (1, 0, f64::INFINITY));
        assert_eq!(
            distance(DType::C64, &f32s(&[1.0, 1.0]), &f32s(&[4.0, 5.0])),
            (1, 0, 5.0)
        );
    }

    #[test]
    fn integers_do_not_overflow() {
        let (low, high) = (i64::MIN.to_le_bytes(), i64::MAX.to_le_bytes());
        assert_eq!(distance(DType::I64, &low, &high), (1, 0, u64::MAX as f64));
        assert_eq!(
            distance(DType::U64, &[0; 8], &[255; 8]),
            (1, 0, u64::MAX as f64)
        );
        assert_eq!(distance(DType::I8, &[0x80], &[0x7f]), (1, 0, 255.0));
        assert_eq!(distance(DType::U8, &[3, 4], &[3, 250]), (1, 0, 246.0));
    }

    #[test]
    fn small_floats_have_the_values_of_their_standards() {
        for (float, bits, value) in [
            (F16, 0x3c00, 1.0),
            (F16, 0x7bff, 65504.0),
            (F16, 0x0001, 5.960_464_477_539_063e-8),
            (F16, 0xfc00, f64::NEG_INFINITY),
            (F8E5M2, 0x7b, 57344.0),
            (F8E5M2, 0x7c, f64::INFINITY),
            (F8E4M3, 0x7e, 448.0),
            (F8E4M3, 0x01, 0.001_953_125),
            (F8E4M3FNUZ, 0x7f, 240.0),
            (F8E5M2FNUZ, 0x7f, 57344.0),
            (F4, 0x7, 6.0),
            (F4, 0x9, -0.5),
            (F6E2M3, 0x1f, 7.5),
            (F6E3M2, 0x1f, 28.0),
        ] {
            assert_eq!(
                float.value(bits).to_bits(),
                f64::to_bits(value),
                "{bits:#x}"
            );
        }
        for (float, bits) in [
            (F16, 0x7c01),
            (F8E5M2, 0x7d),
            (F8E4M3, 0xff),
            (F8E4M3FNUZ, 0x80),
            (F8E5M2FNUZ, 0x80),
        ] {
            assert!(float.value(bits).is_nan(), "{bits:#x}");
        }
        assert_eq!((scale(127), scale(0)), (1.0, f64::from(-127).exp2()));
        assert!(scale(255).is_nan());
    }

    #[test]
    fn packed_elements_are_compared_one_by_one() {
        // 0.5 and 1.0 in a byte, the first in the low half.
        assert_eq!(distance(DType::F4, &[0x21], &[0x20]), (1, 0, 0.5));
        // Four elements in three bytes; the third is 1.0 in one and 0 in the other.
        let word = 0b00_1000u32 << 12;
        let bytes = &word.to_le_bytes()[..3];
        assert_eq!(distance(DType::F6E2M3, bytes, &[0; 3]), (1, 0, 1.0));
    }

    #[test]
    fn every_type_finds_its_differing_element() {
        for &dtype in DType::ALL {
            let (one, mut other) = ([0u8; 24], [0u8; 24]);
            other[5] = 1;
            let (differing, nan, largest) = distance(dtype, &one, &other);
            assert_eq!((differing, nan), (1, 0), "{dtype}");
            assert!(largest > 0.0, "{dtype}");
        }
    }
}
