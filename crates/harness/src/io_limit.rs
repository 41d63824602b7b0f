//! Slow disks: a bound on what processes may write to a file system's disk, by control groups. Needs root.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the first and the second version of control groups have their files.
const FIRST: &str = "/sys/fs/cgroup/blkio";
const SECOND: &str = "/sys/fs/cgroup";

/// The bounds of a disk in the first version's files, and in the words of the second.
const BOUNDS: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
];

/// A control group, gone when dropped. Processes that are left go back to where all are.
pub struct IoLimit {
    parent: PathBuf,
    group: PathBuf,
    is_first: bool,
    /// Disks with bounds for everybody.
    slow: RefCell<Vec<String>>,
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
        Self { parent, group, is_first, slow: RefCell::default() }
    }

    /// Direct writes to the disk of the file system that `path` lies on.
    pub fn writes(&self, path: &Path, bytes_per_second: u64) {
        let disk = disk_of(path);
        let (file, line) = if self.is_first {
            ("blkio.throttle.write_bps_device", format!("{disk} {bytes_per_second}"))
        } else {
            ("io.max", format!("{disk} wbps={bytes_per_second}"))
        };
        fs::write(self.group.join(file), line).expect("a bound can be set");
    }

    /// Makes the disk of the file system that `path` lies on slow in all that it does, reading and writing: so many bytes,
    /// and so many requests, a second. Where the kernel tells whose delayed writes are whose (the second version), those of
    /// the processes that are held alone; else everybody's, the journal's and the kernel's own.
    pub fn slow(&self, path: &Path, bytes_per_second: u64, requests_per_second: u64) {
        let disk = disk_of(path);
        let values = [bytes_per_second, bytes_per_second, requests_per_second, requests_per_second];
        if self.is_first {
            self.slow.borrow_mut().push(disk.clone());
            for ((file, _), value) in BOUNDS.iter().zip(values) {
                fs::write(self.parent.join(file), format!("{disk} {value}")).expect("a bound can be set");
            }
        } else {
            let words = BOUNDS.iter().zip(values).map(|((_, word), value)| format!(" {word}={value}"));
            let line = format!("{disk}{}", words.collect::<String>());
            fs::write(self.group.join("io.max"), line).expect("a bound can be set");
        }
    }

    /// From here on for this process, with all its threads.
    pub fn hold(&self, pid: i32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).expect("a process can be put into a control group");
    }
}

fn disk_of(path: &Path) -> String {
    let device = fs::metadata(path).expect("there is a file system").dev();
    format!("{}:{}", libc::major(device), libc::minor(device))
}

impl Default for IoLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for IoLimit {
    fn drop(&mut self) {
        for disk in self.slow.borrow().iter() {
            for (file, _) in BOUNDS {
                let _ = fs::write(self.parent.join(file), format!("{disk} 0"));
            }
        }
        let left = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}
