use std::cmp::Reverse;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::arena::{Arena, Lease};
use super::transfer::{self, Crew, Digest, Job};
use crate::format::{self, Expected};
use crate::state::{Checksum, Data, Memory, Node, Region, State, Tensor};

/// The tensors of a file start at a multiple of this many bytes in the arena, as they do in the file.
const BLOCK: usize = 4096;

/// How a snapshot is taken.
#[derive(Clone, Copy)]
pub struct Capture<'a> {
    /// Where the copies go.
    pub arena: &'a Arena,
    /// The most bytes that they may take.
    pub limit: usize,
    /// For each tensor, or each piece where it is in pieces, what it holds if it has not changed. What turns out to
    /// be as expected, with all that goes into the same file, is not copied: the file is there already. Not used
    /// if anything is deferred.
    pub expected: &'a [Option<Expected>],
    /// For each tensor, whether it is copied after the others and by fewer threads; if it is missing here, no.
    pub deferred: &'a [bool],
    /// Called once all that is not deferred is copied; not called if something does not fit.
    pub rest_copied: &'a dyn Fn(),
    /// Whether somebody waits for what is deferred: then it is copied by as many threads as the rest.
    pub is_awaited: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Capture<'a> {
    /// Everything at once, however much it is.
    pub fn into(arena: &'a Arena) -> Capture<'a> {
        Capture {
            arena,
            limit: usize::MAX,
            expected: &[],
            deferred: &[],
            rest_copied: &|| (),
            is_awaited: &|| false,
        }
    }
}

/// Copies every tensor that may change into the arena, on several threads.
///
/// Tensors in memory that nobody can change and that lie as they are stored are borrowed, not copied.
/// Tensors in a file are read. Checksums that are known already are compared. Others are left to
/// [`fill_checksums`], which reads the copies while the training goes on: only the copy keeps it waiting. What is
/// deferred keeps nobody waiting at first, and gets its checksum on the way until somebody does. The copies lie in the order in
/// which [`plan`](crate::format::plan()) puts them into files, back to back, so that a file can be written
/// from where they lie.
///
/// What is as expected, or does not fit the limit, stays where it is, and must not change until it is linked or
/// written. If something does not fit, nothing is deferred.
///
/// # Errors
///
/// If there is no memory for the arena, a stored tensor cannot be read, or a checksum differs.
pub fn capture(mut state: State, how: Capture<'_>) -> io::Result<State> {
    let files = files_of(&state);
    let mut leaves = leaves_mut(&mut state.tensors, &files);
    leaves.retain(|leaf| !can_borrow(leaf.tensor));
    if !how.expected.is_empty() && !how.deferred.contains(&true) {
        leaves = without_unchanged(leaves, how.expected)?;
    }
    // Within a file, wide elements come first.
    leaves.sort_by_key(|leaf| (leaf.file, Reverse(leaf.tensor.dtype.bits())));
    let wanted = leaves.len();
    // The system gives whole pages.
    let limit = how.limit / BLOCK * BLOCK;
    let leaves = choose(leaves, limit);
    let everything_fits = leaves.len() == wanted;
    if leaves.is_empty() {
        return Ok(state);
    }
    let (places, room) = arrange(&leaves);
    let mut lease = how.arena.lease(room, limit)?;
    let checksums = copy(&leaves, &places, &mut lease, &how, everything_fits);
    let lease: Arc<dyn Region> = Arc::new(lease);
    let mut differing = None;
    for ((leaf, offset), checksum) in leaves.into_iter().zip(places).zip(checksums) {
        let checksum = checksum?;
        if leaf.tensor.checksum.is_some() && leaf.tensor.checksum != checksum {
            differing = Some((leaf.index, matches!(leaf.tensor.data, Data::Memory(_))));
            break;
        }
        leaf.tensor.checksum = checksum;
        leaf.tensor.data = Data::Memory(Memory {
            offset,
            ..Memory::whole(Arc::clone(&lease))
        });
    }
    match differing {
        None => Ok(state),
        Some((index, in_memory)) => Err(differs(&state, index, in_memory)),
    }
}

fn differs(state: &State, index: usize, in_memory: bool) -> io::Error {
    let why = if in_memory {
        "it was changed before its deferred snapshot was taken; wait for the snapshot before changing it"
    } else {
        "the bytes are not those that were written"
    };
    let name = format::tensor_keys(state).swap_remove(index);
    io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {why}"))
}

/// Leaves out what is as expected, and notes its checksum. A file is linked as a whole, so all of what goes into
/// it has to be as expected.
fn without_unchanged<'a>(
    leaves: Vec<Leaf<'a>>,
    expected: &[Option<Expected>],
) -> io::Result<Vec<Leaf<'a>>> {
    let expected = |leaf: &Leaf<'_>| expected.get(leaf.number).copied().flatten();
    let (mut hoped, mut others): (Vec<_>, Vec<_>) = leaves
        .into_iter()
        .partition(|leaf| expected(leaf).is_some());
    let jobs = hoped.iter().map(|leaf| Job {
        tensor: &*leaf.tensor,
        len: leaf.len,
        into: None,
        digest: Digest::Yes,
    });
    let mut changed = HashSet::new();
    let mut checksums = Vec::with_capacity(hoped.len());
    for (leaf, checksum) in hoped.iter().zip(transfer::run(jobs.collect(), Crew::Full)) {
        let checksum = checksum?;
        checksums.push(checksum);
        let differs = |expected: &Expected| Some(expected.checksum) != checksum;
        if let Some(expected) = expected(leaf).filter(differs) {
            changed.insert(expected.file);
        }
    }
    for (leaf, checksum) in hoped.drain(..).zip(checksums) {
        if expected(&leaf).is_some_and(|expected| changed.contains(&expected.file)) {
            others.push(leaf);
        } else {
            leaf.tensor.checksum = checksum;
        }
    }
    others.sort_by_key(|leaf| leaf.number);
    Ok(others)
}

/// Computes the checksums that are still missing, without copying.
///
/// # Errors
///
/// If a stored tensor cannot be read.
pub fn fill_checksums(state: &mut State) -> io::Result<()> {
    let mut missing = leaves_mut(&mut state.tensors, &[]);
    missing.retain(|leaf| leaf.tensor.checksum.is_none());
    let jobs = missing.iter().map(|leaf| Job {
        tensor: &*leaf.tensor,
        len: leaf.len,
        into: None,
        digest: Digest::Yes,
    });
    let checksums = transfer::run(jobs.collect(), Crew::Full);
    for (leaf, checksum) in missing.into_iter().zip(checksums) {
        leaf.tensor.checksum = checksum?;
    }
    Ok(())
}

/// Whether the bytes of a tensor stay as they are, so that they can be written from where they lie.
pub fn can_borrow(tensor: &Tensor) -> bool {
    matches!(&tensor.data, Data::Memory(memory) if memory.immutable) && tensor.bytes().is_some()
}

/// A tensor, or a piece of one.
struct Leaf<'a> {
    tensor: &'a mut Tensor,
    /// Index of the tensor in the state.
    index: usize,
    /// Its number among all leaves of the state.
    number: usize,
    /// Number of the file it goes to.
    file: usize,
    /// Its size in bytes.
    len: usize,
}

fn leaves_mut<'a>(tensors: &'a mut [Tensor], files: &[usize]) -> Vec<Leaf<'a>> {
    let mut leaves: Vec<Leaf<'a>> = Vec::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter_mut().enumerate() {
        let mut push = |tensor: &'a mut Tensor| {
            leaves.push(Leaf {
                len: tensor.nbytes() as usize,
                tensor,
                index,
                number: leaves.len(),
                file: files.get(index).copied().unwrap_or(0),
            });
        };
        if matches!(tensor.data, Data::Pieces(_)) {
            if let Data::Pieces(pieces) = &mut tensor.data {
                for piece in pieces {
                    push(&mut piece.tensor);
                }
            }
        } else {
            push(tensor);
        }
    }
    leaves
}

/// For each tensor, which file it is expected to go to: one for each entry of the state that holds arrays, and
/// one for the arrays beside them. Where the plan differs, writing costs another copy and is otherwise the same.
fn files_of(state: &State) -> Vec<usize> {
    let mut files = vec![usize::MAX; state.tensors.len()];
    let mut assign = |node: &Node, file: usize| {
        node.for_each_tensor(&mut |leaf| {
            if let Some(of) = files.get_mut(leaf.index) {
                *of = (*of).min(file);
            }
        });
    };
    match &state.root {
        Node::Dict(entries) => {
            for (file, (_, value)) in entries.iter().enumerate() {
                let loose = value.is_leaf();
                assign(value, if loose { entries.len() } else { file });
            }
        }
        root => assign(root, 0),
    }
    files
}

/// The leaves that fit the limit together. The last ones are taken first, so that what is left out makes up
/// whole files where possible.
fn choose(leaves: Vec<Leaf<'_>>, limit: usize) -> Vec<Leaf<'_>> {
    let (mut chosen, mut room, mut file) = (Vec::with_capacity(leaves.len()), 0, None);
    for leaf in leaves.into_iter().rev() {
        // Each file may begin with a gap.
        let gap = if file == Some(leaf.file) { 0 } else { BLOCK };
        if room + gap + leaf.len <= limit {
            room += gap + leaf.len;
            file = Some(leaf.file);
            chosen.push(leaf);
        }
    }
    chosen.reverse();
    chosen
}

/// Where each leaf goes, in bytes from the start of the arena, and how long that makes it.
fn arrange(leaves: &[Leaf<'_>]) -> (Vec<usize>, usize) {
    let (mut end, mut file) = (0usize, None);
    let places = leaves
        .iter()
        .map(|leaf| {
            if file != Some(leaf.file) {
                end = end.next_multiple_of(BLOCK);
                file = Some(leaf.file);
            }
            let place = end;
            end += leaf.len;
            place
        })
        .collect();
    (places, end)
}

/// Copies the leaves to their places: first what is not deferred, then what is.
fn copy(
    leaves: &[Leaf<'_>],
    places: &[usize],
    lease: &mut Lease,
    how: &Capture<'_>,
    may_defer: bool,
) -> Vec<io::Result<Option<Checksum>>> {
    let mut rest = lease.bytes_mut();
    let mut at = 0;
    let (mut now, mut later) = (Vec::new(), Vec::new());
    let mut order = Vec::with_capacity(leaves.len());
    for (leaf, &place) in leaves.iter().zip(places) {
        let (_, from_place) = std::mem::take(&mut rest).split_at_mut(place - at);
        let (into, after) = from_place.split_at_mut(leaf.len);
        (rest, at) = (after, place + leaf.len);
        let deferred = may_defer
            && how
                .deferred
                .get(leaf.index)
                .is_some_and(|&deferred| deferred);
        let in_memory = matches!(leaf.tensor.data, Data::Memory(_));
        let digest = if leaf.tensor.checksum.is_some() || !in_memory {
            Digest::Yes
        } else if deferred {
            Digest::OnTheWay
        } else {
            Digest::No
        };
        let job = Job {
            tensor: leaf.tensor,
            len: leaf.len,
            into: Some(into),
            digest,
        };
        let jobs = if deferred { &mut later } else { &mut now };
        order.push((deferred, jobs.len()));
        jobs.push(job);
    }
    let mut now: Vec<_> = transfer::run(now, Crew::Full)
        .into_iter()
        .map(Some)
        .collect();
    if may_defer {
        (how.rest_copied)();
    }
    let mut later: Vec<_> = transfer::run(later, Crew::Beside(how.is_awaited))
        .into_iter()
        .map(Some)
        .collect();
    order
        .into_iter()
        .map(|(deferred, index)| {
            let results = if deferred { &mut later } else { &mut now };
            results[index]
                .take()
                .unwrap_or_else(|| unreachable!("each result is taken once"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::format::checksum;
    use crate::state::{DType, Node, Piece, ReadAt, Stored};

    fn into(arena: &Arena, limit: usize) -> Capture<'_> {
        Capture {
            limit,
            ..Capture::into(arena)
        }
    }

    /// A dictionary of entries, each a dictionary with tensors of these bytes.
    fn entries(sizes: &[&[usize]]) -> State {
        let mut state = State::default();
        let mut root = Vec::new();
        for (entry, sizes) in sizes.iter().enumerate() {
            let mut fields = Vec::new();
            for (field, &size) in sizes.iter().enumerate() {
                let bytes = vec![(entry * 16 + field) as u8; size];
                let leaf = state.push(Tensor::from_vec(bytes, &[size as u64]).unwrap());
                fields.push((field.to_string(), leaf));
            }
            root.push((entry.to_string(), Node::dict(fields)));
        }
        state.root = Node::dict(root);
        state.tensors.iter_mut().for_each(make_changeable);
        state
    }

    fn memory(tensor: &Tensor) -> &Memory {
        match &tensor.data {
            Data::Memory(memory) => memory,
            _ => panic!("not in memory"),
        }
    }

    /// As memory is that belongs to somebody else.
    fn make_changeable(tensor: &mut Tensor) {
        if let Data::Memory(memory) = &mut tensor.data {
            memory.immutable = false;
        }
    }

    #[test]
    fn a_capture_has_the_bytes_and_checksums_of_the_originals() {
        let mut state = State::default();
        let large: Vec<u32> = (0..3_000_000).collect();
        let large = state.push(Tensor::from_vec(large, &[3_000_000]).unwrap());
        let small = state.push(Tensor::from_vec(vec![1u8, 2, 3], &[3]).unwrap());
        let empty = state.push(Tensor::from_vec(Vec::<f32>::new(), &[0, 7]).unwrap());
        state.root = Node::List(vec![large, small, empty]);
        state.tensors.iter_mut().for_each(make_changeable);
        let originals = state.tensors.clone();
        let mut captured = capture(state, into(&Arena::default(), usize::MAX)).unwrap();
        fill_checksums(&mut captured).unwrap();
        for (copy, original) in captured.tensors.iter().zip(&originals) {
            assert_eq!(copy.bytes(), original.bytes());
            assert_ne!(
                copy.bytes().unwrap().as_ptr(),
                original.bytes().unwrap().as_ptr()
            );
            assert_eq!(copy.checksum, Some(checksum::of(original.bytes().unwrap())));
        }
    }

    #[test]
    fn what_nobody_can_change_is_borrowed() {
        let mut state = State::default();
        let memory = Memory::whole(Arc::new(vec![7u8; 10]));
        state.push(Tensor::new(DType::U8, &[10], Data::Memory(memory)).unwrap());
        let address = state.tensors[0].bytes().unwrap().as_ptr();
        let mut captured = capture(state, into(&Arena::default(), usize::MAX)).unwrap();
        assert_eq!(captured.tensors[0].bytes().unwrap().as_ptr(), address);
        assert_eq!(captured.tensors[0].checksum, None);
        fill_checksums(&mut captured).unwrap();
        assert_eq!(captured.tensors[0].checksum, Some(checksum::of(&[7; 10])));
    }

    #[test]
    fn pieces_are_captured_one_by_one() {
        let piece = |at: u64| {
            let mut tensor = Tensor::from_vec(vec![at as u8], &[1]).unwrap();
            make_changeable(&mut tensor);
            Piece {
                offset: vec![at],
                tensor,
            }
        };
        let whole = Tensor::new(DType::U8, &[2], Data::Pieces(vec![piece(0), piece(1)])).unwrap();
        let mut state = State::default();
        state.push(whole);
        let mut captured = capture(state, into(&Arena::default(), usize::MAX)).unwrap();
        fill_checksums(&mut captured).unwrap();
        let Data::Pieces(pieces) = &captured.tensors[0].data else {
            panic!("no longer in pieces")
        };
        assert_eq!(pieces[1].tensor.bytes(), Some(&[1u8][..]));
        assert!(pieces[1].tensor.checksum.is_some());
    }

    #[test]
    fn copies_lie_as_in_the_files() {
        let state = entries(&[&[5, 3000], &[10, 4096]]);
        let captured = capture(state, into(&Arena::default(), usize::MAX)).unwrap();
        let offsets: Vec<usize> = captured.tensors.iter().map(|t| memory(t).offset).collect();
        assert_eq!(offsets, [0, 5, 4096, 4106]);
    }

    #[test]
    fn what_does_not_fit_stays_where_it_is() {
        let state = entries(&[&[5000, 3000], &[1000, 9000, 2000]]);
        let originals = state.tensors.clone();
        let limit = 12_000 + 2 * BLOCK;
        let arena = Arena::default();
        let captured = capture(state, into(&arena, limit)).unwrap();
        let copied: Vec<bool> = captured.tensors.iter().map(can_borrow).collect();
        assert_eq!(copied, [false, false, true, true, true]);
        for (tensor, original) in captured.tensors.iter().zip(&originals) {
            assert_eq!(tensor.bytes(), original.bytes());
        }
        drop(captured);
        assert!(arena.bytes() <= limit, "{} bytes", arena.bytes());
    }

    #[test]
    fn a_limit_of_nothing_copies_nothing() {
        let arena = Arena::default();
        let captured = capture(entries(&[&[5, 0]]), into(&arena, 0)).unwrap();
        assert!(!can_borrow(&captured.tensors[0]));
        assert_eq!(arena.bytes(), 0);
    }

    /// Ten bytes, and whether they were read.
    struct Source(AtomicBool);

    impl ReadAt for Source {
        fn read_at(&self, _: u64, into: &mut [u8]) -> io::Result<()> {
            self.0.store(true, Ordering::SeqCst);
            into.fill(7);
            Ok(())
        }

        fn name(&self) -> &'static str {
            "a file"
        }
    }

    #[test]
    fn what_is_not_deferred_is_copied_first() {
        let mut state = entries(&[&[10, 20]]);
        let source = Arc::new(Source(AtomicBool::new(false)));
        state.tensors[0].data = Data::Stored(Stored {
            source: source.clone(),
            offset: 0,
        });
        let was_read = || source.0.load(Ordering::SeqCst);
        let early = Cell::new(None);
        let arena = Arena::default();
        let how = Capture {
            deferred: &[true],
            rest_copied: &|| early.set(Some(was_read())),
            ..into(&arena, usize::MAX)
        };
        let captured = capture(state, how).unwrap();
        assert_eq!((early.get(), was_read()), (Some(false), true));
        assert_eq!(captured.tensors[0].bytes(), Some(&[7; 10][..]));
        assert_eq!(captured.tensors[1].bytes(), Some(&[1; 20][..]));
        // Nobody waited for the first one's checksum; the training waited for the second one's copy.
        let known = captured.tensors.iter().map(|tensor| tensor.checksum);
        assert_eq!(
            known.collect::<Vec<_>>(),
            [Some(checksum::of(&[7; 10])), None]
        );
    }

    /// What is deferred of three large tensors, of which one has a checksum, and one is not in memory; somebody waits
    /// from the beginning, or nobody does.
    fn deferred(is_awaited: bool) -> State {
        const SIZE: usize = 3 << 20;
        let mut state = entries(&[&[SIZE, SIZE, SIZE]]);
        state.tensors[1].checksum = Some(checksum::of(state.tensors[1].bytes().unwrap()));
        state.tensors[2].data = Data::Stored(Stored {
            source: Arc::new(Source(AtomicBool::new(false))),
            offset: 0,
        });
        let arena = Arena::default();
        let how = Capture {
            deferred: &[true; 3],
            is_awaited: &|| is_awaited,
            ..into(&arena, usize::MAX)
        };
        let captured = capture(state, how).unwrap();
        for (tensor, byte) in captured.tensors.iter().zip([0, 1, 7]) {
            let all = |&found: &u8| found == byte;
            assert!(tensor.bytes().unwrap().iter().all(all), "{byte}");
        }
        captured
    }

    #[test]
    fn what_somebody_waits_for_is_only_copied() {
        let checksums = |state: State| -> Vec<bool> {
            let tensors = state.tensors.iter();
            tensors.map(|tensor| tensor.checksum.is_some()).collect()
        };
        assert_eq!(checksums(deferred(false)), [true, true, true]);
        // What is compared, and what is read from a file, has its checksum in any case.
        assert_eq!(checksums(deferred(true)), [false, true, true]);
        let mut awaited = deferred(true);
        fill_checksums(&mut awaited).unwrap();
        assert_eq!(
            awaited.tensors[0].checksum,
            deferred(false).tensors[0].checksum
        );
    }

    #[test]
    fn more_threads_copy_once_somebody_waits() {
        let state = entries(&[&[64 << 20]]);
        let original = checksum::of(state.tensors[0].bytes().unwrap());
        let cores = std::thread::available_parallelism().unwrap().get();
        let expected = cores.min(2);
        let (threads, changed) = (Mutex::new(HashSet::new()), Condvar::new());
        let calls = AtomicUsize::new(0);
        // Every thread asks before each part. A few parts are copied by half of the cores; after a few more, nobody
        // goes on until another thread has come.
        let is_awaited = || {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            let mut threads = threads.lock().unwrap();
            threads.insert(std::thread::current().id());
            changed.notify_all();
            if call > 8 {
                let limit = Duration::from_secs(20);
                let few = |threads: &mut HashSet<_>| threads.len() < expected;
                drop(changed.wait_timeout_while(threads, limit, few).unwrap());
            }
            call > 4
        };
        let arena = Arena::default();
        let how = Capture {
            deferred: &[true],
            is_awaited: &is_awaited,
            ..into(&arena, usize::MAX)
        };
        let mut captured = capture(state, how).unwrap();
        assert!(threads.lock().unwrap().len() >= expected);
        assert_eq!(captured.tensors[0].checksum, None, "half of a digest");
        fill_checksums(&mut captured).unwrap();
        assert_eq!(captured.tensors[0].checksum, Some(original));
    }

    #[test]
    fn what_is_as_expected_is_not_copied() {
        let mut state = entries(&[&[10, 20, 30, 40], &[5]]);
        let expect = |tensor: &Tensor, file| {
            let checksum = checksum::of(tensor.bytes().unwrap());
            Some(Expected { file, checksum })
        };
        let tensors = &state.tensors;
        let expected = [
            expect(&tensors[0], 0),
            // Changed, so that all of file 1 is to be written.
            expect(&tensors[0], 1),
            expect(&tensors[2], 1),
            None,
            expect(&tensors[4], 2),
        ];
        state.tensors[4].checksum = None;
        let arena = Arena::default();
        let how = Capture {
            expected: &expected,
            ..Capture::into(&arena)
        };
        let mut captured = capture(state.clone(), how).unwrap();
        fill_checksums(&mut captured).unwrap();
        let copied: Vec<bool> = captured.tensors.iter().map(can_borrow).collect();
        assert_eq!(copied, [false, true, true, true, false]);
        for (tensor, original) in captured.tensors.iter().zip(&state.tensors) {
            let bytes = original.bytes().unwrap();
            assert_eq!(tensor.bytes(), Some(bytes));
            assert_eq!(tensor.checksum, Some(checksum::of(bytes)));
        }
    }

    #[test]
    fn a_change_before_the_copy_is_found_if_the_checksum_was_known() {
        let mut state = entries(&[&[10, 20]]);
        fill_checksums(&mut state).unwrap();
        state.tensors[1].checksum = Some(checksum::of(b"what it was"));
        let error = capture(state, into(&Arena::default(), usize::MAX)).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("0.1: it was changed before"),
            "{message}"
        );
    }
}
