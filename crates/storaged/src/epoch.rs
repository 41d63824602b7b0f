//! Names the time within which the page cache of a file system has not been lost.

use std::mem;
use std::os::fd::RawFd;

use crate::sums::header::Owner;

/// Unlike the usual one, never given out twice; since Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// This process, on the file system of `fd`: its epoch is another one after a boot, where it was mounted anew, and where what
/// was written before `lost_before` may be lost by now, since the disk has refused something that the kernel takes for written.
pub(crate) fn owner(fd: RawFd, lost_before: u64) -> Owner {
    let run = random();
    let epoch = of_mount(fd).map(|mount| hash(&format!("{mount:016x} {lost_before}")));
    // Where nothing is known, or only an id that the next mount may get too, what another process left dirty is in doubt.
    Owner { epoch: epoch.unwrap_or(run).max(1), run }
}

/// The epoch of the page cache of the file system of `fd`: where its mount cannot be told from the next one, that of the boot.
pub(crate) fn of(fd: RawFd) -> u64 {
    of_mount(fd).unwrap_or_else(|| hash(&boot()))
}

fn of_mount(fd: RawFd) -> Option<u64> {
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

fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    (high ^ low).max(1)
}

/// FNV-1a: compared for equality alone.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn processes_differ_and_mounts_do() {
        let (root, proc) = (std::fs::File::open("/").expect("open"), std::fs::File::open("/proc").expect("open"));
        let (one, other) = (owner(root.as_raw_fd(), 7), owner(root.as_raw_fd(), 7));
        assert_eq!(one.epoch == other.epoch, mount(root.as_raw_fd()).is_some());
        assert_ne!(one.run, other.run);
        assert_ne!(one.epoch, owner(proc.as_raw_fd(), 7).epoch);
        assert_ne!(one.epoch, owner(root.as_raw_fd(), 8).epoch);
        assert_ne!(one.epoch, 0);
    }
}
