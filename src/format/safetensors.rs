//! The header of a safetensors file. Format: <https://github.com/huggingface/safetensors#format>.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::FormatError;
use super::json::Json;
use super::tree::Text;
use crate::state::{DType, count, size_of};

/// Data starts at a multiple of this many bytes, so that it can be written and mapped page by page.
pub(super) const DATA_ALIGNMENT: u64 = 4096;
/// No header is larger than this, in bytes: the limit of the reference implementation.
const LARGEST_HEADER: u64 = 100_000_000;

/// A tensor in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderEntry {
    /// Name within the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extent along each axis, in elements.
    pub shape: Vec<u64>,
    /// Where its first byte lies, in bytes from the start of the file.
    pub start: u64,
    /// Its size in bytes.
    pub nbytes: u64,
}

/// A parsed header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors, in the order of their bytes.
    pub entries: Vec<HeaderEntry>,
    /// Where the data starts, in bytes from the start of the file.
    pub data_start: u64,
}

/// A tensor to be written: name, element type, shape.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: DType,
    pub(super) shape: &'a [u64],
}

/// Header bytes, the length in front included, padded so that the data starts aligned; the tensors follow
/// back to back in the given order.
pub(super) fn header<'a>(slots: impl Iterator<Item = Slot<'a>>, framework: &str) -> Vec<u8> {
    let mut json = Json(vec![0; 8]);
    // Loaders of the ecosystem refuse a file that does not say what wrote it.
    json.raw("{\"__metadata__\":{\"format\":");
    json.text(framework);
    json.raw("}");
    let mut at = 0u64;
    for slot in slots {
        let end = at + size_of(slot.dtype, slot.shape);
        json.raw(",");
        json.text(slot.name);
        json.raw(":{\"dtype\":");
        json.text(slot.dtype.name());
        json.raw(",\"shape\":");
        json.numbers(slot.shape);
        json.raw(",\"data_offsets\":");
        json.numbers(&[at, end]);
        json.raw("}");
        at = end;
    }
    json.raw("}");
    let mut bytes = json.0;
    let data_start = (bytes.len() as u64).next_multiple_of(DATA_ALIGNMENT);
    bytes.resize(data_start as usize, b' ');
    bytes[..8].copy_from_slice(&(data_start - 8).to_le_bytes());
    bytes
}

/// Parses the header of a file of `file_size` bytes; `bytes` starts at the start of the file and holds at
/// least the header.
///
/// # Errors
///
/// [`FormatError`] for anything the format forbids: sizes that do not fit, holes, overlaps, unknown types.
pub fn parse_header(bytes: &[u8], file_size: u64) -> Result<Header, FormatError> {
    let malformed = |why: &str| FormatError::Malformed(format!("safetensors header: {why}"));
    let length = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
    let length = length.ok_or_else(|| malformed("shorter than 8 bytes"))?;
    if length > LARGEST_HEADER || length.checked_add(8).is_none_or(|end| end > file_size) {
        return Err(malformed("longer than the file"));
    }
    let json = bytes
        .get(8..8 + length as usize)
        .ok_or_else(|| malformed("cut off"))?;
    let Tensors(tensors) = serde_json::from_slice(json).map_err(|e| malformed(&e.to_string()))?;
    let entries = tensors
        .into_iter()
        .map(|(name, tensor)| tensor.entry(name, 8 + length));
    let mut entries = entries
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| malformed("an entry is malformed"))?;
    if let Some(name) = twin(&entries) {
        return Err(malformed(&format!("{name:?} is there twice")));
    }
    entries.sort_by_key(|e: &HeaderEntry| (e.start, e.nbytes));
    let mut at = 8 + length;
    for e in &entries {
        if e.start != at {
            return Err(malformed(&format!(
                "a hole or an overlap before {:?}",
                e.name
            )));
        }
        at = e
            .start
            .checked_add(e.nbytes)
            .ok_or_else(|| malformed("too large"))?;
    }
    if at != file_size {
        return Err(malformed("the tensors are not as long as the file"));
    }
    Ok(Header {
        entries,
        data_start: 8 + length,
    })
}

/// The tensors of a header, by name, in the order in which they are listed.
struct Tensors<'a>(Vec<(String, ReadTensor<'a>)>);

#[derive(Deserialize)]
struct ReadTensor<'a> {
    #[serde(borrow)]
    dtype: Text<'a>,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de: 'a, 'a> Deserialize<'de> for Tensors<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Tensors<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensors<'de>, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Tensors(tensors))
            }
        }

        from.deserialize_map(Object)
    }
}

impl ReadTensor<'_> {
    fn entry(self, name: String, data_start: u64) -> Option<HeaderEntry> {
        let dtype = DType::from_name(&self.dtype.0)?;
        let [begin, end] = self.data_offsets;
        let nbytes = end.checked_sub(begin)?;
        if dtype.nbytes(count(&self.shape)?)? != nbytes {
            return None;
        }
        Some(HeaderEntry {
            name,
            dtype,
            shape: self.shape,
            start: data_start.checked_add(begin)?,
            nbytes,
        })
    }
}

/// A name that two tensors have.
fn twin(entries: &[HeaderEntry]) -> Option<&str> {
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    let pair = names.windows(2).find(|pair| pair[0] == pair[1]);
    pair.map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(slots: &[Slot<'_>]) -> Vec<u8> {
        let mut bytes = header(slots.iter().copied(), "np");
        let data: u64 = slots.iter().map(|s| size_of(s.dtype, s.shape)).sum();
        bytes.extend((0..data).map(|i| i as u8));
        bytes
    }

    #[test]
    fn the_reference_reader_accepts_every_type() {
        let names: Vec<String> = DType::ALL
            .iter()
            .map(|d| format!("t.{}", d.name()))
            .collect();
        let slots: Vec<_> = std::iter::zip(DType::ALL, &names)
            .map(|(&dtype, name)| Slot {
                name,
                dtype,
                shape: &[2, 4],
            })
            .collect();
        let bytes = file(&slots);
        let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let ours = parse_header(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(ours.data_start % DATA_ALIGNMENT, 0);
        for e in &ours.entries {
            let view = reference.tensor(&e.name).unwrap();
            assert_eq!(view.shape(), [2, 4]);
            assert_eq!(view.dtype().to_string(), e.dtype.name());
            assert_eq!(
                view.data(),
                &bytes[e.start as usize..(e.start + e.nbytes) as usize]
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = file(&[Slot {
            name: "a",
            dtype: DType::F32,
            shape: &[4],
        }]);
        let size = good.len() as u64;
        assert!(parse_header(&good, size).is_ok());
        assert!(parse_header(&good, size - 1).is_err());
        assert!(parse_header(&good, size + 1).is_err());
        assert!(parse_header(&good[..7], 7).is_err());
        let text = |json: &str| {
            let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
            bytes.extend(json.bytes());
            parse_header(&bytes, bytes.len() as u64 + 16)
        };
        let entry = |shape: &str, offsets: &str| {
            text(&format!(
                r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#
            ))
        };
        assert!(entry("[4]", "[0,16]").is_ok());
        assert!(entry("[4]", "[16,0]").is_err());
        assert!(entry("[5]", "[0,16]").is_err());
        assert!(entry("[-4]", "[0,16]").is_err());
        assert!(entry("[4294967296,4294967296,4]", "[0,16]").is_err());
        assert!(entry("[4]", "[0,18446744073709551615]").is_err());
        let twins = |name: &str| {
            let first = r#""a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}"#;
            let empty = r#"{"dtype":"F32","shape":[0],"data_offsets":[16,16]}"#;
            text(&format!(r#"{{{first},"{name}":{empty}}}"#))
        };
        assert!(twins("b").is_ok());
        assert!(twins("a").is_err());
        let nested = "[".repeat(100_000);
        assert!(text(&nested).is_err());
        assert!(text(&format!(r#"{{"__metadata__":{nested}"#)).is_err());
        assert!(text(&format!(r#"{{"a":{nested}"#)).is_err());
    }
}
