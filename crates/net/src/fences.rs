//! Ends connections that their callers have given up, so that nothing asked on them happens after it was asked again.
//!
//! A caller that loses a connection does not know what of it still lies in some buffer on the way: written late, old data
//! would replace new. So it asks nothing again before the other side has said that the old connection is over.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;

use crate::handshake::ID_LEN;
use crate::responder::Accepted;

/// Connections that were ended before they were known here, as many as are remembered: their handshake was under way.
const ENDED_MAX: usize = 4096;

pub(crate) type Id = [u8; ID_LEN];

/// Clients whose connections in the making are refused, as many as are remembered.
const CLIENTS_MAX: usize = 4096;

/// The connections that one server has accepted, and those of them that a fence has ended.
#[derive(Default)]
pub(crate) struct Fences {
    known: FxHashMap<Id, Weak<Accepted>>,
    /// Entries of `known` at which it is next searched for those that are gone.
    search_at: usize,
    ended: VecDeque<Id>,
    /// Connections accepted, whatever became of them.
    accepted: u64,
    /// Whose connections were ended, and what `accepted` was then.
    clients: VecDeque<(u64, u64)>,
}

/// When a connection was accepted, among all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Order(u64);

impl Fences {
    /// A connection is accepted: its handshake comes next.
    pub(crate) fn accept(&mut self) -> Order {
        self.accepted += 1;
        Order(self.accepted)
    }

    /// A connection begins. False where it was ended before it did.
    pub(crate) fn begin(&mut self, connection: &Rc<Accepted>, order: Order) -> bool {
        let (id, client) = (connection.established.id, connection.established.peer.incarnation);
        let is_late = |&(fenced, at): &(u64, u64)| fenced == client && order.0 <= at;
        if self.ended.contains(&id) || self.clients.iter().any(is_late) {
            return false;
        }
        if self.known.len() >= self.search_at {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.search_at = 2 * self.known.len() + 64;
        }
        self.known.insert(id, Rc::downgrade(connection));
        true
    }

    /// Ends it; what of it is still at work.
    pub(crate) fn end(&mut self, id: Id) -> Option<Rc<Accepted>> {
        let Some(known) = self.known.get(&id) else {
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(id);
            return None;
        };
        let connection = known.upgrade()?;
        connection.close("the caller has given it up");
        Some(connection)
    }
    /// Ends all connections of the client, also those that are in the making; what of them is still at work.
    pub(crate) fn end_client(&mut self, client: u64) -> Vec<Rc<Accepted>> {
        self.clients.retain(|(fenced, _)| *fenced != client);
        if self.clients.len() == CLIENTS_MAX {
            self.clients.pop_front();
        }
        self.clients.push_back((client, self.accepted));
        let theirs = |connection: &Rc<Accepted>| connection.established.peer.incarnation == client;
        let ended: Vec<_> = self.known.values().filter_map(Weak::upgrade).filter(theirs).collect();
        for connection in &ended {
            connection.close("its session is over");
        }
        ended
    }
}
