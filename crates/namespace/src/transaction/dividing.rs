//! Directories that are about to be split. Other shards may need long to promise the parts, and names come and go in the
//! directory all the while: it is locked when all have promised, in the turn that decides. Who has locked names in it by then
//! is waited for, and nobody else may lock any meanwhile; that takes no longer than [`WAIT_MS`]. The promises are in nobody's
//! way: nobody knows of the parts yet.

use std::collections::BTreeMap;

use kv::Kv;
use types::id::{InodeId, SessionId, TransactionId};

use crate::error::{Error, Result};
use crate::leases::Touched;
use crate::shard::Shard;
use crate::transaction::Ending;
use crate::transaction::part::{NewDirectory, Part};
use crate::transaction::plan::Step;

/// Longest wait of a directory's other transactions for its split; who wants it begins anew after that.
const WAIT_MS: u64 = 5000;

/// By the transactions that are to split them.
#[derive(Default)]
pub(crate) struct Dividing(BTreeMap<TransactionId, Divided>);

struct Divided {
    directory: InodeId,
    /// All parts are promised, and it waits for those who have locked names, until then.
    until_ms: Option<u64>,
}

impl Dividing {
    pub(super) fn begin(&mut self, transaction: TransactionId, directory: InodeId) {
        self.0.insert(transaction, Divided { directory, until_ms: None });
    }

    pub(super) fn end(&mut self, transaction: TransactionId) {
        self.0.remove(&transaction);
    }

    /// No leases are given on the directory or its names: nobody would hear that it has parts.
    pub(crate) fn has(&self, directory: InodeId) -> bool {
        self.0.values().any(|divided| divided.directory == directory)
    }

    /// No transaction more may lock names in it.
    pub(crate) fn reserves(&self, directory: InodeId) -> bool {
        self.0.values().any(|divided| divided.directory == directory && divided.until_ms.is_some())
    }

    /// Some are waited for: [`Shard::go_on_dividing`] is to be called soon.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.values().any(|divided| divided.until_ms.is_some())
    }
}

impl<K: Kv> Shard<K> {
    /// Divides directories that may be free by now. To be called in each turn before anything else is asked of the shard, or
    /// others would lock names again.
    pub fn go_on_dividing(&mut self) {
        let waiting = self.transactions.dividing.0.iter().filter_map(|(&id, divided)| Some((id, divided.until_ms?)));
        let waiting: Vec<(TransactionId, u64)> = waiting.collect();
        for (id, until_ms) in waiting {
            if self.mono_ms < until_ms {
                self.go_on(id, Step::Divide);
            } else {
                self.give_up(id, Ending::Again);
            }
        }
    }

    /// All parts are promised. The next step where the directory is free, or else it is waited for.
    pub(super) fn divide(&mut self, id: TransactionId) -> Result<Option<Step>> {
        let step = match self.try_to_divide(id) {
            Err(Error::Blocked(other)) => {
                self.await_end(other);
                None
            }
            Err(Error::Recalling) => None,
            tried => tried?,
        };
        if step.is_none()
            && let Some(divided) = self.transactions.dividing.0.get_mut(&id)
        {
            divided.until_ms.get_or_insert(self.mono_ms.saturating_add(WAIT_MS));
        }
        Ok(step)
    }

    /// `Again` where the directory has changed so that its parts would be unlike it.
    fn try_to_divide(&mut self, id: TransactionId) -> Result<Option<Step>> {
        let Some((inode, parts)) = self.transactions.running.get(&id).and_then(|running| running.plan.divides()) else {
            return Ok(None);
        };
        let directory = self.namespace.can_be_split(inode)?;
        let like = |part: &NewDirectory, other: &NewDirectory| {
            let (id, time, fills) = (other.id, other.time, other.fills);
            // Names only raise the time. One that was set to before would be hidden by those of the parts.
            part.time >= time && NewDirectory { id, time, fills, ..part.clone() } == *other
        };
        let now = self.new_parts(inode, &directory, parts.len() as u16)?;
        if !now.iter().zip(&parts).all(|(now, part)| like(now, part)) {
            return Err(Error::Again);
        }
        // Whether there are names yet to go to the parts is about to be so again, or the parts are to be made anew.
        if parts.iter().any(|part| part.fills != (directory.entries() != 0)) {
            return Ok(None);
        }
        self.take_back(SessionId(0), &[Touched::inode(inode)])?;
        self.ask(id, vec![(self.config.shard, Part::Divide { inode, parts: Vec::new() })])
    }
}
