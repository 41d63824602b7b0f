//! One thread of one node, as its callers see it: the connections to it over its rails, made anew when they are lost.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use ring::sync::Notify;
use tracing::{info, warn};

use crate::connection::{ConnectError, Connection};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::rails::{Choice, Rails};

/// Connections to one peer. In this release one rail is in use at a time; another takes its place when it fails.
pub struct Peer {
    addresses: Vec<SocketAddr>,
    identity: Rc<Identity>,
    limits: Limits,
    state: RefCell<State>,
    /// Somebody connects; the others wait for the outcome.
    connecting: Cell<bool>,
    outcome: Notify,
}

struct State {
    rails: Rails,
    /// One per rail.
    connections: Vec<Option<Connection>>,
    /// Outcome of the last failed attempt, and how many attempts there were.
    error: ConnectError,
    attempts: u64,
}

impl Peer {
    /// `addresses`: one per rail, the preferred first.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>, identity: Rc<Identity>, limits: Limits) -> Self {
        let rails = Rails::new(addresses.iter().map(|_| 0));
        let connections = addresses.iter().map(|_| None).collect();
        let state = State { rails, connections, error: ConnectError::NoAddress, attempts: 0 };
        Self {
            addresses,
            identity,
            limits,
            state: RefCell::new(state),
            connecting: Cell::new(false),
            outcome: Notify::new(),
        }
    }

    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The live connection if there is one, without waiting.
    #[must_use]
    pub fn current(&self) -> Option<Connection> {
        self.state.borrow().connections.iter().flatten().find(|connection| !connection.is_closed()).cloned()
    }

    /// A live connection. Where there is none, one attempt is made for all who wait, after the pause that the last
    /// failure asks for (10 ms, doubling up to 1 s): a caller that wants to go on trying just calls again.
    ///
    /// # Errors
    /// Why the attempt failed.
    pub async fn connection(&self) -> Result<Connection, ConnectError> {
        let seen = self.state.borrow().attempts;
        loop {
            if let Some(connection) = self.current() {
                return Ok(connection);
            }
            if self.state.borrow().attempts > seen {
                return Err(self.state.borrow().error.clone());
            }
            if self.connecting.get() {
                self.outcome.notified().await;
                continue;
            }
            let _turn = ConnectingTurn::new(self);
            return self.attempt().await;
        }
    }

    /// One attempt over the best rail.
    async fn attempt(&self) -> Result<Connection, ConnectError> {
        let rail = loop {
            let choice = self.state.borrow_mut().rails.choose(ring::now());
            match choice {
                Choice::Rail(rail) => break rail,
                Choice::NotBefore(until) => ring::sleep_until(until).await,
                Choice::None => return Err(ConnectError::NoAddress),
            }
        };
        let result = Connection::connect(self.addresses[rail], &self.identity, &self.limits).await;
        let mut state = self.state.borrow_mut();
        state.attempts += 1;
        match &result {
            Ok(connection) => {
                if !state.rails.is_healthy(rail) {
                    info!(peer = %self.addresses[rail], "connected again");
                }
                state.rails.on_success(rail);
                state.connections[rail] = Some(connection.clone());
            }
            Err(error) => {
                // One line when it begins to fail, none for each try.
                if state.rails.is_healthy(rail) {
                    warn!(%error, "cannot connect");
                }
                state.rails.on_failure(rail, ring::now());
                state.error = error.clone();
            }
        }
        result
    }
}

/// The one attempt of the moment; ends also when its caller goes away.
struct ConnectingTurn<'a>(&'a Peer);

impl<'a> ConnectingTurn<'a> {
    fn new(peer: &'a Peer) -> Self {
        peer.connecting.set(true);
        Self(peer)
    }
}

impl Drop for ConnectingTurn<'_> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        self.0.outcome.notify_all();
    }
}
