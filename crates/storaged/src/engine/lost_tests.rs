//! Objects whose file has gone while nobody looked, on real files.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use types::allocation::Allocation;
use types::error::Errno;
use wire::v1::scrub::ScrubStart;

use super::ahead_tests::served;
use super::copy::Range;
use super::files::Files;
use super::sums_tests::{OBJECT, header, read_errno, sidecar, store};
use super::tests::{bytes, object, on_ring, read, write};
use super::{Leftover, ObjectStore};
use crate::scrub;
use crate::sums::header::State;

const BLOCK: u64 = 4096;
const LEN: u64 = 10 * BLOCK;

/// With a hole in it, and clean.
async fn lose(dir: &Path) -> Files {
    let first = store(dir);
    write(&first, OBJECT, 0, &bytes(3 * BLOCK as usize, 1)).await.expect("written");
    write(&first, OBJECT, 9 * BLOCK, &bytes(BLOCK as usize, 2)).await.expect("written");
    first.sync_all().await;
    fs::remove_file(first.object_path(OBJECT)).expect("there");
    store(dir)
}

#[test]
fn a_lost_object_is_no_hole() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = lose(dir.path()).await;
        // Also once the kernel knows that it is not there.
        for _ in 0..2 {
            assert_eq!(read_errno(&store, 0, 10).await, Some(Errno::EIO));
            assert_eq!(store.seek(OBJECT, 0, false).await, Err(Errno::EIO));
            let range = Range { source_offset: 0, offset: 0, len: BLOCK };
            assert_eq!(store.copy(OBJECT, object(2, 0), range).await, Err(Errno::EIO));
            assert_eq!(store.allocate(OBJECT, 0, BLOCK, Allocation::Punch).await, Err(Errno::EIO));
        }
        assert_eq!(read_errno(&store, LEN + 10, 10).await, Some(Errno::EIO));
        assert_eq!(store.read(object(3, 0), 0, 10, None).await.expect("a hole").size, 0);
        assert!(!store.object_path(OBJECT).exists() && header(dir.path(), OBJECT) == State::Clean { size: LEN });
    });
}

/// Of a file that is not settled, its objects say the size: it would be read as shorter, and settled so.
#[test]
fn a_lost_object_has_the_size_that_it_had() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let served = served(dir.path(), lose(dir.path()).await);
        // Also once the kernel knows that it is not there.
        for _ in 0..2 {
            let lost = served.stat(&[OBJECT, object(3, 0)]).await.expect("answered").objects;
            assert_eq!((lost[0].exists, lost[0].size, lost[0].blocks), (true, LEN, 0));
            assert_eq!((lost[1].exists, lost[1].size), (false, 0), "a hole");
        }
        assert_eq!(read_errno(&served.store, 0, 10).await, Some(Errno::EIO));
        assert_eq!(served.store.stat(&[OBJECT]).await, Ok(vec![None]), "a scrub looks what is there");
        served.remove(OBJECT).await.expect("removed");
        assert!(!served.stat(&[OBJECT]).await.expect("gone").objects[0].exists);
    });
}

#[test]
fn what_is_missing_at_the_end_of_an_object_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(LEN as usize, 1)).await.expect("written");
        first.sync_all().await;
        let file = fs::OpenOptions::new().write(true).open(first.object_path(OBJECT)).expect("there");
        file.set_len(BLOCK).expect("cut");
        let served = served(dir.path(), store(dir.path()));
        assert_eq!(served.stat(&[OBJECT]).await.expect("there").objects[0].size, LEN);
        assert_eq!(read_errno(&served.store, BLOCK, 10).await, Some(Errno::EIO));
        assert_eq!(read(&served.store, OBJECT, 0, 10).await, bytes(10, 1));
    });
}

#[test]
fn what_is_written_to_a_lost_object_is_there_and_the_rest_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = lose(dir.path()).await;
        assert_eq!(write(&store, OBJECT, BLOCK, &bytes(BLOCK as usize, 3)).await, Ok(LEN));
        assert!(read(&store, OBJECT, BLOCK, BLOCK as u32).await == bytes(BLOCK as usize, 3));
        assert_eq!(write(&store, OBJECT, 5, b"a part").await, Err(Errno::EIO));
        for block in [0, 2, 9] {
            assert_eq!(read_errno(&store, block * BLOCK, 10).await, Some(Errno::EIO), "{block}");
        }
        assert_eq!(read(&store, OBJECT, 5 * BLOCK, 10).await, [0; 10], "it was a hole");
        write(&store, OBJECT, 0, &bytes(LEN as usize, 4)).await.expect("written");
        assert!(read(&store, OBJECT, 0, 1 << 20).await == bytes(LEN as usize, 4));
    });
}

#[test]
fn a_lost_object_can_be_emptied_and_removed() {
    for is_removed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        on_ring(async {
            let store = lose(dir.path()).await;
            if is_removed {
                store.remove(OBJECT).await.expect("removed");
                assert!(!sidecar(dir.path(), OBJECT).exists());
            } else {
                store.truncate(OBJECT, 0).await.expect("emptied");
            }
            assert_eq!(read(&store, OBJECT, 0, 100).await, b"");
            assert_eq!(write(&store, OBJECT, 5, b"new").await, Ok(8));
            assert_eq!(read(&store, OBJECT, 0, 100).await, b"\0\0\0\0\0new");
        });
    }
}

#[test]
fn a_scrub_tells_of_lost_objects_and_keeps_what_tells_of_them() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = lose(dir.path()).await;
        let path = store.object_path(OBJECT);
        // One that was never anything but dirty may not have been made.
        write(&store, object(2, 0), 0, b"new").await.expect("written");
        drop(store.open.borrow_mut().remove(object(2, 0)));
        fs::remove_file(store.object_path(object(2, 0))).expect("there");
        let served = Rc::new(served(dir.path(), store));
        for number in 1..3 {
            scrub::start(&served, &ScrubStart { run: number, rate: 0, targets: 1 });
            let run = loop {
                let run = served.scrub.status().run.expect("begun");
                if !run.running {
                    break run;
                }
                ring::next_turn().await;
            };
            assert_eq!((run.corrupt, run.named.len(), run.objects), (4, 4, 0));
            let offsets = [0, 1, 2, 9].map(|block| block * BLOCK);
            assert_eq!(run.named.iter().map(|named| named.offset).collect::<Vec<_>>(), offsets);
            assert!(
                run.named.iter().all(|named| named.unreadable && named.path.0 == path.as_os_str().as_encoded_bytes())
            );
            assert!(sidecar(dir.path(), OBJECT).exists() && !sidecar(dir.path(), object(2, 0)).exists());
        }
    });
}

#[test]
fn a_lost_hole_is_told_of_too() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        first.truncate(OBJECT, LEN).await.expect("made");
        first.clean(Instant::now()).await;
        fs::remove_file(first.object_path(OBJECT)).expect("there");
        let lost = Leftover::Lost { named: vec![0], count: 1 };
        assert_eq!(store(dir.path()).remove_leftover(OBJECT).await, Ok(lost));
    });
}
