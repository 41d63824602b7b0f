//! The entries of blocks whose change has failed: `sums` says which of them get new ones. Blocks: runs on a helper thread.

use std::ops::Range;
use std::os::fd::RawFd;

use types::error::Errno;

use super::recompute::{go_over, put, read_all, recompute};
use super::sidecar::Sidecar;
use super::syscall;
use crate::sums::blocks::{self, BLOCK, BLOCK_LEN};
use crate::sums::header::place;
use crate::sums::{Belief, Entry, is_accounted};

/// Bytes that a disk takes as a whole, at least.
const SECTOR: usize = 512;

/// A change that failed, and what was known before it.
pub(super) struct Failed {
    pub(super) belief: Belief,
    /// Blocks that were looked at before, and were not corrupt.
    pub(super) judged: Vec<u64>,
    /// `None` where it failed before the data was touched.
    pub(super) errno: Option<Errno>,
}

/// How far a change of a range as a whole came, in bytes of the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reached {
    /// This was done, and is what lies there.
    pub(super) copied: Range<u64>,
    /// Zeros may have come here.
    pub(super) zeroed: Range<u64>,
}

impl Failed {
    /// After a write of `bytes` to `offset`, for which these entries were made.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(super) fn settle_write(
        &self,
        (data, sums): (RawFd, RawFd),
        offset: u64,
        mut entries: Vec<Entry>,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let (first, grain) = (offset / BLOCK, self.grain(data));
        let mut seen = [0; BLOCK_LEN];
        for (block, entry) in (first..).zip(&mut entries) {
            let there = read_all(data, &mut seen, block * BLOCK)?;
            seen[there..].fill(0);
            let (inside, part) = blocks::overlap(block, offset, bytes.len() as u64);
            let (sum, old) = (blocks::sum(&seen), Entry::settled(entry.before));
            let mut pieces = seen[inside].chunks(grain).zip(bytes[part].chunks(grain));
            let is_half_done = grain < BLOCK_LEN && pieces.any(|(seen, wanted)| seen == wanted);
            *entry = if self.takes(block, old, entry.now, sum, is_half_done) { Entry::settled(sum) } else { old };
        }
        put(sums, first, &entries)
    }

    /// After a change of a range as a whole, which writes no entries before.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(super) fn settle_bulk(&self, (data, sums): (RawFd, RawFd), reached: &Reached) -> Result<(), Errno> {
        recompute(data, sums, blocks::covering(&reached.copied))?;
        let grain = self.grain(data);
        go_over(data, sums, blocks::covering(&reached.zeroed), |first, bytes| {
            let mut stored = vec![0; bytes.len() / BLOCK_LEN * Entry::LEN];
            read_all(sums, &mut stored, place(first))?;
            let old: Vec<Entry> = Sidecar::decode(&stored).collect();
            let settled: Vec<Entry> = (first..)
                .zip(&old)
                .zip(bytes.chunks(BLOCK_LEN))
                .map(|((block, &old), seen)| {
                    let is_zeros = |piece: &[u8]| piece.iter().all(|&byte| byte == 0);
                    let is_half_done = grain < BLOCK_LEN && seen.chunks(grain).any(is_zeros);
                    let sum = blocks::sum(seen);
                    if self.takes(block, old, 0, sum, is_half_done) { Entry::settled(sum) } else { old }
                })
                .collect();
            Ok(Some(settled).filter(|settled| *settled != old))
        })
    }

    fn takes(&self, block: u64, old: Entry, wanted: u32, sum: u32, is_half_done: bool) -> bool {
        self.judged.contains(&block) || is_accounted(self.belief.judge(block, old, sum), old, wanted, sum, is_half_done)
    }

    /// Bytes, at a multiple of which a change may have ended: what the file system refuses ends with one of its blocks, what
    /// a disk refuses may end anywhere.
    fn grain(&self, data: RawFd) -> usize {
        match self.errno {
            None => BLOCK_LEN,
            Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::EROFS | Errno::EBADF | Errno::EOPNOTSUPP) => {
                syscall::block_size(data).map_or(SECTOR, |size| size.clamp(SECTOR, BLOCK_LEN))
            }
            Some(_) => SECTOR,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::sums::Trust;

    fn failed(trust: Trust, judged: &[u64]) -> Failed {
        let belief = Belief { trust, inherited: Some(6..7) };
        Failed { belief, judged: judged.to_vec(), errno: Some(Errno::EIO) }
    }

    /// A block of pieces, each of one sector.
    fn block(sectors: [u8; 8]) -> Vec<u8> {
        sectors.iter().flat_map(|&byte| [byte; SECTOR]).collect()
    }

    fn sum(sectors: [u8; 8]) -> u32 {
        blocks::sum(&block(sectors))
    }

    const OLD: [u8; 8] = [1; 8];
    const BAD: [u8; 8] = [1, 1, 1, 1, 1, 1, 9, 1];

    #[test]
    fn after_a_write_what_it_cannot_have_left_keeps_its_entry() {
        let (new, half) = ([2; 8], [2, 2, 2, 1, 1, 1, 1, 1]);
        let lies = [OLD, new, half, BAD, BAD, BAD, BAD, [0; 8]];
        let entries = |before: u32| vec![Entry { now: sum(new), before }; lies.len()];
        let settle = |failed: &Failed, entries: Vec<Entry>, bytes: &[u8]| {
            let (data, sums) = (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
            data.write_all_at(&lies.map(block).concat(), 0).expect("written");
            let files = (data.as_raw_fd(), sums.as_raw_fd());
            failed.settle_write(files, 0, entries, bytes).expect("settled");
            let mut stored = vec![0; lies.len() * Entry::LEN];
            // It ends with the last that is not zero.
            read_all(sums.as_raw_fd(), &mut stored, place(0)).expect("read");
            Sidecar::decode(&stored).collect::<Vec<Entry>>()
        };
        let bytes = block(new).repeat(lies.len());
        let (old, bad) = (Entry::settled(sum(OLD)), Entry::settled(sum(BAD)));
        let there = |sectors| Entry::settled(sum(sectors));
        let expected = [old, there(new), there(half), old, bad, old, old, old];
        assert_eq!(settle(&failed(Trust::Exact, &[4]), entries(sum(OLD)), &bytes), expected);
        // A range that somebody who has died was changing as a whole may be anything.
        let expected = [old, there(new), there(half), old, bad, old, bad, old];
        assert_eq!(settle(&failed(Trust::Either, &[4]), entries(sum(OLD)), &bytes), expected);
        assert_eq!(settle(&failed(Trust::Doubt, &[]), entries(sum(OLD)), &bytes), lies.map(there));
        // Where nothing was written yet, nothing is half done; nor where it would have changed nothing.
        let untouched = Failed { errno: None, ..failed(Trust::Exact, &[]) };
        assert_eq!(settle(&untouched, entries(sum(OLD)), &bytes)[2], old);
        let same = vec![old; lies.len()];
        assert_eq!(settle(&failed(Trust::Exact, &[]), same, &block(OLD).repeat(lies.len())), vec![old; lies.len()]);
    }

    #[test]
    fn after_a_change_of_a_range_what_was_not_reached_keeps_its_entry() {
        let (data, sums) = (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
        let half = [1, 1, 0, 0, 0, 0, 0, 0];
        let lies = [BAD, BAD, [0; 8], half, OLD, BAD, BAD];
        data.write_all_at(&lies.map(block).concat(), 0).expect("written");
        sums.write_all_at(&Sidecar::encode(&vec![Entry::settled(sum(OLD)); lies.len()]), place(0)).expect("written");
        let reached = Reached { copied: 0..BLOCK, zeroed: 2 * BLOCK..6 * BLOCK };
        let files = (data.as_raw_fd(), sums.as_raw_fd());
        failed(Trust::Exact, &[]).settle_bulk(files, &reached).expect("settled");
        let mut stored = vec![0; lies.len() * Entry::LEN];
        sums.read_exact_at(&mut stored, place(0)).expect("there");
        let expected = [BAD, OLD, [0; 8], half, OLD, OLD, OLD].map(|sectors| Entry::settled(sum(sectors)));
        assert_eq!(Sidecar::decode(&stored).collect::<Vec<Entry>>(), expected);
    }
}
