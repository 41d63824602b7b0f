//! What a change that fails leaves of an object's checksums, on real files.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use ring::buf::Buf;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;
use wire::v1::storage::Sync;

use super::ahead_tests::served;
use super::copy::Range;
use super::files::{Files, Options, note_loss};
use super::sums_tests::{OBJECT, check_all, flip, read_errno, store};
use super::tests::{Mounted, bytes, object, on_ring, open, options, read, target, write};
use super::{ObjectStore, syscall};
use crate::failures::Failures;
use crate::sums::Trust;

const BLOCK: u64 = 4096;
const LEN: usize = 40_000;

/// All that is asked while the object's file can only be read.
async fn refuse(store: &Files, changes: impl AsyncFnOnce()) {
    let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
    let path = store.object_path(OBJECT);
    let (read_only, right) = (File::open(&path), OpenOptions::new().read(true).write(true).open(&path));
    // SAFETY: both are open; that of the object goes on to be owned as before.
    let replace = |by: &File| assert!(unsafe { libc::dup2(by.as_raw_fd(), file.fd()) } >= 0);
    replace(&read_only.expect("there"));
    changes().await;
    replace(&right.expect("there"));
}

/// Each kind of change of the whole object.
async fn change_all(store: &Files, source: ObjectId) {
    let len = LEN as u64;
    assert!(store.allocate(OBJECT, 0, len, Allocation::Punch).await.is_err());
    assert!(store.allocate(OBJECT, 0, len, Allocation::Zero { keep_size: true }).await.is_err());
    assert!(store.copy(source, OBJECT, Range { source_offset: 0, offset: 0, len }).await.is_err());
    assert!(write(store, OBJECT, 0, &bytes(LEN, 9)).await.is_err());
    // What differs in one byte only, where the damage is not.
    let mut same = bytes(LEN, 1);
    same[2 * BLOCK as usize + 3000] ^= 1;
    assert!(write(store, OBJECT, 0, &same).await.is_err());
}

#[test]
fn a_change_that_fails_gives_no_corrupt_block_a_right_sum() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, source) = (store(dir.path()), object(2, 0));
        let data = bytes(LEN, 1);
        write(&store, OBJECT, 0, &data).await.expect("written");
        write(&store, source, 0, &bytes(LEN, 5)).await.expect("written");
        flip(&store, OBJECT, 2 * BLOCK + 100);
        refuse(&store, async || change_all(&store, source).await).await;
        assert_eq!(read_errno(&store, 2 * BLOCK, 10).await, Some(Errno::EIO));
        assert_eq!(check_all(&store, OBJECT).await.corrupt, [2 * BLOCK]);
        for (offset, len) in [(0, 2 * BLOCK), (3 * BLOCK, LEN as u64 - 3 * BLOCK)] {
            assert!(read(&store, OBJECT, offset, len as u32).await == data[offset as usize..][..len as usize]);
        }
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        assert_eq!(file.sums().expect("kept").trust(), Trust::Exact);
        write(&store, OBJECT, 2 * BLOCK, &data[2 * BLOCK as usize..][..BLOCK as usize]).await.expect("written");
        assert!(read(&store, OBJECT, 0, LEN as u32).await == data, "what writes all of it anew heals it");
    });
}

#[test]
fn a_healthy_object_is_what_it_was_after_changes_that_fail() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (mut first, source) = (store(dir.path()), object(2, 0));
        write(&first, OBJECT, 0, &bytes(LEN, 1)).await.expect("written");
        write(&first, source, 0, &bytes(LEN, 5)).await.expect("written");
        for _ in 0..2 {
            refuse(&first, async || change_all(&first, source).await).await;
            assert!(read(&first, OBJECT, 0, LEN as u32).await == bytes(LEN, 1));
            assert_eq!(check_all(&first, OBJECT).await.corrupt, Vec::<u64>::new());
            // Once more as who has found it dirty.
            drop(first);
            first = store(dir.path());
        }
    });
}

#[test]
fn a_truncate_that_fails_when_it_has_cut_the_file_leaves_nothing_corrupt() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(LEN, 1)).await.expect("written");
        refuse(&first, async || {
            let file = OpenOptions::new().write(true).open(first.object_path(OBJECT)).expect("there");
            file.set_len(2 * BLOCK).expect("cut");
            assert!(first.truncate(OBJECT, 2 * BLOCK).await.is_err());
        })
        .await;
        assert_eq!(read(&first, OBJECT, 2 * BLOCK, 100).await, b"");
        first.sync_all().await;
        let second = store(dir.path());
        assert_eq!(check_all(&second, OBJECT).await.corrupt, Vec::<u64>::new());
        assert!(read(&second, OBJECT, 0, LEN as u32).await == bytes(2 * BLOCK as usize, 1));
        assert_eq!(write(&second, OBJECT, 4 * BLOCK, b"x").await, Ok(4 * BLOCK + 1));
        assert!(read(&second, OBJECT, 2 * BLOCK, BLOCK as u32).await == [0; BLOCK as usize], "a hole");
    });
}

#[test]
fn a_hole_may_reach_beyond_what_a_file_can() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(LEN, 1)).await.expect("written");
        let len = i64::MAX as u64 - BLOCK;
        assert_eq!(store.allocate(OBJECT, BLOCK, len, Allocation::Punch).await, Ok(LEN as u64));
        assert_eq!(store.allocate(OBJECT, LEN as u64 + BLOCK, 1 << 60, Allocation::Punch).await, Ok(LEN as u64));
        let mut seen = bytes(LEN, 1);
        seen[BLOCK as usize..].fill(0);
        assert!(read(&store, OBJECT, 0, LEN as u32).await == seen);
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
    });
}

/// Takes all space of the file system.
pub(super) fn fill(mounted: &Mounted) {
    let filler = File::create(mounted.path().join("filler")).expect("made");
    for piece in [64 << 10, 1 << 10] {
        let mut len = filler.metadata().expect("there").len();
        while filler.write_all_at(&vec![7; piece], len).and_then(|()| filler.sync_all()).is_ok() {
            len = filler.metadata().expect("there").len();
        }
    }
}

/// With shorter blocks than ours, a block that has space for a part of it only is half written.
#[test]
fn what_was_half_changed_when_there_was_no_more_space_is_not_corrupt() {
    let Some(mounted) = Mounted::new(32, "rw") else { return };
    on_ring(async {
        // Past the page cache, through the ring, and in place.
        for (direct_min, write_in_place_max) in [(8 << 10, 0), (1 << 20, 0), (1 << 20, 1 << 20)] {
            let options = Options { direct_min, write_in_place_max, ..options(true) };
            let store = open(&target(&mounted.path(), 0), &Rc::default(), options);
            for block in 0..64 {
                // The first part of each, and the whole of some.
                let len = if block % 5 == 4 { BLOCK as usize } else { 1024 };
                write(&store, OBJECT, block * BLOCK, &bytes(len, 1)).await.expect("written");
            }
            store.sync_all().await;
            fill(&mounted);
            let mut failures = 0;
            for block in 0..16 {
                let mut data = Buf::with_whole_pages(4 * BLOCK as usize);
                data.copy_from_slice(&bytes(4 * BLOCK as usize, 2));
                failures += u32::from(store.write(OBJECT, block * 4 * BLOCK, data.freeze().into()).await.is_err());
            }
            assert!(failures > 8, "{failures}");
            assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
            let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
            assert_eq!(file.sums().expect("kept").trust(), Trust::Exact);
            std::fs::remove_file(mounted.path().join("filler")).expect("removed");
            store.remove(OBJECT).await.expect("removed");
        }
    });
}

#[test]
fn what_a_copy_did_not_reach_keeps_its_sums_and_what_it_did_is_right() {
    let Some(mounted) = Mounted::of_whole_blocks(32) else { return };
    on_ring(async {
        let (store, source) = (store(&mounted.path()), object(2, 0));
        let (len, far) = (4u64 << 20, 3u64 << 20);
        write(&store, source, 0, &bytes(len as usize, 5)).await.expect("written");
        write(&store, OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        write(&store, OBJECT, far, &bytes((len - far) as usize, 1)).await.expect("written");
        store.sync_all().await;
        fill(&mounted);
        // So much for the copy.
        let filler = OpenOptions::new().write(true).open(mounted.path().join("filler")).expect("there");
        filler.set_len(filler.metadata().expect("there").len() - (1 << 20)).expect("cut");
        filler.sync_all().expect("synced");
        flip(&store, OBJECT, BLOCK + 7);
        flip(&store, OBJECT, far + BLOCK + 7);
        // All of the range, and a part of the last block: that is looked at before.
        let range = Range { source_offset: 0, offset: 0, len: len - 100 };
        assert_eq!(store.copy(source, OBJECT, range).await, Err(Errno::ENOSPC));
        assert_eq!(check_all(&store, OBJECT).await.corrupt, [far + BLOCK]);
        assert!(read(&store, OBJECT, 0, 200_000).await == bytes(200_000, 5));
        assert!(read(&store, OBJECT, far + 2 * BLOCK, 5000).await == bytes((len - far) as usize, 1)[8192..13_192]);
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        assert!(syscall::stat(file.fd()).is_ok_and(|(stored, _)| stored.size == len));
    });
}

#[test]
fn a_sync_that_reached_no_disk_is_no_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let (target, failures) = (target(dir.path(), 0), Failures::new(100));
    note_loss(&target, &failures, OBJECT, Errno::ECANCELED);
    assert!(failures.tell(OBJECT, 1, 0).is_ok() && !target.has_failed());
    note_loss(&target, &failures, OBJECT, Errno::EIO);
    assert!(failures.tell(OBJECT, 1, 0).is_err() && target.has_failed());
}

/// Who is told of what passes asks again, and hears of the loss no second time.
#[test]
fn a_loss_is_told_also_where_the_file_cannot_be_opened_just_now() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let served = served(dir.path(), store(dir.path()));
        write(&served.store, OBJECT, 0, b"data").await.expect("written");
        let (path, aside) = (served.store.object_path(OBJECT), dir.path().join("aside"));
        fs::rename(&path, &aside).expect("moved");
        fs::create_dir(&path).expect("made");
        served.store.open.borrow_mut().remove(OBJECT);
        served.failures.note(OBJECT, Errno::EIO);
        let mut told = Vec::new();
        for _ in 0..2 {
            told.push(served.sync(&Sync { object: OBJECT, since: 0 }, 1).await.err());
        }
        assert_eq!(told, [Some(Errno::EIO), Some(Errno::EISDIR)]);
    });
}
