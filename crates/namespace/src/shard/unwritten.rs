//! A store that takes nothing for a while, as its disk is full: what can be read is read, also by sessions that come new.
//!
//! These are in memory alone until it takes their records. A restart before that does not know them: as with one that a power
//! cut has taken, what they told of then is theirs as far as nobody else has had it since.

use std::collections::BTreeMap;

use kv::Kv;
use types::id::SessionId;

use crate::schema::session;
use crate::shard::Shard;

#[derive(Default)]
pub(super) struct Unwritten {
    /// The store takes nothing now.
    refuses: bool,
    /// Sessions without records, with their descriptions.
    sessions: BTreeMap<SessionId, Vec<u8>>,
    /// This turn writes them.
    writes: bool,
}

impl Unwritten {
    pub(super) fn committed(&mut self) {
        if std::mem::take(&mut self.writes) {
            self.sessions.clear();
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.writes = false;
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }
}

impl<K: Kv> Shard<K> {
    /// Whether the store takes anything now. Where it does not, nothing is begun that would change it without being asked for,
    /// and a new session needs no record. To be told before [`Self::begin_turn`].
    pub fn set_takes_changes(&mut self, takes: bool) {
        self.unwritten.refuses = !takes;
    }

    pub(crate) fn takes_changes(&self) -> bool {
        !self.unwritten.refuses
    }

    /// Those that came while the store took nothing.
    pub(super) fn write_sessions(&mut self) {
        if !self.takes_changes() || self.unwritten.sessions.is_empty() {
            return;
        }
        self.unwritten.writes = true;
        for (&id, description) in &self.unwritten.sessions {
            session::ser_key(&mut self.key, id, session::SELF);
            session::ser_self(&mut self.value, description);
            self.namespace.cold.put(&self.key, &self.value);
        }
    }

    pub(super) fn write_session(&mut self, id: SessionId, description: &[u8]) {
        if !self.takes_changes() {
            self.unwritten.sessions.insert(id, description.to_vec());
            return;
        }
        session::ser_key(&mut self.key, id, session::SELF);
        session::ser_self(&mut self.value, description);
        self.namespace.cold.put(&self.key, &self.value);
    }
}
