//! Checksums of objects, on real files.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Instant;

use ring::buf::Slice;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;
use wire::frame::crc32c;
use wire::sums::Sums;

use super::copy::Range;
use super::entry_cache::EntryCache;
use super::files::{Files, Options};
use super::folders;
use super::keeping::SUMS;
use super::tests::{Mounted, bytes, object, on_ring, open, options, read, target, write};
use super::{Checked, Data, Found, LaneShare, Leftover, ObjectStore, syscall};
use crate::sums::header::{HEADER_LEN, Header, Owner, State, place};
use crate::sums::{Entry, Trust};

const K: u64 = 1 << 10;
const BLOCK: u64 = 4096;
pub(super) const OBJECT: ObjectId = ObjectId { inode: types::id::InodeId(1), stripe: 0 };

pub(super) fn store(dir: &Path) -> Files {
    open(&target(dir, 0), &Rc::default(), options(true))
}

/// Of checksums in memory, one page is kept: entries of 2 MiB.
fn store_of_little_memory(dir: &Path) -> Files {
    let mut store = store(dir);
    store.sums.cache = Rc::new(EntryCache::new(1));
    store
}

/// As after a boot.
pub(super) fn store_of_another_epoch(dir: &Path) -> Files {
    let store = store(dir);
    store.sums.distrust_closed();
    store
}

pub(super) fn sidecar(dir: &Path, object: ObjectId) -> PathBuf {
    dir.join(SUMS).join(folders::path(object).to_str().expect("plain path"))
}

pub(super) fn header(dir: &Path, object: ObjectId) -> State {
    let bytes = std::fs::read(sidecar(dir, object)).expect("there");
    Header::decode(&bytes[..HEADER_LEN]).expect("whole").state
}

/// Behind the service's back.
pub(super) fn flip(store: &Files, object: ObjectId, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(store.object_path(object)).expect("there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("within");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

/// What was written of the file has to come from the disk from here on.
pub(super) fn forget_pages(file: &File) {
    // SAFETY: no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

pub(super) async fn read_errno(store: &Files, offset: u64, len: u32) -> Option<Errno> {
    store.read(OBJECT, offset, len, None).await.err()
}

pub(super) async fn check_all(store: &Files, object: ObjectId) -> Checked {
    store.check(object, 0, 1 << 30).await.expect("readable")
}

pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn summed(bytes: &[u8]) -> Data {
    Data { sums: Some(Sums::of(bytes)), ..Slice::from_vec(bytes.to_vec()).into() }
}

#[test]
fn sums_come_with_what_is_written_and_go_with_what_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let (store, mut dice, mut model) = (store(dir.path()), Dice(11), vec![0; 300_000]);
        write(&store, OBJECT, 0, &model).await.expect("written");
        for round in 0..250 {
            let len = 1 + dice.below(60_000) as usize;
            // Half of them at the beginning of a block.
            let at = dice.below((300_000 - len) as u64) as usize / if round % 2 == 0 { 4096 } else { 1 };
            let at = if round % 2 == 0 { at * 4096 } else { at };
            let data = bytes(len, round);
            store.write(OBJECT, at as u64, summed(&data)).await.expect("written");
            model[at..at + len].copy_from_slice(&data);
            for (at, len) in [(at, len), (dice.below(300_000) as usize, 1 + dice.below(70_000) as usize), (0, 300_000)]
            {
                let Found { data, crc, .. } = store.read(OBJECT, at as u64, len as u32, None).await.expect("right");
                assert!(data[..] == model[at..300_000.min(at + len)], "{len} bytes at {at}");
                assert_eq!(crc, Some(crc32c(&data)), "{len} bytes at {at}");
            }
        }
    });
}

/// They are those that the network was found right by, not new ones of what lies in memory by then.
#[test]
fn the_sums_of_whole_blocks_are_the_given_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        let (sent, damaged) = (bytes(3 * 4096, 1), bytes(3 * 4096, 2));
        let data = Data { sums: Some(Sums::of(&sent)), ..Slice::from_vec(damaged).into() };
        store.write(OBJECT, 8192, data).await.expect("written");
        assert_eq!(read_errno(&store, 8192, 3 * 4096).await, Some(Errno::EIO));
        assert_eq!(read_errno(&store, 0, 8192).await, None);
    });
}

#[test]
fn a_flipped_bit_is_an_error_where_it_is_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        let data = bytes(1_000_000, 3);
        write(&store, OBJECT, 0, &data).await.expect("written");
        flip(&store, OBJECT, 123_456);
        let bad = 123_456 / BLOCK * BLOCK;
        for (offset, len) in [(bad, 4096), (bad + 100, 1), (bad - 1, 2), (0, 1_000_000), (bad + 4095, 10)] {
            assert_eq!(read_errno(&store, offset, len).await, Some(Errno::EIO), "{len} bytes at {offset}");
        }
        for (offset, len) in [(0, bad), (bad + BLOCK, 500_000), (bad - 1, 1), (999_999, 1), (3, 70_000)] {
            assert!(read(&store, OBJECT, offset, len as u32).await == data[offset as usize..][..len as usize]);
        }
        let checked = check_all(&store, OBJECT).await;
        assert_eq!((checked.bytes, &checked.corrupt[..], checked.adopted), (1_000_000, &[bad][..], 0));
        // What keeps a part of it is refused, whatever it is.
        assert_eq!(write(&store, OBJECT, bad + 5, b"small").await, Err(Errno::EIO));
        assert_eq!(store.truncate(OBJECT, bad + 5).await, Err(Errno::EIO));
        assert_eq!(store.allocate(OBJECT, bad + 5, 9000, Allocation::Punch).await, Err(Errno::EIO));
        let range = Range { source_offset: bad - 10_000, offset: 0, len: 20_000 };
        assert_eq!(store.copy(OBJECT, object(2, 0), range).await, Err(Errno::EIO));
        assert_eq!(read_errno(&store, bad, 1).await, Some(Errno::EIO));
        // What writes all of it anew heals it.
        write(&store, OBJECT, bad, &data[bad as usize..][..4096]).await.expect("written");
        assert!(read(&store, OBJECT, 0, 1_000_000).await == data);
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
        flip(&store, OBJECT, 999_999);
        assert_eq!(read_errno(&store, 999_990, 100).await, Some(Errno::EIO), "the end of an object is verified too");
    });
}

#[test]
fn zeroed_blocks_and_lost_ends_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(100_000, 3)).await.expect("written");
        let file = OpenOptions::new().write(true).open(first.object_path(OBJECT)).expect("there");
        file.write_all_at(&[0; 4096], 8192).expect("zeroed");
        assert_eq!(check_all(&first, OBJECT).await.corrupt, [8192]);
        write(&first, OBJECT, 8192, &bytes(4096, 3)).await.expect("written");
        file.set_len(50_000).expect("cut");
        assert_eq!(read_errno(&first, 60_000, 10).await, Some(Errno::EIO));
        file.set_len(100_000).expect("longer");
        assert_eq!(read_errno(&first, 60_000, 10).await, Some(Errno::EIO));
        write(&first, OBJECT, 0, &bytes(100_000, 3)).await.expect("written");
        first.clean(Instant::now()).await;
        drop(first);
        file.set_len(50_000).expect("cut while nobody looks");
        let second = store(dir.path());
        assert_eq!(read(&second, OBJECT, 0, 49_152).await, bytes(49_152, 3));
        assert_eq!(read_errno(&second, 60_000, 10).await, Some(Errno::EIO));
        assert_eq!(read_errno(&second, 49_152, 10).await, Some(Errno::EIO));
        let copy = async |source_offset, len| {
            let range = Range { source_offset, offset: 0, len };
            second.copy(OBJECT, object(2, 0), range).await
        };
        assert_eq!(copy(60_000, 10_000).await, Err(Errno::EIO));
        assert_eq!(copy(0, 49_152).await, Ok(49_152));
        assert_eq!(copy(100_000, 10_000).await, Ok(49_152), "beyond its end is nothing");
    });
}

/// Random changes against a plain model, over restarts, with everything verified all the time.
fn changes(seed: u64, dir: &Path) {
    on_ring(async {
        let mut dice = Dice(seed);
        let mut model: [Vec<u8>; 2] = Default::default();
        let reach = [1 << 20, 5 << 20][(seed % 2) as usize];
        let mut store = store_of_little_memory(dir);
        for step in 0..400u64 {
            let grain = [4096, 4096, 512, 1][dice.below(4) as usize];
            let offset = dice.below(reach) / grain * grain;
            let len = (dice.below(300 * K) / grain * grain).max(grain);
            let which = dice.below(2) as usize;
            let (o, (from, to)) = (object(1 + which as u64, 0), (offset as usize, (offset + len) as usize));
            let size = model[which].len();
            match dice.below(12) {
                0 => {
                    store.truncate(o, offset).await.expect("cut");
                    model[which].resize(from, 0);
                }
                1 => {
                    store.allocate(o, offset, len, Allocation::Punch).await.expect("punched");
                    model[which][from.min(size)..to.min(size)].fill(0);
                }
                2 => {
                    let what = Allocation::Zero { keep_size: false };
                    store.allocate(o, offset, len, what).await.expect("zeroed");
                    model[which].resize(size.max(to), 0);
                    model[which][from..to].fill(0);
                }
                3 => {
                    let what = Allocation::Reserve { keep_size: step % 2 == 0 };
                    store.allocate(o, offset, len, what).await.expect("reserved");
                    model[which].resize(if step % 2 == 0 { size } else { size.max(to) }, 0);
                }
                4 => {
                    let source_offset = dice.below(reach) / grain * grain;
                    let range = Range { source_offset, offset, len };
                    let reached = store.copy(object(2 - which as u64, 0), o, range).await.expect("copied") as usize;
                    let mut piece = model[1 - which].get(source_offset as usize..).unwrap_or_default().to_vec();
                    piece.resize(len as usize, 0);
                    model[which].resize(size.max(to), 0);
                    model[which][from..to].copy_from_slice(&piece);
                    // Where it ends with a hole it does not get longer for that.
                    assert!(reached >= size && model[which][reached..].iter().all(|&byte| byte == 0));
                    model[which].truncate(reached);
                }
                5..9 => {
                    model[which].resize(size.max(to), 0);
                    let data = bytes(len as usize, step as u8);
                    model[which][from..to].copy_from_slice(&data);
                    write(&store, o, offset, &data).await.expect("written");
                }
                9 => store.clean(Instant::now()).await,
                _ => {
                    let seen = read(&store, o, offset, len as u32).await;
                    assert!(seen == model[which][from.min(size)..to.min(size)], "step {step}: {len} bytes at {offset}");
                }
            }
            if step % 40 == 39 {
                drop(store);
                store = match dice.below(3) {
                    0 => store_of_another_epoch(dir),
                    _ => store_of_little_memory(dir),
                };
            }
            if step % 20 == 19 {
                for (which, model) in model.iter().enumerate() {
                    let o = object(1 + which as u64, 0);
                    let seen = store.read(o, 0, 8 << 20, None).await.expect("all of it is right").data;
                    assert!(seen[..] == model[..], "step {step}");
                    let checked = check_all(&store, o).await;
                    assert_eq!((checked.corrupt, checked.size), (vec![], model.len() as u64), "step {step}");
                    store.believe(o, store.going_over()).await.expect("believed");
                    assert!(!check_all(&store, o).await.in_doubt);
                }
            }
        }
        // Now each block is exactly what its entry says.
        for (which, model) in model.iter().enumerate().filter(|(_, model)| !model.is_empty()) {
            let o = object(1 + which as u64, 0);
            for _ in 0..50 {
                let at = dice.below(model.len() as u64);
                flip(&store, o, at);
                let found = store.read(o, at, 1, None).await;
                assert_eq!(found.err(), Some(Errno::EIO), "seed {seed}: a flip at {at} of {}", model.len());
                assert_eq!(check_all(&store, o).await.corrupt, [at / BLOCK * BLOCK]);
                flip(&store, o, at);
            }
        }
    });
}

#[test]
fn any_changes_keep_the_checksums_right() {
    for seed in 1..6 {
        let dir = tempfile::tempdir().expect("a directory");
        changes(seed, dir.path());
    }
    // No ranges zeroed in place, no direct I/O by blocks, its own way to tell holes.
    if let Ok(dir) = tempfile::tempdir_in("/dev/shm") {
        changes(99, dir.path());
    }
}

#[test]
fn what_died_between_entry_and_data_is_what_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        let data = bytes(40_000, 1);
        write(&first, OBJECT, 0, &data).await.expect("written");
        // Killed after the entries of a write, before its data: of one within, and of one at the end.
        let file = first.open_existing(OBJECT).await.expect("openable").expect("there");
        let sums = file.sums().expect("kept");
        let entry = sums.entries(2..3).await.expect("read")[0];
        let put = |block, entry: Entry| {
            let file = OpenOptions::new().write(true).open(sidecar(dir.path(), OBJECT)).expect("there");
            file.write_all_at(&entry.encode(), place(block)).expect("written");
        };
        put(2, Entry { now: 77, before: entry.now });
        put(10, Entry { now: 78, before: 0 });
        put(11, Entry { now: 79, before: 0 });
        drop((file, first));

        let second = store(dir.path());
        assert!(read(&second, OBJECT, 0, 50_000).await == data);
        flip(&second, OBJECT, 9000);
        assert_eq!(read_errno(&second, 8192, 10).await, Some(Errno::EIO), "neither the old nor the new");
        flip(&second, OBJECT, 9000);
        // A write over it, and another death before its data: it is still what it was first.
        let file = second.open_existing(OBJECT).await.expect("openable").expect("there");
        assert_eq!(file.sums().expect("kept").trust(), Trust::Either);
        write(&second, OBJECT, 8192, &bytes(4096, 9)).await.expect("written");
        assert_eq!(file.sums().expect("kept").entries(2..3).await.expect("read")[0].before, entry.now);
        // Beyond the end nothing is left of the other.
        second.truncate(OBJECT, 60_000).await.expect("longer");
        assert_eq!(read(&second, OBJECT, 40_960, 10_000).await, vec![0; 10_000]);
        let checked = check_all(&second, OBJECT).await;
        assert!(checked.in_doubt && checked.corrupt.is_empty());
        second.believe(OBJECT, second.going_over()).await.expect("believed");
        let State::Dirty { owner, .. } = header(dir.path(), OBJECT) else { panic!("not clean yet") };
        assert_eq!(owner, second.sums.me());
        drop((file, second));
        let third = store(dir.path());
        assert_eq!(read(&third, OBJECT, 8192, 4096).await, bytes(4096, 9));
    });
}

#[test]
fn objects_without_checksums_are_read_and_get_some_when_they_are_gone_over() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        let data = bytes(100_000, 1);
        write(&first, OBJECT, 0, &data).await.expect("written");
        write(&first, object(2, 0), 0, &data).await.expect("written");
        drop(first);
        std::fs::remove_dir_all(dir.path().join(SUMS)).expect("as where checksums were off");
        let second = store(dir.path());
        assert!(read(&second, OBJECT, 0, 200_000).await == data);
        write(&second, OBJECT, 50_000, b"some").await.expect("written");
        assert_eq!(read(&second, OBJECT, 50_000, 4).await, b"some");
        assert_eq!(second.doubtful(), None, "left to a scrub");
        for o in [OBJECT, object(2, 0)] {
            let checked = check_all(&second, o).await;
            assert!(checked.in_doubt && checked.adopted >= 24 && checked.corrupt.is_empty(), "{checked:?}");
            second.believe(o, second.going_over()).await.expect("believed");
            flip(&second, o, 70_000);
            assert_eq!(second.read(o, 70_000, 1, None).await.err(), Some(Errno::EIO));
        }
        // A damaged header is as good as none.
        let file = OpenOptions::new().write(true).open(sidecar(dir.path(), OBJECT)).expect("there");
        file.write_all_at(b"?", 20).expect("written");
        drop(second);
        let third = store(dir.path());
        assert_eq!(read_errno(&third, 0, 100_000).await, None);
    });
}

#[test]
fn what_is_written_without_checksums_is_not_held_against_it_later() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let with = store(dir.path());
        for o in [OBJECT, object(2, 0)] {
            write(&with, o, 0, &bytes(50_000, 1)).await.expect("written");
        }
        with.clean(Instant::now()).await;
        drop(with);
        let without = open(&target(dir.path(), 0), &Rc::default(), options(false));
        write(&without, OBJECT, 100, b"changed").await.expect("written");
        write(&without, object(3, 0), 0, b"new").await.expect("written");
        flip(&without, object(2, 0), 0);
        assert_eq!(without.read(object(2, 0), 0, 1, None).await.err(), None, "nothing is verified");
        assert!(!sidecar(dir.path(), object(3, 0)).exists());
        drop(without);
        let with = store(dir.path());
        assert_eq!(read(&with, OBJECT, 100, 7).await, b"changed");
        assert_eq!(header(dir.path(), OBJECT), State::Dirty { owner: Owner::NOBODY, pending: None });
        assert_eq!(read(&with, object(3, 0), 0, 9).await, b"new");
        assert_eq!(with.read(object(2, 0), 0, 1, None).await.err(), Some(Errno::EIO), "that one was not written to");
    });
}

#[test]
fn a_removed_object_takes_its_checksums_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
        let path = sidecar(dir.path(), OBJECT);
        let old = std::fs::read(&path).expect("there");
        store.remove(OBJECT).await.expect("removed");
        assert!(!path.exists());
        // One that a crash has left behind says nothing of the next object.
        std::fs::write(&path, &old).expect("written");
        store.truncate(OBJECT, 40_000).await.expect("made");
        assert_eq!(read(&store, OBJECT, 0, 40_000).await, vec![0; 40_000]);
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
    });
}

#[test]
fn a_full_file_system_leaves_nothing_that_reads_as_corrupt() {
    let Some(mounted) = Mounted::new(32, "rw") else { return };
    on_ring(async {
        for in_place in [0, 1 << 20] {
            let options = Options { write_in_place_max: in_place, ..options(true) };
            let store = open(&target(&mounted.path(), 0), &Rc::default(), options);
            let mut dice = Dice(in_place as u64 + 7);
            // Small pieces all over a large sparse object: its checksums take about as much space as its data.
            let mut failures = 0;
            for n in 0..20_000u64 {
                let outcome =
                    write(&store, OBJECT, dice.below(1 << 34), &bytes(100 + n as usize % 9000, n as u8)).await;
                failures += u32::from(outcome == Err(Errno::ENOSPC));
                if failures > 40 {
                    break;
                }
            }
            assert!(failures > 40, "it is not full");
            let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
            assert_eq!(file.sums().expect("kept").trust(), Trust::Exact);
            let mut at = 0;
            while let Some(data) = store.seek(OBJECT, at, false).await.expect("told") {
                let data = data / BLOCK * BLOCK;
                let checked = store.check(OBJECT, data, 64 * K).await.expect("readable");
                assert_eq!(checked.corrupt, Vec::<u64>::new(), "near {data}");
                at = data + 64 * K;
            }
            store.remove(OBJECT).await.expect("removed");
        }
    });
}

#[test]
fn a_sidecar_of_another_object_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(5000, 1)).await.expect("written");
        write(&first, object(2, 0), 0, &bytes(5000, 2)).await.expect("written");
        first.clean(Instant::now()).await;
        drop(first);
        std::fs::copy(sidecar(dir.path(), OBJECT), sidecar(dir.path(), object(2, 0))).expect("misplaced");
        let second = store(dir.path());
        assert_eq!(read(&second, object(2, 0), 0, 5000).await, bytes(5000, 2));
        // Nor does one lane believe it that copies from another one's object.
        let range = Range { source_offset: 0, offset: 0, len: 5000 };
        assert_eq!(second.copy(object(2, 0), object(3, 0), range).await, Ok(5000));
        assert!(File::open(sidecar(dir.path(), OBJECT)).is_ok());
    });
}

#[test]
fn blocks_whose_checksums_could_not_be_written_are_taken_as_they_are_and_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let mut first = store(dir.path());
        write(&first, OBJECT, 0, &bytes(50_000, 1)).await.expect("written");
        let file = first.open_existing(OBJECT).await.expect("openable").expect("there");
        first.distrust(OBJECT, file.sums().expect("kept"), 2..3).await;
        drop(file);
        assert_eq!(first.doubtful(), Some(OBJECT));
        for life in 0..2 {
            flip(&first, OBJECT, 2 * BLOCK + 5);
            flip(&first, OBJECT, 4 * BLOCK);
            assert_eq!(read_errno(&first, 2 * BLOCK, 100).await, None, "{life}");
            assert_eq!(read_errno(&first, 4 * BLOCK, 100).await, Some(Errno::EIO), "{life}");
            flip(&first, OBJECT, 4 * BLOCK);
            drop(first);
            first = store(dir.path());
        }
        let checked = check_all(&first, OBJECT).await;
        assert!(checked.in_doubt && checked.corrupt.is_empty());
        first.believe(OBJECT, first.going_over()).await.expect("believed");
        flip(&first, OBJECT, 2 * BLOCK + 5);
        assert_eq!(read_errno(&first, 2 * BLOCK, 100).await, Some(Errno::EIO));
    });
}

#[test]
fn holes_of_object_and_checksums_are_jumped_over_and_nothing_else() {
    const FAR: u64 = 1 << 40;
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        for at in [0, 64 << 20, FAR + 100] {
            write(&store, OBJECT, at, &bytes(5000, 1)).await.expect("written");
        }
        // What the disk has lost is no hole.
        let file = OpenOptions::new().write(true).open(store.object_path(OBJECT)).expect("there");
        syscall::allocate(file.as_raw_fd(), Allocation::Punch.mode(), 64 << 20, 8192).expect("punched");
        let (mut at, mut steps, mut corrupt) = (0, 0, Vec::new());
        while let Some(next) = store.next_to_check(OBJECT, at).await.expect("told") {
            corrupt.extend(store.check(OBJECT, next, 512 * K).await.expect("readable").corrupt);
            (at, steps) = (next + 512 * K, steps + 1);
        }
        assert_eq!(corrupt, [64 << 20, (64 << 20) + BLOCK]);
        // The checksums of 2 MiB lie in one block of the disk, or on the border of two.
        assert!(steps <= 3 * 9, "{steps} steps");
        let next = store.next_to_check(OBJECT, 100 << 20).await.expect("told").expect("there");
        assert!((FAR - (2 << 20)..=FAR).contains(&next) && next.is_multiple_of(BLOCK), "{next}");
        assert_eq!(store.next_to_check(OBJECT, FAR + BLOCK).await, Ok(Some(FAR + BLOCK)));
        assert_eq!(store.next_to_check(object(2, 0), 0).await, Ok(None));
    });
}

#[test]
fn leftover_checksums_are_listed_and_removed_and_others_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(5000, 1)).await.expect("written");
        let left = object(2, 0);
        write(&store, left, 0, &bytes(5000, 1)).await.expect("written");
        let copy = std::fs::read(sidecar(dir.path(), left)).expect("there");
        store.remove(left).await.expect("removed");
        std::fs::write(sidecar(dir.path(), left), copy).expect("written");
        let all = LaneShare { lane: 0, lanes: 1 };
        let page = store.list_checksums(None, 10, all).await.expect("listed");
        let mut listed: Vec<ObjectId> = page.objects.iter().map(|(object, _)| *object).collect();
        listed.sort_unstable();
        assert_eq!(listed, [OBJECT, left]);
        assert_eq!(store.remove_leftover(OBJECT).await, Ok(Leftover::Kept));
        assert_eq!(store.remove_leftover(left).await, Ok(Leftover::Removed));
        assert!(sidecar(dir.path(), OBJECT).exists() && !sidecar(dir.path(), left).exists());
    });
}

/// Many at once, each with blocks of its own, so that pages of entries are read while others are written.
fn changes_at_once(is_slow: bool, dir: &Path) {
    on_ring(async {
        let options = Options { write_in_place_max: if is_slow { 0 } else { 64 << 10 }, ..options(true) };
        let mut store = open(&target(dir, 0), &Rc::default(), options);
        store.sums.cache = Rc::new(EntryCache::new(2));
        if is_slow {
            // Entries too are written through the ring.
            let now = Instant::now();
            store.pace.record(now, now + std::time::Duration::from_secs(3600));
        }
        let (store, tasks) = (&store, 16);
        ring::join_all((0..tasks).map(|task| async move {
            let (mut dice, mut model) = (Dice(task + 1), BTreeMap::new());
            for step in 0..400u64 {
                // Over four pages of entries.
                let block = dice.below(2048 / tasks) * tasks + task;
                match dice.below(9) {
                    8 if is_slow => {
                        // The entries have to come from the disk.
                        let file = store.open_existing(OBJECT).await.expect("openable");
                        let Some(sums) = file.as_ref().and_then(|file| file.sums()) else { continue };
                        syscall::write_back(sums.fd()).expect("written back");
                        forget_pages(&File::open(sidecar(dir, OBJECT)).expect("there"));
                    }
                    0 => {
                        store.allocate(OBJECT, block * BLOCK, BLOCK, Allocation::Punch).await.expect("punched");
                        model.insert(block, vec![0; BLOCK as usize]);
                    }
                    1..4 => {
                        let data = bytes(BLOCK as usize, (task * 31 + step) as u8);
                        write(store, OBJECT, block * BLOCK, &data).await.expect("written");
                        model.insert(block, data);
                    }
                    _ => {
                        let Found { data: seen, .. } =
                            store.read(OBJECT, block * BLOCK, BLOCK as u32, None).await.expect("right");
                        let known = model.get(&block).map_or(&[][..], |data| data);
                        let common = seen.len().min(known.len());
                        assert!(seen[..common] == known[..common] && seen[common..].iter().all(|&byte| byte == 0));
                        assert!(known[common..].iter().all(|&byte| byte == 0), "task {task}, step {step}");
                    }
                }
            }
        }))
        .await;
        assert_eq!(check_all(store, OBJECT).await.corrupt, Vec::<u64>::new());
    });
}

#[test]
fn changes_at_once_keep_the_checksums_right() {
    for is_slow in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        changes_at_once(is_slow, dir.path());
    }
}

#[test]
fn what_is_read_while_entries_are_written_is_not_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(100_000, 1)).await.expect("written");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let sums = file.sums().expect("kept");
        let is_kept = || store.sums.cache.copy(sums.cache_id(), 0, &mut [Entry::default(); 1]);
        sums.entries(0..1).await.expect("read");
        assert!(is_kept());
        let file = File::open(sidecar(dir.path(), OBJECT)).expect("there");
        file.sync_all().expect("synced");
        // What the kernel brings while it is asked whether that is there already has not to be waited for.
        for _ in 0..100 {
            store.sums.cache.forget(sums.cache_id(), 0..1);
            forget_pages(&file);
            let mut read = pin!(sums.entries(0..1));
            if poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await {
                continue;
            }
            let entry = Entry::settled(77);
            store.put_entries(OBJECT, sums, 5, &[entry]).await.expect("written");
            read.await.expect("read");
            assert!(!is_kept());
            assert_eq!(sums.entries(5..6).await.expect("read"), [entry]);
            return;
        }
    });
}

/// Of an object from before there were checksums, which many begin to write to at once.
#[test]
fn a_sidecar_is_made_once_and_keeps_what_is_written_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let off = open(&target(dir.path(), 0), &Rc::default(), options(false));
        write(&off, OBJECT, 0, &bytes(5000, 1)).await.expect("written");
        let store = Rc::new(store(dir.path()));
        assert_eq!(read(&store, OBJECT, 0, 5000).await, bytes(5000, 1));
        // All helper threads but one are busy, and that one becomes so between the calls of the two writers.
        let busy = async |store: &Rc<Files>| {
            let (end, ended) = mpsc::channel::<()>();
            let helpers = store.target.helpers.clone();
            ring::spawn(async move { helpers.run(move || ended.recv().unwrap_or_default()).await });
            ring::yield_now().await;
            end
        };
        let write_later = async |block: u64| {
            let (store, done) = (Rc::clone(&store), Rc::new(Cell::new(false)));
            let is_done = Rc::clone(&done);
            ring::spawn(async move {
                write(&store, OBJECT, block * BLOCK, &bytes(4096, 2)).await.expect("written");
                done.set(true);
            });
            ring::yield_now().await;
            is_done
        };
        let wait_for = async |done: Rc<Cell<bool>>| {
            while !done.get() {
                ring::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let mut others = Vec::new();
        for _ in 0..8 {
            others.push(busy(&store).await);
        }
        let first = write_later(1000).await;
        let between = busy(&store).await;
        let second = write_later(500).await;
        others.pop();
        wait_for(first).await;
        let check_at = async |block| store.check(OBJECT, block * BLOCK, 512 << 10).await.expect("readable");
        check_at(896).await;
        drop((between, others));
        wait_for(second).await;
        for block in (0..1001).step_by(128) {
            check_at(block).await;
        }
        store.believe(OBJECT, store.going_over()).await.expect("done");
        drop(store.open.borrow_mut().remove(OBJECT));
        assert!(read(&store, OBJECT, 1000 * BLOCK, 4096).await == bytes(4096, 2));
    });
}
