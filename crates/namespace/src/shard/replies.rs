//! The outcomes of a session's changes, kept until the client has the answers.

use std::collections::{BTreeSet, VecDeque};

use types::error::Errno;

use crate::error::{Damage, Error, Result};
use crate::schema::meta::Counts;
use crate::schema::session::{self, Outcome};

/// More than any bound of unanswered changes: each slot holds at least one.
const SLOTS_MAX: u32 = 1 << 24;
/// Stored with no commit yet.
const UNCOMMITTED: u32 = 0;

/// One session's outcomes, in memory and in their slots.
#[derive(Default)]
pub(crate) struct Replies {
    /// By sequence.
    stored: VecDeque<Stored>,
    answered_below: u64,
    /// Below this all are answered as well but for `under_way`, as the client has said since the shard was started...
    answered_to: u64,
    /// ...which lie between the two.
    under_way: BTreeSet<u64>,
    /// Outcomes still needed in each slot; slot 1 is first.
    live: Vec<u32>,
    free: Vec<u32>,
    /// Number of uncommitted ones.
    uncommitted: usize,
    /// The turn has recorded some, which may be acknowledged since.
    noted: bool,
    /// The slot that the coming commit writes.
    writing: Option<u32>,
}

struct Stored {
    sequence: u64,
    outcome: Outcome,
    slot: u32,
}

impl Replies {
    /// Adds what a slot of the store holds. `loaded` follows when all are there.
    ///
    /// # Errors
    /// For a slot that cannot be.
    pub(crate) fn load(&mut self, slot: u32, record: &session::Replies) -> std::result::Result<(), Damage> {
        if slot > SLOTS_MAX || slot == session::SELF {
            return Err(Damage::new("stored replies in an impossible slot", &slot.to_be_bytes()));
        }
        self.answered_below = self.answered_below.max(record.answered_below);
        let slots = slot as usize;
        if self.live.len() < slots {
            self.live.resize(slots, 0);
        }
        for &(sequence, outcome) in &record.outcomes {
            if let Err(at) = self.stored.binary_search_by_key(&sequence, |stored| stored.sequence) {
                self.stored.insert(at, Stored { sequence, outcome, slot });
                self.live[slots - 1] += 1;
            }
        }
        Ok(())
    }

    /// Ends loading: drops what was answered, and finds the slots that are free.
    pub(crate) fn loaded(&mut self) {
        let free = (1..).zip(&self.live).filter(|(_, live)| **live == 0).map(|(slot, _)| slot);
        self.free = free.collect();
        self.acknowledge(self.answered_below);
    }

    pub(crate) fn slots(&self) -> u32 {
        self.live.len() as u32
    }

    /// The outcome of this change where it happened already. Drops what the client says it has.
    ///
    /// # Errors
    /// `EPROTO` for a sequence that cannot be; `Again` where too many answers are not acknowledged.
    pub(crate) fn begin(&mut self, sequence: u64, answered_below: u64, stored_max: usize) -> Result<Option<Outcome>> {
        if sequence == 0 || answered_below > sequence {
            return Err(Errno::EPROTO.into());
        }
        self.acknowledge(answered_below);
        let is_answered = sequence < self.answered_to && !self.under_way.contains(&sequence);
        if sequence < self.answered_below || is_answered {
            return Err(Errno::EPROTO.into());
        }
        if let Some(outcome) = self.find(sequence) {
            return Ok(Some(outcome));
        }
        if self.stored.len() >= stored_max { Err(Error::Again) } else { Ok(None) }
    }

    /// This change happened.
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.find(sequence).is_some()
    }

    fn find(&self, sequence: u64) -> Option<Outcome> {
        if self.stored.back().is_none_or(|last| last.sequence < sequence) {
            return None;
        }
        let at = self.stored.binary_search_by_key(&sequence, |stored| stored.sequence).ok()?;
        Some(self.stored[at].outcome)
    }

    pub(crate) fn answered_below(&self) -> u64 {
        self.answered_below
    }

    fn acknowledge(&mut self, below: u64) {
        self.answered_below = self.answered_below.max(below);
        while let Some(first) = self.stored.front()
            && first.sequence < self.answered_below
        {
            let slot = first.slot;
            self.leave(slot);
            self.stored.pop_front();
        }
        if !self.under_way.is_empty() {
            self.under_way = self.under_way.split_off(&self.answered_below);
        }
    }

    /// The client has the answers to all below `below` but for `under_way`. One that was sent earlier and comes later says
    /// nothing new.
    pub(crate) fn acknowledge_but(&mut self, below: u64, under_way: BTreeSet<u64>) {
        if below <= self.answered_to {
            return;
        }
        (self.answered_to, self.under_way) = (below, under_way);
        for stored in std::mem::take(&mut self.stored) {
            if stored.sequence >= below || self.under_way.contains(&stored.sequence) {
                self.stored.push_back(stored);
            } else {
                self.leave(stored.slot);
            }
        }
    }

    /// An outcome that is there is not needed any more.
    fn leave(&mut self, slot: u32) {
        if slot == UNCOMMITTED {
            self.uncommitted -= 1;
            return;
        }
        let live = &mut self.live[slot as usize - 1];
        *live -= 1;
        if *live == 0 {
            self.free.push(slot);
        }
    }

    /// The change happened. True for the first of the turn.
    pub(crate) fn record(&mut self, sequence: u64, outcome: Outcome) -> bool {
        let stored = Stored { sequence, outcome, slot: UNCOMMITTED };
        if self.stored.back().is_none_or(|last| last.sequence < sequence) {
            self.stored.push_back(stored);
        } else {
            let at = self.stored.partition_point(|other| other.sequence < sequence);
            self.stored.insert(at, stored);
        }
        self.uncommitted += 1;
        !std::mem::replace(&mut self.noted, true)
    }

    /// The record of the turn's outcomes, and the slot to write it to; `None` where none is needed.
    pub(crate) fn write(&mut self, counts: Counts, value: &mut Vec<u8>) -> Option<u32> {
        if self.uncommitted == 0 {
            return None;
        }
        session::ser_head(value, counts, self.answered_below);
        for stored in &self.stored {
            if stored.slot == UNCOMMITTED {
                session::ser_outcome(value, stored.sequence, stored.outcome);
            }
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.live.push(0);
            self.live.len() as u32
        });
        self.writing = Some(slot);
        self.writing
    }

    pub(crate) fn committed(&mut self) {
        self.noted = false;
        let Some(slot) = self.writing.take() else { return };
        let mut left = self.uncommitted;
        self.live[slot as usize - 1] = left as u32;
        // The turn's outcomes are the last ones, but for those of late sequences.
        for stored in self.stored.iter_mut().rev() {
            if left == 0 {
                break;
            }
            if stored.slot == UNCOMMITTED {
                stored.slot = slot;
                left -= 1;
            }
        }
        self.uncommitted = 0;
    }

    /// The turn did not happen.
    pub(crate) fn rolled_back(&mut self) {
        self.noted = false;
        self.free.extend(self.writing.take());
        self.stored.retain(|stored| stored.slot != UNCOMMITTED);
        self.uncommitted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(replies: &mut Replies) -> Option<u32> {
        let slot = replies.write(Counts::default(), &mut Vec::new());
        replies.committed();
        slot
    }

    #[test]
    fn answers_again_until_acknowledged() {
        let mut replies = Replies::default();
        assert_eq!(replies.begin(1, 0, 10), Ok(None));
        assert!(replies.record(1, Outcome::Done));
        assert_eq!(replies.begin(1, 0, 10), Ok(Some(Outcome::Done)), "before the commit too");
        assert_eq!(commit(&mut replies), Some(1));
        assert_eq!(replies.begin(1, 1, 10), Ok(Some(Outcome::Done)));
        assert_eq!(replies.begin(2, 2, 10), Ok(None));
        assert_eq!(replies.begin(1, 0, 10), Err(Errno::EPROTO.into()));
        assert_eq!(replies.begin(0, 0, 10), Err(Errno::EPROTO.into()));
        assert_eq!(replies.begin(3, 4, 10), Err(Errno::EPROTO.into()));
    }

    #[test]
    fn slots_are_written_again_when_all_in_them_is_answered() {
        let mut replies = Replies::default();
        replies.record(1, Outcome::Done);
        replies.record(2, Outcome::Done);
        assert_eq!(commit(&mut replies), Some(1));
        replies.begin(3, 2, 10).unwrap();
        replies.record(3, Outcome::Done);
        assert_eq!(commit(&mut replies), Some(2), "2 is not answered");
        replies.begin(4, 3, 10).unwrap();
        replies.record(4, Outcome::Done);
        assert_eq!(commit(&mut replies), Some(1));
        assert_eq!(commit(&mut replies), None);
        assert_eq!(replies.slots(), 2);
    }

    #[test]
    fn sequences_may_come_in_any_order() {
        let mut replies = Replies::default();
        for sequence in [5, 2, 9, 3] {
            assert_eq!(replies.begin(sequence, 1, 4), Ok(None));
            replies.record(sequence, Outcome::Settled { settled: true, intents: sequence });
        }
        assert_eq!(replies.begin(4, 1, 4), Err(Error::Again));
        for sequence in [2, 3, 5, 9] {
            let outcome = Outcome::Settled { settled: true, intents: sequence };
            assert_eq!(replies.begin(sequence, 1, 4), Ok(Some(outcome)));
        }
    }

    #[test]
    fn one_that_is_not_answered_for_long_keeps_no_answers_of_others() {
        let mut replies = Replies::default();
        for turn in 0..100 {
            for sequence in (turn * 4 + 2)..(turn * 4 + 6) {
                assert_eq!(replies.begin(sequence, 1, 16), Ok(None));
                replies.record(sequence, Outcome::Done);
            }
            commit(&mut replies);
            replies.acknowledge_but(turn * 4 + 5, BTreeSet::from([1, turn * 4 + 3]));
        }
        assert_eq!(replies.begin(399, 1, 16), Ok(Some(Outcome::Done)), "it is under way");
        assert_eq!(replies.begin(398, 1, 16), Err(Errno::EPROTO.into()), "it had its answer");
        replies.acknowledge_but(398, BTreeSet::from([1, 397]));
        assert_eq!(replies.begin(397, 1, 16), Err(Errno::EPROTO.into()), "that was sent before");
        assert_eq!(replies.begin(1, 1, 16), Ok(None), "it may still come");
        assert_eq!(replies.begin(402, 402, 16), Ok(None));
        assert!(replies.under_way.is_empty());
        assert!(replies.slots() < 5, "{}", replies.slots());
    }

    #[test]
    fn a_failed_turn_leaves_nothing() {
        let mut replies = Replies::default();
        replies.record(1, Outcome::Done);
        commit(&mut replies);
        replies.record(2, Outcome::Done);
        replies.write(Counts::default(), &mut Vec::new());
        replies.rolled_back();
        assert_eq!(replies.begin(2, 1, 10), Ok(None));
        assert_eq!(replies.begin(1, 1, 10), Ok(Some(Outcome::Done)));
        replies.record(2, Outcome::Done);
        assert_eq!(commit(&mut replies), Some(2));
    }

    #[test]
    fn a_turn_is_written_once_also_where_it_acknowledges_what_it_made() {
        let mut replies = Replies::default();
        assert!(replies.record(1, Outcome::Done));
        replies.begin(2, 2, 10).unwrap();
        assert!(!replies.record(2, Outcome::Done), "the second of the turn");
        assert_eq!(commit(&mut replies), Some(1));
        replies.begin(3, 3, 10).unwrap();
        assert!(replies.record(3, Outcome::Done), "of the next one the first");
        replies.rolled_back();
        assert!(replies.record(3, Outcome::Done));
        assert_eq!((commit(&mut replies), replies.slots()), (Some(1), 1));
    }

    #[test]
    fn loads_what_was_stored() {
        let counts = Counts::default();
        let mut replies = Replies::default();
        let record = |answered_below, outcomes: &[u64]| session::Replies {
            counts,
            answered_below,
            outcomes: outcomes.iter().map(|&sequence| (sequence, Outcome::Done)).collect(),
        };
        replies.load(3, &record(3, &[4, 6])).unwrap();
        replies.load(1, &record(1, &[1, 2])).unwrap();
        replies.loaded();
        assert_eq!(replies.begin(4, 3, 10), Ok(Some(Outcome::Done)));
        assert_eq!(replies.begin(2, 2, 10), Err(Errno::EPROTO.into()));
        assert_eq!(replies.begin(5, 3, 10), Ok(None));
        replies.record(5, Outcome::Done);
        let slot = commit(&mut replies).unwrap();
        assert!(slot == 1 || slot == 2, "{slot}");
    }
}
