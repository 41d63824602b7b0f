//! A lane: one thread, one ring, sockets and files together, serving its share of the objects of all the node's
//! targets.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::map::ClusterMap;
use net::bench::memory::Memory as BenchMemory;
use net::{Identity, Limits};
use ring::mailbox::{self, Receiver, Sender};
use ring::{Ring, turn_end};
use rustc_hash::FxHashMap;
use telemetry::metrics::{Metrics, level};
use types::id::{Epoch, GroupId};

use crate::ahead::Ahead;
use crate::bench;
use crate::dispatch::{Dispatch, Route};
use crate::engine::files::{Files, Options, prepare_folders};
use crate::engine::{LaneShare, ObjectStore};
use crate::failures::Failures;
use crate::fault::Fault;
use crate::losses;
use crate::memory::Shares;
use crate::metrics::{LaneMetrics, TargetMetrics, Waits};
use crate::netbench::NetBench;
use crate::object_table::{ObjectTable, first_version};
use crate::queue::Queue;
use crate::scrub::{Scrub, tend};
use crate::served::Served;
use crate::target::Target;

/// Longest wait for requests in flight when the lane stops.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Longest write-out of dirty data when the lane stops. The kernel goes on with what is left. What there is left of that time
/// goes to the checksums.
const SYNC_MAX: Duration = Duration::from_secs(3);
// What stops a service kills one that takes 10 s, which would know less of what is on the disks than one that gives up.
const _: () =
    assert!(bench::END_MAX.as_secs() + DRAIN_MAX.as_secs() + SYNC_MAX.as_secs() + losses::END_MAX.as_secs() <= 9);
/// A target that came while the lane runs, and could not be opened, is tried again so often.
const AGAIN_EVERY: Duration = Duration::from_secs(5);
/// Of the kernel's workers: those for what the targets do for nobody's request, such as the sync of a removal.
const WORKERS_BESIDE: usize = 16;

/// What a lane is told while it runs.
pub(crate) enum Order {
    Map(Arc<ClusterMap>),
    /// Serve this target as well, from the next map on.
    Take(Arc<Target>),
    Stop,
}

/// Everything that a lane is made of.
pub(crate) struct Setup {
    pub(crate) share: LaneShare,
    pub(crate) listener: OwnedFd,
    pub(crate) targets: Vec<Arc<Target>>,
    /// With those that cannot be opened yet: each has its share of what there is.
    pub(crate) targets_max: usize,
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) ring: ring::Config,
    /// Its open files are those of all targets together.
    pub(crate) engine: Options,
    /// Reads, and changes, of each target that are at its disk at once.
    pub(crate) queue_depth: usize,
    /// Bytes of reads in flight.
    pub(crate) read_memory_max: usize,
    /// Bytes that are read before they are asked for.
    pub(crate) read_ahead_max: usize,
    pub(crate) metrics: Metrics,
    pub(crate) net_bench: Arc<NetBench>,
    pub(crate) fault: Fault,
}

impl Setup {
    /// With workers enough that each target can have all that is its own at work at once.
    fn ring(&self) -> ring::Config {
        let workers = self.targets_max * Queue::calls_max(self.queue_depth) + WORKERS_BESIDE;
        ring::Config { workers: u32::try_from(workers).unwrap_or(u32::MAX), files: true, ..self.ring.clone() }
    }
}

/// A running lane.
pub(crate) struct Lane {
    orders: Sender<Order>,
    thread: JoinHandle<io::Result<()>>,
}

impl Lane {
    /// Starts the thread and waits until it serves, or says why it cannot.
    ///
    /// # Errors
    /// Where the kernel refuses the thread or its ring, or a target's objects cannot be opened.
    pub(crate) fn start(setup: Setup) -> io::Result<Self> {
        let (orders, inbox) = mailbox::mailbox();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(format!("lane-{}", setup.share.lane)).spawn(move || {
            let _held = setup.fault.unless_held("a lane has ended by itself");
            Ring::new(&setup.ring())?.run(run(setup, inbox, ready))
        })?;
        match started.recv() {
            Ok(()) => Ok(Self { orders, thread }),
            // It ended before it was ready: its result says why.
            Err(_) => Err(thread.join().map_or_else(|_| panicked(), |result| result.err().unwrap_or_else(panicked))),
        }
    }

    pub(crate) fn tell_map(&self, map: &Arc<ClusterMap>) {
        self.orders.send(Order::Map(Arc::clone(map)));
    }

    /// Serve this target as well, from the next map on.
    pub(crate) fn take(&self, target: &Arc<Target>) {
        self.orders.send(Order::Take(Arc::clone(target)));
    }

    pub(crate) fn sender(&self) -> Sender<Order> {
        self.orders.clone()
    }

    /// They stop taking requests, finish those in flight, and write out what is dirty: all at the same time.
    ///
    /// # Errors
    /// What made the first of those end before that have ended before.
    pub(crate) fn stop_all(lanes: Vec<Lane>) -> io::Result<()> {
        for lane in &lanes {
            lane.orders.send(Order::Stop);
        }
        // Each is waited for, whatever another has to say.
        let outcomes: Vec<io::Result<()>> =
            lanes.into_iter().map(|lane| lane.thread.join().unwrap_or_else(|_| Err(panicked()))).collect();
        outcomes.into_iter().collect()
    }
}

fn panicked() -> io::Error {
    io::Error::other("a lane's thread panicked")
}

/// What a lane needs to open its share of a target.
struct Opener {
    share: LaneShare,
    /// Its open files are those of all targets together.
    engine: Options,
    /// There are more only where some came while the lane runs.
    targets_max: usize,
    queue_depth: usize,
    read_memory: Shares,
    ahead: Shares,
    metrics: Metrics,
}

/// The targets of a lane; more may come while it runs.
struct LaneTargets {
    opener: Opener,
    open: RefCell<Vec<(Rc<Served<Files>>, TargetMetrics)>>,
    /// The last one, for those that come after it.
    map: RefCell<Option<Arc<ClusterMap>>>,
    again_every: Duration,
}

async fn run(setup: Setup, mut inbox: Receiver<Order>, ready: std::sync::mpsc::Sender<()>) -> io::Result<()> {
    let targets = Rc::new(LaneTargets::new(Opener::new(&setup)));
    let (ready_now, later): (Vec<_>, Vec<_>) = setup.targets.iter().partition(|target| target.serve().is_ok());
    for target in ready_now {
        targets.take(target)?;
    }
    let dispatch = Rc::new(Dispatch {
        routes: RefCell::default(),
        epoch: Rc::new(Cell::new(Epoch(0))),
        metrics: LaneMetrics::new(&setup.metrics),
        net_bench: setup.net_bench,
        memory: BenchMemory::default(),
        taken: Cell::default(),
    });
    // One disk that has no room for a few bytes keeps the others from nothing.
    for target in later {
        ring::spawn(take_new(Arc::clone(target), Rc::downgrade(&targets), Rc::downgrade(&dispatch)));
    }
    let served = net::serve(
        setup.listener,
        Rc::new(setup.identity),
        setup.limits,
        Rc::clone(&dispatch.epoch),
        Rc::clone(&dispatch),
    );
    let _ = ready.send(());
    {
        let mut served = pin!(served);
        let mut obey = pin!(obey(&mut inbox, &dispatch, &targets));
        // Until told to stop; dropping `served` then closes the listener and its connections.
        std::future::poll_fn(|cx| match served.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => obey.as_mut().poll(cx),
        })
        .await;
    }
    let served = targets.served();
    // Who still waits for one to be openable has nothing more to do.
    drop(targets);
    if !drain(&served).await {
        // To close the files of a disk that hangs may hang as well: that is left to the end of the process.
        std::mem::forget(served);
    }
    Ok(())
}

impl Opener {
    fn new(setup: &Setup) -> Self {
        let count = setup.targets_max;
        Self {
            share: setup.share,
            engine: setup.engine,
            targets_max: count,
            queue_depth: setup.queue_depth,
            read_memory: Shares::new(setup.read_memory_max, count),
            ahead: Shares::new(setup.read_ahead_max, count),
            metrics: setup.metrics.clone(),
        }
    }

    /// Of each of so many targets.
    fn open_files_max(&self, targets: usize) -> usize {
        (self.engine.open_files_max / targets.max(self.targets_max).max(1)).max(1)
    }

    /// As one of so many targets.
    fn open(&self, target: &Arc<Target>, targets: usize) -> io::Result<Served<Files>> {
        let failures = Rc::new(Failures::new(first_version(target.incarnation())));
        let queue = Queue::new(self.queue_depth, &self.metrics, target.id(), Arc::clone(&target.pulse));
        let files = Files::open(
            Arc::clone(target),
            Rc::clone(&failures),
            Options { open_files_max: self.open_files_max(targets), ..self.engine },
            Ahead::new(self.ahead.one(), &self.metrics),
            Rc::clone(&queue),
            &self.metrics,
        );
        let store =
            files.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", target.path.display())))?;
        Ok(Served {
            target: Arc::clone(target),
            store,
            table: ObjectTable::new(target.incarnation()),
            failures,
            share: self.share,
            queue,
            read_memory: self.read_memory.one(),
            waits: Waits::new(&self.metrics),
            scrub: Scrub::default(),
        })
    }
}

impl LaneTargets {
    fn new(opener: Opener) -> Self {
        Self { opener, open: RefCell::default(), map: RefCell::default(), again_every: AGAIN_EVERY }
    }

    /// Opens a target that is registered. The others make room for its files.
    fn take(&self, target: &Arc<Target>) -> io::Result<()> {
        let others = self.served();
        let count = others.len() + 1;
        let served = Rc::new(self.opener.open(target, count)?);
        ring::spawn(tend(Rc::clone(&served)));
        let each = self.opener.open_files_max(count);
        if each < self.opener.open_files_max(others.len()) {
            for other in others {
                ring::spawn(async move { other.store.keep_open(each).await });
            }
        }
        self.open.borrow_mut().push((served, TargetMetrics::new(&self.opener.metrics, target.id())));
        Ok(())
    }

    fn served(&self) -> Vec<Rc<Served<Files>>> {
        self.open.borrow().iter().map(|(served, _)| Rc::clone(served)).collect()
    }
}

/// Takes orders until the one to stop.
async fn obey(inbox: &mut Receiver<Order>, dispatch: &Rc<Dispatch<Files>>, targets: &Rc<LaneTargets>) {
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Map(map) => take_map(&map, dispatch, targets),
            Order::Take(target) => {
                ring::spawn(take_new(target, Rc::downgrade(targets), Rc::downgrade(dispatch)));
            }
            Order::Stop => return,
        }
    }
}

/// Serves a target as soon as it can be opened, under the last map: no other order comes for it.
async fn take_new(target: Arc<Target>, targets: Weak<LaneTargets>, dispatch: Weak<Dispatch<Files>>) {
    let mut has_failed = false;
    while let Some((every, checksums)) = targets.upgrade().map(|all| (all.again_every, all.opener.engine.checksums)) {
        // By one of its own threads first: the disk may hang, and hold up nobody else.
        let here = Arc::clone(&target);
        let prepare = move || {
            here.check_place()?;
            prepare_folders(&here.path, checksums).and_then(|()| here.serve())
        };
        let prepared = target.helpers.run(prepare).await;
        let (Some(targets), Some(dispatch)) = (targets.upgrade(), dispatch.upgrade()) else { return };
        match prepared.and_then(|()| targets.take(&target)) {
            Ok(()) => {
                let map = targets.map.borrow().clone();
                if let Some(map) = map {
                    take_map(&map, &dispatch, &targets);
                }
                if has_failed {
                    tracing::info!(target = %target.id(), "the new target is served now");
                }
                return;
            }
            Err(error) if !has_failed => {
                tracing::error!(%error, "a new target is not served yet: it is tried again");
                has_failed = true;
            }
            Err(_) => {}
        }
        drop((targets, dispatch));
        ring::next_look(every).await;
    }
}

/// Serves exactly the groups whose primary is one of our targets, under the map's generations.
fn take_map(map: &Arc<ClusterMap>, dispatch: &Dispatch<Files>, targets: &LaneTargets) {
    if map.epoch < dispatch.epoch.get() {
        return;
    }
    targets.map.replace(Some(Arc::clone(map)));
    let mut routes: FxHashMap<GroupId, Rc<Route<Files>>> = FxHashMap::default();
    let targets = targets.open.borrow();
    for group in map.groups.values() {
        let ours =
            group.members.first().and_then(|primary| targets.iter().find(|(served, _)| served.target.id() == *primary));
        if let Some((served, metrics)) = ours {
            let route = Route { generation: group.generation, served: Rc::clone(served), metrics: metrics.clone() };
            routes.insert(group.id, Rc::new(route));
        }
    }
    *dispatch.routes.borrow_mut() = routes;
    dispatch.net_bench.set_map(map);
    dispatch.epoch.set(map.epoch);
    dispatch.metrics.epoch.set(level(map.epoch.0));
}

/// Waits for what is under way, and writes out what is dirty. False where something of that goes on.
async fn drain(targets: &[Rc<Served<Files>>]) -> bool {
    // A disk that fails may take minutes for it.
    targets.iter().for_each(|served| served.scrub.end());
    let deadline = ring::now() + DRAIN_MAX;
    while targets.iter().any(|served| served.table.busy_count() > 0) && ring::now() < deadline {
        turn_end().await;
        ring::sleep(Duration::from_millis(5)).await;
    }
    let deadline = ring::now() + SYNC_MAX;
    let written = ring::join_all(targets.iter().map(|served| served.store.write_out()));
    let Ok(written) = ring::timeout(SYNC_MAX, written).await else {
        tracing::warn!("stopped before all dirty data was written: the kernel goes on with it");
        return false;
    };
    // So that objects are verified also where this was the last thing before a boot: all is on the disk without it.
    let now = Instant::now();
    let written = targets.iter().zip(written).filter(|(_, is_written)| *is_written);
    let clean = ring::join_all(written.map(|(served, _)| served.store.clean(now)));
    let is_clean = ring::timeout(deadline.saturating_duration_since(ring::now()), clean).await.is_ok();
    is_clean && targets.iter().all(|served| served.table.busy_count() == 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cluster::map::{Group, ServiceKind};
    use net::ClusterKey;
    use net::bench::Asker;
    use ring::buf::Slice;
    use types::id::{Generation, InodeId, ObjectId, TargetId};

    use super::*;

    const AGAIN_EVERY: Duration = Duration::from_millis(5);

    fn on_ring(test: impl Future<Output = ()>) {
        let config = ring::Config { entries: 64, spin: Duration::ZERO, ..ring::Config::default() };
        Ring::new(&config).expect("io_uring is there").run(test);
    }

    /// Of a lane that was started with one target.
    fn targets(open_files_max: usize) -> Rc<LaneTargets> {
        let engine = Options { open_files_max, write_in_place_max: 64 << 10, direct_min: 256 << 10, checksums: true };
        let opener = Opener {
            share: LaneShare { lane: 0, lanes: 1 },
            engine,
            targets_max: 1,
            queue_depth: 32,
            read_memory: Shares::new(1 << 20, 1),
            ahead: Shares::new(1 << 20, 1),
            metrics: Metrics::new("test"),
        };
        Rc::new(LaneTargets { again_every: AGAIN_EVERY, ..LaneTargets::new(opener) })
    }

    fn dispatch() -> Rc<Dispatch<Files>> {
        let key = ClusterKey::from_bytes([7; 32]);
        let identity = Identity { incarnation: 1, ..Identity::new(key, "test") };
        Rc::new(Dispatch {
            routes: RefCell::default(),
            epoch: Rc::new(Cell::new(Epoch(0))),
            metrics: LaneMetrics::new(&Metrics::new("test")),
            net_bench: Arc::new(NetBench::new(Asker { identity, interfaces: Arc::default() })),
            memory: BenchMemory::default(),
            taken: Cell::default(),
        })
    }

    fn target(path: &Path, id: u32) -> Arc<Target> {
        std::fs::create_dir(path).expect("made");
        let target = Target::new(path.to_path_buf(), 0);
        target.set_id(TargetId(id));
        target.probe(path);
        Arc::new(target)
    }

    async fn wait_for(is_done: impl Fn() -> bool) {
        for _ in 0..2000 {
            if is_done() {
                return;
            }
            ring::sleep(Duration::from_millis(1)).await;
        }
        panic!("it does not come to that");
    }

    #[test]
    fn targets_that_come_later_share_the_open_files_with_the_others() {
        let dir = tempfile::tempdir().expect("a directory");
        on_ring(async {
            let targets = targets(41);
            let counts = || targets.served().iter().map(|served| served.store.open_count()).collect::<Vec<_>>();
            for (id, each) in [(1, 41), (2, 20), (3, 13)] {
                targets.take(&target(&dir.path().join(id.to_string()), id)).expect("opened");
                wait_for(|| counts().iter().all(|&open| open <= each)).await;
                for served in targets.served() {
                    for n in 0..50 {
                        let object = ObjectId { inode: InodeId(n), stripe: 0 };
                        let data = Slice::from_vec(b"data".to_vec()).into();
                        served.store.write(object, 0, data).await.expect("written");
                    }
                }
                assert_eq!(counts(), vec![each; id as usize]);
            }
        });
    }

    #[test]
    fn a_target_that_could_not_be_opened_is_served_once_it_can_be() {
        let dir = tempfile::tempdir().expect("a directory");
        on_ring(async {
            let (dispatch, targets, group) = (dispatch(), targets(40), GroupId(1));
            let target = target(&dir.path().join("late"), 1);
            target.begin(7).expect("begun");
            let (in_the_way, record) = (target.path.join("objects"), target.path.join("written.toml"));
            std::fs::write(&in_the_way, "no directory").expect("written");
            let mut map = ClusterMap::empty(String::new());
            map.epoch = Epoch(1);
            let members = vec![TargetId(1)];
            map.groups
                .insert(group, Group { id: group, kind: ServiceKind::Storage, generation: Generation(1), members });
            let (orders, mut inbox) = mailbox::mailbox();
            orders.send(Order::Take(Arc::clone(&target)));
            orders.send(Order::Map(Arc::new(map)));
            let (obeying, by) = (Rc::clone(&dispatch), Rc::clone(&targets));
            ring::spawn(async move { obey(&mut inbox, &obeying, &by).await });
            let is_served = || dispatch.routes.borrow().contains_key(&group);
            wait_for(|| dispatch.epoch.get() == Epoch(1)).await;
            ring::sleep(4 * AGAIN_EVERY).await;
            assert!(!is_served() && !record.exists());
            std::fs::remove_file(&in_the_way).expect("removed");
            wait_for(is_served).await;
            assert!(record.exists(), "what it acknowledges may be lost");
            orders.send(Order::Stop);
        });
    }
}
