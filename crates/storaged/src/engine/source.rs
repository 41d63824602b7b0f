//! Verifies a range of an object from outside: another lane may be changing it. Blocks: runs on a helper thread.

use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use types::error::Errno;
use types::id::ObjectId;

use super::files::READ_ONLY;
use super::sidecar_file::is_of;
use super::{folders, syscall};
use crate::sums::blocks::{self, BLOCK_LEN};
use crate::sums::header::{HEADER_LEN, Header, Owner, State, place};
use crate::sums::{Entry, Trust, Verdict, judge, trust};

/// A block that is being changed may for a moment be neither what it was nor what it becomes.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// A corrupt block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bad {
    pub(super) block: u64,
    pub(super) entry: Entry,
    pub(super) sum: u32,
}

/// What a look at a range has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verified {
    Right,
    /// The disk does not give the checksums.
    Unreadable,
    /// With the first corrupt block.
    Corrupt(Bad),
}

/// Why there is nothing to tell of a block.
enum Broken {
    Unreadable,
    Failed(Errno),
}

/// # Errors
/// Those of reading the data; none where there is no such object.
pub(super) fn verify(
    root: RawFd,
    sums: RawFd,
    source: ObjectId,
    bytes: Range<u64>,
    me: Owner,
) -> Result<Verified, Errno> {
    match first_bad(root, sums, source, bytes, me) {
        Ok(bad) => Ok(bad.map_or(Verified::Right, Verified::Corrupt)),
        Err(Broken::Unreadable) => Ok(Verified::Unreadable),
        Err(Broken::Failed(errno)) => Err(errno),
    }
}

fn first_bad(root: RawFd, sums: RawFd, source: ObjectId, bytes: Range<u64>, me: Owner) -> Result<Option<Bad>, Broken> {
    let open = |root| match syscall::open_at(root, &folders::path(source), READ_ONLY) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    };
    let data = open(root).map_err(Broken::Failed)?;
    let Some(sums) = open(sums).map_err(of_sums)? else { return Ok(None) };
    let sums = sums.as_raw_fd();
    let Some(data) = data else { return first_lost(sums, source, &bytes) };
    let data = data.as_raw_fd();
    if let Some(bad) = verify_end((data, sums), source, &bytes)? {
        return Ok(Some(bad));
    }
    let size = size_of(data)?;
    for block in blocks::covering(&(bytes.start.min(size)..bytes.end.min(size))) {
        if let Some(bad) = verify_block((data, sums), source, block, me)? {
            return Ok(Some(bad));
        }
    }
    Ok(None)
}

/// The first block of an object that is not there and should be: who removes one removes its sidecar first.
fn first_lost(sums: RawFd, source: ObjectId, bytes: &Range<u64>) -> Result<Option<Bad>, Broken> {
    match read_header(sums, source)? {
        Some(Header { state: State::Clean { size }, .. }) if bytes.start < size => {
            let block = bytes.start / blocks::BLOCK;
            Ok(Some(Bad { block, entry: read_entry(sums, block)?, sum: 0 }))
        }
        _ => Ok(None),
    }
}

/// The first block that is missing in the file: a clean object ends where its header says.
fn verify_end((data, sums): (RawFd, RawFd), source: ObjectId, bytes: &Range<u64>) -> Result<Option<Bad>, Broken> {
    let mut attempt = 0;
    loop {
        let size = size_of(data)?;
        let Some(Header { state: State::Clean { size: known }, .. }) = read_header(sums, source)? else {
            return Ok(None);
        };
        let missing = bytes.start.max(size)..bytes.end.min(known);
        if missing.is_empty() {
            return Ok(None);
        }
        if attempt >= ATTEMPTS {
            let block = missing.start / blocks::BLOCK;
            return Ok(Some(Bad { block, entry: read_entry(sums, block)?, sum: 0 }));
        }
        // It may have been made longer in between.
        attempt += 1;
        thread::sleep(PAUSE);
    }
}

fn size_of(data: RawFd) -> Result<u64, Broken> {
    Ok(syscall::stat(data).map_err(Broken::Failed)?.0.size)
}

fn of_sums(errno: Errno) -> Broken {
    if errno == Errno::EIO { Broken::Unreadable } else { Broken::Failed(errno) }
}

/// That of another object is none.
fn read_header(sums: RawFd, source: ObjectId) -> Result<Option<Header>, Broken> {
    let mut bytes = [0; HEADER_LEN];
    let count = syscall::read_at(sums, &mut bytes, 0).map_err(of_sums)?;
    Ok(Header::decode(&bytes[..count]).filter(|header| is_of(header, source)))
}

fn read_entry(sums: RawFd, block: u64) -> Result<Entry, Broken> {
    let mut entry = [0; Entry::LEN];
    syscall::read_at(sums, &mut entry, place(block)).map_err(of_sums)?;
    Ok(Entry::decode(entry))
}

fn verify_block((data, sums): (RawFd, RawFd), source: ObjectId, block: u64, me: Owner) -> Result<Option<Bad>, Broken> {
    let mut attempt = 0;
    loop {
        let header = read_header(sums, source)?;
        let pending = match header.as_ref().map(|header| &header.state) {
            Some(State::Dirty { pending: Some(pending), .. }) => pending.contains(&block),
            _ => false,
        };
        let is_clean = matches!(header.as_ref().map(|header| &header.state), Some(State::Clean { .. }));
        let trust = match trust(header.as_ref(), me) {
            // What is exact for its own lane is not for us, unless nobody is changing it. Who begins to says so before it
            // writes an entry, which the next look sees.
            Trust::Exact if !is_clean => Trust::Either,
            trust => trust,
        };
        let entry = read_entry(sums, block)?;
        let mut seen = [0; BLOCK_LEN];
        let count = syscall::read_at(data, &mut seen, block * blocks::BLOCK).map_err(Broken::Failed)?;
        let sum = blocks::sum(&seen[..count]);
        match judge(trust, pending, entry, sum) {
            Verdict::Good | Verdict::Adopted => return Ok(None),
            Verdict::Corrupt if attempt >= ATTEMPTS => return Ok(Some(Bad { block, entry, sum })),
            Verdict::Corrupt => {
                attempt += 1;
                thread::sleep(PAUSE);
            }
        }
    }
}
