//! Numbers that JSON cannot always say.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A double as a number, or as text: infinities by name, any NaN by its bits.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct Real(pub(in crate::format) f64);

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => to.serialize_f64(value),
            value if value.is_nan() => to.serialize_str(&format!("nan:{:016x}", value.to_bits())),
            value => to.serialize_str(if value > 0.0 { "inf" } else { "-inf" }),
        }
    }
}

impl Real {
    /// What is written as this text.
    pub(super) fn from_text(text: &str) -> Option<Real> {
        match text {
            "inf" => Some(Real(f64::INFINITY)),
            "-inf" => Some(Real(f64::NEG_INFINITY)),
            nan => {
                let bits = u64::from_str_radix(nan.strip_prefix("nan:")?, 16).ok()?;
                Some(Real(f64::from_bits(bits))).filter(|Real(value)| value.is_nan())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number;

        impl<'de> Visitor<'de> for Number {
            type Value = Real;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, an infinity or a NaN")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Real, E> {
                Ok(Real(value))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Real, E> {
                Real::from_text(text).ok_or_else(|| E::custom(format!("{text:?} is no number")))
            }

            /// How numbers come if some crate has switched on `arbitrary_precision` of `serde_json`.
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Real, A::Error> {
                let number = serde_json::Number::deserialize(MapAccessDeserializer::new(map))?;
                let value = number.as_f64();
                value
                    .map(Real)
                    .ok_or_else(|| A::Error::custom("a number out of range"))
            }
        }

        from.deserialize_any(Number)
    }
}
