//! The file of a sidecar: how it is found, begun, opened and removed. What is done with an open one is in `sidecar`.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use types::error::Errno;
use types::id::ObjectId;

use super::files::{self, READ_WRITE};
use super::{folders, syscall};
use crate::sums::header::{HEADER_LEN, Header, Owner, State, place};
use crate::sums::{Trust, blocks, trust};

/// A sidecar's file as it was found, or made.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) fd: OwnedFd,
    pub(super) writable: bool,
    pub(super) header: Option<Header>,
    /// Bytes.
    pub(super) len: u64,
    /// Where it was made now: whether nothing older is on the disk.
    pub(super) made: Option<bool>,
    /// What was cut off or not yet there when somebody died has entries, which could not be cut off.
    pub(super) uncut: bool,
}

impl Found {
    fn read_header(&mut self, object: ObjectId) -> Result<(), Errno> {
        let mut bytes = [0; HEADER_LEN];
        if self.len > 0 && syscall::read_at(self.fd.as_raw_fd(), &mut bytes, 0)? == HEADER_LEN {
            self.header = Header::decode(&bytes).filter(|header| is_of(header, object));
        }
        Ok(())
    }

    /// What goes beyond an object of `size` bytes; `None` where that may not be, or nothing does.
    fn excess(&self, me: Owner, size: u64) -> Option<u64> {
        let end = place(size.div_ceil(blocks::BLOCK));
        (self.writable && self.len > end && trust(self.header.as_ref(), me) != Trust::Exact).then_some(end)
    }

    fn cut(mut self, me: Owner, size: u64) -> Self {
        if let Some(end) = self.excess(me, size) {
            match syscall::truncate(self.fd.as_raw_fd(), end) {
                Ok(()) => self.len = end,
                Err(_) => self.uncut = true,
            }
        }
        self
    }
}

/// When an object has no sidecar, or the disk does not give it: then nothing is known of what the object holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// It stays so.
    Leave,
    /// It stays so, and one that the disk does not give is emptied: nobody could note in it that it is out of date.
    Empty,
    /// One is made.
    Make,
    /// The object is about to be made: what is there is a leftover, unless it is clean and says that there was
    /// something.
    Begin,
}

/// What became of the search for a sidecar.
#[derive(Debug, Default)]
pub(super) struct Sought {
    /// `None` where there is none to go by.
    pub(super) found: Option<Found>,
    /// There was one that the disk does not give.
    pub(super) unreadable: bool,
}

impl Sought {
    fn unreadable() -> Self {
        Self { found: None, unreadable: true }
    }
}

/// `size`: of the object's file, in bytes. Blocks.
pub(super) fn open(root: RawFd, object: ObjectId, me: Owner, missing: Missing, size: u64) -> Result<Sought, Errno> {
    let path = folders::path(object);
    let mut is_new = false;
    let (fd, writable) = match syscall::open_at(root, &path, READ_WRITE) {
        Ok(fd) => (fd, true),
        Err(Errno::ENOENT) if matches!(missing, Missing::Leave | Missing::Empty) => return Ok(Sought::default()),
        Err(Errno::EIO) if missing == Missing::Leave => return Ok(Sought::unreadable()),
        Err(Errno::ENOENT) => {
            is_new = true;
            (files::create(root, object)?, true)
        }
        Err(Errno::EROFS) => match syscall::open_at(root, &path, super::files::READ_ONLY) {
            Ok(fd) => (fd, false),
            Err(Errno::ENOENT) => return Ok(Sought::default()),
            Err(Errno::EIO) => return Ok(Sought::unreadable()),
            Err(errno) => return Err(errno),
        },
        Err(errno) => return Err(errno),
    };
    let len = if is_new { 0 } else { syscall::stat(fd.as_raw_fd())?.0.size };
    let mut found = Found { fd, writable, header: None, len, made: None, uncut: false };
    let unreadable = match found.read_header(object) {
        Err(Errno::EIO) if missing == Missing::Leave || !writable => return Ok(Sought::unreadable()),
        Err(Errno::EIO) => {
            syscall::truncate(found.fd.as_raw_fd(), 0)?;
            found.len = 0;
            true
        }
        outcome => outcome.map(|()| false)?,
    };
    let is_leftover = !is_new && !found.header.as_ref().is_some_and(Header::tells_of_data);
    if missing == Missing::Begin && is_leftover && found.writable {
        syscall::truncate(found.fd.as_raw_fd(), 0)?;
        found.len = 0;
    }
    if found.len == 0 && matches!(missing, Missing::Make | Missing::Begin) && found.writable {
        let owner = if missing == Missing::Begin { me } else { Owner::NOBODY };
        let header = header(object, State::Dirty { owner, pending: None });
        syscall::write_at(found.fd.as_raw_fd(), &header.encode(), 0)?;
        found.len = HEADER_LEN as u64;
        found.header = Some(header);
        found.made = Some(is_new);
    }
    Ok(Sought { found: Some(found.cut(me, size)), unreadable })
}

/// As [`open`] of one that may be missing, only if that needs no disk; `EAGAIN` where it does.
pub(super) fn open_cached(root: RawFd, object: ObjectId, me: Owner, size: u64) -> Result<Found, Errno> {
    let again = |_| Errno::EAGAIN;
    let fd = syscall::open_cached(root, &folders::path(object), READ_WRITE).map_err(again)?;
    let mut bytes = [0; HEADER_LEN];
    if syscall::read_cached(fd.as_raw_fd(), &mut bytes, 0).map_err(again)? != HEADER_LEN {
        return Err(Errno::EAGAIN);
    }
    let header = Header::decode(&bytes).filter(|header| is_of(header, object));
    let len = syscall::stat(fd.as_raw_fd())?.0.size;
    let found = Found { fd, writable: true, header, len, made: None, uncut: false };
    if found.excess(me, size).is_some() { Err(Errno::EAGAIN) } else { Ok(found) }
}

/// It is no error where there is none. Blocks.
pub(super) fn remove(root: RawFd, object: ObjectId) -> Result<(), Errno> {
    match syscall::unlink_at(root, &folders::path(object)) {
        Err(Errno::ENOENT) => Ok(()),
        outcome => outcome,
    }
}

pub(super) fn header(object: ObjectId, state: State) -> Header {
    Header { inode: object.inode.0, stripe: object.stripe, state }
}

pub(super) fn is_of(header: &Header, object: ObjectId) -> bool {
    (header.inode, header.stripe) == (object.inode.0, object.stripe)
}
