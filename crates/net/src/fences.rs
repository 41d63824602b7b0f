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
    by_client: ByClient<Accepted>,
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
            self.by_client.drop_gone();
            self.search_at = 2 * self.known.len() + 64;
        }
        self.known.insert(id, Rc::downgrade(connection));
        self.by_client.add(client, connection);
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
        let ended = self.by_client.of(client);
        for connection in &ended {
            connection.close("its session is over");
        }
        ended
    }
}

/// Connections by the client that has them: there may be as many as all clients have threads.
struct ByClient<T>(FxHashMap<u64, Vec<Weak<T>>>);

impl<T> Default for ByClient<T> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<T> ByClient<T> {
    fn add(&mut self, client: u64, connection: &Rc<T>) {
        self.0.entry(client).or_default().push(Rc::downgrade(connection));
    }

    /// Those that are there, also where they have ended and are still at work.
    fn of(&self, client: u64) -> Vec<Rc<T>> {
        self.0.get(&client).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn drop_gone(&mut self) {
        self.0.retain(|_, connections| {
            connections.retain(|connection| connection.strong_count() > 0);
            !connections.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_client_are_found_among_its_own() {
        let (mut by_client, mine, others) = (ByClient::default(), [1, 2, 3].map(Rc::new), [4, 5].map(Rc::new));
        mine.iter().for_each(|connection| by_client.add(7, connection));
        others.iter().for_each(|connection| by_client.add(8, connection));
        let values = |of: Vec<Rc<i32>>| of.iter().map(|connection| **connection).collect::<Vec<_>>();
        assert_eq!((values(by_client.of(7)), values(by_client.of(9))), (vec![1, 2, 3], Vec::new()));
        let [one, other, last] = mine;
        drop((other, others));
        by_client.drop_gone();
        assert_eq!((by_client.0.len(), by_client.0.get(&7).map(Vec::len)), (1, Some(2)));
        assert_eq!(values(by_client.of(7)), [*one, *last]);
    }
}
