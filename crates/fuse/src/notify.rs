//! What the file system tells the kernel unasked: to forget what it keeps.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use types::id::InodeId;
use types::name::Name;

use crate::abi::{self, NotifyInvalEntryOut, NotifyInvalInodeOut, OutHeader, bytes_of};
use crate::lookups::Lookups;

/// From which minor version of the protocol on all names can be put in doubt at once (Linux 6.16).
const MINOR_EPOCH: u32 = 44;

/// Reaches the kernel from any thread for as long as the mount lives.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Weak<OwnedFd>,
    minor: u32,
    lookups: Arc<Lookups>,
}

/// What the kernel made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    Done,
    /// The kernel keeps nothing of it.
    Unknown,
    /// The mount is over.
    Gone,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<OwnedFd>, minor: u32, lookups: Arc<Lookups>) -> Self {
        Self { device: Arc::downgrade(device), minor, lookups }
    }

    /// Attributes and cached data of `inode`. Waits for pages that are being read or written back, for nothing else.
    #[must_use]
    pub fn forget_inode(&self, inode: InodeId) -> Noted {
        self.send(abi::notify::INVAL_INODE, &[bytes_of(&NotifyInvalInodeOut { ino: inode.0, off: 0, len: 0 })])
    }

    /// The kernel knows `inode`, or is about to learn of it from an answer that it has.
    #[must_use]
    pub fn is_told_of(&self, inode: InodeId) -> bool {
        self.lookups.are_some(inode)
    }

    /// All inodes that it knows, or is about to learn of.
    #[must_use]
    pub fn told_of(&self) -> Vec<InodeId> {
        self.lookups.all()
    }

    /// The attributes of `inode`, not its data: waits for nothing, and so also for who answers a request about it.
    #[must_use]
    pub fn forget_attributes(&self, inode: InodeId) -> Noted {
        self.send(abi::notify::INVAL_INODE, &[bytes_of(&NotifyInvalInodeOut { ino: inode.0, off: -1, len: 0 })])
    }

    /// What `name` in `parent` stands for. Waits for operations in that directory that are under way: never called by
    /// who answers them.
    #[must_use]
    pub fn forget_name(&self, parent: InodeId, name: &Name) -> Noted {
        let head = NotifyInvalEntryOut { parent: parent.0, namelen: name.len() as u32, flags: 0 };
        self.send(abi::notify::INVAL_ENTRY, &[bytes_of(&head), name, b"\0"])
    }

    /// All names, present and absent: the kernel asks for each before it uses it again, also for those whose look-up is
    /// under way. Waits for nothing. False where the kernel is older than Linux 6.16.
    #[must_use]
    pub fn doubt_all_names(&self) -> bool {
        self.minor >= MINOR_EPOCH && self.send(abi::notify::INC_EPOCH, &[]) != Noted::Unknown
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> Noted {
        let Some(device) = self.device.upgrade() else { return Noted::Gone };
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: len as u32, error: code, unique: 0 };
        let mut all = vec![bytes_of(&header)];
        all.extend_from_slice(parts);
        match ring::op::write_device(device.as_raw_fd(), &all) {
            Ok(_) => Noted::Done,
            Err(error) => match error.raw_os_error() {
                Some(libc::ENODEV | libc::ECONNABORTED) => Noted::Gone,
                // For a name: the directory is not known, or is no directory any more.
                Some(libc::ENOENT | libc::ENOTDIR) => Noted::Unknown,
                _ => {
                    report(code, &error);
                    Noted::Unknown
                }
            },
        }
    }
}

fn report(code: i32, error: &io::Error) {
    tracing::error!(code, %error, "the kernel refused to forget something");
}
