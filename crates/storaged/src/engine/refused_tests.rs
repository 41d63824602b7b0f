//! Checksums that the disk refuses after they were acknowledged, which the kernel tells once: on a disk that promises more than
//! it has.

use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::error::Errno;

use super::ObjectStore;
use super::files::{Files, Options};
use super::sums_tests::{OBJECT, check_all, flip, forget_pages, header, sidecar};
use super::tests::{Mounted, bytes, object, on_ring, open, options, read, target, write};
use crate::sums::Trust;
use crate::sums::header::State;
use crate::target::Target;

const BLOCK: u64 = 4096;
/// A block of the object whose entry is in the last page of its sidecar.
const LAST: u64 = 1000 * BLOCK;

fn store(target: &Arc<Target>) -> Files {
    open(target, &Rc::default(), Options { direct_min: u64::MAX, ..options(true) })
}

/// With an object whose data is on the disk, and its header: the entry of [`LAST`] is in the page cache alone.
async fn prepare(store: &Files) {
    write(store, OBJECT, 0, &bytes(4096, 1)).await.expect("written");
    store.sync_all().await;
    write(store, OBJECT, LAST, &bytes(4096, 2)).await.expect("written");
    store.sync(OBJECT).await.expect("synced");
}

/// Nothing is left for what has no place yet.
fn use_up(mounted: &Mounted) {
    let mut filler = File::create(mounted.image().with_file_name("filler")).expect("made");
    while filler.write_all(&[1; 4096]).is_ok() {}
}

/// The page cache gives up what it takes for written, as it may at any time.
fn forget(mounted: &Mounted, store: &Files) {
    forget_pages(&File::open(sidecar(&mounted.path(), OBJECT)).expect("there"));
    if let Some(file) = store.open.borrow().get(OBJECT) {
        store.sums.cache.forget(file.sums().expect("kept").cache_id(), 0..2048);
    }
}

/// What was synced is read, also after it was gone over and became clean. From then on damage is noticed.
async fn recover(mounted: &Mounted, store: &Files) {
    mounted.enlarge();
    assert!(read(store, OBJECT, LAST, 4096).await == bytes(4096, 2));
    forget(mounted, store);
    assert!(read(store, OBJECT, LAST, 4096).await == bytes(4096, 2));
    // Of one and the same refusal may be heard by two ways.
    for _ in 0..2 {
        while let Some(object) = store.doubtful() {
            let since = store.going_over();
            assert_eq!(check_all(store, object).await.corrupt, Vec::<u64>::new());
            store.believe(object, since).await.expect("believed");
        }
        store.clean(Instant::now()).await;
    }
    assert!(matches!(header(&mounted.path(), OBJECT), State::Clean { .. }));
    forget(mounted, store);
    assert!(read(store, OBJECT, LAST, 4096).await == bytes(4096, 2));
    let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
    assert_eq!(file.sums().expect("kept").trust(), Trust::Exact);
    flip(store, OBJECT, LAST);
    assert_eq!(store.read(OBJECT, LAST, 10, None).await.err(), Some(Errno::EIO));
}

#[test]
fn checksums_that_the_disk_has_refused_are_not_taken_for_written() {
    // Of an object that stays open, of one that was closed, and of one that somebody else's sync has found out about.
    for case in 0..3 {
        let Some(mounted) = Mounted::overcommitted() else { return };
        on_ring(async {
            let target = target(&mounted.path(), 0);
            let store = store(&target);
            write(&store, object(2, 0), 0, b"other").await.expect("written");
            let before = Instant::now();
            ring::sleep(Duration::from_millis(2)).await;
            prepare(&store).await;
            if case == 1 {
                drop(store.open.borrow_mut().remove(OBJECT));
            }
            use_up(&mounted);
            match case {
                0 => store.clean(Instant::now()).await,
                // It is no part of what was to become clean.
                1 => {
                    store.truncate(object(2, 0), 3).await.expect("cut");
                    let file = store.open.borrow().get(object(2, 0)).expect("open");
                    file.sums().expect("kept").was_changed_at(before);
                    store.sums.note_dirty(object(2, 0), before);
                    store.clean(before).await;
                }
                _ => assert!(store.sync_file_system().await.is_err(), "for another lane"),
            }
            assert!(matches!(header(&mounted.path(), OBJECT), State::Dirty { .. }), "{case}");
            store.clean(Instant::now()).await;
            recover(&mounted, &store).await;
        });
    }
}

#[test]
fn checksums_that_the_disk_has_refused_to_one_who_was_killed_then_are_in_doubt() {
    let Some(mounted) = Mounted::overcommitted() else { return };
    on_ring(async {
        let first = target(&mounted.path(), 0);
        first.begin(7).expect("begun");
        let killed = store(&first);
        prepare(&killed).await;
        use_up(&mounted);
        // Before it could say anything of this object.
        assert!(killed.sync_file_system().await.is_err());
        for _ in 0..5000 {
            if !mounted.path().join("written.toml").exists() {
                break;
            }
            ring::sleep(Duration::from_millis(1)).await;
        }
        drop(killed);
        mounted.enlarge();
        let second = target(&mounted.path(), 0);
        second.begin(8).expect("begun");
        let next = store(&second);
        forget(&mounted, &next);
        recover(&mounted, &next).await;
    });
}

#[test]
fn checksums_of_who_was_killed_that_the_disk_refuses_at_the_first_change_are_not_believed() {
    let Some(mounted) = Mounted::overcommitted() else { return };
    on_ring(async {
        let target = target(&mounted.path(), 0);
        prepare(&store(&target)).await;
        let store = store(&target);
        let since = store.going_over();
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
        store.believe(OBJECT, since).await.expect("believed");
        assert_eq!(store.doubtful(), None);
        use_up(&mounted);
        // That it is dirty has to be on the disk, and is not alone there.
        assert!(write(&store, OBJECT, 0, &bytes(4096, 3)).await.is_err());
        assert!(write(&store, OBJECT, 0, &bytes(4096, 3)).await.is_ok(), "the kernel tells it once");
        recover(&mounted, &store).await;
    });
}
