use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use super::{Element, Tensor};

/// Memory that holds tensor bytes, alive as long as somebody holds it.
pub trait Region: Send + Sync {
    /// All of it. The address does not change while the region lives.
    fn bytes(&self) -> &[u8];

    /// A region over the addresses `low..high`, if the owner vouches for them. Asked for only where regions
    /// of the same owner cover the whole stretch together.
    fn widened(&self, low: usize, high: usize) -> Option<Arc<dyn Region>> {
        let _ = (low, high);
        None
    }
}

impl<T: Element> Region for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// Something that bytes can be read from at any offset, such as an open file.
pub trait ReadAt: Send + Sync {
    /// Fills `into` from `offset` (bytes) on.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; `UnexpectedEof` if there are not as many bytes.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// What to call it in an error: the path of a file.
    fn name(&self) -> &str;

    /// The open file that it reads from, to be mapped; `None` if it is no file of the system.
    fn file(&self) -> Option<&File> {
        None
    }
}

/// Where the bytes of a tensor lie.
#[derive(Clone)]
pub enum Data {
    /// In memory.
    Memory(Memory),
    /// In a file, little-endian, C order, no gaps.
    Stored(Stored),
    /// In parts that tile the tensor.
    Pieces(Vec<Piece>),
}

/// A tensor in memory, possibly strided.
#[derive(Clone)]
pub struct Memory {
    /// What holds it.
    pub region: Arc<dyn Region>,
    /// Where the first element lies, in bytes from the start of the region.
    pub offset: usize,
    /// Distance between neighbours along each axis, in bytes; `None`: C order without gaps.
    pub strides: Option<Vec<i64>>,
    /// The bytes of each element are in the other order than the stored one.
    pub big_endian: bool,
    /// Nobody can change the region while it lives: a snapshot may borrow it instead of copying.
    pub immutable: bool,
}

/// Bytes in a file.
#[derive(Clone)]
pub struct Stored {
    /// What to read from.
    pub source: Arc<dyn ReadAt>,
    /// Where the first byte lies, in bytes from the start of the source.
    pub offset: u64,
}

/// A part of a tensor that is stored in several.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Index of its first element along each axis of the whole tensor.
    pub offset: Vec<u64>,
    /// The part itself; its shape is the extent of the part.
    pub tensor: Tensor,
}

impl Memory {
    /// All of `region`, C order, little-endian, and nobody changes it.
    pub fn whole(region: Arc<dyn Region>) -> Memory {
        Memory {
            region,
            offset: 0,
            strides: None,
            big_endian: false,
            immutable: true,
        }
    }

    /// The `len` bytes of a tensor without gaps and in stored byte order; `None` if it has gaps or another order.
    pub fn contiguous(&self, len: usize) -> Option<&[u8]> {
        if self.strides.is_some() || self.big_endian {
            return None;
        }
        self.region
            .bytes()
            .get(self.offset..self.offset.checked_add(len)?)
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Memory(memory) => f
                .debug_struct("Memory")
                .field("offset", &memory.offset)
                .field("strides", &memory.strides)
                .field("big_endian", &memory.big_endian)
                .finish_non_exhaustive(),
            Data::Stored(stored) => f
                .debug_struct("Stored")
                .field("offset", &stored.offset)
                .finish_non_exhaustive(),
            Data::Pieces(pieces) => f.debug_tuple("Pieces").field(pieces).finish(),
        }
    }
}
