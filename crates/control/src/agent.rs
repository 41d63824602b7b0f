//! Keeps a service or a client known to mgmtd, and its view of the cluster fresh, for as long as it lives.
//!
//! It runs on a thread of its own with tokio, apart from the loops that serve; they hear of changes by the callback.

mod shared;
mod task;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::event::{Registration, TargetRegistration};
use conf::Fatal;
use tokio::sync::{mpsc, oneshot, watch};
use types::id::SessionId;

use crate::interfaces::Watched;
use crate::node::{Registered, Reporter};
use crate::view::View;
use shared::Shared;
use task::{Addition, Task};

/// Where mgmtd is and how to be trusted by it.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `host:port` of mgmtd.
    pub management: String,
    /// With the cluster's UUID where it is known: another cluster's mgmtd is refused then.
    pub identity: net::Identity,
    /// Of a service: where its rails come from. They are registered anew when they change.
    pub rails: Option<Watched>,
}

/// What the callback is told, on the agent's thread: it must not block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// A view that differs from the last one.
    View(View),
    /// mgmtd will not have this service, now or later: the process must stop with this message and exit code. The
    /// agent has ended.
    Refused(Fatal),
}

/// See [`Update`].
pub type OnUpdate = Box<dyn FnMut(Update) + Send>;

/// A running agent; dropping it ends it. mgmtd then sees the node go offline.
pub struct Agent {
    management: String,
    shared: Arc<Shared>,
    additions: mpsc::UnboundedSender<Addition>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Registers a service and sends heartbeats, with one report per target from `reporter` each time. Returns at once: ask
    /// [`Agent::registered`] before serving.
    ///
    /// # Errors
    /// Where the thread cannot be made.
    pub fn start_node(
        config: AgentConfig,
        registration: Registration,
        reporter: Reporter,
        on_update: OnUpdate,
    ) -> io::Result<Self> {
        Self::start(config, |shared, config| Task::node(shared, config, registration, reporter, on_update))
    }

    /// Gets a session id for a client and watches the cluster. `description` is for people: host name and mount point.
    ///
    /// # Errors
    /// Where the thread cannot be made.
    pub fn start_client(config: AgentConfig, description: &str, on_update: OnUpdate) -> io::Result<Self> {
        Self::start(config, |shared, config| Task::client(shared, config, description.to_owned(), on_update))
    }

    fn start(config: AgentConfig, task: impl FnOnce(Arc<Shared>, AgentConfig) -> Task) -> io::Result<Self> {
        let management = config.management.clone();
        let shared = Arc::new(Shared::default());
        let task = task(Arc::clone(&shared), config);
        let (stop, stopped) = oneshot::channel();
        let (additions, inbox) = mpsc::unbounded_channel();
        let thread = telemetry::runtime::spawn("control", move || task.run(inbox, stopped))?;
        Ok(Self { management, shared, additions, stop: Some(stop), thread: Some(thread) })
    }

    /// Registers a service that runs once more, with `targets` after those that it has, and with a reporter for all of them
    /// from then on. Until that has succeeded all stays as it was, and the service goes on. A target that it has already, by
    /// its UUID, keeps its place. Where mgmtd is lost while it is asked, this waits for it: it may have them already.
    ///
    /// # Errors
    /// Where mgmtd refuses them, or is away already: then the same may be tried again.
    pub async fn add_targets(&self, targets: Vec<TargetRegistration>, reporter: Reporter) -> Result<Registered, Fatal> {
        let (answer, answered) = oneshot::channel();
        // Where the agent has ended, the answer's other end goes at once.
        let _ = self.additions.send(Addition { targets, reporter, answer });
        answered.await.unwrap_or_else(|_| Err(Fatal::failed("the service is stopping")))
    }

    /// Waits for the first registration; `None` waits for ever. Write cluster and ids into the identity then.
    ///
    /// # Errors
    /// Where mgmtd refuses (exit code 2), or nobody answers within `patience` (exit code 1).
    pub fn registered(&self, patience: Option<Duration>) -> Result<Registered, Fatal> {
        self.shared.wait(patience, &self.management, |state| state.registered.clone())
    }

    /// Waits for the session of a client; `None` waits for ever.
    ///
    /// # Errors
    /// As [`Agent::registered`].
    pub fn session(&self, patience: Option<Duration>) -> Result<SessionId, Fatal> {
        self.shared.wait(patience, &self.management, |state| state.session)
    }

    /// Waits for a view in which `find` finds something, such as a route to shard 0.
    ///
    /// # Errors
    /// As [`Agent::registered`].
    pub fn wait_view<T>(&self, patience: Option<Duration>, find: impl Fn(&View) -> Option<T>) -> Result<T, Fatal> {
        self.shared.wait(patience, &self.management, |state| find(&state.view))
    }

    /// UUID of the cluster; empty until mgmtd has told it.
    #[must_use]
    pub fn cluster(&self) -> String {
        self.shared.view().map.cluster.clone()
    }

    /// The last view; epoch 0 before the first one came. Free space is in it for metadata services alone.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.view()
    }

    /// The view as tokio tasks watch it.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<View> {
        self.shared.watch()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("management", &self.management).finish_non_exhaustive()
    }
}
