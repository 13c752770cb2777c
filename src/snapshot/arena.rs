use std::io;

use memmap2::MmapMut;

use crate::state::Region;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory is handed out in multiples of this many bytes: a huge page.
const PAGE: usize = 2 << 20;

/// One stretch of memory that is used again for every snapshot, so that a save neither pays for page faults
/// nor makes the process grow.
///
/// At most one block is kept between snapshots. It grows when a state does; [`release`](Arena::release)
/// gives it back.
#[derive(Debug, Clone, Default)]
pub struct Arena {
    blocks: Arc<Mutex<Blocks>>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// For the next snapshot.
    kept: Option<MmapMut>,
    /// Bytes that snapshots use now.
    leased: usize,
}

/// Memory of the arena in use by one snapshot; it returns to the arena when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    memory: Option<MmapMut>,
    home: Arena,
}

impl Arena {
    /// Memory for a snapshot of `len` bytes, and of no more than `limit` unless it is there already.
    ///
    /// # Errors
    ///
    /// If the system has no memory.
    pub(super) fn lease(&self, len: usize, limit: usize) -> io::Result<Lease> {
        let kept = self.lock().kept.take().filter(|memory| memory.len() >= len);
        let memory = match kept {
            Some(memory) => memory,
            // Too small a block was dropped above, before the larger one is asked for.
            None => map(len.max(1).next_multiple_of(PAGE).min(limit.max(len)))?,
        };
        self.lock().leased += memory.len();
        Ok(Lease {
            memory: Some(memory),
            home: self.clone(),
        })
    }

    /// Gives the kept memory back to the system.
    pub fn release(&self) {
        self.lock().kept = None;
    }

    /// Memory that it has from the system now, in bytes: what a snapshot uses, and what is kept for the next.
    pub fn bytes(&self) -> usize {
        self.usage().0
    }

    /// The same, and how many of these bytes snapshots use.
    pub fn usage(&self) -> (usize, usize) {
        let blocks = self.lock();
        let kept = blocks.kept.as_ref().map_or(0, |memory| memory.len());
        (blocks.leased + kept, blocks.leased)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map(len: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(len)?;
    // Only a hint: without huge pages everything works, slower.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

impl Lease {
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Region for Lease {
    fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mine) = self.memory.take() else {
            return;
        };
        let mut blocks = self.home.lock();
        blocks.leased -= mine.len();
        if blocks
            .kept
            .as_ref()
            .is_none_or(|kept| kept.len() < mine.len())
        {
            blocks.kept = Some(mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let arena = Arena::default();
        let first = arena.lease(3 << 20, usize::MAX).unwrap();
        let address = first.bytes().as_ptr();
        drop(first);
        let second = arena.lease(1 << 20, usize::MAX).unwrap();
        assert_eq!(second.bytes().as_ptr(), address);
    }

    #[test]
    fn it_grows_with_the_state_and_keeps_one_block() {
        let arena = Arena::default();
        let lease = arena.lease(1, usize::MAX).unwrap();
        assert_eq!(arena.usage(), (PAGE, PAGE));
        drop(lease);
        assert_eq!(arena.usage(), (PAGE, 0));
        drop(arena.lease(PAGE + 1, usize::MAX).unwrap());
        assert_eq!(arena.bytes(), 2 * PAGE);
        arena.release();
        assert_eq!(arena.bytes(), 0);
    }
}
