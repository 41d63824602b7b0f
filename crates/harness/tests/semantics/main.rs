//! `docs/semantics.md`, executed: each statement of it on one mount, and on two, where one mount acts and the other looks.
//!
//! A statement in the document ends with its name in brackets; a test here has that name. Neither goes without the
//! other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../namespace/tests/one_shard/common/collisions.rs"]
mod collisions;
mod contents;
mod flags;
mod locks;
mod names;
mod permissions;
mod renames;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::loop_disk::LoopDisk;
use harness::syscall;

/// Where a statement is tried: a directory of its own, through the mount that acts and the one that looks.
struct Place {
    here: PathBuf,
    there: PathBuf,
}

type Statement = (&'static str, fn(&Place));

macro_rules! statements {
    ($($module:ident { $($name:ident)* })*) => {
        const STATEMENTS: &[Statement] = &[$($((stringify!($name), $module::$name)),*),*];
    };
}

statements! {
    names {
        changes_are_seen_at_once
        open_files_see_writes_of_others
        rename_replaces_atomically
        exclusive_create
        unlinked_files_live_while_open
        removed_directories_live_while_used
        nodes_without_a_name_keep_their_attributes
        hard_links_are_one_file
        names_of_one_hash_are_few
        names_have_255_bytes
        paths_have_4095_bytes
        every_kind_of_node
        listings_show_each_entry_once
        appends_find_the_end
        appends_are_whole
        files_without_a_name
        file_handles_outlive_memory
    }
    renames {
        rename_flags
        renames_leave_whiteouts
        directories_are_moved_and_exchanged_whole
        renames_between_names_of_one_file
        renames_take_open_files_along
    }
    contents {
        holes_read_as_zeros
        truncates_are_one_moment
        sizes_were_those_of_some_moment
        files_grow_out_of_the_metadata
        blocks_are_what_is_allocated
        fallocate_reserves_punches_and_zeros
        seek_finds_data_and_holes
        copies_stay_on_the_servers
        large_offsets
        times_have_nanoseconds
        writes_after_other_changes_change_the_time
        times_of_writes_stay
        birth_times
        relatime
        set_times_win
        other_changes_leave_the_time_of_the_last_write
        mappings_do_not_make_files_longer
    }
    locks {
        flock_excludes_everywhere
        ranges_split_and_merge
        a_close_ends_the_locks_of_its_process
        closed_files_hold_no_locks
        waits_end_with_the_unlock
        signals_end_waits
        deadlocks_of_processes_are_refused
        the_dead_hold_nothing
    }
    permissions {
        permissions_are_checked
        former_owners_change_nothing
        supplementary_groups
        setgid_directories
        sticky_directories
        writes_clear_setuid
        setuid_beside_a_writer
        set_id_bits_go_as_on_local_file_systems
        acls_permit_and_forbid
        default_acls_are_inherited
        extended_attributes
        no_label_means_no_labels
        capabilities_end_with_a_write
    }
    flags {
        flags_forbid_as_on_local_file_systems
        flags_are_set_and_told
        reading_with_noatime_changes_nothing
        open_files_obey_flags
    }
}

/// The names of the document's statements.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../../../docs/semantics.md");
    let lines = text.lines().filter_map(|line| line.trim_end().strip_suffix(']'));
    lines.filter_map(|line| line.rsplit_once(" [").map(|(_, name)| name.to_owned())).collect()
}

#[test]
fn the_document_and_the_tests_name_the_same_statements() {
    let tested: BTreeSet<String> = STATEMENTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let documented = documented();
    let missing: Vec<_> = tested.symmetric_difference(&documented).collect();
    assert!(missing.is_empty(), "only in one of both: {missing:?}");
}

fn run_all(cluster: &Cluster, there: &Path) {
    for (name, _) in STATEMENTS {
        cluster.folder(name);
    }
    run_in_folders(cluster, there, STATEMENTS.iter());
}

/// Where the folders of the statements are there.
fn run_in_folders<'a>(cluster: &Cluster, there: &Path, statements: impl Iterator<Item = &'a Statement>) {
    // Every mode below is the one that is asked for.
    // SAFETY: sets this process's umask.
    unsafe { libc::umask(0) };
    let mut failed = Vec::new();
    for (name, statement) in statements {
        let place = Place { here: cluster.path(name), there: there.join(name) };
        fs::set_permissions(&place.here, Permissions::from_mode(0o777)).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| statement(&place)));
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "these do not hold: {failed:?}");
    cluster.assert_sound();
}

#[test]
fn on_one_mount() {
    let cluster = Cluster::start();
    let there = cluster.mount_point();
    run_all(&cluster, &there);
}

#[test]
fn on_two_mounts() {
    let mut cluster = Cluster::start();
    let there = cluster.mount_again(&[]).point;
    run_all(&cluster, &there);
}

/// Where most directories are in other shards than what they are in.
fn over_shards() -> Cluster {
    let cluster = Cluster::of(Shape { metadata: 2, shards: 2, ..Shape::default() });
    for (name, _) in STATEMENTS {
        cluster.folder(name);
    }
    cluster.weft(&["entry", "set", &format!("/{WITHIN_A_SHARD}"), "--placement", "inherit"]).expect_ok();
    cluster
}

#[test]
fn on_one_mount_over_several_shards() {
    let cluster = over_shards();
    run_in_folders(&cluster, &cluster.mount_point(), STATEMENTS.iter());
}

#[test]
fn on_two_mounts_over_several_shards() {
    let mut cluster = over_shards();
    let there = cluster.mount_again(&[]).point;
    run_in_folders(&cluster, &there, STATEMENTS.iter());
}

/// Longest file, in bytes.
const SIZE_MAX: u64 = 1 << 62;

/// A cluster whose storage service has its targets on a disk that `make` puts under its directory, and a second mount.
fn on_disks(make: impl FnOnce(&Path) -> LoopDisk) -> (Cluster, PathBuf, LoopDisk) {
    let mut cluster = Cluster::start();
    cluster.down().expect_ok();
    let file = cluster.dir().join("storaged-1.toml");
    let text = fs::read_to_string(&file).unwrap().replace("#reserve = \"256MiB\"", "reserve = \"16MiB\"");
    fs::write(file, text).unwrap();
    let disk = make(&cluster.dir().join("storaged-1"));
    cluster.up().expect_ok();
    let there = cluster.mount_again(&[]).point;
    (cluster, there, disk)
}

#[test]
fn files_have_up_to_2_to_the_62_bytes_where_targets_hold_them() {
    let (cluster, there, disk) = on_disks(|point| LoopDisk::xfs_under(point, 512));
    for stripes in ["1", "4"] {
        cluster.weft(&["entry", "set", "/", "--stripe-count", stripes]).expect_ok();
        let (here, there) = (cluster.path(stripes), there.join(stripes));
        let file = open(&here);
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", SIZE_MAX - 3).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().len(), SIZE_MAX);
        let mut seen = [1; 6];
        let other = File::open(&there).unwrap();
        assert_eq!(other.read_at(&mut seen, SIZE_MAX - 5).unwrap(), 5);
        assert_eq!(&seen[..5], b"\0\0end");
        assert_eq!(errno(file.write_at(b"x", SIZE_MAX)), libc::EFBIG);
        assert_eq!(errno(file.set_len(SIZE_MAX + 1)), libc::EFBIG);
        // What lies between takes no space, and is found and cut.
        assert!(fs::metadata(&there).unwrap().blocks() < 1000);
        assert_eq!(syscall::seek(&other, 1 << 20, false).unwrap() / (64 << 10), (SIZE_MAX - 3) / (64 << 10));
        file.set_len(5).unwrap();
        assert_eq!(fs::read(&there).unwrap(), b"begin");
        file.set_len(SIZE_MAX).unwrap();
        assert_eq!(other.read_at(&mut seen, SIZE_MAX - 2).unwrap(), 2);
        assert_eq!(seen[..2], [0, 0], "what was cut off does not come back");
        drop(file);
        fs::remove_file(&there).unwrap();
    }
    cluster.assert_sound();
    assert!(cluster.down().code == Some(0));
    drop(disk);
}

/// ext4 has at most 16 TiB for each object (4 TiB where its blocks are as small as on this disk): beyond that nothing changes
/// but the answer.
#[test]
fn files_end_where_the_disks_of_targets_end() {
    let (cluster, there, disk) = on_disks(|point| LoopDisk::under(point, 256));
    cluster.weft(&["entry", "set", "/", "--stripe-count", "1"]).expect_ok();
    let file = open(&cluster.path("f"));
    file.write_all_at(b"begin", 0).unwrap();
    // Again where the mount keeps back small writes of the file.
    for _ in 0..2 {
        for at in [16 << 40, 1 << 50, SIZE_MAX - 1] {
            assert_eq!(errno(file.write_all_at(b"x", at)), libc::EFBIG, "at {at}");
            assert_eq!(fs::metadata(there.join("f")).unwrap().len(), 5, "at {at}");
        }
        thread::sleep(Duration::from_millis(500));
        file.sync_all().unwrap();
        (0..10).for_each(|_| file.write_all_at(b"begin", 0).unwrap());
    }
    assert_eq!(fs::read(there.join("f")).unwrap(), b"begin");
    file.write_all_at(b"far", 3 << 40).unwrap();
    assert_eq!(fs::metadata(there.join("f")).unwrap().len(), (3 << 40) + 3);
    drop(file);
    fs::remove_file(there.join("f")).unwrap();
    cluster.assert_sound();
    assert!(cluster.down().code == Some(0));
    drop(disk);
}

/// What holds within one shard alone: one that is replaced from another shard is not told as it was before.
const WITHIN_A_SHARD: &str = "removed_directories_live_while_used";

/// Where the entries of each directory that a statement is tried in lie in two shards.
#[test]
fn on_two_mounts_in_split_directories() {
    let mut cluster = Cluster::of(Shape { metadata: 2, ..Shape::default() });
    let there = cluster.mount_again(&[]).point;
    // Together: each waits until nobody may believe in names that are not there.
    thread::scope(|scope| {
        for (name, _) in STATEMENTS {
            cluster.folder(name);
            let cluster = &cluster;
            scope.spawn(move || cluster.weft(&["entry", "set", &format!("/{name}"), "--split", "2"]).expect_ok());
        }
    });
    run_in_folders(&cluster, &there, STATEMENTS.iter().filter(|(name, _)| *name != WITHIN_A_SHARD));
}

impl Place {
    fn both(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.here.join(name), self.there.join(name))
    }
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 | 1).collect()
}

fn stamp(path: &Path) -> (i64, i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    let nanos = |seconds: i64, rest: i64| seconds * 1_000_000_000 + rest;
    (
        nanos(meta.atime(), meta.atime_nsec()),
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
    )
}

/// So that the next change has another time, whatever the clock's steps are.
fn tick() {
    thread::sleep(Duration::from_millis(10));
}
