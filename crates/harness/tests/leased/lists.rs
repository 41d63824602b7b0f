//! POSIX access control lists, which the kernel keeps without asking for how long: who has the file open sees them as they are.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::syscall;

const ACCESS: &str = "system.posix_acl_access";
/// The default of metad's `lease_term`.
const TERM: Duration = Duration::from_secs(10);
/// A shard gives no lease on what was just taken back.
const COOLING: Duration = Duration::from_secs(1);

/// One user more may do this.
fn list(permissions: u16) -> Vec<u8> {
    let no_id = u32::MAX;
    let entries = [(1, 6, no_id), (2, permissions, 1000), (4, 0, no_id), (0x10, permissions, no_id), (0x20, 0, no_id)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&u16::to_le_bytes(tag));
        value.extend_from_slice(&u16::to_le_bytes(permissions));
        value.extend_from_slice(&u32::to_le_bytes(id));
    }
    value
}

fn set(path: &Path, permissions: u16) {
    syscall::setxattr(path, ACCESS, &list(permissions), 0).unwrap();
}

#[track_caller]
fn assert_seen(open: &File, permissions: u16) {
    assert_eq!(syscall::fgetxattr(open, ACCESS).unwrap(), list(permissions));
}

/// Nothing but the recall of a lease makes this kernel forget the list.
#[test]
fn a_list_that_another_mount_sets_is_seen_through_an_open_file() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&["--fuse-channel", "dev"]).point;
    let (a, b) = (cluster.path("f"), second.join("f"));
    fs::write(&a, b"x").unwrap();
    let open = File::open(&a).unwrap();
    assert_eq!(syscall::fgetxattr(&open, ACCESS).unwrap_err().raw_os_error(), Some(libc::ENODATA));
    // While no lease is given, and while there is one.
    for permissions in [1, 2, 3, 4] {
        set(&b, permissions);
        assert_seen(&open, permissions);
        assert_seen(&open, permissions);
    }
    thread::sleep(COOLING);
    assert_seen(&open, 4);
    for permissions in [5, 6] {
        set(&b, permissions);
        assert_seen(&open, permissions);
        thread::sleep(COOLING);
    }
    syscall::removexattr(&b, ACCESS).unwrap();
    assert_eq!(syscall::fgetxattr(&open, ACCESS).unwrap_err().raw_os_error(), Some(libc::ENODATA));
    cluster.assert_sound();
}

#[test]
fn a_list_is_not_believed_for_longer_than_its_lease() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]).point;
    // Of an open file it would be renewed.
    let (a, b) = (cluster.folder("d"), second.join("d"));
    set(&a, 4);
    let open = File::open(&a).unwrap();
    thread::sleep(COOLING);
    assert_seen(&open, 4);
    // Nobody recalls what is over.
    thread::sleep(TERM + Duration::from_secs(1));
    set(&b, 6);
    assert_seen(&open, 6);
    cluster.assert_sound();
}
