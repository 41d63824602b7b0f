//! A small disk: a file system of its own on a loop device. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::mounts;
use crate::run::{LONG, run};
use crate::wait;

/// What the image is called in its directory.
const IMAGE: &str = "image";

const EXT4: &[&str] = &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0"];

/// A file system of some MiB, mounted. Unmounted and gone when dropped.
pub struct LoopDisk {
    point: PathBuf,
    image: TempDir,
}

impl LoopDisk {
    /// Mounts a new ext4 on `point`, which is made.
    ///
    /// # Panics
    /// Where this process may not do so.
    #[must_use]
    pub fn mount(point: &Path, mib: u64) -> Self {
        Self::mount_as(point, mib, "mkfs.ext4", EXT4)
    }

    fn mount_as(point: &Path, mib: u64, make: &str, flags: &[&str]) -> Self {
        let image = tempfile::Builder::new().prefix("weft-test-disk-").tempdir().expect("a temporary directory");
        let file = image.path().join(IMAGE);
        std::fs::File::create(&file).and_then(|file| file.set_len(mib << 20)).expect("a sparse file");
        std::fs::create_dir_all(point).expect("a mount point");
        run(Command::new(make).args(flags).arg(&file), LONG).expect_ok();
        let disk = Self { point: point.to_owned(), image };
        disk.appear();
        // It would be a foreign thing in a directory that should be empty.
        let _ = std::fs::remove_dir(point.join("lost+found"));
        disk
    }

    /// Puts an ext4 under a directory that exists, with all that is in it.
    #[must_use]
    pub fn under(folder: &Path, mib: u64) -> Self {
        Self::under_as(folder, |point| Self::mount(point, mib))
    }

    /// The same with `inodes` inodes in all, the file system's own ten among them.
    #[must_use]
    pub fn under_with_inodes(folder: &Path, mib: u64, inodes: u64) -> Self {
        let inodes = inodes.to_string();
        let flags = [EXT4, &["-N", &inodes]].concat();
        Self::under_as(folder, |point| Self::mount_as(point, mib, "mkfs.ext4", &flags))
    }

    /// The same with an XFS, which needs 300 MiB at least.
    #[must_use]
    pub fn xfs_under(folder: &Path, mib: u64) -> Self {
        Self::under_as(folder, |point| Self::mount_as(point, mib, "mkfs.xfs", &["-q", "-f"]))
    }

    fn under_as(folder: &Path, mount: impl FnOnce(&Path) -> Self) -> Self {
        let aside = folder.with_extension("aside");
        std::fs::rename(folder, &aside).expect("a directory can be moved");
        let disk = mount(folder);
        run(Command::new("cp").arg("-a").arg(aside.join(".")).arg(folder), LONG).expect_ok();
        // What services have synced stays synced.
        run(Command::new("sync").arg("-f").arg(folder), LONG).expect_ok();
        std::fs::remove_dir_all(&aside).expect("the old place can be removed");
        disk
    }

    /// Makes it read-only or writable again. The files of a process that was killed with requests under way are closed
    /// a moment after it: until then the kernel refuses.
    pub fn remount(&self, options: &str) {
        wait::until("remounting a loop disk", Duration::from_secs(10), || {
            let ended = run(Command::new("mount").arg("-o").arg(format!("remount,{options}")).arg(&self.point), LONG);
            let busy = ended.stderr.contains("busy");
            (!busy).then(|| ended.expect_ok())
        });
    }

    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// As when its cable is pulled: what lies on it is out of sight.
    pub fn vanish(&self) {
        mounts::unmount(&self.point, true).expect("it is mounted");
    }

    /// Mounts it where it was. Where somebody still holds files of it open, it is the same file system as before.
    pub fn appear(&self) {
        let image = self.image.path().join(IMAGE);
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&self.point), LONG).expect_ok();
    }

    /// Whoever changes something of it waits until it thaws.
    pub fn freeze(&self) {
        run(Command::new("fsfreeze").arg("-f").arg(&self.point), LONG).expect_ok();
    }

    pub fn thaw(&self) {
        run(Command::new("fsfreeze").arg("-u").arg(&self.point), LONG).expect_ok();
    }

    /// An ext4 turns read-only as it does after an error of its own, whoever writes to it at the moment.
    pub fn abort(&self) {
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.point), LONG).expect_ok();
    }

    /// An XFS answers everything with `EIO` from now on, as a disk that has died does.
    pub fn die(&self) {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.point), LONG).expect_ok();
    }

    /// Mounts it anew, with what had come to the disk. Nobody may hold files of it open.
    pub fn renew(&self) {
        wait::until("unmounting a loop disk", Duration::from_secs(10), || mounts::unmount(&self.point, false).ok());
        self.appear();
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let unmount =
            || (!mounts::is_mounted(&self.point) || mounts::unmount(&self.point, false).is_ok()).then_some(());
        if std::thread::panicking() {
            let _ = Command::new("fsfreeze").arg("-u").arg(&self.point).output();
        } else {
            wait::until("unmounting a loop disk", Duration::from_secs(10), unmount);
        }
        let _ = mounts::unmount(&self.point, true);
    }
}
