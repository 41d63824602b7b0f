//! The shard's thread: its ring serves the sockets, and a turn's end executes what came.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use cluster::map::ClusterMap;
use conf::place::Place;
use control::View;
use kv::Kv;
use kv::rocks::RocksKv;
use namespace::shard::Shard;
use net::{ConnectionId, Identity, Request, Service};
use ring::Ring;
use ring::mailbox::{Receiver, Sender, mailbox};
use telemetry::metrics::Metrics;
use telemetry::names;
use types::cred::Credentials;
use types::id::{Generation, GroupId, ShardId, TargetId};

use crate::dispatch::Context;
use crate::fail_points::FailPoints;
use crate::metrics::ShardMetrics;
use crate::syncer::Syncer;
use crate::tasks::fencing::Fencing;
use crate::tasks::messenger::Messenger;
use crate::tasks::removal::Removal;
use crate::tasks::spill::Spill;
use crate::tasks::storage::Storage;
use crate::tasks::{self, space};
use crate::turn::Core;

/// Longest wait for answers in flight when stopping: a last sync of the log comes after it.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// For the last answers to leave the sockets.
const FLUSH: Duration = Duration::from_millis(20);

/// What a shard's thread is made of.
pub struct Setup {
    /// Open, and not yet used by a shard.
    pub store: RocksKv,
    pub listener: OwnedFd,
    pub identity: Identity,
    pub limits: net::Limits,
    pub ring: ring::Config,
    /// The target's directory, which is watched.
    pub place: Place,
    pub target: TargetId,
    pub shard: ShardId,
    pub session_expiry: Duration,
    pub lease_term: Duration,
    pub sync_interval: Duration,
    /// Hears from the shard whether it takes no changes.
    pub refusing: Arc<AtomicBool>,
    /// Free space below which nothing may grow.
    pub reserve_bytes: u64,
    /// How many targets have equal parts of the directory's file system: its metrics tell of one.
    pub sharers: Arc<AtomicU64>,
    /// Bounds of the shard's memory.
    pub bounds: namespace::shard::Limits,
    pub metrics: Metrics,
    /// The cluster at the start; it says which group is served.
    pub view: View,
    /// Names the fail point that is armed; only for tests.
    pub fail_points: Option<PathBuf>,
}

/// What the thread is told.
enum Order {
    View(View),
    /// Answer what came, sync, end.
    Stop,
    /// End at once, as if killed: for tests.
    Kill,
}

/// A running shard.
pub struct ShardThread {
    orders: Sender<Order>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl ShardThread {
    /// Returns when the shard is open and serves. `on_end` is called when the thread ends, for whatever reason.
    ///
    /// # Errors
    /// Where the store holds no good shard, or the kernel refuses a thread or ring.
    pub fn start(setup: Setup, on_end: impl FnOnce() + Send + 'static) -> anyhow::Result<Self> {
        let (orders, inbox) = mailbox();
        let (ready, started) = std::sync::mpsc::channel();
        let name = format!("shard-{}", setup.shard);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _on_end = OnEnd(Some(on_end));
            Ring::new(&setup.ring)?.run(run(setup, inbox, ready))
        })?;
        match started.recv() {
            Ok(()) => Ok(Self { orders, thread }),
            // It ended before it was ready: its result says why.
            Err(_) => Err(join(thread).err().unwrap_or_else(|| anyhow::anyhow!("the shard's thread ended at once"))),
        }
    }

    pub fn tell(&self, view: View) {
        self.orders.send(Order::View(view));
    }

    /// Stops taking requests, answers those in flight, makes all durable.
    ///
    /// # Errors
    /// What made the thread end before.
    pub fn stop(self) -> anyhow::Result<()> {
        self.orders.send(Order::Stop);
        join(self.thread)
    }

    /// [`Self::stop`] of all of a node at the same time: what stops it kills one that takes 10 s.
    ///
    /// # Errors
    /// What made the first of those end before that have ended before.
    pub(crate) fn stop_all(threads: Vec<Self>) -> anyhow::Result<()> {
        for shard in &threads {
            shard.orders.send(Order::Stop);
        }
        // Each is waited for, whatever another has to say.
        let outcomes: Vec<anyhow::Result<()>> = threads.into_iter().map(Self::join).collect();
        outcomes.into_iter().collect()
    }

    /// Ends without answering anything more, as a killed process would.
    ///
    /// # Errors
    /// What made the thread end before.
    pub fn kill(self) -> anyhow::Result<()> {
        self.orders.send(Order::Kill);
        join(self.thread)
    }

    /// Waits for the thread, which has ended or is about to, and says why.
    ///
    /// # Errors
    /// What made it end.
    pub fn join(self) -> anyhow::Result<()> {
        join(self.thread)
    }
}

fn join(thread: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the shard's thread panicked")))
}

/// Calls it also where the thread panics.
struct OnEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// The shard whose group has `target` as its primary.
#[must_use]
pub fn assigned_shard(map: &ClusterMap, target: TargetId) -> Option<ShardId> {
    let serves = |group: &GroupId| map.groups.get(group).is_some_and(|group| group.members.first() == Some(&target));
    map.shards.iter().find(|(_, group)| serves(group)).map(|(shard, _)| *shard)
}

/// The group of `shard`, if `target` is still its primary.
fn serving(map: &ClusterMap, shard: ShardId, target: TargetId) -> Option<(GroupId, Generation)> {
    let group = map.groups.get(map.shards.get(&shard)?)?;
    (group.members.first() == Some(&target)).then_some((group.id, group.generation))
}

struct Front(Rc<Core>);

impl Service for Front {
    fn on_request(self: &Rc<Self>, request: Request) {
        self.0.take(request);
    }

    fn on_disconnect(self: &Rc<Self>, connection: ConnectionId) {
        self.0.forget(connection);
    }
}

async fn run(setup: Setup, inbox: Receiver<Order>, ready: std::sync::mpsc::Sender<()>) -> anyhow::Result<()> {
    let store = Rc::new(setup.store);
    let (results, synced) = mailbox();
    let seconds = setup.metrics.histogram(&names::SYNC_SECONDS, &[]);
    let syncer =
        Syncer::start(store.syncer(), setup.sync_interval, seconds, results).context("cannot start a thread")?;
    let config = namespace::shard::Config {
        shard: setup.shard,
        seed: setup.identity.incarnation,
        session_expiry_ms: u64::try_from(setup.session_expiry.as_millis()).unwrap_or(u64::MAX),
        lease_term_ms: u64::try_from(setup.lease_term.as_millis()).unwrap_or(u64::MAX),
        root_owner: owner_of(setup.place.path())?,
        limits: setup.bounds,
    };
    let shard = Shard::open(Rc::clone(&store), config, telemetry::clock::now(), 0).context("cannot open the shard")?;
    shard.scattered_memory().iter().for_each(ring::memory::prefer_large_pages);
    let context = Context {
        shard: setup.shard,
        group: GroupId(0),
        total_bytes: 0,
        free_bytes: 0,
        keeps_access_times: true,
        may_grow: true,
    };
    let metrics = ShardMetrics::new(&setup.metrics, setup.target);
    let fail_points = FailPoints::new(setup.fail_points);
    let core = Rc::new(Core::new(shard, store, context, metrics, syncer, fail_points));
    let identity = Rc::new(setup.identity);
    let storage = Storage::new(Rc::clone(&identity), Arc::clone(&setup.limits.interfaces));
    let removal = Removal::new(Rc::clone(&core), Rc::clone(&storage));
    let spill = Spill::new(Rc::clone(&core), Rc::clone(&storage));
    let fencing = Fencing::new(Rc::clone(&core), Rc::clone(&storage), setup.session_expiry);
    let messenger = Messenger::new(Rc::clone(&core), Rc::clone(&identity), Arc::clone(&setup.limits.interfaces));
    let orders = OrderTask {
        core: Rc::clone(&core),
        storage,
        removal: Rc::clone(&removal),
        messenger: Rc::clone(&messenger),
        shard: setup.shard,
        target: setup.target,
    };
    orders.take_view(&setup.view);
    ring::spawn(turns(Rc::clone(&core)));
    ring::spawn(tasks::tick(Rc::clone(&core)));
    ring::spawn(tasks::split(Rc::clone(&core)));
    ring::spawn(tasks::end(Rc::clone(&core)));
    ring::spawn(tasks::answer_synced(Rc::clone(&core), synced));
    let (reserve, refusing, sharers) = (setup.reserve_bytes, setup.refusing, setup.sharers);
    ring::spawn(space::watch(Rc::clone(&core), setup.place, reserve, refusing, sharers));
    ring::spawn(removal.run());
    ring::spawn(spill.run());
    ring::spawn(fencing.run());
    ring::spawn(messenger.run());
    let front = Rc::new(Front(Rc::clone(&core)));
    let served = net::serve(setup.listener, identity, setup.limits, Rc::clone(&core.epoch), front);
    // Nobody waits for it where the starter has given up.
    let _ = ready.send(());
    either(either(served, orders.obey(inbox)), core.given_up.notified()).await;
    core.why_given_up().map_or(Ok(()), |error| Err(error.into()))
}

/// Until the first of the two ends; the other is dropped.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}

/// Whoever owns the first metadata target owns the file system: root on a cluster, on a laptop its user.
fn owner_of(dir: &Path) -> anyhow::Result<Credentials> {
    let found = std::fs::metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(Credentials { uid: found.uid(), gid: found.gid(), ..Credentials::default() })
}

/// Executes what came at the end of each turn in which something came.
async fn turns(core: Rc<Core>) {
    loop {
        core.work.notified().await;
        ring::turn_end().await;
        while core.turn() {
            ring::next_turn().await;
            ring::turn_end().await;
        }
    }
}

/// Carries out the orders of the service: a new view of the cluster, and the end.
struct OrderTask {
    core: Rc<Core>,
    storage: Rc<Storage>,
    removal: Rc<Removal>,
    messenger: Rc<Messenger>,
    shard: ShardId,
    target: TargetId,
}

impl OrderTask {
    async fn obey(self, mut inbox: Receiver<Order>) {
        while let Some(order) = inbox.recv().await {
            match order {
                Order::View(view) => self.take_view(&view),
                Order::Stop => return self.drain().await,
                Order::Kill => return,
            }
        }
    }

    fn take_view(&self, view: &View) {
        let map = &view.map;
        if map.epoch < self.core.epoch.get() {
            return;
        }
        let serving = serving(map, self.shard, self.target);
        let newer = map.epoch > self.core.epoch.get();
        self.core.set_map(serving, view);
        if newer {
            self.messenger.set_map(map);
            self.storage.set_map(map);
            self.removal.map_changed();
        }
    }

    async fn drain(&self) {
        let deadline = ring::now() + DRAIN_MAX;
        while !self.core.drain() && ring::now() < deadline {
            ring::sleep(Duration::from_millis(1)).await;
        }
        ring::sleep(FLUSH).await;
    }
}
