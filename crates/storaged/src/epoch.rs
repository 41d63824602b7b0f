//! Names the processes and the times within which what was written and not synced has not been lost.

use std::os::fd::RawFd;

use conf::page_cache::{epoch_of_mount, hash};

use crate::sums::header::Owner;

/// This process, on the file system of `fd`: its epoch is another one after a boot, where it was mounted anew, and where what
/// was written before `lost_before` may be lost by now, since the disk has refused something that the kernel takes for written.
pub(crate) fn owner(fd: RawFd, lost_before: u64) -> Owner {
    let run = random();
    let epoch = epoch_of_mount(fd).map(|mount| hash(&format!("{mount:016x} {lost_before}")));
    // Where nothing is known, or only an id that the next mount may get too, what another process left dirty is in doubt.
    Owner { epoch: epoch.unwrap_or(run).max(1), run }
}

fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    (high ^ low).max(1)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn processes_differ_and_mounts_do() {
        let (root, proc) = (std::fs::File::open("/").expect("open"), std::fs::File::open("/proc").expect("open"));
        let (one, other) = (owner(root.as_raw_fd(), 7), owner(root.as_raw_fd(), 7));
        assert_eq!(one.epoch == other.epoch, epoch_of_mount(root.as_raw_fd()).is_some());
        assert_ne!(one.run, other.run);
        assert_ne!(one.epoch, owner(proc.as_raw_fd(), 7).epoch);
        assert_ne!(one.epoch, owner(root.as_raw_fd(), 8).epoch);
        assert_ne!(one.epoch, 0);
    }
}
