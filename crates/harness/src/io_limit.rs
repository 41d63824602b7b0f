//! Slow disks: a bound on what processes may write to a file system's disk, by control groups. Needs root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the first and the second version of control groups have their files.
const FIRST: &str = "/sys/fs/cgroup/blkio";
const SECOND: &str = "/sys/fs/cgroup";

/// A control group, gone when dropped. Processes that are left go back to where all are.
pub struct IoLimit {
    parent: PathBuf,
    group: PathBuf,
    is_first: bool,
}

impl IoLimit {
    /// Without any bound.
    ///
    /// # Panics
    /// Where neither version is there, or this process may not do so.
    #[must_use]
    pub fn new() -> Self {
        let is_first = Path::new(FIRST).join("blkio.throttle.io_serviced").exists();
        let parent = PathBuf::from(if is_first { FIRST } else { SECOND });
        if !is_first {
            fs::write(parent.join("cgroup.subtree_control"), "+io")
                .expect("control groups that bound input and output");
        }
        let group = parent.join(format!("weft-test-{}", std::process::id()));
        fs::create_dir(&group).expect("a control group can be made");
        Self { parent, group, is_first }
    }

    /// Direct writes to the disk of the file system that `path` lies on.
    pub fn writes(&self, path: &Path, bytes_per_second: u64) {
        let device = fs::metadata(path).expect("there is a file system").dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let (file, line) = if self.is_first {
            ("blkio.throttle.write_bps_device", format!("{major}:{minor} {bytes_per_second}"))
        } else {
            ("io.max", format!("{major}:{minor} wbps={bytes_per_second}"))
        };
        fs::write(self.group.join(file), line).expect("a bound can be set");
    }

    /// From here on for this process, with all its threads.
    pub fn hold(&self, pid: i32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).expect("a process can be put into a control group");
    }
}

impl Default for IoLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for IoLimit {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}
