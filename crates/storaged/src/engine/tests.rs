//! The files engine on real directories.

use std::cell::Cell;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ring::buf::Slice;
use telemetry::metrics::Metrics;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::{InodeId, ObjectId};

use super::copy::Range;
use super::files::{Files, OBJECTS, Options, prepare_folders};
use super::folders::Folder;
use super::keeping::SUMS;
use super::scatter::is_scattered;
use super::{LaneShare, ObjectStore};
use crate::ahead::Ahead;
use crate::failures::Failures;
use crate::memory::Shares;
use crate::object_table::first_version;
use crate::queue::Queue;
use crate::target::{Health, Target};

/// Bytes.
pub(super) const READ_AHEAD: usize = 16 << 20;
pub(super) const ALL: LaneShare = LaneShare { lane: 0, lanes: 1 };

pub(super) fn object(inode: u64, stripe: u32) -> ObjectId {
    ObjectId { inode: InodeId(inode), stripe }
}

pub(super) fn on_ring(test: impl Future<Output = ()>) {
    let config = ring::Config { entries: 64, spin: Duration::ZERO, ..ring::Config::default() };
    ring::Ring::new(&config).expect("io_uring is there").run(test);
}

pub(super) fn target(dir: &Path, reserve: u64) -> Arc<Target> {
    let target = Target::new(dir.to_path_buf(), reserve);
    target.probe(dir);
    Arc::new(target)
}

pub(super) fn options(checksums: bool) -> Options {
    Options { open_files_max: 100, write_in_place_max: 64 << 10, direct_min: 256 << 10, checksums }
}

pub(super) fn store_of(target: &Arc<Target>, open_files_max: usize, write_in_place_max: usize) -> Files {
    open(target, &Rc::default(), Options { open_files_max, write_in_place_max, ..options(true) })
}

pub(super) fn open(target: &Arc<Target>, failures: &Rc<Failures>, options: Options) -> Files {
    let metrics = Metrics::new("test");
    let ahead = Ahead::new(Shares::new(READ_AHEAD, 1).one(), &metrics);
    let queue = Queue::new(32, &metrics, target.id(), Arc::clone(&target.pulse));
    Files::open(Arc::clone(target), Rc::clone(failures), options, ahead, queue, &metrics).expect("a usable directory")
}

fn store(dir: &Path) -> Files {
    store_of(&target(dir, 0), 100, 64 << 10)
}

pub(super) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 ^ seed).collect()
}

pub(super) async fn write(store: &Files, object: ObjectId, offset: u64, data: &[u8]) -> Result<u64, Errno> {
    store.write(object, offset, Slice::from_vec(data.to_vec()).into()).await.map(|written| written.size)
}

pub(super) async fn read(store: &Files, object: ObjectId, offset: u64, len: u32) -> Vec<u8> {
    store.read(object, offset, len, None).await.expect("readable").data.to_vec()
}

#[test]
fn bytes_come_back_with_holes_as_zeros() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        assert_eq!(
            store.read(object(1, 0), 0, 100, None).await.map(|found| (found.data.len(), found.size)),
            Ok((0, 0))
        );
        // One length below and one above what is written in place.
        for (inode, len) in [(1, 5000), (2, 300_000)] {
            let data = bytes(len, inode as u8);
            assert_eq!(write(&store, object(inode, 0), 10_000, &data).await, Ok(10_000 + len as u64));
            assert_eq!(write(&store, object(inode, 0), 0, b"head").await, Ok(10_000 + len as u64));
            let all = read(&store, object(inode, 0), 0, 1 << 20).await;
            assert_eq!(all.len(), 10_000 + len);
            assert!(&all[..4] == b"head" && all[4..10_000].iter().all(|&b| b == 0) && all[10_000..] == data);
            assert_eq!(read(&store, object(inode, 0), 10_000 + len as u64 - 3, 100).await, data[len - 3..]);
        }
        assert_eq!(write(&store, object(1, 0), u64::MAX - 2, b"abc").await, Err(Errno::EFBIG));
        assert_eq!(write(&store, object(1, 0), (1 << 63) - 2, b"abc").await, Err(Errno::EFBIG));
    });
}

#[test]
fn what_lanes_cannot_open_is_found_before_they_are_given_it() {
    for name in [OBJECTS, SUMS] {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(name), "no directory").expect("written");
        assert!(prepare_folders(dir.path(), true).is_err(), "{name}");
        std::fs::remove_file(dir.path().join(name)).expect("removed");
        prepare_folders(dir.path(), true).expect("made");
        prepare_folders(dir.path(), true).expect("there");
        assert!(dir.path().join(name).is_dir());
    }
}

#[test]
fn truncate_makes_cuts_and_extends() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        store.truncate(object(1, 1), 5000).await.expect("made");
        assert_eq!(read(&store, object(1, 1), 0, 9000).await, vec![0; 5000]);
        write(&store, object(1, 1), 0, &bytes(4 << 20, 1)).await.expect("written");
        store.truncate(object(1, 1), 10).await.expect("cut");
        store.truncate(object(1, 1), 20).await.expect("extended");
        let expected: Vec<u8> = bytes(10, 1).into_iter().chain([0; 10]).collect();
        assert_eq!(read(&store, object(1, 1), 0, 100).await, expected);
        let stats = store.stat(&[object(9, 9), object(1, 1)]).await.expect("told");
        assert_eq!((stats[0], stats[1].map(|stored| stored.size)), (None, Some(20)));
    });
}

#[test]
fn what_was_written_is_there_after_a_restart_and_what_was_removed_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        for inode in 1..=20 {
            write(&first, object(inode, 0), 0, &bytes(1000, inode as u8)).await.expect("written");
            first.sync(object(inode, 0)).await.expect("synced");
        }
        first.sync(object(777, 0)).await.expect("nothing to sync is no error");
        first.remove(object(3, 0)).await.expect("removed");
        first.remove(object(3, 0)).await.expect("removed again");
        first.remove(object(1 << 40, 0)).await.expect("never was there");
        drop(first);
        let second = store(dir.path());
        assert_eq!(read(&second, object(7, 0), 0, 4096).await, bytes(1000, 7));
        assert_eq!(second.stat(&[object(3, 0)]).await, Ok(vec![None]));
        let (place, exists) = second.place(object(7, 0)).await.expect("told");
        assert!(exists && place.starts_with(dir.path().join(OBJECTS)));
        assert_eq!(std::fs::read(place).expect("a plain file"), bytes(1000, 7));
        assert!(!second.place(object(3, 0)).await.expect("told").1);
    });
}

#[test]
fn a_small_cache_of_open_files_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store_of(&target(dir.path(), 0), 4, 64 << 10);
        for round in 0..3u8 {
            for inode in 0..50u64 {
                write(&store, object(inode, 0), u64::from(round) * 100, &bytes(100, round)).await.expect("written");
            }
        }
        assert!(store.open_count() <= 5, "{} files are open", store.open_count());
        for inode in 0..50 {
            let expected: Vec<u8> = (0..3).flat_map(|round| bytes(100, round)).collect();
            assert_eq!(read(&store, object(inode, 0), 0, 1000).await, expected);
        }
    });
}

#[test]
fn who_opens_waits_for_the_descriptors_of_files_that_are_written_back() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store_of(&target(dir.path(), 0), 16, 64 << 10);
        for inode in 0..16 {
            write(&store, object(inode, 0), 0, b"x").await.expect("written");
        }
        // As if two were on their way to a slow disk.
        let places = [store.retiring.acquire(1).await, store.retiring.acquire(1).await];
        let wait = Duration::from_millis(20);
        assert!(ring::timeout(wait, write(&store, object(16, 0), 0, b"x")).await.is_err());
        assert!(ring::timeout(wait, store.open_existing(object(17, 0))).await.is_err());
        assert_eq!(write(&store, object(1, 0), 0, b"y").await, Ok(1), "what is open stays in use");
        drop(places);
        assert_eq!(write(&store, object(16, 0), 0, b"x").await, Ok(1));
        assert_eq!(store.open_count(), 16, "one was given up for it");
        let both = ring::timeout(Duration::from_secs(5), store.retiring.acquire(2)).await;
        assert!(both.is_ok(), "it is on the disk");
    });
}

#[test]
fn many_who_wait_for_descriptors_get_them_one_by_one() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let target = target(dir.path(), 0);
        let store = Rc::new(store_of(&target, 16, 64 << 10));
        for inode in 0..16 {
            write(&store, object(inode, 0), 0, b"x").await.expect("written");
        }
        let places = [store.retiring.acquire(1).await, store.retiring.acquire(1).await];
        let done = Rc::new(Cell::new(0));
        for inode in 100..108 {
            let (store, done) = (Rc::clone(&store), Rc::clone(&done));
            ring::spawn(async move {
                write(&store, object(inode, 0), 0, b"x").await.expect("written");
                done.set(done.get() + 1);
            });
        }
        // A disk so slow that none of those that are given up are written back.
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        for _ in 0..64 {
            let (target, may_go_on) = (Arc::clone(&target), Arc::clone(&may_go_on));
            let wait = move || drop(may_go_on.lock().map(|end| end.recv()));
            ring::spawn(async move { target.helpers.run(wait).await });
        }
        ring::sleep(Duration::from_millis(20)).await;
        drop(places);
        ring::sleep(Duration::from_millis(100)).await;
        assert!(done.get() <= 2, "{} were opened where two had a place", done.get());
        drop(go_on);
        for _ in 0..5000 {
            if done.get() == 8 && store.retiring.available() == 2 {
                return;
            }
            ring::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} of 8 were opened, and {} of 2 places are free", done.get(), store.retiring.available());
    });
}

#[test]
fn a_listing_shows_each_object_once_in_pages_of_any_size() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        let objects: Vec<ObjectId> = (0..60).map(|n| object(n * 700, (n % 3) as u32)).collect();
        for &object in &objects {
            write(&store, object, 0, b"x").await.expect("written");
        }
        let place = store.place(objects[0]).await.expect("told").0;
        std::fs::write(place.with_file_name("notes.txt"), "not an object").expect("written");
        for (share, count) in [(ALL, 7), (ALL, 1000), (ALL, 1), (LaneShare { lane: 1, lanes: 3 }, 4)] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = store.list(after, count, share).await.expect("listed");
                assert!(page.objects.len() <= count);
                found.extend(page.objects.iter().map(|(object, _)| *object));
                after = found.last().copied();
                if page.end {
                    break;
                }
            }
            let mut expected: Vec<ObjectId> = objects.iter().copied().filter(|&object| share.owns(object)).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "pages of {count}, {share:?}");
        }
    });
}

#[test]
fn the_reserve_refuses_new_data_but_not_overwriting() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let roomy = target(dir.path(), 0);
        let store = store_of(&roomy, 10, 0);
        write(&store, object(1, 0), 0, &bytes(8192, 1)).await.expect("written");
        let reserve = Allocation::Reserve { keep_size: false };
        store.truncate(object(3, 0), 1 << 20).await.expect("made");
        store.allocate(object(3, 0), 65_536, 65_536, reserve).await.expect("reserved");
        let full = store_of(&target(dir.path(), u64::MAX), 10, 0);
        assert_eq!(write(&full, object(2, 0), 0, b"x").await, Err(Errno::ENOSPC));
        assert_eq!(write(&full, object(1, 0), 8192, b"x").await, Err(Errno::ENOSPC));
        assert_eq!(write(&full, object(1, 0), 100, b"x").await, Ok(8192));
        assert_eq!(write(&full, object(3, 0), 8192, b"x").await, Err(Errno::ENOSPC), "into a hole");
        assert_eq!(write(&full, object(3, 0), 131_071, b"xx").await, Err(Errno::ENOSPC));
        assert_eq!(write(&full, object(3, 0), 65_536, &bytes(65_536, 1)).await, Ok(1 << 20), "what was reserved");
        let kept = Allocation::Reserve { keep_size: true };
        store.truncate(object(4, 0), 8192).await.expect("made");
        store.allocate(object(4, 0), 4096, 8192, kept).await.expect("reserved");
        roomy.set_available(6000);
        let short = store_of(&roomy, 10, 0);
        assert_eq!(write(&short, object(4, 0), 0, &bytes(8193, 1)).await, Err(Errno::ENOSPC), "a hole, and more");
        assert_eq!(write(&full, object(4, 0), 4096, &bytes(8193, 1)).await, Err(Errno::ENOSPC));
        assert_eq!(write(&full, object(4, 0), 4096, &bytes(8192, 1)).await, Ok(12_288), "reserved past the end");
        full.remove(object(1, 0)).await.expect("a full target can be emptied");
    });
}

#[test]
fn a_directory_that_was_removed_is_an_error_and_no_hole() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let target = target(dir.path(), 0);
        let store = store_of(&target, 10, 0);
        write(&store, object(1, 0), 0, b"x").await.expect("written");
        std::fs::remove_dir_all(dir.path().join(OBJECTS)).expect("removed");
        assert_eq!(store.read(object(2, 0), 0, 10, None).await.map(|_| ()), Err(Errno::EIO));
        assert_eq!(write(&store, object(3, 0), 0, b"x").await, Err(Errno::EIO));
        assert_eq!(store.stat(&[object(2, 0)]).await, Err(Errno::EIO));
        assert_eq!(target.health(), Health::Vanished);
    });
}

/// A small file system of its own in a file, mounted for one test. `None` where this machine does not let us.
pub(super) struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    pub(super) fn new(mib: u64, options: &str) -> Option<Self> {
        Self::made(mib, options, &["-O", "has_journal"])
    }

    /// With blocks of 4 KiB, which so small a file system has only where it is told to.
    pub(super) fn of_whole_blocks(mib: u64) -> Option<Self> {
        Self::made(mib, "rw", &["-O", "has_journal", "-b", "4096"])
    }

    pub(super) fn made(mib: u64, options: &str, how: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("disk")).expect("made");
        Self::on(dir, mib, options, how)
    }

    /// A disk that promises more than it has: write-back of what was acknowledged fails after some MiB.
    pub(super) fn overcommitted() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("disk")).expect("made");
        let disk = dir.path().join("disk");
        run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", disk.to_str().expect("plain path")]);
        Self::on(dir, 64, "rw", &["-O", "^has_journal", "-b", "4096"])
    }

    /// The disk has what it promised.
    pub(super) fn enlarge(&self) {
        let disk = self.dir.path().join("disk");
        assert!(run("mount", &["-o", "remount,size=128m", disk.to_str().expect("plain path")]), "remounted");
    }

    fn on(dir: tempfile::TempDir, mib: u64, options: &str, how: &[&str]) -> Option<Self> {
        let image = dir.path().join("disk/image");
        std::fs::File::create(&image).expect("made").set_len(mib << 20).expect("sized");
        std::fs::create_dir(dir.path().join("mnt")).expect("made");
        let image = image.to_str().expect("plain path");
        let mounted = Self { dir };
        let path = mounted.path();
        let path = path.to_str().expect("plain path");
        let made = run("mkfs.ext4", &[&["-q", "-F", "-m", "0"], how, &[image]].concat());
        let made = made && run("mount", &["-o", &format!("loop,{options}"), image, path]);
        if !made {
            eprintln!("skipped: this machine cannot mount a loop file system");
        }
        made.then_some(mounted)
    }

    /// As after a boot. Nobody has it open, though the kernel may be about to close files of who has ended.
    pub(super) fn again(&self) {
        let (image, path) = (self.dir.path().join("disk/image"), self.path());
        let (image, path) = (image.to_str().expect("plain path"), path.to_str().expect("plain path"));
        let unmounted = (0..1000).any(|_| {
            let is_unmounted = run("umount", &[path]);
            if !is_unmounted {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_unmounted
        });
        assert!(unmounted && run("mount", &["-o", "loop", image, path]), "mounted again");
    }

    pub(super) fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("disk/image")
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("mnt")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.path().to_str().expect("plain path")]);
        run("umount", &["-l", self.dir.path().join("disk").to_str().expect("plain path")]);
    }
}

pub(super) fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_file_system_says_so_and_works_again_after_a_removal() {
    let Some(mounted) = Mounted::new(32, "rw") else { return };
    on_ring(async {
        let target = target(&mounted.path(), 0);
        // Reserve unknown to the file system itself: the kernel's own ENOSPC must come through as well.
        for in_place in [0, 1 << 20] {
            let store = store_of(&target, 100, in_place);
            let mut outcome = Ok(0);
            let mut written = 0;
            while outcome.is_ok() {
                outcome = write(&store, object(1000, 0), written, &bytes(256 << 10, 1)).await;
                written += 256 << 10;
                assert!(written < 64 << 20, "a 32 MiB file system took {written} bytes");
            }
            assert_eq!(outcome, Err(Errno::ENOSPC));
            let kept = store.stat(&[object(1000, 0)]).await.expect("told")[0].expect("exists").size;
            let end = read(&store, object(1000, 0), kept - 1000, 1000).await;
            assert_eq!(end.len(), 1000, "what was acknowledged is readable");
            store.sync(object(1000, 0)).await.expect("acknowledged data fits");
            store.remove(object(1000, 0)).await.expect("removed");
            target.probe(&mounted.path());
            assert!(write(&store, object(1, 0), 0, &bytes(1 << 20, 2)).await.is_ok());
            store.remove(object(1, 0)).await.expect("removed");
            target.probe(&mounted.path());
        }
    });
}

#[test]
fn what_cannot_be_zeroed_for_lack_of_space_is_not_what_it_was_long_ago() {
    const M: u64 = 1 << 20;
    let Some(mounted) = Mounted::new(16, "rw") else { return };
    on_ring(async {
        let (store, o) = (store(&mounted.path()), object(1, 0));
        write(&store, o, M, &bytes(64 << 10, 1)).await.expect("written behind a hole");
        store.sync(o).await.expect("synced");
        let filler = std::fs::File::create(mounted.path().join("filler")).expect("made");
        for len in [64 << 10, 1 << 10] {
            while (&filler).write_all(&vec![1; len]).and_then(|()| filler.sync_data()).is_ok() {}
        }
        let data = bytes(64 << 10, 2);
        write(&store, o, M, &data).await.expect("its space is there");
        let zero = Allocation::Zero { keep_size: true };
        assert_eq!(store.allocate(o, 0, 2 * M, zero).await, Err(Errno::ENOSPC));
        let seen = read(&store, o, M, 64 << 10).await;
        let fits = |at: usize| seen[at..at + 4096] == data[at..at + 4096] || seen[at..at + 4096] == [0; 4096];
        assert!((0..data.len()).step_by(4096).all(fits), "bytes from before the last write");
    });
}

#[test]
fn a_read_only_target_serves_reads_and_refuses_changes() {
    let Some(mounted) = Mounted::new(16, "rw") else { return };
    on_ring(async {
        let first = store(&mounted.path());
        write(&first, object(1, 0), 0, b"kept").await.expect("written");
        drop(first);
        assert!(run("mount", &["-o", "remount,ro", mounted.path().to_str().expect("plain path")]), "remounted");
        let target = target(&mounted.path(), 0);
        assert_eq!(target.health(), Health::ReadOnly);
        let store = store_of(&target, 10, 0);
        assert_eq!(read(&store, object(1, 0), 0, 10).await, b"kept");
        assert_eq!(write(&store, object(1, 0), 0, b"x").await, Err(Errno::EROFS));
        assert_eq!(write(&store, object(2, 0), 0, b"x").await, Err(Errno::EROFS));
        assert_eq!(store.truncate(object(1, 0), 0).await, Err(Errno::EROFS));
        assert_eq!(store.remove(object(1, 0)).await, Err(Errno::EROFS));
        assert!(run("mount", &["-o", "remount,rw", mounted.path().to_str().expect("plain path")]), "remounted");
        target.probe(&mounted.path());
        assert_eq!(target.health(), Health::Good);
        assert_eq!(write(&store, object(1, 0), 0, b"new").await, Ok(4));
        assert_eq!(read(&store, object(1, 0), 0, 10).await, b"newt");
    });
}

#[test]
fn a_target_that_turned_read_only_by_itself_stays_so() {
    let Some(mounted) = Mounted::new(16, "rw") else { return };
    let identity = mounted.path().join("identity");
    std::fs::write(&identity, b"who it is").expect("written");
    on_ring(async {
        let target = target(&mounted.path(), 0);
        let store = store_of(&target, 10, 0);
        write(&store, object(1, 0), 0, b"kept").await.expect("written");
        target.probe(&identity);
        assert_eq!(target.health(), Health::Good);
        // As it does after an error, with files open for writing.
        assert!(run("mount", &["-o", "remount,abort", mounted.path().to_str().expect("plain path")]), "aborted");
        assert_eq!(write(&store, object(2, 0), 0, b"x").await, Err(Errno::EROFS));
        for _ in 0..2 {
            target.probe(&identity);
            assert_eq!(target.health(), Health::ReadOnly);
        }
        assert_eq!(read(&store, object(1, 0), 0, 10).await, b"kept");
    });
    assert_eq!(std::fs::read(&identity).expect("it is there"), b"who it is");
}

#[test]
fn ext4_is_told_to_put_folders_apart_also_of_a_target_that_is_there() {
    let Some(mounted) = Mounted::new(16, "rw") else { return };
    let directory = |name: &str| std::fs::File::open(mounted.path().join(name)).expect("it is there");
    std::fs::create_dir(mounted.path().join(OBJECTS)).expect("as who restores a backup makes it");
    assert!(!is_scattered(&directory(OBJECTS)));
    on_ring(async {
        let store = store(&mounted.path());
        write(&store, object(1, 0), 0, b"kept").await.expect("written");
        assert!(is_scattered(&directory(OBJECTS)) && is_scattered(&directory(SUMS)));
        assert!(!is_scattered(&directory(&format!("{OBJECTS}/{}", Folder::of(object(1, 0)).path()))));
    });
}

/// Makes a mounted ext4 answer every further call with an error, as a disk that died does.
pub(super) fn kill_disk(mount: &Path) {
    const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d;
    let without_log_flush = 2u32;
    let dir = std::fs::File::open(mount).expect("it is mounted");
    // SAFETY: the pointer is to a live u32, which the kernel only reads.
    let result = unsafe { libc::ioctl(dir.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const without_log_flush) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_disk_that_dies_is_told_to_everyone_who_syncs() {
    let Some(mounted) = Mounted::new(32, "rw") else { return };
    on_ring(async {
        let (target, failures) = (target(&mounted.path(), 0), Rc::new(Failures::default()));
        let options = Options { open_files_max: 10, direct_min: u64::MAX, ..options(true) };
        let store = open(&target, &failures, options);
        write(&store, object(1, 0), 0, &bytes(1 << 20, 1)).await.expect("acknowledged");
        kill_disk(&mounted.path());
        assert_eq!(store.sync(object(1, 0)).await, Err(Errno::EIO));
        // Also to those for whom the kernel has no more news: other connections to the same open file.
        assert_eq!(failures.tell(object(1, 0), 1, 0), Err(Errno::EIO));
        assert_eq!(failures.tell(object(1, 0), 2, 0), Err(Errno::EIO));
        assert_eq!(target.health(), Health::Failing);
        assert!(write(&store, object(2, 0), 0, b"x").await.is_err());
    });
}

#[test]
fn a_sync_that_fails_after_its_waiter_has_given_up_is_remembered() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let target = target(dir.path(), 0);
        let mut store = store_of(&target, 10, 0);
        // It refuses every sync.
        let path = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(dir.path());
        store.root = Arc::new(path.expect("opened").into());
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let slow = Arc::clone(&target);
        ring::spawn(async move {
            let sync = move || {
                begun.send(()).expect("waited for");
                may_go_on.recv().map_err(|_| Errno::EIO)
            };
            slow.syncer.run(sync).await.expect("done");
        });
        while has_begun.try_recv().is_err() {
            ring::sleep(Duration::from_millis(1)).await;
        }
        assert!(ring::timeout(Duration::from_millis(20), store.sync_file_system()).await.is_err());
        assert!(!target.has_failed());
        go_on.send(()).expect("it waits");
        for _ in 0..5000 {
            if target.has_failed() {
                break;
            }
            ring::sleep(Duration::from_millis(1)).await;
        }
        assert!(target.has_failed());
    });
}

#[test]
fn an_error_after_the_file_left_the_cache_is_remembered() {
    let Some(mounted) = Mounted::overcommitted() else { return };
    let acknowledged = first_version(7) + 2;
    on_ring(async {
        let (target, failures) = (target(&mounted.path(), 0), Rc::new(Failures::default()));
        target.begin(7).expect("begun");
        target.serve().expect("noted");
        let options = Options { open_files_max: 1, direct_min: u64::MAX, ..options(true) };
        let store = open(&target, &failures, options);
        write(&store, object(2, 0), 0, b"there").await.expect("acknowledged");
        store.sync(object(2, 0)).await.expect("synced");
        write(&store, object(1, 0), 0, &bytes(16 << 20, 1)).await.expect("acknowledged");
        // Each takes the only place in the cache: the one with the data is written back and closed.
        let (mut others, begun) = (100..300, Instant::now());
        while failures.tell(object(1, 0), 1, 0).is_ok() {
            if let Some(other) = others.next() {
                store.truncate(object(other, 0), 0).await.expect("made");
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the loss of acknowledged data is noticed");
            ring::sleep(Duration::from_millis(5)).await;
        }
        let is_noted = || !mounted.path().join("written.toml").exists();
        for _ in 0..5000 {
            if is_noted() {
                break;
            }
            ring::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_noted());
    });
    // It may be killed now: the kernel has no more news, and the page cache is still the same.
    mounted.enlarge();
    let next = Target::new(mounted.path(), 0);
    next.begin(8).expect("begun");
    assert!(next.may_have_lost(acknowledged));
}

#[test]
fn space_is_reserved_given_back_and_found() {
    const BLOCK: u64 = 4096;
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, o) = (store(dir.path()), object(1, 0));
        let reserve = |keep_size| Allocation::Reserve { keep_size };
        assert_eq!(store.allocate(o, 0, BLOCK, Allocation::Punch).await, Ok(0), "a hole in nothing");
        assert_eq!(store.stat(&[o]).await.expect("stat"), [None]);
        assert_eq!(store.seek(o, 0, true).await, Ok(None));

        assert_eq!(store.allocate(o, 0, 4 * BLOCK, reserve(true)).await, Ok(0));
        let stored = store.stat(&[o]).await.expect("stat")[0].expect("it exists");
        assert_eq!((stored.size, stored.blocks), (0, 32));
        assert_eq!(store.allocate(o, BLOCK, 4 * BLOCK, reserve(false)).await, Ok(5 * BLOCK));
        assert_eq!(read(&store, o, 0, 1 << 20).await, vec![0; 5 * BLOCK as usize]);

        let data = bytes(8 * BLOCK as usize, 3);
        assert_eq!(write(&store, o, 0, &data).await, Ok(8 * BLOCK));
        assert_eq!(store.allocate(o, 2 * BLOCK, 2 * BLOCK, Allocation::Punch).await, Ok(8 * BLOCK));
        assert_eq!(store.allocate(o, 6 * BLOCK, 4 * BLOCK, Allocation::Zero { keep_size: true }).await, Ok(8 * BLOCK));
        let mut expected = data;
        expected[2 * BLOCK as usize..4 * BLOCK as usize].fill(0);
        expected[6 * BLOCK as usize..].fill(0);
        assert!(read(&store, o, 0, 1 << 20).await == expected);
        assert_eq!(store.seek(o, 0, false).await, Ok(Some(0)));
        assert_eq!(store.seek(o, 100, true).await, Ok(Some(2 * BLOCK)));
        assert_eq!(store.seek(o, 2 * BLOCK + 1, false).await, Ok(Some(4 * BLOCK)));
        assert_eq!(store.seek(o, 8 * BLOCK, true).await, Ok(None), "after the end");

        assert_eq!(
            store.allocate(o, 7 * BLOCK, 3 * BLOCK, Allocation::Zero { keep_size: false }).await,
            Ok(10 * BLOCK)
        );
        assert_eq!(store.allocate(o, 1 << 62, 1 << 62, reserve(false)).await, Err(Errno::EFBIG));
        assert_eq!(store.allocate(o, u64::MAX, 1, reserve(false)).await, Err(Errno::EFBIG));
        assert_eq!(write(&store, o, 10 * BLOCK, b"x").await, Ok(10 * BLOCK + 1), "the size is known after an error");
    });
}

/// All at once, those with the highest offsets first, so that the others end after them.
async fn all_at_once<T>(calls: impl DoubleEndedIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    ring::join_all(calls.rev()).await
}

#[test]
fn copies_into_one_object_at_once_do_not_cut_each_other_off() {
    const PIECE: u64 = 4096;
    const PIECES: u64 = 64;
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, source) = (store(dir.path()), object(1, 0));
        let data = bytes((PIECES * PIECE) as usize, 7);
        write(&store, source, 0, &data).await.expect("written");
        let range = |offset| Range { source_offset: offset, offset, len: PIECE };
        let copies = (0..PIECES).map(|piece| store.copy(source, object(2, 0), range(piece * PIECE)));
        for size in all_at_once(copies).await {
            assert!(size.expect("copied") >= PIECE);
        }
        assert!(read(&store, object(2, 0), 0, 1 << 20).await == data);
        // Holes, before data of the target and after it.
        let hole = Range { source_offset: PIECES * PIECE, offset: (PIECES - 1) * PIECE, len: 10 * PIECE };
        assert_eq!(store.copy(source, object(2, 0), hole).await, Ok(PIECES * PIECE), "a hole makes nothing longer");
        let seen = read(&store, object(2, 0), 0, 1 << 20).await;
        let kept = (hole.offset) as usize;
        assert!(seen[..kept] == data[..kept] && seen[kept..].iter().all(|&byte| byte == 0));
        assert_eq!(store.copy(object(9, 9), object(2, 0), range(0)).await, Ok(PIECES * PIECE), "nothing is all hole");
        assert_eq!(read(&store, object(2, 0), 0, PIECE as u32).await, vec![0; PIECE as usize]);
    });
}

#[test]
fn ranges_are_zeroed_at_once_also_where_the_file_system_cannot_do_it_in_place() {
    const RANGE: u64 = 4096;
    // tmpfs makes holes, but has no FALLOC_FL_ZERO_RANGE.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    on_ring(async {
        let (store, o) = (store(dir.path()), object(1, 0));
        write(&store, o, 0, &bytes(100, 1)).await.expect("written");
        let zero = Allocation::Zero { keep_size: false };
        let zeroed = (0..64).map(|range| store.allocate(o, range * RANGE, RANGE, zero));
        assert!(all_at_once(zeroed).await.iter().all(Result::is_ok));
        assert!(read(&store, o, 0, 1 << 20).await == vec![0; 64 * RANGE as usize]);
        let stored = store.stat(&[o]).await.expect("stat")[0].expect("it exists");
        assert_eq!((stored.size, stored.blocks), (64 * RANGE, 64 * 8), "with their space");
    });
}
