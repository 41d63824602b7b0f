//! Names the time within which the page cache of a file system has not been lost.

use std::mem;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use uuid::Uuid;

/// Unlike the usual one, never given out twice; since Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// The epoch of the page cache of the file system of `fd`: where its mount cannot be told from the next one, that of the boot.
/// Where the boot cannot be told either, as without `/proc`, it is [`unlike_any`].
#[must_use]
pub fn epoch(fd: RawFd) -> u64 {
    epoch_of_mount(fd).unwrap_or_else(|| epoch_of_boot(&boot()))
}

/// An epoch that no other process has or had, for where nothing is known of the page cache: what was not on disk before then
/// counts as lost.
#[must_use]
pub fn unlike_any() -> u64 {
    static EPOCH: OnceLock<u64> = OnceLock::new();
    *EPOCH.get_or_init(random)
}

fn epoch_of_boot(boot: &str) -> u64 {
    if boot.is_empty() { unlike_any() } else { hash(boot) }
}

fn random() -> u64 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high ^ low
}

/// The same; `None` where the next mount might get it too.
#[must_use]
pub fn epoch_of_mount(fd: RawFd) -> Option<u64> {
    let (mount, major, minor) = mount(fd)?;
    let boot = boot();
    (!boot.is_empty()).then(|| hash(&format!("{boot} {mount} {major}:{minor}")))
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The mount and the device; `None` before Linux 6.8.
fn mount(fd: RawFd) -> Option<(u64, u32, u32)> {
    // SAFETY: an all-zero statx is valid; the path is a live empty string, and the pointer is to a live structure.
    let (result, stat) = unsafe {
        let mut stat: libc::statx = mem::zeroed();
        (libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, STATX_MNT_ID_UNIQUE, &raw mut stat), stat)
    };
    let told = result == 0 && stat.stx_mask & STATX_MNT_ID_UNIQUE != 0;
    told.then_some((stat.stx_mnt_id, stat.stx_dev_major, stat.stx_dev_minor))
}

/// FNV-1a: compared for equality alone.
#[must_use]
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn mounts_differ_and_one_stays_what_it_is() {
        let open = |path| std::fs::File::open(path).expect("open");
        let (root, again, proc) = (open("/"), open("/"), open("/proc"));
        assert_eq!(epoch(root.as_raw_fd()), epoch(again.as_raw_fd()));
        assert_eq!(epoch_of_mount(root.as_raw_fd()).is_some(), mount(root.as_raw_fd()).is_some());
        if mount(root.as_raw_fd()).is_some() {
            assert_ne!(epoch(root.as_raw_fd()), epoch(proc.as_raw_fd()));
        }
    }

    #[test]
    fn of_a_boot_that_cannot_be_told_no_other_process_has_the_epoch() {
        assert_eq!(epoch_of_boot("x"), hash("x"));
        assert_eq!(epoch_of_boot(""), unlike_any(), "one process has the same");
        assert_ne!(epoch_of_boot(""), hash(""), "which all have");
        assert_ne!(random(), random(), "another process has another one");
    }
}
