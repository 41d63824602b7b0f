//! Objects whose checksums, or a part of them, the disk does not give: on a file system in a file that is cut off.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ring::buf::Slice;
use types::allocation::Allocation;
use types::error::Errno;
use wire::v1::scrub::ScrubStart;

use super::ObjectStore;
use super::ahead_tests::served;
use super::copy::Range;
use super::files::{Files, Options};
use super::keeping::WHOLE;
use super::sums_tests::{OBJECT, check_all, flip, forget_pages, read_errno, sidecar};
use super::tests::{Mounted, bytes, object, on_ring, open, options, read, target, write};
use crate::scrub;
use crate::sums::Trust;
use crate::target::Health;

const BLOCK: u64 = 4096;
const LEN: usize = 4 << 20;
/// A block of the object whose entry is in the last page of its sidecar.
const LAST: u64 = 1000 * BLOCK;

fn store(dir: &Path, checksums: bool) -> Files {
    open(&target(dir, 0), &Rc::default(), Options { direct_min: u64::MAX, ..options(checksums) })
}

/// With an object whose data is in memory alone: what is cut off is the disk's. Or it is clean, for who changes nothing.
async fn prepared(is_clean: bool) -> Option<Mounted> {
    let mounted = Mounted::made(64, "rw", &["-O", "^has_journal", "-b", "4096"])?;
    let store = store(&mounted.path(), true);
    write(&store, OBJECT, 0, &bytes(LEN, 1)).await.expect("written");
    if is_clean {
        store.sync_all().await;
    }
    Some(mounted)
}

/// The disk does not give this page of the object's sidecar, nor what lies behind it there, until something is written there.
/// What is cached of other files stays.
fn spoil(mounted: &Mounted, page: u32) {
    spoil_file(mounted, &sidecar(&mounted.path(), OBJECT), page);
}

fn spoil_file(mounted: &Mounted, path: &Path, page: u32) {
    const FIBMAP: libc::Ioctl = 1;
    let file = File::open(path).expect("there");
    file.sync_all().expect("synced");
    let mut block = page;
    // SAFETY: the pointer is to a live number.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP, &raw mut block) }, 0);
    let image = OpenOptions::new().write(true).open(mounted.image()).expect("there");
    image.set_len(u64::from(block) * BLOCK).expect("cut off");
    forget_pages(&file);
}

fn trust(store: &Files) -> Trust {
    let file = store.open.borrow().get(OBJECT).expect("open");
    file.sums().expect("kept").trust()
}

/// Goes over it as often as that is asked for, which finds these corrupt. After that, damage is noticed.
async fn heal(store: &Files, corrupt: &[u64]) {
    while let Some(object) = store.doubtful() {
        assert_eq!(object, OBJECT);
        let checked = check_all(store, OBJECT).await;
        assert_eq!((&checked.corrupt[..], checked.unwritten), (corrupt, None));
        store.believe(OBJECT, store.going_over()).await.expect("believed");
    }
    assert_eq!(trust(store), Trust::Exact);
    for offset in [9000, LAST] {
        flip(store, OBJECT, offset);
        assert_eq!(read_errno(store, offset, 1).await, Some(Errno::EIO), "{offset}");
        flip(store, OBJECT, offset);
    }
}

#[test]
fn an_object_without_its_checksums_is_read_and_gets_new_ones() {
    on_ring(async {
        // All of them, or the last ones.
        for page in [0, 2] {
            let Some(mounted) = prepared(true).await else { return };
            let store = store(&mounted.path(), true);
            flip(&store, OBJECT, 5000);
            File::open(store.object_path(OBJECT)).and_then(|file| file.sync_all()).expect("synced");
            spoil(&mounted, page);
            assert!(read(&store, OBJECT, LAST, 10_000).await == bytes(LEN, 1)[LAST as usize..][..10_000]);
            // Those that are there count.
            let corrupt = if page == 0 { vec![] } else { vec![BLOCK] };
            assert_eq!(read_errno(&store, 5000, 1).await.is_some(), page == 2);
            let checked = check_all(&store, OBJECT).await;
            assert_eq!((&checked.corrupt, checked.unwritten, checked.in_doubt), (&corrupt, None, true));
            heal(&store, &corrupt).await;
            assert!(store.tell_unreadable(OBJECT, WHOLE), "another time is told again");
            assert!(read(&store, OBJECT, 2 * BLOCK, LEN as u32).await == bytes(LEN, 1)[2 * BLOCK as usize..]);
        }
    });
}

#[test]
fn what_a_scrub_could_not_read_counts_as_gone_over() {
    on_ring(async {
        let Some(mounted) = prepared(true).await else { return };
        let store = store(&mounted.path(), true);
        spoil_file(&mounted, &store.object_path(OBJECT), 1000);
        let served = Rc::new(served(&mounted.path(), store));
        scrub::start(&served, &ScrubStart { run: 1, rate: 0, targets: 1 });
        let run = loop {
            let run = served.scrub.status().run.expect("begun");
            if !run.running {
                break run;
            }
            ring::sleep(Duration::from_millis(1)).await;
        };
        assert!((1..=24).contains(&run.corrupt), "{run:?}");
        assert_eq!((run.objects, run.bytes), (run.objects_total, run.bytes_total));
    });
}

#[test]
fn an_object_without_its_checksums_is_changed() {
    on_ring(async {
        for page in [0, 2] {
            // The last one is of a block whose entry is read with those of the last page, and is not in it.
            for change in 0..5 {
                let Some(mounted) = prepared(false).await else { return };
                let (store, mut data) = (store(&mounted.path(), true), bytes(LEN, 1));
                spoil(&mounted, page);
                let at = if change == 4 { 600 * BLOCK as usize } else { LAST as usize };
                match change {
                    // A whole block, or a part of two.
                    0 | 1 | 4 => {
                        let range = if change == 1 { at + 100..at + 5000 } else { at..at + 4096 };
                        let new = bytes(range.len(), 2);
                        assert_eq!(write(&store, OBJECT, range.start as u64, &new).await, Ok(LEN as u64));
                        data[range].copy_from_slice(&new);
                    }
                    2 => {
                        store.truncate(OBJECT, LAST + 100).await.expect("cut");
                        data.truncate(at + 100);
                    }
                    _ => {
                        store.allocate(OBJECT, LAST + 100, 5000, Allocation::Punch).await.expect("punched");
                        data[at + 100..at + 5100].fill(0);
                    }
                }
                assert!(read(&store, OBJECT, 0, LEN as u32).await == data, "{page} {change}");
                heal(&store, &[]).await;
                assert!(read(&store, OBJECT, 0, LEN as u32).await == data, "{page} {change}");
            }
        }
    });
}

#[test]
fn entries_are_put_where_the_disk_does_not_give_what_was_there() {
    on_ring(async {
        for page in [0, 2] {
            let Some(mounted) = prepared(false).await else { return };
            let store = store(&mounted.path(), true);
            // From here on the service has them in memory, and the kernel does not.
            assert!(read(&store, OBJECT, 0, LEN as u32).await == bytes(LEN, 1));
            spoil(&mounted, page);
            assert_eq!(write(&store, OBJECT, LAST, &bytes(4096, 2)).await, Ok(LEN as u64), "{page}");
            assert!(read(&store, OBJECT, LAST, 4096).await == bytes(4096, 2));
            heal(&store, &[]).await;
        }
    });
}

#[test]
fn an_object_without_its_checksums_is_copied() {
    on_ring(async {
        for page in [0, 2] {
            let Some(mounted) = prepared(true).await else { return };
            let store = store(&mounted.path(), true);
            spoil(&mounted, page);
            let range = Range { source_offset: LAST, offset: 0, len: 10_000 };
            assert_eq!(store.copy(OBJECT, object(2, 0), range).await, Ok(10_000));
            assert_eq!(store.doubtful(), None, "it may be another lane's");
            assert!(read(&store, object(2, 0), 0, 10_000).await == bytes(LEN, 1)[LAST as usize..][..10_000]);
            // Who has it open hears of it by itself.
            assert!(read(&store, OBJECT, LAST, 4096).await == bytes(LEN, 1)[LAST as usize..][..4096]);
            assert_eq!(store.doubtful(), Some(OBJECT));
        }
    });
}

#[test]
fn checksums_that_the_disk_does_not_give_are_not_believed_after_changes_without_them() {
    on_ring(async {
        let Some(mounted) = prepared(true).await else { return };
        let without = store(&mounted.path(), false);
        spoil(&mounted, 0);
        let data = Slice::from_vec(bytes(5000, 2)).into();
        without.write(OBJECT, LAST, data).await.expect("written");
        drop(without);
        let store = store(&mounted.path(), true);
        assert!(read(&store, OBJECT, LAST, 5000).await == bytes(5000, 2));
        assert_eq!(trust(&store), Trust::Doubt);
    });
}

#[test]
fn what_cannot_be_read_takes_nothing_that_was_acknowledged() {
    on_ring(async {
        for page in [None, Some(0), Some(2)] {
            let Some(mounted) = prepared(true).await else { return };
            let store = store(&mounted.path(), true);
            match page {
                None => spoil_file(&mounted, &store.object_path(OBJECT), 1000),
                Some(page) => spoil(&mounted, page),
            }
            assert_eq!(read_errno(&store, LAST, 10).await, page.is_none().then_some(Errno::EIO));
            let range = Range { source_offset: LAST, offset: 0, len: 10_000 };
            assert_eq!(store.copy(OBJECT, object(2, 0), range).await.err(), page.is_none().then_some(Errno::EIO));
            assert_eq!((store.target.health(), store.target.has_failed()), (Health::Failing, false), "{page:?}");
        }
    });
}
