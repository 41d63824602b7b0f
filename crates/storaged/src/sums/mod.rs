//! Checksums of object data at rest: what is stored, when it is believed, and what a crash leaves. Pure.
//!
//! Each block of 4 KiB of an object has an entry in the object's *sidecar* (`docs/formats.md`): the sum of what the block
//! holds `now`, and of what it held `before` its last change. A sum is the CRC32C of the block, filled up with zeros, less
//! that of zeros: a hole in the object so agrees with a hole in the sidecar, and an object may grow without any entry being
//! written. Beyond the object's end all entries are zero.
//!
//! **A change** writes the entries first, then the data, and nobody reads or changes the blocks meanwhile (`order.rs`; all
//! its ranges are whole blocks). Where a block keeps a part of its bytes, the whole of it is read and judged before, so that
//! no small write gives a damaged block a good sum.
//!
//! **The process ends** (`kill -9`), and the page cache stays: data and entries are as of different moments for the blocks
//! that were being changed, and the kernel does not break a copy into the cache off within a block. So each block is what its
//! entry says of `now` or of `before`, and that is what another process believes ([`Trust::Either`]) until it has gone over
//! the object. It may not write `now` and `before` over a block of which it does not know which of the two it holds: it
//! looks first. Ranges that the kernel changes as a whole (holes, copies) may be anything: the header names them
//! (`pending`) until they are done.
//!
//! What it made dirty may not be known on the disk yet: who opens it after it sees to that before the first change.
//!
//! **The page cache is lost** (power, a disk that went away): data and entries reached the disk in any order. Whether that
//! can be the case the header tells: it is *clean* only once data and entries were on the disk together, and *dirty*, durably,
//! before anything is changed again. What is dirty from another *epoch* (another boot, or mount) is in doubt
//! ([`Trust::Doubt`]): what does not match is believed, counted, and given a right entry when the object is gone over.
//!
//! **The disk refuses what was acknowledged**: the kernel tells of it once, at a sync, and then takes it for written, so that
//! what it forgets comes back as it was long ago, also of entries. After a sync of the file system has failed, the entries of a
//! dirty object are believed on only where the sidecar's own descriptor, which was open all the time, has nothing to tell. Of
//! others that are open all blocks are as if they were being changed as a whole; what is closed is of another epoch from then
//! on, as is all that is dirty for the next process. Who goes over such an object writes every entry anew.
//!
//! **A change fails**, and the process goes on: a block of its range may hold what it held, what it was to hold or, where that
//! was broken off within the block, some of both. What is one of the two gets the sum of it. So does, whatever it holds, what
//! was looked at before and was right, and what has a piece of the new data: it was being changed, and who asked for that
//! knows that it failed. All else was not reached ([`is_accounted`]): it keeps its entry, so that no failure gives a damaged
//! block a good sum.
//!
//! **The disk does not give an entry**: the block is taken as it is, and counted. Who is to change it, or goes over the object,
//! has the header name the blocks of the whole page (`first..end`), durably, before zeros take the page's place.
//!
//! So nothing that was acknowledged is ever refused, and what was not being written when something died is never believed
//! with a wrong sum.

pub(crate) mod blocks;
pub(crate) mod header;
#[cfg(test)]
mod model_tests;

use std::ops::Range;

use self::header::{Header, Owner, State};

/// What is known of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) now: u32,
    pub(crate) before: u32,
}

impl Entry {
    pub(crate) const LEN: usize = 8;

    /// Of a block that is known to be so.
    pub(crate) fn settled(sum: u32) -> Self {
        Self { now: sum, before: sum }
    }

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&self.now.to_le_bytes());
        out[4..].copy_from_slice(&self.before.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { now: u32::from_le_bytes([a, b, c, d]), before: u32::from_le_bytes([e, f, g, h]) }
    }
}

/// How far an object's entries are believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// Each block is what its entry says.
    Exact,
    /// Each block is what its entry says, or what it said before: a process ended while it changed the object.
    Either,
    /// They may be of another time than the data.
    Doubt,
}

/// What a block is, by its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Good,
    /// It does not match, for which there is an innocent reason.
    Adopted,
    Corrupt,
}

/// How a process that is `me` may believe the entries under this header; `None`: there is none, or it is unreadable.
pub(crate) fn trust(header: Option<&Header>, me: Owner) -> Trust {
    match header.map(|header| &header.state) {
        Some(State::Clean { .. }) => Trust::Exact,
        Some(State::Dirty { owner, .. }) if *owner == me => Trust::Exact,
        Some(State::Dirty { owner, .. }) if owner.epoch == me.epoch => Trust::Either,
        Some(State::Dirty { .. }) | None => Trust::Doubt,
    }
}

/// `pending`: an earlier process was changing a range with this block as a whole.
pub(crate) fn judge(trust: Trust, pending: bool, entry: Entry, sum: u32) -> Verdict {
    match trust {
        _ if sum == entry.now => Verdict::Good,
        Trust::Either if sum == entry.before => Verdict::Good,
        Trust::Either if pending => Verdict::Adopted,
        Trust::Exact | Trust::Either => Verdict::Corrupt,
        Trust::Doubt => Verdict::Adopted,
    }
}

/// How far the entries of one object are believed.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) trust: Trust,
    /// Blocks that an earlier process was changing as a whole.
    pub(crate) inherited: Option<Range<u64>>,
}

impl Belief {
    pub(crate) fn judge(&self, block: u64, entry: Entry, sum: u32) -> Verdict {
        judge(self.trust, self.inherited.as_ref().is_some_and(|range| range.contains(&block)), entry, sum)
    }
}

/// Whether what a block holds after a change has failed is that one's doing, or was there before: `verdict` by the entry that
/// it had, `wanted` is the sum that it was to get. `is_half_done`: it has a piece of the new data.
pub(crate) fn is_accounted(verdict: Verdict, old: Entry, wanted: u32, sum: u32, is_half_done: bool) -> bool {
    // Of the same and the same there is no mixture.
    verdict != Verdict::Corrupt || sum == wanted || is_half_done && wanted != old.now
}

/// Whether a block has to be looked at before its entry is written over, also where none of its bytes stay: it may hold
/// what `now` says or something else, and after another crash the new entry has to know. (Where all is in doubt, it stays
/// so until somebody has gone over the whole object.)
pub(crate) fn must_look(trust: Trust, pending: bool, entry: Entry) -> bool {
    match trust {
        Trust::Exact | Trust::Doubt => false,
        Trust::Either => pending || entry.now != entry.before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry { now: 5, before: 4 };

    #[test]
    fn entries_round_trip() {
        let entry = Entry { now: 0x0102_0304, before: 0xa0b0_c0d0 };
        assert_eq!(entry.encode(), [4, 3, 2, 1, 0xd0, 0xc0, 0xb0, 0xa0]);
        assert_eq!(Entry::decode(entry.encode()), entry);
        assert_eq!(Entry::decode([0; 8]), Entry::settled(0));
    }

    #[test]
    fn what_is_believed_depends_on_who_changed_it_last() {
        let me = Owner { epoch: 1, run: 10 };
        let by = |owner| trust(Some(&Header { inode: 1, stripe: 0, state: State::Dirty { owner, pending: None } }), me);
        assert_eq!(by(me), Trust::Exact);
        assert_eq!(by(Owner { epoch: 1, run: 9 }), Trust::Either);
        assert_eq!(by(Owner { epoch: 2, run: 10 }), Trust::Doubt);
        assert_eq!(by(Owner::NOBODY), Trust::Doubt);
        assert_eq!(trust(None, me), Trust::Doubt);
        assert_eq!(
            trust(Some(&Header { inode: 1, stripe: 0, state: State::Clean { size: 7 } }), me),
            Trust::Exact,
            "whoever it was"
        );
    }

    #[test]
    fn a_block_is_good_adopted_or_corrupt() {
        for (trust, pending, sum, verdict) in [
            (Trust::Exact, false, 5, Verdict::Good),
            (Trust::Exact, false, 4, Verdict::Corrupt),
            (Trust::Exact, true, 4, Verdict::Corrupt),
            (Trust::Either, false, 5, Verdict::Good),
            (Trust::Either, false, 4, Verdict::Good),
            (Trust::Either, false, 3, Verdict::Corrupt),
            (Trust::Either, true, 3, Verdict::Adopted),
            (Trust::Doubt, false, 5, Verdict::Good),
            (Trust::Doubt, false, 3, Verdict::Adopted),
        ] {
            assert_eq!(judge(trust, pending, ENTRY, sum), verdict, "{trust:?} {pending} {sum}");
        }
    }

    #[test]
    fn what_a_failed_change_has_left_is_accounted_for_or_not() {
        for (verdict, wanted, sum, is_half_done, accounted) in [
            (Verdict::Good, 7, 5, false, true),
            (Verdict::Adopted, 7, 3, false, true),
            (Verdict::Corrupt, 7, 7, false, true),
            (Verdict::Corrupt, 7, 3, false, false),
            (Verdict::Corrupt, 7, 3, true, true),
            (Verdict::Corrupt, 5, 3, true, false),
        ] {
            let found = is_accounted(verdict, ENTRY, wanted, sum, is_half_done);
            assert_eq!(found, accounted, "{verdict:?} {wanted} {sum} {is_half_done}");
        }
    }

    #[test]
    fn only_what_is_known_is_written_over_unseen() {
        assert!(!must_look(Trust::Exact, false, ENTRY));
        assert!(must_look(Trust::Either, false, ENTRY) && !must_look(Trust::Either, false, Entry::settled(4)));
        assert!(must_look(Trust::Either, true, Entry::settled(4)) && !must_look(Trust::Doubt, false, ENTRY));
    }
}
