//! An administrator's way to mgmtd, for as long as a command takes: hours, where it waits for a scrub.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use conf::Fatal;
use control::{Client, ControlError};
use net::Identity;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// mgmtd is given up on after this; where it was there before, and may be being started again, after the second.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_AGAIN: Duration = Duration::from_secs(15);
/// A connection over which an answer came so lately is there.
const FRESH: Duration = Duration::from_secs(1);

/// A connection that lives while nobody asks, and is made anew where it was lost.
pub(crate) struct Management {
    address: String,
    /// With the cluster that answered first: no other one is taken for it.
    identity: Identity,
    client: RefCell<Client>,
    /// When it answered last; `None` where it was lost.
    answered: Cell<Option<Instant>>,
    driver: Driver,
}

impl Management {
    /// Connects to mgmtd at `address` (`host:port`).
    ///
    /// # Errors
    /// Where nobody answers, or the two sides do not come to terms.
    pub(crate) fn connect(address: &str, identity: &Identity) -> Result<Self> {
        let driver = Driver::start().context("cannot start the runtime of the control plane")?;
        let client = driver.runtime.block_on(Client::connect(address, identity, PATIENCE)).map_err(Fatal::from)?;
        let identity = Identity { cluster: client.cluster().to_owned(), ..identity.clone() };
        let (client, answered) = (RefCell::new(client), Cell::new(Some(Instant::now())));
        Ok(Self { address: address.to_owned(), identity, client, answered, driver })
    }

    /// UUID of the cluster.
    pub(crate) fn cluster(&self) -> String {
        self.identity.cluster.clone()
    }

    /// Asks what may be asked twice: over a new connection where that is lost, as after a restart of mgmtd.
    pub(crate) fn read<T>(&self, request: impl AsyncFn(&Client) -> Result<T, ControlError>) -> Result<T, ControlError> {
        match self.ask(&request) {
            Err(ControlError::Lost { .. }) => self.ask(&request),
            outcome => outcome,
        }
    }

    /// Asks once, over a connection that was there just before: where it is lost over this, the request may have been carried
    /// out.
    pub(crate) fn change<T>(
        &self,
        request: impl AsyncFnOnce(&Client) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        if self.answered.get().is_none_or(|at| at.elapsed() > FRESH) {
            self.read(async |client| client.view().await)?;
        }
        self.ask(request)
    }

    fn ask<T>(&self, request: impl AsyncFnOnce(&Client) -> Result<T, ControlError>) -> Result<T, ControlError> {
        let runtime = &self.driver.runtime;
        if self.answered.take().is_none() {
            let connecting = Client::connect_retrying(&self.address, &self.identity, PATIENCE_AGAIN);
            self.client.replace(runtime.block_on(connecting)?);
        }
        let client = self.client.borrow().clone();
        let outcome = runtime.block_on(request(&client));
        self.answered.set((!matches!(outcome, Err(ControlError::Lost { .. }))).then(Instant::now));
        outcome
    }
}

/// A thread that answers mgmtd's probes while the command does other things, or nothing: an unanswered one ends the connection.
struct Driver {
    runtime: Arc<Runtime>,
    done: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start() -> std::io::Result<Self> {
        let runtime = Arc::new(telemetry::runtime::current_thread()?);
        let done = Arc::new(Notify::new());
        let (driven, until) = (Arc::clone(&runtime), Arc::clone(&done));
        let drive = move || driven.block_on(until.notified());
        let thread = thread::Builder::new().name("control".into()).spawn(drive)?;
        Ok(Self { runtime, done, thread: Some(thread) })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.done.notify_one();
        if let Some(thread) = self.thread.take() {
            // It cannot panic: it only waits.
            let _ = thread.join();
        }
    }
}
