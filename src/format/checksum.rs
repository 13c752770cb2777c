//! The checksum of the format: XXH3-128 over blocks of 64 KiB.
//!
//! Up to one block, the checksum of a byte string is its XXH3-128 (seed 0). Above, it is the XXH3-128 of
//! the concatenated digests of its blocks (16 bytes each, big-endian), seeded with the length. So several
//! threads can work on one tensor, each block while it is in cache, and the length is always covered.

use crate::state::Checksum;
use twox_hash::XxHash3_128;

/// Size of a block, in bytes.
pub const BLOCK: usize = 64 * 1024;

/// The checksum of `bytes`.
pub fn of(bytes: &[u8]) -> Checksum {
    if bytes.len() <= BLOCK {
        return block(bytes);
    }
    join(bytes.chunks(BLOCK).map(block), bytes.len() as u64)
}

/// The digest of one block of at most [`BLOCK`] bytes.
pub fn block(bytes: &[u8]) -> Checksum {
    debug_assert!(bytes.len() <= BLOCK);
    Checksum(XxHash3_128::oneshot(bytes))
}

/// The checksum of `len` bytes from the digests of their blocks, in order.
pub fn from_blocks(blocks: &[Checksum], len: u64) -> Checksum {
    match blocks {
        [] => block(&[]),
        [only] => *only,
        many => join(many.iter().copied(), len),
    }
}

/// The checksum of a tensor file of `size` bytes, from those of its header and of its tensors in order.
pub fn of_file(parts: impl Iterator<Item = Checksum>, size: u64) -> Checksum {
    join(parts, size)
}

/// The checksum of bytes that come one after the other, however they are cut.
pub struct Running {
    /// How many there are in all.
    len: u64,
    block: XxHash3_128,
    /// Bytes of the block that have come.
    filled: usize,
    /// Digest of the block before.
    last: Checksum,
    /// Over the digests of all blocks so far.
    digests: XxHash3_128,
}

impl Running {
    /// Nothing has come yet of `len` bytes.
    pub fn new(len: u64) -> Running {
        Running {
            len,
            block: XxHash3_128::new(),
            filled: 0,
            last: block(&[]),
            digests: XxHash3_128::with_seed(len),
        }
    }

    /// These come next.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (next, rest) = bytes.split_at((BLOCK - self.filled).min(bytes.len()));
            bytes = rest;
            if next.len() == BLOCK {
                self.end_block(block(next));
                continue;
            }
            self.block.write(next);
            self.filled += next.len();
            if self.filled == BLOCK {
                self.end_block(Checksum(self.block.finish_128()));
            }
        }
    }

    /// The checksum, once all have come.
    pub fn finish(mut self) -> Checksum {
        if self.filled > 0 {
            self.end_block(Checksum(self.block.finish_128()));
        }
        if self.len <= BLOCK as u64 {
            return self.last;
        }
        Checksum(self.digests.finish_128())
    }

    fn end_block(&mut self, digest: Checksum) {
        if self.filled > 0 {
            self.block = XxHash3_128::new();
            self.filled = 0;
        }
        self.digests.write(&digest.0.to_be_bytes());
        self.last = digest;
    }
}

fn join(digests: impl Iterator<Item = Checksum>, len: u64) -> Checksum {
    let mut hasher = XxHash3_128::with_seed(len);
    digests.for_each(|digest| hasher.write(&digest.0.to_be_bytes()));
    Checksum(hasher.finish_128())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_is_plain_xxh3() {
        assert_eq!(of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn blocks_give_the_same_as_the_whole() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let blocks: Vec<_> = bytes.chunks(BLOCK).map(block).collect();
            assert_eq!(from_blocks(&blocks, len as u64), of(&bytes), "{len} bytes");
        }
    }

    #[test]
    fn however_bytes_are_cut_their_checksum_is_the_same() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 17] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            for cut in [1000, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK] {
                let mut running = Running::new(len as u64);
                bytes.chunks(cut).for_each(|part| running.update(part));
                assert_eq!(running.finish(), of(&bytes), "{len} bytes by {cut}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_shows() {
        let mut bytes = vec![0u8; BLOCK + 3];
        let whole = of(&bytes);
        for at in [0, 1, BLOCK - 1, BLOCK, BLOCK + 2] {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert_ne!(of(&bytes), whole);
                bytes[at] ^= 1 << bit;
            }
        }
    }
}
