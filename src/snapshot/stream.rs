//! The unsafe room of copying: stores that go past the caches.
//!
//! A snapshot is not read again before it is written to disk. Ordinary stores would first read each line of
//! the destination from memory, and push the training's own data out of the caches; streaming stores
//! (Intel SDM volume 1, "Caching of Temporal vs. Non-Temporal Data") do neither.
#![expect(
    unsafe_code,
    reason = "streaming stores are only to be had as intrinsics"
)]

/// Copies `from` to `into`, which are equally long, past the caches where the processor can.
///
/// # Panics
///
/// If they are not equally long.
pub(super) fn copy(from: &[u8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len(), "equally long");
    #[cfg(target_arch = "x86_64")]
    if from.len() >= x86::WORTH_IT && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { x86::copy(from, into) };
    }
    into.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// Below this many bytes the fence costs more than the stores save.
    pub(super) const WORTH_IT: usize = 1024;
    /// Bytes of one store, and what its address must be a multiple of.
    const WIDTH: usize = size_of::<__m256i>();

    /// # Safety
    ///
    /// The processor has AVX. The slices are equally long.
    #[target_feature(enable = "avx")]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "loads need no alignment, and the stores are aligned"
    )]
    pub(super) unsafe fn copy(from: &[u8], into: &mut [u8]) {
        let head = into.as_ptr().align_offset(WIDTH).min(into.len());
        let (from_head, from) = from.split_at(head);
        let (into_head, into) = into.split_at_mut(head);
        into_head.copy_from_slice(from_head);
        let whole = from.len() / (4 * WIDTH) * (4 * WIDTH);
        let (from_body, from_tail) = from.split_at(whole);
        let (into_body, into_tail) = into.split_at_mut(whole);
        for (from, into) in from_body
            .chunks_exact(4 * WIDTH)
            .zip(into_body.chunks_exact_mut(4 * WIDTH))
        {
            let (from, into) = (
                from.as_ptr().cast::<__m256i>(),
                into.as_mut_ptr().cast::<__m256i>(),
            );
            // SAFETY: both chunks hold four vectors; loads need no alignment, and `into` is aligned, since
            // the body starts at a multiple of the width and chunks are multiples of it.
            unsafe {
                let vectors = [0, 1, 2, 3].map(|i| _mm256_loadu_si256(from.add(i)));
                for (i, vector) in vectors.into_iter().enumerate() {
                    _mm256_stream_si256(into.add(i), vector);
                }
            }
        }
        // Streaming stores are weakly ordered: they must be done before anyone is told of them.
        _mm_sfence();
        into_tail.copy_from_slice(from_tail);
    }
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..70_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let lengths = [0, 1, 31, 32, 1023, 1024, 1025, 1151, 1152, 4096, 65_536];
        for (len, start, at) in lengths.iter().flat_map(|&len| {
            [(0, 0), (1, 0), (0, 1), (5, 31), (64, 33), (3, 3)].map(|(start, at)| (len, start, at))
        }) {
            let mut into = vec![0xAA; 70_000];
            copy(&from[start..start + len], &mut into[at..at + len]);
            assert!(
                into[at..at + len] == from[start..start + len],
                "{len} {start} {at}"
            );
            let outside = into[..at].iter().chain(&into[at + len..]);
            assert!(
                outside.copied().all(|byte| byte == 0xAA),
                "{len} {start} {at}"
            );
        }
    }
}
