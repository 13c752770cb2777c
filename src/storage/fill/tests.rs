use std::sync::atomic::AtomicU32;

use proptest::prelude::*;

use super::*;

/// A write: offset, length, address.
type Write = (usize, usize, usize);

/// A file in memory that says no where a test wants it.
struct Recorded {
    bytes: Mutex<Vec<Option<u8>>>,
    writes: Mutex<Vec<Write>>,
    syncs: AtomicU32,
    alignment: usize,
    /// Writes until one fails.
    patience: AtomicU32,
}

impl Recorded {
    fn new(size: usize, alignment: usize) -> Recorded {
        Recorded {
            bytes: Mutex::new(vec![None; size]),
            writes: Mutex::default(),
            syncs: AtomicU32::new(0),
            alignment,
            patience: AtomicU32::new(u32::MAX),
        }
    }

    fn holds(&self, expected: &[u8]) -> bool {
        let bytes: Option<Vec<u8>> = self.bytes.lock().unwrap().iter().copied().collect();
        bytes.is_some_and(|bytes| bytes == expected)
    }

    fn writes(&self) -> Vec<Write> {
        let mut writes = self.writes.lock().unwrap().clone();
        writes.sort_unstable();
        writes
    }
}

impl NewFile for Recorded {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(
            self.syncs.load(Ordering::SeqCst),
            0,
            "a write after the sync"
        );
        let address = bytes.as_ptr().addr();
        assert!(address.is_multiple_of(self.alignment));
        self.writes
            .lock()
            .unwrap()
            .push((offset as usize, bytes.len(), address));
        if self.patience.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut all = self.bytes.lock().unwrap();
        for (at, &byte) in all[offset as usize..].iter_mut().zip(bytes) {
            assert_eq!(at.replace(byte), None, "each byte once");
        }
        Ok(())
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Fills one file for each list of segments, and checks what is true of every fill.
fn filled(threads: usize, alignment: usize, contents: &[Vec<&[u8]>]) -> Vec<Vec<Write>> {
    let sizes = contents.iter().map(|segments| segments.concat().len());
    let files: Vec<Recorded> = sizes.map(|size| Recorded::new(size, alignment)).collect();
    let fill = |(file, segments): (_, &Vec<_>)| Fill {
        file,
        segments: segments.iter().copied().map(Segment::Bytes).collect(),
    };
    let work: Vec<Fill<'_>> = files
        .iter()
        .map(|f| f as _)
        .zip(contents)
        .map(fill)
        .collect();
    let told = AtomicU64::new(0);
    let progress = |bytes| {
        told.fetch_add(bytes, Ordering::Relaxed);
    };
    fill_with(threads, &work, &progress).unwrap();
    let mut total = 0;
    for (file, segments) in files.iter().zip(contents) {
        assert!(file.holds(&segments.concat()));
        assert_eq!(file.syncs.load(Ordering::SeqCst), 1);
        let writes = file.writes();
        let size = segments.concat().len();
        for &(offset, length, _) in &writes {
            assert!(offset.is_multiple_of(BLOCK) && (1..=WINDOW).contains(&length));
            assert!(length.is_multiple_of(BLOCK) || offset + length == size);
        }
        total += size as u64;
    }
    assert_eq!(told.into_inner(), total);
    files.iter().map(Recorded::writes).collect()
}

/// Bytes at an address that is a multiple of `BLOCK`.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory: Vec<u8> = (0..length + BLOCK).map(|i| (i % 253) as u8).collect();
        let start = memory.as_ptr().align_offset(BLOCK);
        Aligned(memory, start)
    }

    fn from(&self, at: usize) -> &[u8] {
        &self.0[self.1 + at..]
    }
}

#[test]
fn thousands_of_small_segments_become_few_large_writes() {
    let segment = [7; 1000];
    let writes = filled(1, BLOCK, &[vec![&segment[..]; 10_000]]);
    assert_eq!(writes[0].len(), 3);
}

#[test]
fn a_huge_segment_is_written_from_where_it_lies() {
    let memory = Aligned::new(3 * WINDOW);
    let huge = &memory.from(0)[..3 * WINDOW];
    let addresses: Vec<usize> = filled(2, BLOCK, &[vec![huge]])[0]
        .iter()
        .map(|w| w.2)
        .collect();
    let start = huge.as_ptr().addr();
    assert_eq!(addresses, [start, start + WINDOW, start + 2 * WINDOW]);
}

#[test]
fn of_large_segments_only_the_blocks_where_they_meet_are_copied() {
    let memory = Aligned::new(4 * WINDOW);
    let (header, tensors) = memory.from(0).split_at(BLOCK);
    let (one, rest) = tensors.split_at(WINDOW / 2 * 3 + 100);
    let (two, three) = rest.split_at(WINDOW + 100);
    let writes = &filled(2, 64, &[vec![header, one, two, &three[..WINDOW]]])[0];
    let inside = memory.0.as_ptr_range();
    let copied = writes
        .iter()
        .filter(|w| !inside.contains(&(w.2 as *const u8)));
    assert_eq!(
        copied.map(|w| w.1).collect::<Vec<_>>(),
        [BLOCK, BLOCK, BLOCK]
    );
}

#[test]
fn what_lies_badly_is_copied() {
    let memory = Aligned::new(2 * WINDOW + 1);
    filled(2, BLOCK, &[vec![&memory.from(1)[..2 * WINDOW]]]);
    filled(2, BLOCK, &[vec![&[1, 2, 3], &memory.from(0)[..2 * WINDOW]]]);
}

#[test]
fn where_nothing_is_written_there_is_a_sync_all_the_same() {
    assert_eq!(filled(2, 1, &[]), [[(0, 0, 0); 0]; 0]);
    assert_eq!(filled(2, 1, &[vec![], vec![b"", b""]]), [[], []]);
}

#[test]
fn little_is_written_by_the_caller_alone_in_order() {
    #[derive(Default)]
    struct Ordered(Mutex<Vec<String>>);
    struct Part<'a>(&'a Ordered, u32);
    impl Part<'_> {
        fn note(&self, what: &str) {
            assert_ne!(thread::current().name(), Some("pitstop-write"));
            self.0.0.lock().unwrap().push(format!("{what} {}", self.1));
        }
    }
    impl NewFile for Part<'_> {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            self.note("write");
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            self.note("sync");
            Ok(())
        }
    }
    let calls = Ordered::default();
    let parts = [Part(&calls, 1), Part(&calls, 2)];
    let segments = vec![Segment::Bytes(b"some"); 3];
    let fills = parts.each_ref().map(|part| Fill {
        file: part,
        segments: segments.clone(),
    });
    fill(&fills, &|_| ()).unwrap();
    let order = ["write 1", "sync 1", "write 2", "sync 2"];
    assert_eq!(*calls.0.lock().unwrap(), order);
}

#[test]
fn after_the_first_error_nothing_more_is_begun() {
    let huge = vec![0; 20 * WINDOW];
    for threads in 1..=4 {
        let files = [(); 2].map(|()| Recorded::new(huge.len(), 1));
        files[0].patience.store(7, Ordering::SeqCst);
        let work = files.each_ref().map(|file| Fill {
            file,
            segments: vec![Segment::Bytes(&huge)],
        });
        let error = fill_with(threads, &work, &|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        // Each of the other threads may be in the middle of one.
        assert!((8..8 + threads).contains(&files[0].writes().len()));
        assert_eq!(files[1].writes(), []);
        for file in &files {
            assert_eq!(file.syncs.load(Ordering::SeqCst), 0);
        }
    }
}

#[test]
fn a_panic_of_another_thread_arrives_with_its_message() {
    struct Bad;
    impl NewFile for Bad {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            thread::sleep(Duration::from_millis(1));
            assert_ne!(thread::current().name(), Some("pitstop-write"), "bad luck");
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }
    let huge = vec![0; 20 * WINDOW];
    let segments = vec![Segment::Bytes(&huge)];
    let fills = [Fill {
        file: &Bad,
        segments,
    }];
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fill(&fills, &|_| ())));
    let message = *caught.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("bad luck"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_segments_fill_any_files(
        files in prop::collection::vec(
            prop::collection::vec(
                (prop_oneof![0..9000usize, LARGE - 5..LARGE + 5, WINDOW - 5..WINDOW + 9000], 0..3usize),
                0..8,
            ),
            1..4,
        ),
        threads in 1..5usize,
        alignment in prop::sample::select(vec![1, 64, 512, BLOCK]),
    ) {
        let memory = Aligned::new(WINDOW + 2 * 9000);
        let files: Vec<Vec<&[u8]>> = files.iter().map(|segments| {
            let mut offset = 0;
            let cut = |&(length, shift): &(usize, usize)| {
                // Congruent to its offset in the file, or a little beside.
                let at = offset % BLOCK + shift;
                offset += length;
                &memory.from(at)[..length]
            };
            segments.iter().map(cut).collect()
        }).collect();
        filled(threads, alignment, &files);
    }
}

/// Every byte says where it lies.
struct Counting(usize);

impl Content for Counting {
    fn len(&self) -> usize {
        self.0
    }

    fn read_at(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = ((offset + i) % 241) as u8;
        }
        Ok(())
    }
}

#[test]
fn contents_are_fetched_piece_by_piece() {
    let (small, large) = (Counting(700), Counting(2 * WINDOW + 5));
    let between = vec![3; LARGE + 9];
    let whole = |counting: &Counting| {
        let mut bytes = vec![0; counting.0];
        counting.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let expected = [whole(&small), whole(&large), between.clone(), whole(&small)].concat();
    let file = Recorded::new(expected.len(), BLOCK);
    let segments = vec![
        Segment::Content(&small),
        Segment::Content(&large),
        Segment::Bytes(&between),
        Segment::Content(&small),
    ];
    fill(
        &[Fill {
            file: &file,
            segments,
        }],
        &|_| (),
    )
    .unwrap();
    assert!(file.holds(&expected));
}

#[test]
fn a_content_that_cannot_be_fetched_fails_the_fill() {
    struct Broken;
    impl Content for Broken {
        fn len(&self) -> usize {
            10
        }
        fn read_at(&self, _: usize, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
    let file = Recorded::new(10, BLOCK);
    let segments = vec![Segment::Content(&Broken)];
    let error = fill(
        &[Fill {
            file: &file,
            segments,
        }],
        &|_| (),
    )
    .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.syncs.load(Ordering::SeqCst), 0);
}
