//! Which accesses change access times is the choice of each mount, by the words of `mount(8)`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::wait::until;

const SOON: Duration = Duration::from_secs(60);
/// After it, what was to be told of a close has been told.
const TOLD: Duration = Duration::from_millis(500);
const NAMES: [&str; 3] = ["file", "directory", "symlink"];

/// Of file, directory and symlink, in nanoseconds.
fn access_times(folder: &Path) -> [i64; 3] {
    NAMES.map(|name| {
        let meta = fs::symlink_metadata(folder.join(name)).unwrap();
        meta.atime() * 1_000_000_000 + meta.atime_nsec()
    })
}

/// Reads all three at `here`, and says which access times others see change.
fn changed_by_reading(here: &Path, there: &Path, expected: [bool; 3]) -> [bool; 3] {
    let before = access_times(there);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(fs::read(here.join("file")).unwrap(), b"content");
    assert_eq!(fs::read_dir(here.join("directory")).unwrap().count(), 0);
    fs::read_link(here.join("symlink")).unwrap();
    let changed = || {
        let now = access_times(there);
        [0, 1, 2].map(|at| now[at] > before[at])
    };
    until("the access times that are to change", SOON, || {
        (0..3).all(|at| changed()[at] || !expected[at]).then_some(())
    });
    thread::sleep(TOLD);
    changed()
}

#[test]
fn a_mount_chooses_which_accesses_count() {
    let mut cluster = Cluster::start();
    let (all, none, no_directories) = ([true; 3], [false; 3], [true, false, true]);
    for (flags, first, second) in [
        (&[][..], all, none),
        (&["--access-times", "strictatime"], all, all),
        (&["--access-times", "noatime"], none, none),
        (&["--directory-access-times=false"], no_directories, none),
        (&["--access-times", "strictatime", "--directory-access-times=false"], no_directories, no_directories),
        (&["--access-times", "strictatime", "--read-only"], none, none),
    ] {
        let name = format!("folder{}", flags.join(""));
        let there = cluster.folder(&name);
        fs::write(there.join("file"), "content").unwrap();
        fs::create_dir(there.join("directory")).unwrap();
        symlink("target", there.join("symlink")).unwrap();
        let here = cluster.mount_again(flags).point.join(&name);
        for (time, expected) in [("the first", first), ("the second", second)] {
            assert_eq!(changed_by_reading(&here, &there, expected), expected, "{time} access with {flags:?}");
        }
    }
    cluster.assert_sound();
}

#[test]
fn an_open_file_may_be_exempt() {
    let mut cluster = Cluster::start();
    let folder = cluster.folder("folder");
    for name in NAMES {
        fs::write(folder.join(name), "content").unwrap();
    }
    let here = cluster.mount_again(&["--access-times", "strictatime"]).point.join("folder/file");
    let before = access_times(&folder);
    thread::sleep(Duration::from_millis(20));
    let mut quiet = File::options().read(true).custom_flags(libc::O_NOATIME).open(&here).unwrap();
    quiet.read_exact(&mut [0; 3]).unwrap();
    drop(quiet);
    thread::sleep(TOLD);
    assert_eq!(access_times(&folder), before);
    let mut open = File::open(&here).unwrap();
    open.read_exact(&mut [0; 3]).unwrap();
    drop(open);
    until("the other's read", SOON, || (access_times(&folder)[0] > before[0]).then_some(()));
}
