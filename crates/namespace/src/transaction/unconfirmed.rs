//! What a power cut may have done to directories that were made at once: lost them where their making was decided, or kept
//! them where the decision was lost.

use kv::Kv;
use types::cred::Conditions;
use types::error::Errno;
use types::id::{InodeId, TransactionId};
use types::name::Name;
use types::parts::HASH_END;

use crate::error::{Error, Result};
use crate::leases::Touched;
use crate::schema::transaction as record;
use crate::shard::Shard;
use crate::transaction::part::Part;
use crate::transaction::participant::ask;
use crate::transaction::plan::Operation;
use crate::transaction::{Finished, Message, NOBODY, Reply};
use crate::view::Exactly;

/// Names that are removed in one turn.
const NAMES_MAX: usize = 128;

/// How far a removal has come.
enum Progress {
    Gone,
    /// There is more to be done, at once.
    More,
    /// Others have to give back leases or end transactions first.
    Waits,
}

impl<K: Kv> Shard<K> {
    /// The shard of a directory that was made for this transaction does not have it. Where its name is there, it was lost;
    /// where not, it was removed since.
    pub(super) fn make_again(&mut self, first: TransactionId) -> Result<()> {
        if !self.transactions.is_decided(first) {
            return Ok(());
        }
        record::ser_key(&mut self.key, first);
        let Some(value) = self.namespace.cold.get(&self.namespace.kv, &self.key)? else { return Ok(()) };
        let Some(making) = record::deser_decision(&self.key, &value)?.makes else { return Ok(()) };
        let is_named = self.namespace.child(making.parent, &making.name)? == Some(making.new.id);
        if !is_named {
            self.forget(first);
            return Ok(());
        }
        let number = making.new.id.0;
        let exactly =
            Exactly { session: NOBODY, sequence: number, answered_below: number, given: Conditions::default() };
        if let Err(Error::Blocked(_)) = self.under_way(exactly) {
            return Ok(());
        }
        match self.start(exactly, Operation::MakeAgain { first, making }) {
            Err(Error::Blocked(_)) => Ok(()),
            other => other,
        }
    }

    /// Who asks a shard for a directory that it has lost is refused there, as if names were damaged or the directory had been
    /// removed. Until it is made again, that is to be tried again.
    pub(super) fn not_yet_made_again(&self, message: &Message, reply: Reply) -> Reply {
        let Reply::Refused(Errno::EIO | Errno::ENOENT | Errno::ESTALE) = reply else { return reply };
        let may_be_lost = match message {
            Message::Prepare { parts, .. } => self.transactions.may_be_lost(parts.iter().filter_map(Part::concerns)),
            Message::Climb { inode, .. } => self.transactions.may_be_lost([*inode]),
            Message::Finish { .. } | Message::AskOutcome { .. } => false,
        };
        if may_be_lost { Reply::Failed } else { reply }
    }

    /// For a decided transaction that nothing is known of: what it made is there, and stays.
    pub(super) fn look_for_made(&mut self, made: InodeId) -> Result<Finished> {
        if self.namespace.find(made)?.is_some() {
            return Ok(Finished::Done);
        }
        // It may be about to be made again, for another transaction.
        self.transactions.locks.may_climb(made).map_err(|_| Error::Again)?;
        Ok(Finished::Lost)
    }

    /// Removes what was made at once for a transaction that is forgotten. False where that is not done yet: it is asked about
    /// again.
    pub(super) fn unmake(&mut self, transaction: TransactionId) -> Result<bool> {
        let Some(prepared) = self.transactions.prepared.get(&transaction) else { return Ok(true) };
        let parts = prepared.rounds.iter().flat_map(|(_, parts)| parts);
        let made = |part: &Part| if let Part::Make(new) = part { new.at_once.then_some(new.id) } else { None };
        for directory in parts.filter_map(made).collect::<Vec<_>>() {
            self.transactions.locks.doom(directory);
            match self.remove_whole(directory)? {
                Progress::Gone => {}
                Progress::More => {
                    self.transactions.outbox.push(ask(transaction));
                    return Ok(false);
                }
                Progress::Waits => return Ok(false),
            }
        }
        Ok(true)
    }

    /// A directory with the files in it, of which there are none in other shards.
    fn remove_whole(&mut self, directory: InodeId) -> Result<Progress> {
        if self.namespace.find(directory)?.is_none() {
            return Ok(Progress::Gone);
        }
        for (name, edge) in self.namespace.names_to_move(directory, 1, HASH_END, NAMES_MAX)?.entries {
            match self.remove_name(directory, &name, edge.child) {
                Ok(()) => {}
                Err(Error::Recalling | Error::Blocked(_)) => return Ok(Progress::Waits),
                Err(error) => return Err(error),
            }
        }
        if self.namespace.existing(directory)?.entries() > 0 {
            return Ok(Progress::More);
        }
        match self.take_back(NOBODY, &[Touched::directory(directory)]) {
            Ok(()) => {}
            Err(Error::Recalling) => return Ok(Progress::Waits),
            Err(error) => return Err(error),
        }
        self.remove_inode(directory)?;
        Ok(Progress::Gone)
    }

    /// Whatever flags it has: that it was made, or marked, is forgotten.
    fn remove_name(&mut self, directory: InodeId, name: &Name, child: InodeId) -> Result<()> {
        self.take_back(
            NOBODY,
            &[Touched::inode(child), Touched::directory(directory), Touched::name(directory, name)],
        )?;
        self.transactions.locks.may_change(child)?;
        self.apply_parts(&[Part::Entry { parent: directory, name: name.clone(), becomes: None }], None)?;
        self.remove_inode(child)
    }

    /// Also where somebody has it open, as a power cut of this shard would: who thinks that it is still there, and asks for
    /// it to be durable, must not be told so.
    fn remove_inode(&mut self, inode: InodeId) -> Result<()> {
        let found = self.namespace.existing(inode)?;
        let loss = self.namespace.prepare_loss(inode, found, |_| false)?;
        let fate = self.namespace.lose(loss);
        self.account(fate);
        Ok(())
    }
}
