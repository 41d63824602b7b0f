//! What a turn did to transactions, to be kept or taken back as a whole.

use kv::Kv;
use types::id::{SessionId, TransactionId};

use crate::shard::Shard;
use crate::transaction::{Ending, Outgoing};

/// Which steps of transactions a turn's batch has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Steps {
    pub decided: bool,
    /// All participants have done what was decided.
    pub forgotten: bool,
    pub promised: bool,
    /// Done, or forgotten, as another shard decided.
    pub finished: bool,
}

#[derive(Default)]
pub(super) struct Turn {
    /// Coordinated here, and gone on with.
    pub(super) touched: Vec<TransactionId>,
    /// Coordinated here, and decided.
    pub(super) decided: Vec<TransactionId>,
    /// Done by all participants.
    pub(super) forgotten: Vec<TransactionId>,
    /// Promised to others.
    pub(super) prepared: Vec<(TransactionId, u8)>,
    /// Done or forgotten, as others decided.
    pub(super) finished: Vec<TransactionId>,
    /// Changes that were given up, or refused: by what they saw, which the turn may take back.
    pub(super) refused: Vec<(SessionId, u64)>,
}

impl Turn {
    fn is_over(&mut self) {
        self.touched.clear();
        self.refused.clear();
    }

    pub(super) fn is_clean(&self) -> bool {
        self.decided.is_empty() && self.forgotten.is_empty() && self.prepared.is_empty() && self.finished.is_empty()
    }
}

impl<K: Kv> Shard<K> {
    /// What the turn's batch has of transactions; to be asked before it is committed.
    #[must_use]
    pub fn steps(&self) -> Steps {
        let Turn { touched: _, decided, forgotten, prepared, finished, refused: _ } = &self.transactions.turn;
        Steps {
            decided: !decided.is_empty(),
            forgotten: !forgotten.is_empty(),
            promised: !prepared.is_empty(),
            finished: !finished.is_empty(),
        }
    }

    /// Messages for other shards. To be taken after each turn, whether it was committed, failed, or had nothing to commit.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        self.transactions.turn.is_over();
        std::mem::take(&mut self.transactions.outbox)
    }

    /// Transactions that have ended: what was `Blocked` by them is to be asked again. To be taken with `take_outgoing`.
    pub fn take_ended(&mut self) -> Vec<TransactionId> {
        std::mem::take(&mut self.transactions.ended)
    }

    /// The locks of what has ended go only now: until here, somebody might have promised on what is taken back.
    pub(crate) fn transactions_committed(&mut self) {
        let turn = std::mem::take(&mut self.transactions.turn);
        for id in turn.decided {
            self.end(id);
        }
        for id in turn.finished {
            self.unlock_prepared(id);
            self.transactions.ended.push(id);
        }
        for id in turn.forgotten {
            self.transactions.decided.remove(&id);
        }
    }

    pub(crate) fn transactions_rolled_back(&mut self) {
        let turn = std::mem::take(&mut self.transactions.turn);
        self.transactions.outbox.clear();
        for (id, round) in turn.prepared {
            self.forget_round(id, round);
        }
        for id in turn.decided {
            self.transactions.decided.remove(&id);
        }
        // Asked for again, they begin anew.
        for change in turn.refused {
            self.transactions.endings.remove(&change);
        }
        for id in turn.touched {
            self.give_up(id, Ending::Again);
        }
        self.transactions.turn.is_over();
    }
}
