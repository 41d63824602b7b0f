//! Reading ahead past the page cache, on real files: what readers find there is what they would have read themselves.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use telemetry::metrics::Metrics;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::{ObjectId, TargetId};
use wire::v1::storage::{Read, Truncate, Write};

use super::copy::Range;
use super::files::{Files, Options};
use super::tests::{ALL, READ_AHEAD, bytes, object, on_ring, open, options, read, target, write};
use super::{Found, ObjectStore};
use crate::direct;
use crate::memory::Shares;
use crate::metrics::Waits;
use crate::object_table::ObjectTable;
use crate::queue::Queue;
use crate::scrub::Scrub;
use crate::served::Served;

const K: u64 = 1 << 10;
const PIECE: u64 = 256 * K;
const SIZE: u64 = 8 << 20;

/// A store whose large requests go past the cache, with one object of `SIZE` bytes on the disk and not in the cache.
async fn bed(dir: &std::path::Path) -> (Files, Vec<u8>) {
    let options = Options { direct_min: PIECE, ..options(true) };
    let store = open(&target(dir, 0), &Rc::default(), options);
    let data = bytes(SIZE as usize, 7);
    make_cache_dear(&store);
    for offset in (0..SIZE).step_by(1 << 20) {
        let part = Buf::from_slice(&data[offset as usize..][..1 << 20]).freeze();
        store.write(object(1, 0), offset, part.into()).await.expect("written");
    }
    let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
    assert_eq!(direct::cached(file.fd(), 0, SIZE).expect("told").pages, 0, "run this where O_DIRECT works");
    (store, data)
}

fn make_cache_dear(store: &Files) {
    let now = Instant::now();
    store.cache_cost.record(1, now, now + Duration::from_secs(1));
}

/// Reads in a row from `start` on, until what follows is on its way; where the next one begins.
async fn begin(store: &Files, data: &[u8], start: u64) -> u64 {
    for n in 0..4 {
        let offset = start + n * PIECE;
        assert!(read(store, object(1, 0), offset, PIECE as u32).await == data[offset as usize..][..PIECE as usize]);
    }
    assert!(is_ahead(store, start + 4 * PIECE).await);
    start + 4 * PIECE
}

/// What a small request has brought into the page cache, and what the kernel read on with there, is no longer in the way.
async fn leave_cache(store: &Files) {
    store.sync(object(1, 0)).await.expect("synced");
    let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
    ring::op::fadvise(file.fd(), 0, 0, libc::POSIX_FADV_DONTNEED).await.expect("advised");
}

async fn is_ahead(store: &Files, offset: u64) -> bool {
    let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
    file.pieces_if_any().is_some_and(|pieces| pieces.overlaps(&(offset..offset + 1)))
}

#[test]
fn a_sequential_reader_finds_what_follows_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, data) = bed(dir.path()).await;
        for (n, offset) in (0..SIZE).step_by(PIECE as usize).enumerate() {
            // With memory to put it in, and without.
            let room = (n % 2 == 0).then(|| Buf::with_whole_pages(PIECE as usize));
            let Found { data: seen, size, .. } =
                store.read(object(1, 0), offset, PIECE as u32, room).await.expect("readable");
            assert!(size == SIZE && seen[..] == data[offset as usize..][..PIECE as usize], "at {offset}");
            assert!(n < 1 || offset + PIECE == SIZE || is_ahead(&store, offset + PIECE).await, "at {offset}");
        }
        assert_eq!(store.ahead.used_bytes(), SIZE - 2 * PIECE);
        assert_eq!((store.past_bytes.written.get(), store.past_bytes.read.get()), (SIZE, 2 * PIECE));
        assert_eq!(store.ahead.window_max(), (READ_AHEAD / 4).min(2 << 20) as u64, "memory was not given back");
        let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
        assert_eq!(direct::cached(file.fd(), 0, SIZE).expect("told").pages, 0);
    });
}

#[test]
fn requests_that_are_cut_otherwise_find_theirs_too() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, data) = bed(dir.path()).await;
        let mut at = begin(&store, &data, 0).await;
        for len in [PIECE + 4096, 2 * PIECE, PIECE - 4096, 3 * PIECE, 1000, 100_000, PIECE + 3, 4 * PIECE] {
            let Found { data: seen, .. } = store.read(object(1, 0), at, len as u32, None).await.expect("readable");
            assert!(seen[..] == data[at as usize..][..len as usize], "{len} bytes at {at}");
            at += len;
        }
        assert!(store.ahead.used_bytes() > 2 * PIECE);
        // The end of the file is seldom aligned.
        write(&store, object(1, 0), SIZE, b"tail").await.expect("written");
        store.sync(object(1, 0)).await.expect("synced");
        let Found { data: seen, size, .. } =
            store.read(object(1, 0), SIZE - PIECE, 2 * PIECE as u32, None).await.expect("readable");
        assert!(
            size == SIZE + 4 && seen[..PIECE as usize] == data[(SIZE - PIECE) as usize..] && seen.ends_with(b"tail")
        );
    });
}

#[test]
fn nothing_is_answered_from_before_a_change() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, mut data) = bed(dir.path()).await;
        let o = object(1, 0);
        let at = begin(&store, &data, 0).await as usize;
        write(&store, o, at as u64 + 5, b"small").await.expect("written");
        data[at + 5..at + 10].copy_from_slice(b"small");
        let large = Buf::from_slice(&bytes(PIECE as usize, 99)).freeze();
        store.write(o, at as u64 + PIECE, large.clone().into()).await.expect("written");
        data[at + PIECE as usize..][..PIECE as usize].copy_from_slice(&large);
        leave_cache(&store).await;
        let mut at = begin(&store, &data, at as u64).await as usize;

        store.allocate(o, at as u64, 4096, Allocation::Punch).await.expect("punched");
        data[at..at + 4096].fill(0);
        at = begin(&store, &data, at as u64).await as usize;

        write(&store, object(2, 0), 0, b"copied").await.expect("written");
        store.copy(object(2, 0), o, Range { source_offset: 0, offset: at as u64, len: 6 }).await.expect("copied");
        data[at..at + 6].copy_from_slice(b"copied");
        at = begin(&store, &data, at as u64).await as usize;

        store.truncate(o, at as u64).await.expect("cut");
        assert!(store.read(o, at as u64, PIECE as u32, None).await.expect("readable").data.is_empty());
        store.truncate(o, SIZE).await.expect("extended");
        assert!(read(&store, o, at as u64, PIECE as u32).await == vec![0; PIECE as usize]);

        data[at..].fill(0);
        begin(&store, &data, 0).await;
        store.remove(o).await.expect("removed");
        assert!(store.read(o, 4 * PIECE, PIECE as u32, None).await.expect("readable").data.is_empty());
    });
}

#[test]
fn where_memory_is_used_up_readers_read_for_themselves() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, data) = bed(dir.path()).await;
        let hog = store.ahead.take_all();
        for offset in (0..SIZE).step_by(PIECE as usize) {
            assert!(
                read(&store, object(1, 0), offset, PIECE as u32).await == data[offset as usize..][..PIECE as usize]
            );
        }
        assert_eq!(store.ahead.used_bytes(), 0);
        drop(hog);
        begin(&store, &data, 0).await;
    });
}

pub(super) fn served(dir: &Path, store: Files) -> Served<Files> {
    let target = target(dir, 0);
    let queue = Queue::new(32, &Metrics::new("test"), TargetId(1), Arc::clone(&target.pulse));
    Served {
        target,
        store,
        table: ObjectTable::new(1),
        failures: Rc::default(),
        share: ALL,
        waits: Waits::new(&Metrics::new("test")),
        queue,
        read_memory: Shares::new(64 << 20, 1).one(),
        scrub: Scrub::default(),
    }
}

#[test]
fn a_version_that_was_never_given_out_vouches_for_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, _) = bed(dir.path()).await;
        let (served, o) = (served(dir.path(), store), object(2, 0));
        let write = async |unchanged_since| {
            let data = Slice::from_vec(vec![1; 100]).into();
            served.write(&Write { unchanged_since, ..write_to(o, 0) }, data).await.map(|written| written.version)
        };
        let lost = async |since| {
            let sync = wire::v1::storage::Sync { object: o, since };
            served.sync(&sync, 1).await.expect("synced").lost
        };
        let given_out = write(0).await.expect("written");
        // Told before an older copy of the target was put back.
        let later = given_out + 1;
        assert_eq!((lost(given_out).await, lost(later).await), (false, true));
        assert_eq!(write(later).await, Err(Errno::ESTALE));
        assert!(write(given_out).await.is_ok());
    });
}

/// Who appends goes by both: with the version of a write and the size from before it, it would go over what that wrote.
#[test]
fn a_look_never_says_less_than_its_version_has() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, _) = bed(dir.path()).await;
        let served = served(dir.path(), store);
        let mut both = [0; 2];
        for number in 0..300 {
            let o = object(2, number);
            let first = served.write(&write_to(o, 0), Slice::from_vec(vec![1; 100]).into()).await.expect("written");
            // So that a helper thread looks at it.
            served.store.open.borrow_mut().remove(o);
            let both_at_once = [true, false].map(async |looks| {
                if looks {
                    return served.stat(&[o]).await.map(|stat| stat.objects.into_iter().next());
                }
                // At once, while the helper thread looks.
                served.write(&write_to(o, 100), Slice::from_vec(vec![2; 100]).into()).await.map(|_| None)
            });
            let outcomes = ring::join_all(both_at_once).await;
            let seen = outcomes.into_iter().find_map(|outcome| outcome.expect("done")).expect("one object");
            assert!(seen.size == 200 || seen.version == first.version, "{seen:?} after {}", first.version);
            both[usize::from(seen.size == 200)] += 1;
        }
        println!("{} before the write, {} after it", both[0], both[1]);
    });
}

#[test]
fn readers_and_writers_at_once_see_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, _) = bed(dir.path()).await;
        let served = Rc::new(served(dir.path(), store));
        // A block is written as a whole, each time with the next number in it: a reader may never see a smaller one than
        // was answered for before it asked.
        const BLOCKS: u64 = SIZE / PIECE;
        const BLOCK: u64 = PIECE;
        let answered = Rc::new(std::cell::RefCell::new(vec![0u64; BLOCKS as usize]));
        let o: ObjectId = object(1, 0);
        let stamp = |number: u64| Buf::from_slice(&number.to_le_bytes().repeat(BLOCK as usize / 8)).freeze();
        for block in 0..BLOCKS {
            served.write(&write_to(o, block * BLOCK), stamp(0).into()).await.expect("written");
        }
        served.store.sync(o).await.expect("synced");
        let writer = async {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for number in 1..300u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = (state >> 33) % BLOCKS;
                served.write(&write_to(o, block * BLOCK), stamp(number).into()).await.expect("written");
                answered.borrow_mut()[block as usize] = number;
                if number % 50 == 0 {
                    // Nothing is cut off, but all that was read ahead is in doubt.
                    let cut = Truncate { object: o, size: SIZE, unchanged_since: 0 };
                    served.truncate(&cut).await.expect("resized");
                }
                make_cache_dear(&served.store);
                ring::yield_now().await;
            }
        };
        let reader = async |first: u64, len: u64| {
            for n in 0..400u64 {
                let offset = (first + n * len) % SIZE;
                let before = answered.borrow().clone();
                let request = Read { object: o, offset, length: len as u32 };
                let (_, Found { data: seen, .. }, _) = served.read(&request, None).await.expect("readable");
                assert_eq!(seen.len() as u64, len);
                for (index, part) in seen.chunks_exact(BLOCK as usize).enumerate() {
                    let block = offset / BLOCK + index as u64;
                    let number = u64::from_le_bytes(part[..8].try_into().expect("eight bytes"));
                    assert!(
                        number >= before[block as usize],
                        "block {block}: {number}, {} before",
                        before[block as usize]
                    );
                    assert!(part.chunks_exact(8).all(|word| word == &part[..8]), "a torn block");
                }
            }
        };
        let tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>> = vec![
            Box::pin(writer),
            Box::pin(reader(0, PIECE)),
            Box::pin(reader(0, PIECE)),
            Box::pin(reader(SIZE / 2, 2 * PIECE)),
        ];
        ring::join_all(tasks).await;
        assert!(served.store.ahead.used_bytes() > SIZE, "hardly anything was read ahead");
    });
}

fn write_to(object: ObjectId, offset: u64) -> Write {
    Write::new(object, offset)
}

#[test]
fn a_disk_that_dies_is_told_by_reads_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, data) = bed(dir.path()).await;
        let at = begin(&store, &data, 0).await;
        // What is fetched from now on fails: the descriptor for it leads elsewhere.
        let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
        let way = file.direct().expect("there is one");
        let null = std::fs::File::open("/dev/null").expect("every Linux has it");
        // SAFETY: both descriptors are open; the second one goes on to be owned as before.
        assert!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), way.fd()) } >= 0);
        for offset in (at..SIZE).step_by(PIECE as usize) {
            let seen: Slice =
                store.read(object(1, 0), offset, PIECE as u32, None).await.expect("readable").data.freeze();
            assert!(seen[..] == data[offset as usize..][..PIECE as usize], "at {offset}");
        }
    });
}
