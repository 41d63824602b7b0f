//! How objects and their checksums become clean, and what that is worth after a loss of power, on real files.

use std::fs::{File, OpenOptions};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use types::allocation::Allocation;
use types::error::Errno;
use wire::frame::crc32c;
use wire::v1::scrub::ScrubStart;

use super::ahead_tests::served;
use super::copy::Range;
use super::files::Options;
use super::sums_tests::{
    OBJECT, check_all, flip, forget_pages, header, read_errno, sidecar, store, store_of_another_epoch,
};
use super::tests::{Mounted, bytes, object, on_ring, open, options, read, run, target, write};
use super::{Found, ObjectStore};
use crate::scrub;
use crate::sums::header::State;

#[test]
fn that_an_object_is_dirty_is_written_again_until_it_is_known_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        let dirty = header(dir.path(), OBJECT);
        drop(first);
        // Another process has to see to it.
        let second = store(dir.path());
        assert_eq!(read(&second, OBJECT, 0, 20_000).await, bytes(20_000, 1));
        // As if a sync of what it has written had failed, which the kernel tells once.
        let file = OpenOptions::new().write(true).open(sidecar(dir.path(), OBJECT)).expect("there");
        file.write_all_at(&[0; 100], 0).expect("written");
        write(&second, OBJECT, 0, b"more").await.expect("written");
        assert_eq!(header(dir.path(), OBJECT), dirty);
        file.write_all_at(&[0; 100], 0).expect("written");
        write(&second, OBJECT, 0, b"again").await.expect("written");
        let left = std::fs::read(sidecar(dir.path(), OBJECT)).expect("there");
        assert_eq!(left[..100], [0; 100], "it is known to be there: once is enough");
    });
}

#[test]
fn clean_objects_are_verified_after_a_loss_of_power_and_dirty_ones_are_taken_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { .. }));
        first.clean(Instant::now()).await;
        assert_eq!(header(dir.path(), OBJECT), State::Clean { size: 20_000 });
        write(&first, object(2, 0), 0, &bytes(20_000, 2)).await.expect("written");
        drop(first);
        let second = store_of_another_epoch(dir.path());
        flip(&second, OBJECT, 5000);
        flip(&second, object(2, 0), 5000);
        assert_eq!(read_errno(&second, 5000, 10).await, Some(Errno::EIO));
        let mut seen = bytes(20_000, 2);
        seen[5000] ^= 0x10;
        assert!(read(&second, object(2, 0), 0, 20_000).await == seen, "in doubt, so taken as it is");
        assert_eq!(second.doubtful(), Some(object(2, 0)));
        assert_eq!(second.doubtful(), None);
        let checked = check_all(&second, object(2, 0)).await;
        assert_eq!((checked.adopted, checked.corrupt, checked.in_doubt), (1, vec![], true));
        second.believe(object(2, 0), second.going_over()).await.expect("believed");
        flip(&second, object(2, 0), 5000);
        assert_eq!(second.read(object(2, 0), 5000, 1, None).await.err(), Some(Errno::EIO), "from now on it counts");
        // Whatever is changed makes it dirty before, and it becomes clean again.
        flip(&second, OBJECT, 5000);
        second.truncate(OBJECT, 30_000).await.expect("longer");
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { .. }));
        second.clean(Instant::now()).await;
        assert_eq!(header(dir.path(), OBJECT), State::Clean { size: 30_000 });
        second.allocate(OBJECT, 0, 5000, Allocation::Punch).await.expect("punched");
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { pending: None, .. }));
    });
}

#[test]
fn what_is_in_use_does_not_become_clean() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        let before = Instant::now();
        // Changes have the time of the turn in which they end.
        ring::sleep(std::time::Duration::from_millis(1)).await;
        write(&store, OBJECT, 0, &bytes(10, 1)).await.expect("written");
        store.clean(before).await;
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { .. }), "changed since");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let change = file.sums().expect("kept").begin_change().await.expect("begun");
        let now = Instant::now();
        ring::timeout(std::time::Duration::from_secs(2), store.clean(now)).await.expect("it does not wait for it");
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { .. }), "being changed");
        drop(change);
        store.clean(Instant::now()).await;
        assert_eq!(header(dir.path(), OBJECT), State::Clean { size: 20_000 });
    });
}

/// By its number it would be found in whatever another lane opens next.
#[test]
fn a_call_that_is_in_line_when_its_lane_ends_reaches_its_own_file() {
    let name = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    for cleans in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        let (mut path, mut fd) = (sidecar(dir.path(), OBJECT), -1);
        on_ring(async {
            let store = Rc::new(store(dir.path()));
            write(&store, OBJECT, 0, &bytes(2 << 20, 1)).await.expect("written");
            let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
            let sums = Rc::clone(file.sums().expect("kept"));
            fd = sums.fd();
            if !cleans {
                (path, fd) = (store.object_path(OBJECT), file.fd());
            }
            // All helper threads are busy.
            for _ in 0..8 {
                let (helpers, may_go_on) = (store.target.helpers.clone(), Arc::clone(&may_go_on));
                let wait = move || drop(may_go_on.lock().map(|end| end.recv()));
                ring::spawn(async move { helpers.run(wait).await });
            }
            ring::yield_now().await;
            ring::spawn(async move {
                if cleans {
                    store.clean(Instant::now()).await;
                } else {
                    store.truncate(OBJECT, 0).await.expect("nobody waits for it");
                }
            });
            ring::yield_now().await;
            while cleans && sums.is_dirty() {
                ring::sleep(Duration::from_millis(1)).await;
            }
        });
        let path = path.canonicalize().expect("there");
        assert_eq!(name(fd).as_ref(), Some(&path), "it is open for who is in line");
        drop(go_on);
        let begin = Instant::now();
        while name(fd).as_ref() == Some(&path) {
            assert!(begin.elapsed() < Duration::from_secs(10), "it stays open");
            std::thread::sleep(Duration::from_millis(1));
        }
        if cleans {
            assert_eq!(header(dir.path(), OBJECT), State::Clean { size: 2 << 20 });
        } else {
            assert_eq!(path.metadata().expect("there").len(), 0);
        }
    }
}

#[test]
fn objects_that_are_closed_meanwhile_become_clean_too() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let options = Options { open_files_max: 2, ..options(true) };
        let store = open(&target(dir.path(), 0), &Rc::default(), options);
        for n in 1..8 {
            write(&store, object(n, 0), 0, &bytes(5000, 1)).await.expect("written");
        }
        store.clean(Instant::now()).await;
        for n in 1..8 {
            assert_eq!(header(dir.path(), object(n, 0)), State::Clean { size: 5000 }, "{n}");
        }
    });
}

#[test]
fn what_comes_after_the_end_of_a_clean_object_is_corrupt() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(5000, 1)).await.expect("written");
        first.clean(Instant::now()).await;
        let path = first.object_path(OBJECT);
        drop(first);
        OpenOptions::new().write(true).open(path).expect("there").write_all_at(b"more", 9000).expect("written");
        let second = store(dir.path());
        assert_eq!(read(&second, OBJECT, 0, 4096).await, bytes(5000, 1)[..4096]);
        assert_eq!(read_errno(&second, 8192, 1000).await, Some(Errno::EIO));
    });
}

#[test]
fn objects_that_are_removed_while_they_become_clean_do_not_stay_open() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let options = Options { open_files_max: 1, ..options(true) };
        let store = open(&target(dir.path(), 0), &Rc::default(), options);
        for n in 1..100 {
            let o = object(n, 0);
            write(&store, o, 0, &bytes(5000, 1)).await.expect("written");
            // Takes the only place, so that the other has to be opened again: on a helper thread.
            write(&store, object(1000, 0), 0, b"stays").await.expect("written");
            let sums = File::open(sidecar(dir.path(), o)).expect("there");
            sums.sync_all().expect("synced");
            forget_pages(&sums);
            type Task<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;
            let clean: Task<'_> = Box::pin(async {
                store.clean(Instant::now()).await;
                Ok(())
            });
            assert_eq!(ring::join_all([clean, Box::pin(store.remove(o))]).await, [Ok(()), Ok(())]);
            assert!(store.open.borrow_mut().remove(o).is_none(), "{o} is still open");
        }
    });
}

#[test]
fn a_lost_end_stays_corrupt_until_it_is_written_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(100_000, 3)).await.expect("written");
        first.clean(Instant::now()).await;
        let path = first.object_path(OBJECT);
        drop(first);
        OpenOptions::new().write(true).open(path).expect("there").set_len(50_000).expect("cut while nobody looks");
        // Whatever happens to the rest of it.
        for life in 0..3 {
            let store = store(dir.path());
            assert_eq!(read_errno(&store, 60_000, 10).await, Some(Errno::EIO), "{life}");
            assert_eq!(write(&store, OBJECT, 0, &bytes(4096, 4)).await, Ok(100_000), "{life}");
            let range = Range { source_offset: 0, offset: 8192, len: 4096 };
            assert_eq!(store.copy(OBJECT, OBJECT, range).await, Ok(100_000), "{life}");
            assert_eq!(read_errno(&store, 60_000, 10).await, Some(Errno::EIO), "{life}");
            // As where the cache gives it up.
            drop(store.open.borrow_mut().remove(OBJECT));
            assert_eq!(read_errno(&store, 60_000, 10).await, Some(Errno::EIO), "{life}");
            store.clean(Instant::now()).await;
        }
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(100_000, 5)).await.expect("written");
        assert!(read(&store, OBJECT, 0, 200_000).await == bytes(100_000, 5));
    });
}

#[test]
fn what_is_distrusted_while_an_object_is_gone_over_is_not_believed_with_it() {
    // Also where somebody else has begun to go over it since then, and has not come to its end.
    for is_begun in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        on_ring(async {
            let store = store(dir.path());
            write(&store, OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
            let distrust = async |block| {
                let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
                store.distrust(OBJECT, file.sums().expect("kept"), block..block + 1).await;
            };
            distrust(2).await;
            let first = store.going_over();
            assert!(check_all(&store, OBJECT).await.in_doubt);
            // A write that failed when this block had been looked at, whose checksums could not be put right.
            distrust(4).await;
            flip(&store, OBJECT, 4 * 4096);
            let second = store.going_over();
            if is_begun {
                store.check(OBJECT, 0, 4096).await.expect("readable");
            }
            store.believe(OBJECT, first).await.expect("done");
            assert_eq!(read_errno(&store, 4 * 4096, 10).await, None);
            drop(store.open.borrow_mut().remove(OBJECT));
            assert_eq!(read_errno(&store, 4 * 4096, 10).await, None);
            assert_eq!(store.doubtful(), Some(OBJECT), "once more");
            assert!(check_all(&store, OBJECT).await.in_doubt);
            store.believe(OBJECT, second).await.expect("done");
            assert_eq!(read_errno(&store, 4 * 4096, 10).await, None);
            flip(&store, OBJECT, 4 * 4096);
            assert_eq!(read_errno(&store, 4 * 4096, 10).await, Some(Errno::EIO));
        });
    }
}

#[test]
fn what_was_gone_over_is_not_gone_over_again() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        write(&store(dir.path()), OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
        let store = store_of_another_epoch(dir.path());
        assert_eq!(read_errno(&store, 0, 10).await, None);
        // Its turn comes when the cache has given it up.
        drop(store.open.borrow_mut().remove(OBJECT));
        assert_eq!(store.doubtful(), Some(OBJECT));
        check_all(&store, OBJECT).await;
        store.believe(OBJECT, store.going_over()).await.expect("done");
        assert_eq!(store.doubtful(), None);
    });
}

#[test]
fn a_scrub_that_is_stopped_leaves_what_is_in_doubt_to_be_gone_over() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        write(&store(dir.path()), OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
        let served = Rc::new(served(dir.path(), store_of_another_epoch(dir.path())));
        assert_eq!(read_errno(&served.store, 0, 10).await, None);
        scrub::start(&served, &ScrubStart { run: 1, rate: 1, targets: 1 });
        served.scrub.stop(1);
        scrub::go_over_doubtful(&served).await;
        flip(&served.store, OBJECT, 5);
        assert_eq!(read_errno(&served.store, 0, 10).await, Some(Errno::EIO), "from now on it counts");
    });
}

#[test]
fn what_was_not_begun_is_not_taken_for_under_way() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let fd = file.sums().expect("kept").fd();
        let path = sidecar(dir.path(), OBJECT);
        let (read_only, right) = (File::open(&path), OpenOptions::new().read(true).write(true).open(&path));
        // SAFETY: both are open; that of the sidecar goes on to be owned as before.
        let replace = |by: &File| assert!(unsafe { libc::dup2(by.as_raw_fd(), fd) } >= 0);
        replace(&read_only.expect("there"));
        assert!(store.allocate(OBJECT, 0, 4096, Allocation::Punch).await.is_err());
        replace(&right.expect("there"));
        store.allocate(OBJECT, 8192, 4096, Allocation::Punch).await.expect("punched");
        assert!(matches!(header(dir.path(), OBJECT), State::Dirty { pending: None, .. }));
    });
}

#[test]
fn a_copy_takes_what_an_object_held_before_only_while_somebody_may_be_changing_it() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        let (first, second) = (bytes(20_000, 1), bytes(20_000, 2));
        write(&store, OBJECT, 0, &first).await.expect("written");
        write(&store, OBJECT, 0, &second).await.expect("written");
        let put = |data: &[u8]| {
            let file = OpenOptions::new().write(true).open(store.object_path(OBJECT)).expect("there");
            file.write_all_at(data, 0).expect("written");
        };
        let copy = async |to| {
            let range = Range { source_offset: 0, offset: 0, len: 20_000 };
            store.copy(OBJECT, object(to, 0), range).await
        };
        // As between the entries of a write and its data.
        put(&first);
        assert_eq!(copy(2).await, Ok(20_000));
        put(&second);
        store.clean(Instant::now()).await;
        assert_eq!(header(dir.path(), OBJECT), State::Clean { size: 20_000 });
        assert_eq!(copy(3).await, Ok(20_000));
        put(&first);
        assert_eq!(read_errno(&store, 0, 10).await, Some(Errno::EIO));
        assert_eq!(copy(4).await, Err(Errno::EIO), "nobody is changing it");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let change = file.sums().expect("kept").begin_change().await.expect("begun");
        assert_eq!(copy(5).await, Ok(20_000));
        drop(change);
    });
}

#[test]
fn what_could_not_be_noted_as_distrusted_is_not_believed_when_it_is_opened_again() {
    // Also where somebody has begun to go over it meanwhile.
    for is_begun in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        on_ring(async {
            let store = store(dir.path());
            write(&store, OBJECT, 0, &bytes(5 * 4096, 1)).await.expect("written");
            let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
            let read_only = File::open(sidecar(dir.path(), OBJECT)).expect("there");
            // SAFETY: both are open; that of the sidecar goes on to be owned as before.
            assert!(unsafe { libc::dup2(read_only.as_raw_fd(), file.sums().expect("kept").fd()) } >= 0);
            store.truncate(OBJECT, 2 * 4096).await.expect("cut, without its checksums");
            if is_begun {
                store.check(OBJECT, 0, 4096).await.expect("gone over");
            }
            drop((store.open.borrow_mut().remove(OBJECT), file));
            write(&store, OBJECT, 4 * 4096, &bytes(4096, 2)).await.expect("written");
            assert!(read(&store, OBJECT, 2 * 4096, 8192).await == vec![0; 8192]);
            assert_eq!(store.doubtful(), Some(OBJECT));
            assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
            store.believe(OBJECT, store.going_over()).await.expect("done");
            flip(&store, OBJECT, 3 * 4096);
            assert_eq!(read_errno(&store, 3 * 4096, 10).await, Some(Errno::EIO));
        });
    }
}

#[test]
fn what_the_disk_gives_after_all_is_believed_as_before() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(5 * 4096, 1)).await.expect("written");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let sums = file.sums().expect("kept");
        assert_eq!(store.clear_unreadable(OBJECT, sums, 0..1).await, Ok(()), "nothing is to be given up");
        drop((store.open.borrow_mut().remove(OBJECT), file));
        flip(&store, OBJECT, 100);
        assert_eq!(read_errno(&store, 100, 10).await, Some(Errno::EIO));
    });
}

#[test]
fn what_is_in_doubt_is_not_looked_at_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        write(&store(dir.path()), OBJECT, 0, &bytes(20_000, 1)).await.expect("written");
        let store = store_of_another_epoch(dir.path());
        flip(&store, OBJECT, 5000);
        let Found { mut data, .. } = store.read(OBJECT, 0, 20_000, None).await.expect("in doubt");
        let on_disk = File::open(store.object_path(OBJECT)).expect("there");
        on_disk.sync_all().expect("synced");
        forget_pages(&on_disk);
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let crc = crc32c(&data);
        let mut verify = pin!(store.verify(OBJECT, &file, 0, 20_000, &mut data));
        let at_once = poll_fn(|context| Poll::Ready(verify.as_mut().poll(context))).await;
        assert_eq!(at_once, Poll::Ready(Ok(Some(crc))));
    });
}

/// The file system may be made writable again under the service.
#[test]
fn what_is_gone_over_while_the_disk_takes_no_change_stays_in_doubt() {
    let Some(mounted) = Mounted::new(16, "rw") else { return };
    let path = mounted.path();
    let remount = |how| assert!(run("mount", &["-o", how, path.to_str().expect("plain path")]), "{how}");
    on_ring(async {
        let store = store(&mounted.path());
        write(&store, OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
        drop(store.open.borrow_mut().remove(OBJECT));
        remount("remount,ro");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        store.distrust(OBJECT, file.sums().expect("kept"), 1..2).await;
        drop(file);
        assert_eq!(store.doubtful(), Some(OBJECT));
        let since = store.going_over();
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
        store.believe(OBJECT, since).await.expect("nothing to do");
        remount("remount,rw");
        flip(&store, OBJECT, 5000);
        assert_eq!(store.allocate(OBJECT, 45_000, 10, Allocation::Punch).await, Ok(50_000), "it takes changes again");
        assert_eq!(read_errno(&store, 5000, 10).await, None, "its checksum may not be right");
        assert_eq!(store.doubtful(), Some(OBJECT));
    });
}
