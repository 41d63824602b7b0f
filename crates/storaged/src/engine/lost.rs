//! Objects whose file is gone though their sidecar says what they held when they were last changed. Of one that was never made,
//! or was removed, there is none that says so: a new one is dirty, and it is removed first.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use types::error::Errno;
use types::id::ObjectId;
use wire::v1::scrub::NAMED_MAX;

use super::files::READ_ONLY;
use super::recompute::read_all;
use super::sidecar::Sidecar;
use super::sidecar_file::{self, is_of};
use super::{Leftover, folders, syscall};
use crate::sums::Entry;
use crate::sums::blocks::BLOCK;
use crate::sums::header::{HEADER_LEN, Header, State, place};

/// Entries that are read at once.
const STEP: u64 = 8192;

/// Bytes that an object should have; `None` where it need not have any, or the disk does not tell. Blocks.
pub(super) fn size(sums: RawFd, object: ObjectId) -> Result<Option<u64>, Errno> {
    Ok(open(sums, object)?.map(|(_, size)| size))
}

fn open(sums: RawFd, object: ObjectId) -> Result<Option<(OwnedFd, u64)>, Errno> {
    let open = || {
        let fd = syscall::open_at(sums, &folders::path(object), READ_ONLY)?;
        let mut bytes = [0; HEADER_LEN];
        let count = syscall::read_at(fd.as_raw_fd(), &mut bytes, 0)?;
        let header = Header::decode(&bytes[..count]).filter(|header| is_of(header, object) && header.tells_of_data());
        Ok(header.and_then(|header| if let State::Clean { size } = header.state { Some((fd, size)) } else { None }))
    };
    match open() {
        Err(Errno::ENOENT | Errno::EIO) => Ok(None),
        outcome => outcome,
    }
}

/// The checksums of an object that is not there: removed, unless they say what is lost. Blocks.
pub(super) fn remove_leftover(sums: RawFd, object: ObjectId) -> Result<Leftover, Errno> {
    let Some((fd, size)) = open(sums, object)? else {
        return sidecar_file::remove(sums, object).map(|()| Leftover::Removed);
    };
    let (mut named, mut count) = (Vec::new(), 0);
    let mut bytes = vec![0; STEP as usize * Entry::LEN];
    let (mut at, end) = (0, size.div_ceil(BLOCK));
    while at < end {
        at = match syscall::seek(fd.as_raw_fd(), place(at), false) {
            Ok(found) => at.max((found - place(0)) / Entry::LEN as u64),
            Err(Errno::ENXIO) => break,
            // It does not tell holes.
            Err(_) => at,
        };
        let there = read_all(fd.as_raw_fd(), &mut bytes, place(at))?;
        let entries = (at..end).zip(Sidecar::decode(&bytes[..there]));
        for (block, _) in entries.filter(|(_, entry)| entry.now != 0) {
            count += 1;
            if named.len() < NAMED_MAX {
                named.push(block * BLOCK);
            }
        }
        at += STEP;
    }
    // One that was but a hole had its size.
    Ok(if count == 0 { Leftover::Lost { named: vec![0], count: 1 } } else { Leftover::Lost { named, count } })
}
