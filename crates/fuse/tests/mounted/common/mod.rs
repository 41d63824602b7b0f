//! What the tests of real mounts share.

pub(crate) mod odd;

use std::path::{Path, PathBuf};

use fuse::model_fs::{Caching, ModelFs};
use fuse::{Arrivals, Channel, FileSystem, Handle, Notifier, Options};
use tempfile::TempDir;

/// All tests run once more, in the program `mounted_over_dev`, over `/dev/fuse`: what a kernel without io_uring for FUSE has.
pub(crate) fn channel() -> Channel {
    let name = std::env::current_exe().expect("a test is a file");
    let over_dev = name.file_name().is_some_and(|name| name.to_string_lossy().contains("_over_dev"));
    if over_dev { Channel::Dev } else { Channel::Auto }
}

/// A mount on a directory of its own. Unmounts when dropped.
pub(crate) struct Mounted {
    handle: Option<Handle>,
    place: TempDir,
}

impl Mounted {
    pub(crate) fn model(caching: Caching) -> Self {
        let fs = ModelFs::new(model::Limits::default(), caching);
        Self::with(Options::default(), move |_| fs.clone())
    }

    pub(crate) fn with<F: FileSystem>(options: Options, factory: impl Fn(usize) -> F + Send + Sync + 'static) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let options = Options { channel: channel(), ..options };
        let handle = fuse::mount(place.path(), options, factory).expect("tests of the mount need root, or fusermount3");
        Self { handle: Some(handle), place }
    }

    pub(crate) fn root(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn notifier(&self) -> Notifier {
        self.handle.as_ref().expect("it is mounted").notifier()
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.handle.as_ref().expect("it is mounted").arrivals()
    }

    pub(crate) fn unmount(mut self) -> TempDir {
        self.handle.take().expect("unmounted once").unmount();
        let empty = tempfile::tempdir().expect("a temporary directory");
        std::mem::replace(&mut self.place, empty)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.handle.take());
    }
}

/// Whether something is mounted on this path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}
