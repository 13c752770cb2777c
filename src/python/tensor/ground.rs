//! Memory that many restored arrays lie in side by side, and that each of them gives back by itself.

use std::io;
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

/// Each share starts at a multiple of this many bytes: a page.
const PAGE: usize = 4096;
/// The first share starts at a multiple of this many bytes: a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Pages of a [`ground`] that belong to one owner. Dropping it gives their memory back to the system,
/// whatever becomes of its neighbours.
pub(super) struct Share {
    ground: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

/// Fresh, zeroed pages for each length, all on the same huge pages: each by itself would fill its last one
/// with small pages, which cost four times as much to touch for the first time.
pub(super) fn ground(lengths: &[usize]) -> io::Result<Vec<Share>> {
    let total: usize = lengths.iter().map(|len| len.next_multiple_of(PAGE)).sum();
    let map = MmapMut::map_anon(total + HUGE_PAGE)?;
    // Only a hint: without huge pages everything works, slower.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let mut start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
    let ground = Arc::new(MmapRaw::from(map));
    let shares = lengths.iter().map(|&len| {
        let share = Share {
            ground: ground.clone(),
            start,
            len,
        };
        start += len.next_multiple_of(PAGE);
        share
    });
    Ok(shares.collect())
}

impl Share {
    pub(super) fn start(&self) -> *mut u8 {
        // SAFETY: `ground` laid it out within the map.
        unsafe { self.ground.as_mut_ptr().add(self.start) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(target_os = "linux")]
impl Drop for Share {
    fn drop(&mut self) {
        // The last one takes the map with it.
        if self.len == 0 || Arc::strong_count(&self.ground) == 1 {
            return;
        }
        let len = self.len.next_multiple_of(PAGE);
        // SAFETY: these pages are no other share's, and nobody reads this one's any more. If the system
        // keeps them, as it does with locked memory, they go with the map.
        let _ = unsafe {
            self.ground
                .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start, len)
        };
    }
}
