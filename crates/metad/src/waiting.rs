//! Requests that wait for somebody else: changes for leases to be given back, clients for recalls and for locks.

use std::collections::BTreeMap;
use std::mem;

use kv::Kv;
use namespace::locks::Ticket;
use namespace::shard::Shard;
use namespace::view::{Awaited, Recall};
use net::ConnectionId;
use rustc_hash::FxHashMap;
use types::id::{InodeId, SessionId};
use wire::frame::Status;
use wire::v1::session;

use crate::answer::Answer;
use crate::locking;
use crate::parking::Parking;
use crate::turn::{Answered, Queued};

/// What waits beside the queue.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Changes.
    parked: Parking<Awaited, Queued>,
    /// Of each session that hears recalls: over which connection, and its request where it is here.
    listeners: FxHashMap<SessionId, Listener>,
    /// Requests that are answered when their lock is there. The shard says which, and bounds their number.
    locks: BTreeMap<Ticket, Answered>,
}

struct Listener {
    connection: ConnectionId,
    request: Option<Answered>,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parked.bytes()
    }

    pub(crate) fn park(&mut self, awaited: Awaited, queued: Queued) {
        self.parked.park_anyway(awaited, queued);
    }

    /// Puts those in front of `queue` that waited for these.
    pub(crate) fn release(&mut self, ended: &[Awaited], queue: &mut Vec<Queued>) {
        queue.splice(0..0, self.parked.leave(ended));
    }

    /// Puts all parked ones in front of `queue`.
    pub(crate) fn release_all(&mut self, queue: &mut Vec<Queued>) {
        queue.splice(0..0, self.parked.clear().into_iter().map(|(_, queued)| queued));
    }

    /// Drops the parked ones whose caller is gone, or its next connection would wait for them; answers their bytes.
    pub(crate) fn drop_abandoned(&mut self) -> usize {
        self.parked.remove_if(Queued::is_abandoned).iter().map(|(_, queued)| queued.len()).sum()
    }

    /// The session's request for recalls, to be answered when there are any. Answers at once what it asked before.
    pub(crate) fn listen<K: Kv>(
        &mut self,
        shard: &mut Shard<K>,
        session: SessionId,
        connection: ConnectionId,
        request: Answered,
    ) {
        shard.listen(session, true);
        if self.listeners.get(&session).is_none_or(|listener| listener.connection != connection) {
            shard.tell_wanted_ends_again(session);
        }
        let (recalls, ends) = (shard.recalls(session), shard.tell_wanted_ends(session));
        let mut listener = Listener { connection, request: Some(request) };
        if !(recalls.is_empty() && ends.is_empty()) {
            listener.answer(recalls, ends);
        }
        if let Some(mut earlier) = self.listeners.insert(session, listener) {
            earlier.answer(Vec::new(), Vec::new());
        }
    }

    /// Tells sessions of what they have to give back.
    pub(crate) fn alert<K: Kv>(&mut self, shard: &mut Shard<K>) -> u64 {
        let mut told = 0;
        while let Some(session) = shard.next_alert() {
            told += u64::from(self.tell(shard, session));
        }
        for session in shard.sessions_to_tell() {
            told += u64::from(self.tell(shard, session));
        }
        told
    }

    /// One whose request is not here hears of it with its next one.
    fn tell<K: Kv>(&mut self, shard: &mut Shard<K>, session: SessionId) -> bool {
        let Some(listener) = self.listeners.get_mut(&session).filter(|listener| listener.request.is_some()) else {
            return false;
        };
        listener.answer(shard.recalls(session), shard.tell_wanted_ends(session));
        true
    }

    /// A session that listened over this connection does not hear us any more.
    pub(crate) fn disconnected<K: Kv>(&mut self, shard: &mut Shard<K>, session: SessionId, connection: ConnectionId) {
        if self.listeners.get(&session).is_some_and(|listener| listener.connection == connection) {
            self.listeners.remove(&session);
            shard.listen(session, false);
        }
    }

    /// A session that has ended is there again. What it asked before is answered: the shard does not know any more that it
    /// listens, and hears of that with its next request.
    pub(crate) fn begin_anew(&mut self, session: SessionId) {
        if let Some(mut listener) = self.listeners.remove(&session) {
            listener.answer(Vec::new(), Vec::new());
        }
    }

    /// Keeps a request until the shard has decided. Gives back what is here under the same ticket: it was sent again on
    /// another connection.
    pub(crate) fn wait_for_lock(&mut self, ticket: Ticket, mut request: Answered) -> Option<Answered> {
        request.responder.park();
        self.locks.insert(ticket, request)
    }

    /// Requests that wait for locks.
    pub(crate) fn locks(&self) -> usize {
        self.locks.len()
    }

    /// Those whose wait is over.
    pub(crate) fn decided_locks<K: Kv>(&mut self, shard: &mut Shard<K>) -> Vec<Answered> {
        let mut decided = Vec::new();
        for (ticket, answer) in shard.take_lock_answers() {
            // Not here: its connection broke, and it has not come again yet.
            decided.extend(self.locks.remove(&ticket).map(|request| request.with(locking::answer(answer))));
        }
        decided
    }

    /// The service stops: listeners go elsewhere, or come again; so do those who wait for locks.
    pub(crate) fn dismiss(&mut self) {
        for request in mem::take(&mut self.locks).into_values() {
            request.responder.fail(Status::Busy);
        }
        for (_, mut listener) in mem::take(&mut self.listeners) {
            if let Some(request) = listener.request.take() {
                request.responder.fail(Status::Busy);
            }
        }
    }
}

impl Listener {
    fn answer(&mut self, recalls: Vec<Recall>, ends: Vec<InodeId>) {
        let Some(request) = self.request.take() else { return };
        let recalls = recalls
            .into_iter()
            .map(|recall| session::Recall { id: recall.id, inode: recall.inode, name: recall.name })
            .collect();
        Answer::Recalls(session::RecallsReply { recalls, ends }).send(request.responder);
    }
}
