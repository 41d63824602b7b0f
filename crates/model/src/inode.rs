//! One inode.

use std::collections::BTreeMap;

use types::attr::{Attr, FileType};
use types::cred::Credentials;
use types::flags::FileFlags;
use types::id::InodeId;
use types::time::Timestamp;

use crate::directory::Directory;

pub(crate) enum Content {
    Regular(Vec<u8>),
    Directory(Directory),
    Symlink(Vec<u8>),
    /// Devices, fifos and sockets: all that they are stands in the inode.
    Special,
}

pub(crate) struct Inode {
    pub(crate) id: InodeId,
    pub(crate) content: Content,
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) rdev: u32,
    /// Handles that are open.
    pub(crate) opens: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) flags: FileFlags,
}

impl Inode {
    pub(crate) fn new(
        id: InodeId,
        content: Content,
        kind: FileType,
        mode: u32,
        owner: Credentials,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            content,
            kind,
            mode,
            uid: owner.uid,
            gid: owner.gid,
            nlink: 1,
            rdev: 0,
            opens: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            flags: FileFlags::NONE,
        }
    }

    pub(crate) fn attr(&self) -> Attr {
        let size = match &self.content {
            Content::Regular(bytes) | Content::Symlink(bytes) => bytes.len() as u64,
            Content::Directory(_) | Content::Special => 0,
        };
        Attr {
            inode: self.id,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            size,
            blocks: self.content_len().div_ceil(512),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }

    /// Bytes of file content: what counts against the total.
    pub(crate) fn content_len(&self) -> u64 {
        match &self.content {
            Content::Regular(bytes) => bytes.len() as u64,
            Content::Directory(_) | Content::Symlink(_) | Content::Special => 0,
        }
    }
}
