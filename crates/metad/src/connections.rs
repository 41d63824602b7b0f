//! Whose session each connection runs under, and which of a client's connections is the one that counts.
//!
//! A thread of a client has one connection at a time. When it makes another, it sends again there what was not answered
//! on the first; but what it had sent on the first may still arrive, long after. Executed then, it would lock what has
//! been unlocked, or close what has been opened again.

use net::ConnectionId;
use rustc_hash::FxHashMap;
use types::id::SessionId;
use wire::v1::session::SessionOpen;

/// A thread of a client.
type Thread = (SessionId, u32);

#[derive(Default)]
pub(crate) struct Connections {
    threads: FxHashMap<ConnectionId, Thread>,
    /// Of each thread: the number of its latest `SessionOpen`, and the connection that it came on.
    latest: FxHashMap<Thread, (u64, ConnectionId)>,
}

impl Connections {
    /// The session of a connection that counts.
    pub(crate) fn session(&self, connection: ConnectionId) -> Option<SessionId> {
        self.threads.get(&connection).map(|(session, _)| *session)
    }

    /// A newer `SessionOpen` of the same thread was here.
    pub(crate) fn is_outdated(&self, open: &SessionOpen) -> bool {
        let latest = self.latest.get(&(open.session, open.thread));
        latest.is_some_and(|(number, _)| *number >= open.connection)
    }

    /// The session was opened on `connection`. The thread's earlier one, which is answered, counts no more.
    pub(crate) fn opened(&mut self, connection: ConnectionId, open: &SessionOpen) -> Option<ConnectionId> {
        let thread = (open.session, open.thread);
        let latest = self.latest.insert(thread, (open.connection, connection));
        let earlier = latest.map(|(_, earlier)| earlier).filter(|earlier| *earlier != connection);
        if let Some(earlier) = earlier {
            self.threads.remove(&earlier);
        }
        self.threads.insert(connection, thread);
        earlier
    }

    /// Answers the session that it counted for.
    pub(crate) fn forget(&mut self, connection: ConnectionId) -> Option<SessionId> {
        self.threads.remove(&connection).map(|(session, _)| session)
    }

    /// Forgets the threads of sessions that are over.
    pub(crate) fn retain(&mut self, is_there: impl Fn(SessionId) -> bool) {
        self.latest.retain(|(session, _), _| is_there(*session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(thread: u32, connection: u64) -> SessionOpen {
        SessionOpen::asking(SessionId(7), Vec::new(), thread, connection)
    }

    #[test]
    fn the_newest_connection_of_each_thread_counts() {
        let mut connections = Connections::default();
        let [a, b, c] = [1, 2, 3].map(ConnectionId);
        assert!(!connections.is_outdated(&open(0, 1)));
        assert_eq!(connections.opened(a, &open(0, 1)), None);
        assert_eq!(connections.opened(b, &open(1, 1)), None);
        assert_eq!(connections.session(a), Some(SessionId(7)));
        // The same connection again, to tell what is held.
        assert_eq!(connections.opened(a, &open(0, 2)), None);
        assert_eq!(connections.session(a), Some(SessionId(7)));
        assert_eq!(connections.opened(c, &open(0, 3)), Some(a));
        assert_eq!((connections.session(a), connections.session(c)), (None, Some(SessionId(7))));
        assert_eq!(connections.session(b), Some(SessionId(7)), "another thread's");
        assert_eq!((connections.forget(c), connections.forget(a)), (Some(SessionId(7)), None));
        assert!(connections.is_outdated(&open(0, 2)) && connections.is_outdated(&open(0, 3)));
        connections.retain(|_| false);
        assert!(!connections.is_outdated(&open(0, 2)));
    }
}
