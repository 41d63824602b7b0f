//! Requests that wait for leases and transactions, as a turn keeps them.

use namespace::view::Awaited;
use net::ConnectionId;
use types::id::{SessionId, TransactionId};
use wire::frame::Status;

use super::{QUEUE_BYTES_MAX, QUEUE_REQUESTS_MAX, Queued, State};
use crate::answer::Answer;
use crate::dispatch;

impl State {
    /// What a client that is gone had asked for is not to happen when whoever comes after it has already looked: what is
    /// undecided is given up. A client that is there asks again on its next connection, and so does another shard.
    pub(super) fn abandon(&mut self, connection: ConnectionId, session: Option<SessionId>) {
        for (transaction, request) in self.parking.remove_if(|request| request.connection == connection) {
            self.queue_bytes -= request.len();
            if let Some(session) = session {
                self.shard.abandon(transaction, session);
            }
        }
    }

    /// The shard stops: all that waits for leases or for contents to be moved is answered.
    pub(super) fn unpark_all(&mut self) {
        self.queue_bytes -= self.waiting.drop_abandoned();
        self.waiting.release_all(&mut self.queue);
    }

    /// What waited for leases or for contents to be moved may try again where those have been.
    pub(super) fn unpark_if_due(&mut self) {
        let mut ended = self.shard.take_ended_recalls();
        if self.shard.take_ended_growth() {
            ended.push(Awaited::default());
        }
        if !ended.is_empty() {
            self.queue_bytes -= self.waiting.drop_abandoned();
            self.waiting.release(&ended, &mut self.queue);
        }
    }

    /// Keeps a request that has no answer yet; gives back one that has, or for which there is no room.
    pub(super) fn keep_waiting(&mut self, answer: &Answer, queued: Queued) -> Option<Queued> {
        // There is always room for what those who hold leases have to do before they give them back.
        let bytes = self.waiting.bytes() + self.parking.bytes() + queued.len();
        let has_room = bytes <= QUEUE_BYTES_MAX / 2;
        match answer {
            Answer::Parked(awaited) if has_room && self.waiting.len() < QUEUE_REQUESTS_MAX / 2 => {
                self.waiting.park(*awaited, queued);
                None
            }
            Answer::Blocked(transaction) => {
                self.shard.await_end(*transaction);
                let back = if has_room { self.parking.park(*transaction, queued).err() } else { Some(queued) };
                back.and_then(|back| self.without_room(*transaction, back))
            }
            _ => Some(queued),
        }
    }

    /// The shard stops. Those whose transactions are decided get their answers yet.
    pub(super) fn dismiss_parked(&mut self) {
        for (transaction, queued) in self.parking.clear() {
            if let Some(queued) = self.without_room(transaction, queued) {
                self.queue_bytes -= queued.len();
                queued.responder.fail(Status::Busy);
            }
        }
    }

    /// There is no room for a request to wait, or the shard stops. Told that the shard is busy, its caller takes it that
    /// nothing comes of it: so nothing does of a transaction that carries it out; and where that is decided, which ends with
    /// this turn or soon, it waits all the same.
    fn without_room(&mut self, transaction: TransactionId, queued: Queued) -> Option<Queued> {
        let sequence = dispatch::sequence(queued.header.op, &queued.body);
        let (Some(session), Some(sequence)) = (self.connections.session(queued.connection), sequence) else {
            return Some(queued);
        };
        match self.shard.has_decided(transaction, session, sequence) {
            Some(true) => {
                self.parking.park_anyway(transaction, queued);
                return None;
            }
            Some(false) => self.shard.abandon(transaction, session),
            None => {}
        }
        Some(queued)
    }
}
