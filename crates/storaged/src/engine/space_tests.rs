//! What is refused where space is short, and what is not.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;

use super::ObjectStore;
use super::copy::Range;
use super::files::Files;
use super::sums_tests::{sidecar, store};
use super::tests::{bytes, object, on_ring, read, store_of, target, write};

const BLOCK: u64 = 4096;
const LEN: u64 = 4 * BLOCK;
const ZERO: Allocation = Allocation::Zero { keep_size: false };
const RESERVE: Allocation = Allocation::Reserve { keep_size: false };

/// Of the same directory, and all of it reserved for others.
fn full(dir: &Path) -> Files {
    store_of(&target(dir, u64::MAX), 10, 0)
}

fn is_there(store: &Files, dir: &Path, object: ObjectId) -> bool {
    store.object_path(object).exists() || sidecar(dir, object).exists()
}

fn whole(len: u64) -> Range {
    Range { source_offset: 0, offset: 0, len }
}

#[test]
fn what_is_refused_for_lack_of_space_makes_no_object() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        write(&store(dir.path()), object(1, 0), 0, &bytes(LEN as usize, 1)).await.expect("written");
        let full = full(dir.path());
        let new = object(2, 0);
        assert_eq!(write(&full, new, 0, b"x").await, Err(Errno::ENOSPC));
        assert_eq!(full.copy(object(1, 0), new, whole(LEN)).await, Err(Errno::ENOSPC));
        assert_eq!(full.allocate(new, 0, LEN, RESERVE).await, Err(Errno::ENOSPC));
        assert!(!is_there(&full, dir.path(), new));
        full.truncate(new, 100).await.expect("made, without data");
        assert_eq!(write(&full, new, 0, b"x").await, Err(Errno::ENOSPC));
    });
}

#[test]
fn what_has_its_space_is_reserved_zeroed_and_copied_over_also_where_none_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (roomy, object, source, hole) = (store(dir.path()), object(1, 0), object(2, 0), object(3, 0));
        for (object, seed) in [(object, 1), (source, 2)] {
            write(&roomy, object, 0, &bytes(LEN as usize, seed)).await.expect("written");
            roomy.sync(object).await.expect("synced");
        }
        roomy.truncate(hole, 2 * LEN).await.expect("made");
        drop(roomy);
        let full = full(dir.path());
        assert_eq!(full.allocate(object, 0, LEN, RESERVE).await, Ok(LEN));
        assert!(read(&full, object, 0, LEN as u32).await == bytes(LEN as usize, 1));
        assert_eq!(full.copy(source, object, whole(LEN)).await, Ok(LEN));
        assert!(read(&full, object, 0, LEN as u32).await == bytes(LEN as usize, 2));
        assert_eq!(full.allocate(object, 0, LEN, ZERO).await, Ok(LEN));
        assert!(read(&full, object, 0, LEN as u32).await == vec![0; LEN as usize]);
        // A hole needs none, wherever it comes.
        assert_eq!(full.copy(hole, object, whole(2 * LEN)).await, Ok(LEN));
        assert_eq!(full.copy(hole, super::tests::object(4, 0), whole(LEN)).await, Ok(0));
        // What has none.
        assert_eq!(full.allocate(source, BLOCK, LEN, RESERVE).await, Err(Errno::ENOSPC));
        assert_eq!(full.allocate(hole, 0, BLOCK, ZERO).await, Err(Errno::ENOSPC));
        assert_eq!(full.copy(source, hole, whole(LEN)).await, Err(Errno::ENOSPC));
        let further = Range { offset: BLOCK, ..whole(LEN) };
        assert_eq!(full.copy(source, source, further).await, Err(Errno::ENOSPC));
    });
}

/// The last block is shorter than others, and in memory all the same.
#[test]
fn small_appends_ask_nothing_of_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        for n in 0..2 {
            write(&store, object(1, 0), n * 100, &bytes(100, 1)).await.expect("written");
        }
        let data = bytes(100, 1);
        let mut append = pin!(write(&store, object(1, 0), 200, &data));
        let at_once = poll_fn(|context| Poll::Ready(append.as_mut().poll(context))).await;
        assert_eq!(at_once, Poll::Ready(Ok(300)));
    });
}
