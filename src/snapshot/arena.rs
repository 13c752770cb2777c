use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

use crate::state::Region;

/// Memory is handed out in multiples of this many bytes: a huge page.
const PAGE: usize = 2 << 20;

/// One stretch of memory that is used again for every snapshot, so that a save neither pays for page faults
/// nor makes the process grow.
///
/// At most one block is kept between snapshots. It grows when a state does; [`release`](Arena::release)
/// gives it back.
#[derive(Debug, Clone, Default)]
pub struct Arena {
    kept: Arc<Mutex<Option<MmapMut>>>,
}

/// Memory of the arena in use by one snapshot; it returns to the arena when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    memory: Option<MmapMut>,
    home: Arena,
}

impl Arena {
    /// Memory for a snapshot of `len` bytes.
    ///
    /// # Errors
    ///
    /// If the system has no memory.
    pub(super) fn lease(&self, len: usize) -> io::Result<Lease> {
        let kept = self.lock().take().filter(|memory| memory.len() >= len);
        let memory = match kept {
            Some(memory) => memory,
            // Too small a block was dropped above, before the larger one is asked for.
            None => map(len.max(1).next_multiple_of(PAGE))?,
        };
        Ok(Lease {
            memory: Some(memory),
            home: self.clone(),
        })
    }

    /// Gives the kept memory back to the system.
    pub fn release(&self) {
        *self.lock() = None;
    }

    /// Size of the memory that is kept for the next snapshot, in bytes; 0 while a snapshot uses it.
    pub fn kept_bytes(&self) -> usize {
        self.lock().as_ref().map_or(0, |memory| memory.len())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<MmapMut>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut kept = self.home.lock();
        let larger = |kept: &MmapMut| {
            self.memory
                .as_ref()
                .is_some_and(|mine| mine.len() > kept.len())
        };
        if kept.as_ref().is_none_or(larger) {
            *kept = self.memory.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let arena = Arena::default();
        let first = arena.lease(3 << 20).unwrap();
        let address = first.bytes().as_ptr();
        drop(first);
        let second = arena.lease(1 << 20).unwrap();
        assert_eq!(second.bytes().as_ptr(), address);
    }

    #[test]
    fn it_grows_with_the_state_and_keeps_one_block() {
        let arena = Arena::default();
        drop(arena.lease(1).unwrap());
        assert_eq!(arena.kept_bytes(), PAGE);
        drop(arena.lease(PAGE + 1).unwrap());
        assert_eq!(arena.kept_bytes(), 2 * PAGE);
        arena.release();
        assert_eq!(arena.kept_bytes(), 0);
    }
}
