//! Ends that come in pieces: what a session, or the grace after a restart, has kept without a name may be a million files, and
//! nobody else would be answered meanwhile.
//!
//! A session that ends so is none any more for its client, but its records go with the last piece. Where the shard starts
//! again in between, it may come back, and misses files that it alone had. Until the last piece it keeps its write intents on
//! all others, and its drafts: one that it told of then, others would have to have believed in all the time.

use std::collections::BTreeMap;

use kv::Kv;
use types::id::{InodeId, SessionId};

use crate::error::{Error, Result};
use crate::schema::orphan;
use crate::shard::{ABSENT, Session, Shard, Stage};

/// Holds that end with one turn.
pub(super) const AT_ONCE: usize = 1024;

/// Whose holds are ending, and after which inode that goes on.
#[derive(Default)]
pub(super) struct Ending(BTreeMap<SessionId, Option<InodeId>>);

impl<K: Kv> Shard<K> {
    /// Holds are ending in pieces: [`Self::go_on_ending`] is to be called again and again. The caller decides the pace.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        !self.ending.0.is_empty()
    }

    /// Ends the next piece. Answers why some of it could not be ended: that is tried again at a later [`Self::tick`].
    pub fn go_on_ending(&mut self) -> Vec<Error> {
        let (mut left, mut failed) = (AT_ONCE, Vec::new());
        while left > 0
            && let Some((&session, &after)) = self.ending.0.first_key_value()
        {
            let inodes = self.holds.after(session, after, left);
            let Some(&last) = inodes.last() else {
                self.ending.0.remove(&session);
                if session != ABSENT {
                    failed.extend(self.end_at_once(session).err());
                }
                continue;
            };
            left -= inodes.len();
            self.ending.0.insert(session, Some(last));
            for inode in inodes {
                failed.extend(self.end_hold(session, inode).err());
            }
        }
        failed
    }

    /// Begins anew with what was left, by turns that failed as well; and with what a transaction had promised a name to.
    pub(super) fn resume_ending(&mut self) {
        self.resume_ending_sessions();
        if self.grace_until_ms.is_none() && self.holds.count(ABSENT) > 0 {
            self.ending.0.entry(ABSENT).or_default();
        }
    }

    pub(super) fn resume_ending_sessions(&mut self) {
        let ending = |session: &Session| session.stage == Stage::Ending;
        for (&id, _) in self.sessions.iter().filter(|(_, session)| ending(session)) {
            self.ending.0.entry(id).or_default();
        }
    }

    /// After a turn that failed: its pieces are there again.
    pub(super) fn begin_ending_anew(&mut self) {
        self.ending.0.clear();
        self.resume_ending_sessions();
    }

    /// Ends a session: with this turn, where it holds no more than `at_once` inodes.
    pub(super) fn end_session(&mut self, id: SessionId, at_once: usize) -> Result<()> {
        if self.holds.count(id) <= at_once {
            return self.end_at_once(id);
        }
        self.enter(id, Stage::Ending);
        self.ending.0.insert(id, None);
        Ok(())
    }

    fn end_hold(&mut self, session: SessionId, inode: InodeId) -> Result<()> {
        let is_last = self.holds.is_orphan(inode) && self.holds.openers(inode).len() == 1;
        let is_changed = self.holds.intends(session, inode) || self.holds.drafter(inode) == Some(session);
        if is_changed && !is_last {
            return Ok(());
        }
        self.release_or_leave(session, inode)
    }

    /// What cannot be read is left to `ABSENT`, for which it is tried again at each tick outside the grace: the session's end
    /// does not wait for that.
    pub(super) fn release_or_leave(&mut self, session: SessionId, inode: InodeId) -> Result<()> {
        match self.release(session, inode) {
            Err(error) if error.is_unreadable() && session != ABSENT => {
                self.holds.open(ABSENT, inode);
                orphan::ser_key(&mut self.key, inode, ABSENT);
                self.namespace.cold.put(&self.key, &orphan::VALUE);
                orphan::ser_key(&mut self.key, inode, session);
                self.namespace.cold.delete(&self.key);
                self.holds.close(session, inode);
                Err(error)
            }
            released => released,
        }
    }
}
