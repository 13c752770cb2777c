//! How much memory something takes while it runs.
#![expect(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what each thread has.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed; and the most it ever was.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn note(bytes: isize) {
    let now = NOW.get() + bytes;
    NOW.set(now);
    MOST.set(MOST.get().max(now));
}

// SAFETY: all is left to the system's allocator; what is counted lies in plain cells, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there at the same time.
        note(size as isize);
        note(-(layout.size() as isize));
        // SAFETY: the caller vouches for memory, layout and size.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller vouches for memory and layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `work`, and says how many bytes this thread had at most beyond those that it had before.
pub(crate) fn most_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before) as usize)
}

/// Runs `work`, which reads `bytes` bytes that nobody vouches for: it may take memory in proportion to those,
/// whatever they say, and `room` besides.
pub(crate) fn bounded<T>(bytes: usize, room: usize, work: impl FnOnce() -> T) -> T {
    let (result, most) = most_during(work);
    let allowed = PER_BYTE * bytes + room;
    assert!(
        most <= allowed,
        "{most} bytes of memory to read {bytes}: more than {allowed}"
    );
    result
}

/// The most bytes of memory for each byte of a manifest or header. The worst is a list of digits: two bytes for a
/// node, in a list that grows by doubling.
pub(crate) const PER_BYTE: usize = 256;
