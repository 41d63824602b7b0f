//! Entries from what the blocks hold. Blocks: runs on a helper thread.

use std::ops::Range;
use std::os::fd::RawFd;

use types::allocation::Allocation;
use types::error::Errno;

use super::sidecar::Sidecar;
use super::syscall;
use crate::sums::Entry;
use crate::sums::blocks::{self, BLOCK, BLOCK_LEN};
use crate::sums::header::place;

/// Blocks that are read at once.
const STEP: u64 = 64;

/// Writes the entries of these blocks of the file `data`.
///
/// # Errors
/// Those of reading and writing.
pub(super) fn recompute(data: RawFd, sums: RawFd, range: Range<u64>) -> Result<(), Errno> {
    let settled = |block: &[u8]| Entry::settled(blocks::sum(block));
    go_over(data, sums, range, |_, bytes| Ok(Some(bytes.chunks(BLOCK_LEN).map(settled).collect())))
}

/// Gives holes the entries of zeros, and other blocks of the file `data` those that `entries` has for the first of some and
/// for what they hold; `None`: they keep theirs.
///
/// # Errors
/// Those of reading and writing.
pub(super) fn go_over(
    data: RawFd,
    sums: RawFd,
    range: Range<u64>,
    entries: impl Fn(u64, &[u8]) -> Result<Option<Vec<Entry>>, Errno>,
) -> Result<(), Errno> {
    let size = syscall::stat(data)?.0.size;
    let end = size.div_ceil(BLOCK).clamp(range.start, range.end);
    let mut buffer = vec![0; (STEP * BLOCK) as usize];
    let mut at = range.start;
    while at < end {
        let next = match syscall::seek(data, at * BLOCK, false) {
            Ok(found) => (found / BLOCK).clamp(at, end),
            Err(Errno::ENXIO) => end,
            // It does not tell holes: they are read.
            Err(_) => at,
        };
        if next > at {
            clear(sums, at..next)?;
            at = next;
            continue;
        }
        let count = STEP.min(end - at);
        let blocks = &mut buffer[..(count * BLOCK) as usize];
        let there = read_all(data, blocks, at * BLOCK)?;
        blocks[there..].fill(0);
        if let Some(entries) = entries(at, blocks)? {
            put(sums, at, &entries)?;
        }
        at += count;
    }
    clear(sums, end..range.end)
}

/// Writes entries from block `first` on: those of zeros without space where that can be.
pub(super) fn put(sums: RawFd, first: u64, entries: &[Entry]) -> Result<(), Errno> {
    let is_zeros = |entry: &Entry| *entry == Entry::default();
    let mut at = first;
    for run in entries.chunk_by(|a, b| is_zeros(a) == is_zeros(b)) {
        let next = at + run.len() as u64;
        if run.iter().all(is_zeros) {
            clear(sums, at..next)?;
        } else {
            syscall::write_at(sums, &Sidecar::encode(run), place(at))?;
        }
        at = next;
    }
    Ok(())
}

/// As far as the file has them.
pub(super) fn read_all(fd: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match syscall::read_at(fd, &mut buffer[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Entries of zeros, without space where that can be. The file gets no longer.
fn clear(sums: RawFd, range: Range<u64>) -> Result<(), Errno> {
    let len = syscall::stat(sums)?.0.size;
    let (mut at, end) = (place(range.start), place(range.end).min(len));
    if at >= end {
        return Ok(());
    }
    match syscall::allocate(sums, Allocation::Punch.mode(), at, end - at) {
        Err(Errno::EOPNOTSUPP) => {}
        outcome => return outcome,
    }
    let zeros = vec![0; (STEP * BLOCK) as usize];
    while at < end {
        let count = (end - at).min(zeros.len() as u64);
        syscall::write_at(sums, &zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn entries_are_those_of_the_data_and_of_nothing_else() {
        let (data, sums) = (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
        let bytes: Vec<u8> = (0..600_000u32).map(|n| (n % 253) as u8).collect();
        data.write_all_at(&bytes, 0).expect("written");
        data.write_all_at(b"far", 100 << 20).expect("written");
        sums.write_all_at(&[7; 300_000], 0).expect("stale entries");
        let blocks = (100u64 << 20) / BLOCK + 1;
        assert_eq!(recompute(data.as_raw_fd(), sums.as_raw_fd(), 1..blocks + 5), Ok(()));
        let entry = |block: u64| {
            let mut out = [0; Entry::LEN];
            sums.read_exact_at(&mut out, place(block)).expect("there");
            Entry::decode(out)
        };
        assert_eq!(entry(0), Entry::settled(0x0707_0707), "not asked for");
        for block in 1..147 {
            let part = &bytes[(block * BLOCK) as usize..bytes.len().min(((block + 1) * BLOCK) as usize)];
            assert_eq!(entry(block), Entry::settled(blocks::sum(part)), "{block}");
        }
        assert!((147..200).all(|block| entry(block) == Entry::settled(0)));
        assert_eq!(entry(blocks - 1), Entry::settled(blocks::sum(b"far")));
    }
}
