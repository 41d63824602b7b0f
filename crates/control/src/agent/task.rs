//! The agent's loop: connect, register, then heartbeats and updates until the connection is lost; for ever.

use std::sync::Arc;
use std::time::Duration;

use cluster::event::{Registration, Report, Seen, TargetRegistration};
use cluster::map::ServiceKind;
use conf::Fatal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use types::id::{Epoch, TargetId};

use super::shared::Shared;
use super::{AgentConfig, OnUpdate, Update};
use crate::client::{Backoff, Client, Wanted, Watch};
use crate::error::ControlError;
use crate::node::{Registered, Reporter};
use crate::view::View;

/// Longest time for one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A connection that lasts for so long is a good one.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Targets that a service has taken up while it runs.
pub(super) struct Addition {
    pub(super) targets: Vec<TargetRegistration>,
    /// For those that there were and these.
    pub(super) reporter: Reporter,
    pub(super) answer: oneshot::Sender<Result<Registered, Fatal>>,
}

pub(super) struct Task {
    shared: Arc<Shared>,
    config: AgentConfig,
    role: Role,
    on_update: OnUpdate,
    /// The last view that the callback was told.
    view: View,
    /// mgmtd has another map under the epoch of that one. Asked once for each: an older mgmtd cannot help it.
    contested: Option<Epoch>,
    /// Changes of maps fit those that are known here, as long as mgmtd and this side know the same of them.
    takes_changes: bool,
    in_doubt: Option<Growth>,
}

/// A node with its addition: mgmtd was lost while it was asked, and may have it. Its old registration would take back what
/// others may use by then.
struct Growth {
    registration: Registration,
    reporter: Reporter,
    answer: oneshot::Sender<Result<Registered, Fatal>>,
}

enum Role {
    Node { registration: Registration, reporter: Reporter },
    Client { description: String },
}

impl Task {
    pub(super) fn node(
        shared: Arc<Shared>,
        config: AgentConfig,
        registration: Registration,
        reporter: Reporter,
        on_update: OnUpdate,
    ) -> Self {
        Self {
            shared,
            config,
            role: Role::Node { registration, reporter },
            on_update,
            view: View::default(),
            contested: None,
            takes_changes: true,
            in_doubt: None,
        }
    }

    pub(super) fn client(shared: Arc<Shared>, config: AgentConfig, description: String, on_update: OnUpdate) -> Self {
        let (role, view) = (Role::Client { description }, View::default());
        Self { shared, config, role, on_update, view, contested: None, takes_changes: true, in_doubt: None }
    }

    pub(super) async fn run(
        mut self,
        mut additions: mpsc::UnboundedReceiver<Addition>,
        stopped: oneshot::Receiver<()>,
    ) {
        tokio::select! {
            () = self.stay_connected(&mut additions) => {}
            _ = stopped => {}
        }
    }

    /// Returns only when mgmtd refuses for good.
    async fn stay_connected(&mut self, additions: &mut mpsc::UnboundedReceiver<Addition>) {
        let mut outage = Outage::new();
        loop {
            let error = match self.connect().await {
                Ok((client, watch, registered)) => {
                    tracing::info!(management = %self.config.management, "connected to mgmtd");
                    self.shared.change(|state| state.trouble = None);
                    let begin = Instant::now();
                    let error = self.follow(&client, watch, registered, additions).await;
                    if begin.elapsed() >= GOOD_AFTER {
                        outage = Outage::new();
                    }
                    error
                }
                Err(error) => error,
            };
            if self.is_final(&error) {
                tracing::error!(%error, "refused by mgmtd");
                self.shared.change(|state| state.refused = Some(error.clone().into()));
                (self.on_update)(Update::Refused(error.into()));
                return;
            }
            outage.tell(&error);
            // Nobody is left waiting for a mgmtd that is away.
            while let Ok(addition) = additions.try_recv() {
                let _ = addition.answer.send(Err(error.clone().into()));
            }
            self.shared.change(|state| state.trouble = Some(error));
            sleep(outage.backoff.next()).await;
        }
    }

    /// Whoever has seen the cluster goes on serving it: anything might listen at mgmtd's address for a while, such as what
    /// stands in for it, or has got its port.
    fn is_final(&self, error: &ControlError) -> bool {
        let has_seen_it = self.view.map.epoch > Epoch(0);
        error.is_refusal() || (error.is_permanent() && !has_seen_it)
    }

    /// Connects and makes this service or client known. What mgmtd gives is kept for the next time.
    async fn connect(&mut self) -> Result<(Client, Watch, Option<Registered>), ControlError> {
        let client = Client::connect(&self.config.management, &self.config.identity, CONNECT_MAX).await?;
        self.takes_changes = true;
        // A store that is older than the cluster hears of it before anything is registered there.
        let watch = self.watch(&client).await?;
        if let Some(growth) = self.in_doubt.take()
            && let Some(registered) = self.grow(&client, growth).await?
        {
            return Ok((client, watch, Some(registered)));
        }
        let registered = match &mut self.role {
            Role::Node { registration, reporter } => {
                let (registered, view) = client.register_node(registration, &reporter(), &self.view).await?;
                learn(registration, &registered);
                self.config.identity.cluster.clone_from(&registered.cluster);
                // What is contested comes by the watch as well.
                if !differs(&self.view, &view) {
                    self.set_view(view);
                }
                self.shared.change(|state| state.registered = Some(registered.clone()));
                Some(registered)
            }
            Role::Client { description } => {
                // A session outlives mgmtd's restarts, so it is asked for once.
                if self.shared.session().is_none() {
                    let session = client.register_client(description).await?;
                    self.shared.change(|state| state.session = Some(session));
                }
                client.cluster().clone_into(&mut self.config.identity.cluster);
                None
            }
        };
        Ok((client, watch, registered))
    }

    async fn watch(&self, client: &Client) -> Result<Watch, ControlError> {
        // Metadata services alone choose targets by their space.
        let space = match &self.role {
            Role::Node { registration, .. } => registration.kind == ServiceKind::Metadata,
            Role::Client { .. } => false,
        };
        let wanted = Wanted { space, changes: self.takes_changes, known: Some(self.view.clone()) };
        client.watch(&self.seen(), wanted).await
    }

    fn seen(&self) -> Seen {
        let sessions = self.shared.session().map_or(0, |session| session.0.saturating_add(1));
        let seen = Seen { sessions, ..Seen::of(&self.view.map) };
        Seen { epoch: seen.epoch.max(self.contested.unwrap_or_default()), ..seen }
    }

    /// Whether mgmtd's store was restored from a backup and has come as far again as this side had seen it: two maps have one
    /// epoch then, and all who compare epochs alone would go on with the old one. True once: mgmtd is to go on above both.
    fn contests(&mut self, view: &View) -> bool {
        let above = Epoch(self.view.map.epoch.0.saturating_add(1));
        let is_news = differs(&self.view, view) && self.contested != Some(above);
        if is_news {
            self.contested = Some(above);
        }
        is_news
    }

    /// Goes on with a good connection until it is lost, and says how.
    async fn follow(
        &mut self,
        client: &Client,
        mut watch: Watch,
        mut registered: Option<Registered>,
        additions: &mut mpsc::UnboundedReceiver<Addition>,
    ) -> ControlError {
        let every = registered.as_ref().map_or(Duration::from_secs(3600), |registered| registered.heartbeat);
        let mut beats = beats(every);
        loop {
            tokio::select! {
                view = watch.next() => match view {
                    Ok(view) if self.contests(&view) => match self.watch(client).await {
                        Ok(above) => watch = above,
                        Err(error) => return error,
                    },
                    Ok(view) => self.set_view(view),
                    // As where mgmtd is of a newer release, whose maps have more in them.
                    Err(error @ ControlError::Misfit { .. }) if self.takes_changes => {
                        tracing::info!(%error, "asking it for whole maps");
                        self.takes_changes = false;
                        match self.watch(client).await {
                            Ok(whole) => watch = whole,
                            Err(error) => return error,
                        }
                    }
                    Err(error) => return error,
                },
                _ = beats.tick() => {
                    if let Err(error) = self.beat(client, registered.as_ref()).await {
                        return error;
                    }
                }
                Some(addition) = additions.recv() => match self.add(client, addition).await {
                    Ok(Some(now)) => registered = Some(now),
                    Ok(None) => {}
                    Err(error) => return error,
                },
            }
        }
    }

    /// Answers as [`Self::grow`].
    async fn add(&mut self, client: &Client, addition: Addition) -> Result<Option<Registered>, ControlError> {
        let Role::Node { registration, .. } = &self.role else { return Ok(None) };
        let Addition { targets, reporter, answer } = addition;
        let mut registration = registration.clone();
        for target in targets {
            // One that is asked for again, as by a service that could not take it up the first time.
            match registration.targets.iter_mut().find(|known| known.uuid == target.uuid) {
                Some(known) => *known = target,
                None => registration.targets.push(target),
            }
        }
        self.grow(client, Growth { registration, reporter, answer }).await
    }

    /// Answers `None` where mgmtd says no: the service is then what it was, also for mgmtd. Where mgmtd is lost, whoever has
    /// asked waits until it is known.
    async fn grow(&mut self, client: &Client, growth: Growth) -> Result<Option<Registered>, ControlError> {
        let Growth { mut registration, mut reporter, answer } = growth;
        // Whoever asked may be gone: what was registered stays so.
        match client.register_node(&registration, &reporter(), &self.view).await {
            Ok((registered, view)) => {
                learn(&mut registration, &registered);
                self.role = Role::Node { registration, reporter };
                self.shared.change(|state| state.registered = Some(registered.clone()));
                let _ = answer.send(Ok(registered.clone()));
                // What is contested comes by the watch as well.
                if !differs(&self.view, &view) {
                    self.set_view(view);
                }
                Ok(Some(registered))
            }
            Err(error @ ControlError::Lost { .. }) => {
                self.in_doubt = Some(Growth { registration, reporter, answer });
                Err(error)
            }
            Err(error) => {
                let _ = answer.send(Err(error.clone().into()));
                if error.is_permanent() { Ok(None) } else { Err(error) }
            }
        }
    }

    async fn beat(&mut self, client: &Client, registered: Option<&Registered>) -> Result<(), ControlError> {
        let (Role::Node { registration, reporter }, Some(registered)) = (&mut self.role, registered) else {
            return Ok(());
        };
        let changed = self.config.rails.as_mut().and_then(|rails| rails.changed(&registration.rails));
        if let Some(rails) = changed {
            tracing::info!(?rails, "the interfaces have changed: registering them");
            let metrics = self.config.rails.as_ref().and_then(|watched| watched.metrics_at(&rails));
            registration.metrics = metrics.unwrap_or_default();
            registration.rails = rails;
            client.register_node(registration, &reporter(), &self.view).await?;
            return Ok(());
        }
        let reports: Vec<(TargetId, Report)> = registered.targets.iter().copied().zip(reporter()).collect();
        client.heartbeat(registered.node, registration.incarnation, &reports).await
    }

    fn set_view(&mut self, view: View) {
        // mgmtd may answer with a view that is older than what the watch has shown.
        if view.map.epoch < self.view.map.epoch || view == self.view {
            return;
        }
        self.view = view;
        self.shared.set_view(&self.view);
        (self.on_update)(Update::View(self.view.clone()));
    }
}

/// Two maps have one epoch.
fn differs(ours: &View, theirs: &View) -> bool {
    ours.map.epoch == theirs.map.epoch && ours.map != theirs.map
}

/// From one good connection to the next.
struct Outage {
    backoff: Backoff,
    /// Of nobody, and of somebody else, where mgmtd should be: one line each.
    told: [bool; 2],
}

impl Outage {
    fn new() -> Self {
        Self { backoff: Backoff::new(), told: [false; 2] }
    }

    fn tell(&mut self, error: &ControlError) {
        let is_strange = error.is_permanent();
        if std::mem::replace(&mut self.told[usize::from(is_strange)], true) {
            return;
        }
        if is_strange {
            tracing::error!(%error, "what answers in mgmtd's place is not what was there: trying again");
        } else {
            tracing::warn!(%error, "no connection to mgmtd: trying again");
        }
    }
}

/// Takes over what mgmtd has given, so that a later registration is recognised.
fn learn(registration: &mut Registration, registered: &Registered) {
    registration.id = Some(registered.node);
    for (target, id) in registration.targets.iter_mut().zip(&registered.targets) {
        target.id = Some(*id);
    }
}

fn beats(every: Duration) -> Interval {
    let mut beats = interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats
}

#[cfg(test)]
mod tests {
    use cluster::event::{Admin, Event, Moment};
    use cluster::membership::{Membership, Rules};

    use super::*;

    fn with_pool(mut membership: Membership, name: &str) -> Membership {
        membership.apply(Event::Admin(Admin::CreatePool { name: name.into() }), Moment(0)).expect("a new pool");
        membership
    }

    fn view_of(membership: &Membership) -> View {
        View::new(membership.map().clone(), Arc::default())
    }

    #[test]
    fn no_two_maps_are_told_under_one_epoch() {
        let (backup, _) = Membership::create("c", Rules::default(), Moment(0));
        let (live, mut restored) = (with_pool(backup.clone(), "a"), with_pool(backup, "b"));
        let known = view_of(&live);
        assert_eq!(known.map.epoch, restored.map().epoch);

        let key = net::ClusterKey::from_bytes([7; 32]);
        let identity = net::Identity { cluster: "c".into(), incarnation: 1, ..net::Identity::new(key, "test") };
        let config = AgentConfig { management: String::new(), identity, rails: None };
        let mut task = Task::client(Arc::default(), config, String::new(), Box::new(|_| ()));
        task.set_view(known.clone());
        assert!(!task.contests(&known), "what it knows already");
        assert!(task.contests(&view_of(&restored)));
        restored.apply(Event::Seen(task.seen()), Moment(0)).expect("it cannot be refused");
        let above = view_of(&restored);
        assert!(above.map.epoch > known.map.epoch && !task.contests(&above));
        task.set_view(above.clone());
        assert_eq!(task.view, above);
    }

    #[test]
    fn a_management_service_that_does_not_go_on_above_is_asked_once() {
        let (backup, _) = Membership::create("c", Rules::default(), Moment(0));
        let key = net::ClusterKey::from_bytes([7; 32]);
        let identity = net::Identity { cluster: "c".into(), incarnation: 1, ..net::Identity::new(key, "test") };
        let config = AgentConfig { management: String::new(), identity, rails: None };
        let mut task = Task::client(Arc::default(), config, String::new(), Box::new(|_| ()));
        task.set_view(view_of(&with_pool(backup.clone(), "a")));
        let other = view_of(&with_pool(backup, "b"));
        assert_eq!([task.contests(&other), task.contests(&other)], [true, false]);
    }
}
