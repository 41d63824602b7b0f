//! One thread of one node, as its callers see it: the connections to it over its rails, made anew when they are lost.

mod home;
mod keeper;
mod state;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use ring::sync::Notify;
use telemetry::seldom::Seldom;
use tracing::{info, warn};
use types::error::Errno;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::v1::session::Fence;

use crate::connection::{CallError, ConnectError, Connection, To};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::metrics::RailState;
use crate::rails::Choice;
use crate::way::{Way, Whom};
use state::State;

/// Longest attempt over one rail where there are others.
const ATTEMPT_MAX: Duration = Duration::from_millis(1500);

/// All threads have peers at an address, and some lead to another node for ever, such as a bridge's from a container.
static STRANGERS: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(Duration::from_secs(600)));

/// Connections to one peer. Who calls [`Self::connection`] stays with one rail, or with another one for as long as that does
/// not work: it is gone back to when it does, and then what is under way on the other one ends as if that were lost. Who calls
/// [`Self::pick`] for each request uses all of them.
pub struct Peer {
    inner: Rc<Inner>,
}

struct Inner {
    identity: Rc<Identity>,
    limits: Limits,
    state: RefCell<State>,
    /// Somebody connects, or fences; the others wait for the outcome.
    connecting: Cell<bool>,
    outcome: Notify,
    /// All rails are kept connected.
    kept: Cell<bool>,
    /// The rail that was begun with is returned to.
    returns: Cell<bool>,
}

impl Peer {
    /// `addresses`: the peer's, one per interface, the preferred first.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>, identity: Rc<Identity>, limits: Limits) -> Self {
        Self::starting_at(0, addresses, identity, limits)
    }

    /// As [`Self::new`]; `start` is the rail to begin with, counted modulo those of the best rank: where many have one
    /// connection each, each begins at another.
    #[must_use]
    pub fn starting_at(start: usize, addresses: Vec<SocketAddr>, identity: Rc<Identity>, limits: Limits) -> Self {
        let state = RefCell::new(State::new(addresses, &limits.interfaces, start));
        let (connecting, outcome, kept, returns) =
            (Cell::new(false), Notify::new(), Cell::new(false), Cell::new(false));
        Self { inner: Rc::new(Inner { identity, limits, state, connecting, outcome, kept, returns }) }
    }

    /// Says which node it is, by its UUID in the cluster map: no other one that is met at its addresses is taken for it.
    #[must_use]
    pub fn of_node(self, uuid: &str) -> Self {
        uuid.clone_into(&mut self.inner.state.borrow_mut().node);
        self
    }

    #[must_use]
    pub fn is_of_node(&self, uuid: &str) -> bool {
        self.inner.state.borrow().node == uuid
    }

    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.inner.state.borrow().addresses().to_vec()
    }

    /// The peer has other addresses now. Connections to those that it still has stay; what is under way on others ends
    /// there.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.inner.state.borrow_mut().set_addresses(addresses, &self.inner.limits.interfaces);
    }

    /// A live connection for one request, without waiting: of all rails the one with the fewest bytes under way. `None`
    /// where [`Self::connection`] has something to do first.
    #[must_use]
    pub fn pick(&self) -> Option<Connection> {
        let connection = self.inner.state.borrow_mut().pick()?;
        if !self.inner.kept.get() && !connection.is_within_host() && self.inner.state.borrow().has_several() {
            self.inner.kept.set(true);
            // It is used again, whatever rested before.
            self.inner.state.borrow_mut().takes_rest();
            ring::spawn(keeper::keep(Rc::downgrade(&self.inner)));
        }
        Some(connection)
    }

    /// Over how many rails requests are spread now.
    #[must_use]
    pub fn width(&self) -> usize {
        self.inner.state.borrow().width()
    }

    /// The live connection if there is one, without waiting.
    #[must_use]
    pub fn current(&self) -> Option<Connection> {
        let mut state = self.inner.state.borrow_mut();
        state.sweep();
        if state.is_fenced() { state.current() } else { None }
    }

    /// A live connection. Where there is none, one attempt is made for all who wait, after the pause that the last
    /// failure asks for (10 ms, doubling up to 1 s): a caller that wants to go on trying just calls again. What was asked
    /// on connections that were lost has its end before this one is given out.
    ///
    /// # Errors
    /// Why the attempt failed.
    pub async fn connection(&self) -> Result<Connection, ConnectError> {
        let inner = &self.inner;
        let seen = inner.state.borrow().attempts;
        loop {
            if let Some(connection) = self.current() {
                return Ok(connection);
            }
            if inner.state.borrow().attempts > seen {
                return Err(inner.state.borrow().error.clone());
            }
            if inner.connecting.get() {
                inner.outcome.notified().await;
                continue;
            }
            let _turn = ConnectingTurn::new(inner);
            let live = inner.state.borrow().current();
            let connection = match live {
                Some(connection) => connection,
                None => inner.attempt().await?,
            };
            inner.fence(&connection).await?;
            inner.return_later(&connection);
            return Ok(connection);
        }
    }
}

impl Inner {
    /// One attempt over the best rail.
    async fn attempt(self: &Rc<Self>) -> Result<Connection, ConnectError> {
        self.state.borrow_mut().pair_again(&self.limits.interfaces);
        let rail = loop {
            let choice = self.state.borrow_mut().rails.choose(ring::now());
            match choice {
                Choice::Rail(rail) => break rail,
                Choice::NotBefore(until) => ring::sleep_until(until).await,
                Choice::None => return Err(ConnectError::NoAddress),
            }
        };
        let result = self.connect(rail).await;
        if let Err(error) = &result {
            let mut state = self.state.borrow_mut();
            state.attempts += 1;
            state.error = error.clone();
        }
        result
    }

    /// One attempt over this rail, of those that there are now.
    async fn connect(self: &Rc<Self>, rail: usize) -> Result<Connection, ConnectError> {
        let (way, address) = self.way(rail);
        let result = self.connect_over(&way, address).await;
        if let Ok(connection) = &result {
            let inner = Rc::downgrade(self);
            connection.when_unused(move || inner.upgrade().iter().for_each(|inner| inner.state.borrow_mut().sweep()));
        }
        let mut state = self.state.borrow_mut();
        // They may have changed meanwhile.
        let Some(rail) = state.find(&way, address) else {
            result.iter().cloned().for_each(|connection| state.joined_late(connection));
            return result;
        };
        // As its connections call it, also where they are not bound to it.
        let ours = state.pair(rail).local.as_ref().map_or_else(|| "any".to_owned(), |local| local.address.to_string());
        let known = || RailState::of(&ours, &address.ip().to_string());
        match &result {
            Ok(connection) => {
                if !state.rails.is_healthy(rail) {
                    info!(peer = %address, "connected again");
                    known().works();
                }
                state.joined(rail, connection.clone());
            }
            Err(error) => {
                let is_stranger = matches!(error, ConnectError::Stranger { .. });
                if is_stranger {
                    state.met_stranger(address, ring::now());
                    warn_of_stranger(error);
                }
                // One line when it begins to fail, none for each try.
                if state.rails.is_healthy(rail) {
                    if !is_stranger {
                        warn!(%error, "cannot connect");
                    }
                    known().failed();
                } else {
                    known().still_fails();
                }
                state.rails.on_failure(rail, ring::now());
            }
        }
        result
    }

    fn way(&self, rail: usize) -> (Way, SocketAddr) {
        let state = self.state.borrow();
        (Way::of(state.pair(rail), state.has_several()), state.address(rail))
    }

    /// A connection which the peer knows nothing of yet.
    async fn connect_over(&self, way: &Way, address: SocketAddr) -> Result<Connection, ConnectError> {
        let node = self.state.borrow().node.clone();
        let mut limits = self.limits.clone();
        if way.several {
            limits.handshake = limits.handshake.min(ATTEMPT_MAX);
        }
        Connection::connect_by(way, Whom { address, node: &node }, &self.identity, &limits).await
    }

    fn return_later(self: &Rc<Self>, connection: &Connection) {
        if !self.returns.get() && !connection.is_within_host() && self.state.borrow().has_several() {
            self.returns.set(true);
            ring::spawn(home::go_home(Rc::downgrade(self)));
        }
    }

    /// Has the other side end what was asked on lost connections.
    async fn fence(&self, connection: &Connection) -> Result<(), ConnectError> {
        loop {
            let lost = self.state.borrow().lost(connection.incarnation());
            let Some(id) = lost else {
                let mut state = self.state.borrow_mut();
                if state.is_outdated(connection) {
                    connection.end("its peer was started again since");
                    return Err(ConnectError::lost(connection.address(), &CallError::Closed("outdated".into())));
                }
                state.all_fenced();
                return Ok(());
            };
            let fence = Fence { connection: Bytes(id.to_vec()) };
            match connection.call_patiently(To::default(), &fence).await {
                // It does not know fences, and so has no rails to mix up.
                Ok(_) | Err(CallError::Status(Status::Errno(Errno::EOPNOTSUPP))) => self.state.borrow_mut().fenced(id),
                Err(error) => return Err(ConnectError::lost(connection.address(), &error)),
            }
        }
    }
}

fn warn_of_stranger(error: &ConnectError) {
    if let Some(left_out) = STRANGERS.is_due(ring::now()) {
        warn!(%error, left_out, "cannot connect");
    }
}

/// The one attempt of the moment; ends also when its caller goes away.
struct ConnectingTurn<'a>(&'a Inner);

impl<'a> ConnectingTurn<'a> {
    fn new(peer: &'a Inner) -> Self {
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
