//! Files without a name, from their making to their first name.

use kv::Kv;
use types::cred::Credentials;
use types::id::InodeId;

use crate::error::Result;
use crate::schema::inode::UNSETTLED;
use crate::schema::orphan;
use crate::schema::session::Outcome;
use crate::shard::Shard;
use crate::view::{Exactly, InodeView};

impl<K: Kv> Shard<K> {
    /// Makes a regular file without a name, and opens it; `write_intent` as in `create`.
    ///
    /// # Errors
    /// `ENOENT` (no such directory, or removed), `ENOTDIR`, `EBUSY` (too many opens), `ENOSPC` (no group in the pool).
    pub fn tmpfile(
        &mut self,
        exactly: Exactly,
        parent: InodeId,
        mode: u32,
        cred: Credentials,
        write_intent: bool,
    ) -> Result<InodeView> {
        if let Some(outcome) = self.begin(exactly)? {
            return self.repeat(exactly, outcome);
        }
        self.may_read(parent)?;
        let session = exactly.session;
        self.may_hold(session, None)?;
        let id = self.namespace.tmpfile(parent, mode, cred)?;
        // In memory: nothing fails from here on.
        let inode = self.namespace.existing(id)?;
        let layout = self.namespace.layout(id, &inode)?;
        self.hold_open(session, id, &inode);
        let outcome = if write_intent {
            if inode.inline_limit().is_none() {
                self.holds.intend(session, id, !inode.has(UNSETTLED), self.namespace.writes_begin_after(&inode));
                self.namespace.unsettle(id, inode);
            }
            Outcome::OpenedToWrite(id)
        } else {
            Outcome::Opened(id)
        };
        self.record(exactly, outcome);
        let inode = self.namespace.existing(id)?;
        Ok(self.view(session, id, &inode, layout))
    }

    /// An orphan got a name: it no longer ends with its last holder.
    pub(crate) fn adopted(&mut self, id: InodeId) {
        if !self.holds.is_orphan(id) {
            return;
        }
        for session in self.holds.openers(id) {
            orphan::ser_key(&mut self.key, id, session);
            self.namespace.cold.delete(&self.key);
        }
        self.holds.adopt(id);
    }
}
