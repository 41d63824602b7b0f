//! The side that promises.

use std::mem;
use std::ops::ControlFlow;

use kv::Kv;
use types::error::Errno;
use types::id::{InodeId, SessionId, TransactionId};

use crate::error::{Damage, Error, Result};
use crate::leases::Touched;
use crate::schema::transaction as record;
use crate::shard::Shard;
use crate::transaction::part::{Part, Vote};
use crate::transaction::{Decided, Finished, Message, Outcome, Outgoing, Prepared, Recalling};

/// A coordinator that has not said anything for so long is asked.
const ASK_AFTER_MS: u64 = 1000;
/// Nobody waits for leases for so long: their coordinators have given up, and the terms are over.
const FORGET_RECALLING_MS: u64 = 600_000;
/// Parts of one message.
const PARTS_MAX: usize = 16;
/// Directories above a directory; more is a loop, so damage.
const DEPTH_MAX: u32 = 1 << 16;

impl<K: Kv> Shard<K> {
    /// Promises to do these parts. **The votes may leave only when the turn's commit is on disk**, unless all parts are done at
    /// once (`Part::is_done_at_once`): then they need not wait for that.
    ///
    /// # Errors
    /// `Again` where another transaction has locked something, `Blocked` where it is the token, or one that only makes a
    /// directory; `Recalling` where other sessions than `session` hold leases on something; those of the single operations;
    /// `EINVAL` for what no shard asks for. Nothing of these parts is left then.
    pub fn prepare(
        &mut self,
        session: SessionId,
        transaction: TransactionId,
        round: u8,
        mut parts: Vec<Part>,
    ) -> Result<Vec<Vote>> {
        if transaction.coordinator() == self.config.shard || parts.len() > PARTS_MAX {
            return Err(Errno::EINVAL.into());
        }
        // Late: it has been given up, just now or while it waited for leases.
        let given_up = self.transactions.recalling.remove(&transaction).is_some_and(|recalling| recalling.given_up);
        if given_up || self.transactions.turn.finished.contains(&transaction) {
            return Err(Error::Again);
        }
        let rounds = self.transactions.prepared.get(&transaction).map(|prepared| &prepared.rounds);
        if let Some((_, known)) = rounds.and_then(|rounds| rounds.iter().find(|(known, _)| *known == round)) {
            parts.clone_from(known);
            let vote = |part: &mut Part| match part {
                Part::Make(new) => Ok(Vote::Made(new.id)),
                part => self.check_part(part),
            };
            return parts.iter_mut().map(vote).collect();
        }
        for part in parts.iter().map(Part::plain) {
            match self.may_promise(transaction, part) {
                Ok(()) => {}
                Err(Error::Blocked(other)) if *part == Part::Token || self.only_makes(other) => {
                    self.wait_to_promise(transaction);
                    return Err(Error::Blocked(other));
                }
                Err(Error::Blocked(other)) => {
                    self.await_end(other);
                    return Err(Error::Again);
                }
                Err(error) => return Err(error),
            }
        }
        // Only now that nothing is in doubt: what another shard has decided may say otherwise.
        parts = parts.into_iter().map(|part| self.as_given(part)).collect::<Result<_>>()?;
        let votes = parts.iter_mut().map(|part| self.check_part(part)).collect::<Result<Vec<_>>>()?;
        self.take_back_parts(session, transaction, &parts)?;
        for part in &parts {
            self.transactions.locks.lock(transaction, true, part);
            if let Part::Make(new) = part
                && new.at_once
            {
                self.namespace.add_new_inode(new.id, new.new_inode());
            }
        }
        record::ser_round_key(&mut self.key, transaction, round);
        self.namespace.cold.put(&self.key, &record::ser_round(session, &parts));
        let asked_ms = self.mono_ms;
        let prepared = self.transactions.prepared.entry(transaction);
        let prepared = prepared.or_insert_with(|| Prepared { session, rounds: Vec::new(), asked_ms, awaited: false });
        prepared.rounds.push((round, parts));
        self.transactions.turn.prepared.push((transaction, round));
        Ok(votes)
    }

    fn may_promise(&mut self, transaction: TransactionId, part: &Part) -> Result<()> {
        self.must_not_be_full(part)?;
        self.transactions.locks.may_lock(transaction, true, part)?;
        match part {
            Part::Entry { parent, .. } => self.may_join(*parent, transaction, true),
            Part::Link { inode, .. } => self.may_last(*inode),
            _ => Ok(()),
        }
    }

    /// `ENOTEMPTY` where a directory is to be removed that has entries: true whatever transactions have locked in it, since
    /// what others have decided takes none of them away, and where names are always locked, nobody would ever be told.
    pub(super) fn must_not_be_full(&mut self, part: &Part) -> Result<()> {
        let Part::Rmdir(inode) = part else { return Ok(()) };
        // One that may yet be forgotten with what is in it is waited for, and that is not long.
        if self.transactions.locks.may_last(*inode).is_err() {
            return Ok(());
        }
        match self.check_part(&mut Part::Rmdir(*inode)) {
            Err(Error::Refused(Errno::ENOTEMPTY)) => Err(Errno::ENOTEMPTY.into()),
            // Of all else, only when it is free.
            _ => Ok(()),
        }
    }

    /// Once promised, it waits for nothing but its coordinator's disk: who waits for it, though with locks elsewhere, makes no
    /// deadlock.
    fn only_makes(&self, transaction: TransactionId) -> bool {
        let prepared = self.transactions.prepared.get(&transaction);
        prepared.is_some_and(|it| it.rounds.iter().flat_map(|(_, parts)| parts).all(Part::is_done_at_once))
    }

    /// Nobody but `session` may believe any more what these parts change.
    fn take_back_parts(&mut self, session: SessionId, transaction: TransactionId, parts: &[Part]) -> Result<()> {
        let touched: Vec<Touched<'_>> = parts.iter().flat_map(Part::touches).collect();
        let taken = self.take_back(session, &touched);
        if taken.is_err() {
            self.wait_to_promise(transaction);
        }
        taken
    }

    /// Its coordinator may give it up meanwhile.
    fn wait_to_promise(&mut self, transaction: TransactionId) {
        let recalling = Recalling { since_ms: self.mono_ms, given_up: false };
        self.transactions.recalling.insert(transaction, recalling);
    }

    /// Does what was promised, or forgets it. **The answer may leave only when the turn's commit is on disk.** Harmless
    /// twice. Where nothing is known of it, `made` must be there, or it is `Lost`.
    ///
    /// # Errors
    /// Where the store fails, the promise stays; `Again` where it is not known yet whether `made` stays.
    pub fn finish(&mut self, transaction: TransactionId, commit: bool, made: Option<InodeId>) -> Result<Finished> {
        if let Some(recalling) = self.transactions.recalling.get_mut(&transaction) {
            recalling.given_up = true;
        }
        if !self.transactions.prepared.contains_key(&transaction) {
            return made.map_or(Ok(Finished::Done), |made| self.look_for_made(made));
        }
        if self.transactions.turn.finished.contains(&transaction) || !commit && !self.unmake(transaction)? {
            return Ok(Finished::Done);
        }
        let Some(prepared) = self.transactions.prepared.get_mut(&transaction) else { return Ok(Finished::Done) };
        let (mover, rounds) = (Some(prepared.session), mem::take(&mut prepared.rounds));
        let applied = match &*rounds {
            _ if !commit => Ok(()),
            [(_, parts)] => self.apply_parts(parts, mover),
            several => {
                let parts: Vec<Part> = several.iter().flat_map(|(_, parts)| parts).cloned().collect();
                self.apply_parts(&parts, mover)
            }
        };
        for (round, _) in rounds.iter().filter(|_| applied.is_ok()) {
            record::ser_round_key(&mut self.key, transaction, *round);
            self.namespace.cold.delete(&self.key);
        }
        if let Some(prepared) = self.transactions.prepared.get_mut(&transaction) {
            prepared.rounds = rounds;
        }
        applied?;
        self.transactions.turn.finished.push(transaction);
        Ok(Finished::Done)
    }

    /// A request is `Blocked` by this transaction: where another shard decides it, that is told, once.
    pub fn await_end(&mut self, transaction: TransactionId) {
        let now_ms = self.mono_ms;
        if let Some(prepared) = self.transactions.prepared.get_mut(&transaction).filter(|prepared| !prepared.awaited) {
            (prepared.awaited, prepared.asked_ms) = (true, now_ms);
            self.transactions.outbox.push(ask(transaction));
        }
    }

    /// What became of a transaction that this shard coordinates. Where that is not known yet, its participants hear of it
    /// without delay. **That it is to be done may be told only when the turn's commit is on disk.**
    #[must_use]
    pub fn outcome(&mut self, transaction: TransactionId) -> Outcome {
        if self.transactions.decided.contains_key(&transaction) {
            Outcome::Commit
        } else if let Some(running) = self.transactions.running.get_mut(&transaction) {
            running.awaited = true;
            Outcome::Pending
        } else {
            Outcome::Abort
        }
    }

    /// Goes up from a directory: to `until`, to root, or to the first directory that is not at home here.
    ///
    /// # Errors
    /// `ESTALE` where one of them is no directory, `Blocked` by a transaction that moves one of them.
    pub fn climb(&mut self, inode: InodeId, until: InodeId) -> Result<InodeId> {
        let mut at = inode;
        for _ in 0..DEPTH_MAX {
            if at == until || at == InodeId::ROOT || at.home() != self.config.shard {
                return Ok(at);
            }
            // One that is being moved has its new parent when that has ended.
            self.transactions.locks.may_climb(at)?;
            match self.namespace.find(at)? {
                Some(inode) if inode.is_dir() => at = inode.parent,
                _ => return Err(Errno::ESTALE.into()),
            }
        }
        Err(Errno::ELOOP.into())
    }

    /// What changes on disk of this directory or inode is decided: nothing that another shard has decided is missing.
    ///
    /// # Errors
    /// `Blocked`; `ESTALE` where it is gone: nobody who has it open is to believe that it is durable.
    pub fn may_sync(&mut self, inode: InodeId) -> Result<()> {
        self.transactions.locks.may_read(inode)?;
        self.may_last(inode)?;
        self.namespace.existing(inode).map(drop)
    }

    /// Neither the inode nor the directory that it lies in may yet be forgotten. Of a file there with several names it could
    /// not be told where it lies: it gets them only when that is certain to stay.
    pub(super) fn may_last(&mut self, inode: InodeId) -> Result<()> {
        let locks = &self.transactions.locks;
        if !locks.are_unconfirmed() {
            return Ok(());
        }
        locks.may_last(inode)?;
        self.namespace.find(inode)?.map_or(Ok(()), |found| self.transactions.locks.may_last(found.parent))
    }

    /// Asks coordinators from which nothing was heard.
    pub(crate) fn ask_coordinators(&mut self) {
        let now_ms = self.mono_ms;
        // Who asked has long forgotten them.
        self.transactions.recalling.retain(|_, waits| now_ms < waits.since_ms.saturating_add(FORGET_RECALLING_MS));
        for (&transaction, prepared) in &mut self.transactions.prepared {
            if now_ms >= prepared.asked_ms.saturating_add(ASK_AFTER_MS) {
                prepared.asked_ms = now_ms;
                self.transactions.outbox.push(ask(transaction));
            }
        }
    }

    pub(super) fn unlock_prepared(&mut self, transaction: TransactionId) {
        let Some(prepared) = self.transactions.prepared.remove(&transaction) else { return };
        for part in prepared.rounds.iter().flat_map(|(_, parts)| parts) {
            self.transactions.locks.unlock(transaction, part);
        }
    }

    /// The turn in which these were promised has failed.
    pub(super) fn forget_round(&mut self, transaction: TransactionId, round: u8) {
        let Some(prepared) = self.transactions.prepared.get_mut(&transaction) else { return };
        for (_, parts) in prepared.rounds.extract_if(.., |(of, _)| *of == round) {
            parts.iter().for_each(|part| self.transactions.locks.unlock(transaction, part));
        }
        if prepared.rounds.is_empty() {
            self.transactions.prepared.remove(&transaction);
            self.transactions.ended.push(transaction);
        }
    }

    /// Reads promises and decisions at the start, and asks and tells at once.
    pub(crate) fn load_transactions(&mut self) -> Result<()> {
        let mut records = Vec::new();
        self.namespace.kv.scan(&[record::PREFIX], &[record::PREFIX + 1], |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (key, value) in records {
            match record::deser_key(&key)? {
                (id, None) if id.coordinator() == self.config.shard => {
                    let record::Decision { participants, makes } = record::deser_decision(&key, &value)?;
                    let made = makes.map(|making| making.new.id);
                    self.transactions.decided.insert(id, Decided { participants, made, told_ms: self.mono_ms });
                    self.tell(id, true);
                }
                (id, Some(round)) if id.coordinator() != self.config.shard => {
                    let (session, parts) = record::deser_round(&key, &value)?;
                    for part in &parts {
                        self.transactions.locks.lock(id, true, part);
                    }
                    let prepared = self.transactions.prepared.entry(id);
                    let asked_ms = self.mono_ms;
                    let new = || Prepared { session, rounds: Vec::new(), asked_ms, awaited: false };
                    prepared.or_insert_with(new).rounds.push((round, parts));
                }
                _ => return Err(Damage::new("a transaction of the wrong shard", &key).into()),
            }
        }
        let asks: Vec<Outgoing> = self.transactions.prepared.keys().map(|&id| ask(id)).collect();
        self.transactions.outbox.extend(asks);
        Ok(())
    }
}

pub(super) fn ask(transaction: TransactionId) -> Outgoing {
    Outgoing::at_once(transaction.coordinator(), Message::AskOutcome { transaction })
}
