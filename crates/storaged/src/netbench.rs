//! NetBench, as a storage service has its part in it: it answers reads from memory and forgets writes (`dispatch`), and
//! measures its own ways to other nodes when it is told to. That goes on in a thread of its own; no lane waits for it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cluster::map::ClusterMap;
use net::bench::{Asker, Measure, measure, ways};
use types::id::NodeId;
use wire::codec::Bytes;
use wire::v1::netbench::{NODES_MAX, NetLoad, NetMeasure, NetPlan, NetRun, NetStart, NetStarted, NetStatusReply};

/// A run that nobody asks after for so long ends: its command does several times a second, and is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Of one node. All lanes have it.
pub(crate) struct NetBench {
    asker: Asker,
    silence_max: Duration,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    map: Option<Arc<ClusterMap>>,
    run: Option<NetRun>,
    /// When somebody has begun the run, or asked after it, last.
    asked: Option<Instant>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, measure: NetMeasure) {
        if let Some(run) = &mut self.state().run {
            run.measures.push(measure);
        }
    }
}

impl NetBench {
    pub(crate) fn new(asker: Asker) -> Self {
        Self { asker, silence_max: SILENCE_MAX, shared: Arc::default() }
    }

    /// Where the others are.
    pub(crate) fn set_map(&self, map: &Arc<ClusterMap>) {
        let mut state = self.shared.state();
        if state.map.as_ref().is_none_or(|known| known.epoch <= map.epoch) {
            state.map = Some(Arc::clone(map));
        }
    }

    /// Begins a run, and does not wait for anything of it.
    pub(crate) fn start(&self, request: NetStart) -> NetStarted {
        let refused = self.try_start(request).err().unwrap_or_default();
        NetStarted { refused: Bytes(refused.into_bytes()) }
    }

    fn try_start(&self, NetStart { run, plan, nodes }: NetStart) -> Result<(), String> {
        plan.check()?;
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(format!("{} nodes: give between 1 and {NODES_MAX}", nodes.len()));
        }
        let map = {
            let mut state = self.shared.state();
            let map = state.map.clone().ok_or("the service has no cluster map yet: try again in a moment")?;
            if state.run.as_ref().is_some_and(|run| run.under_way) {
                return Err("it is busy with another run: wait for its end".to_owned());
            }
            state.run = Some(NetRun { run, under_way: true, measures: Vec::new() });
            state.asked = Some(Instant::now());
            self.shared.stop.store(false, Ordering::Relaxed);
            map
        };
        let asker = self.asker.clone();
        let work = move |shared: &Shared| {
            for &node in &nodes {
                measure_node(shared, &asker, &map, node, &plan);
            }
        };
        self.spawn(run, work).map_err(|error| {
            self.shared.state().run = None;
            format!("the service cannot start a thread for it: {error}")
        })
    }

    /// Does `work`, which is run `number`, on a thread of its own: it is under way until its end.
    fn spawn(&self, number: u64, work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let (at_work, ended) = mpsc::channel::<()>();
        let (shared, silence_max) = (Arc::clone(&self.shared), self.silence_max);
        let watch = move || end_where_nobody_asks(&shared, number, silence_max, &ended);
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let _at_work = at_work;
            let _under_way = UnderWay(&shared);
            // The lane that it comes from may be bound to one CPU; the threads that measure are where this one is.
            ring::place::as_main_thread();
            work(&shared);
        };
        let spawn = |name: &str| thread::Builder::new().name(name.into());
        spawn("netbench-watch").spawn(watch).and_then(|_| spawn("netbench").spawn(work)).map(drop)
    }

    pub(crate) fn status(&self) -> NetStatusReply {
        let mut state = self.shared.state();
        state.asked = Some(Instant::now());
        NetStatusReply { run: state.run.clone() }
    }

    /// Ends this run soon; 0: whichever it is. Nothing happens where there is none.
    pub(crate) fn stop(&self, number: u64) {
        let state = self.shared.state();
        if number == 0 || state.run.as_ref().is_some_and(|run| run.run == number) {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Whatever becomes of the run, another one may begin after it.
struct UnderWay<'a>(&'a Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(run) = &mut self.0.state().run {
            run.under_way = false;
        }
    }
}

/// Until the run has ended. Its command, which would stop it, may have been killed, or have lost its terminal.
fn end_where_nobody_asks(shared: &Shared, number: u64, silence_max: Duration, ended: &Receiver<()>) {
    while ended.recv_timeout(silence_max / 10) == Err(RecvTimeoutError::Timeout) {
        let state = shared.state();
        let is_its = state.run.as_ref().is_some_and(|run| run.run == number && run.under_way);
        if is_its && state.asked.is_none_or(|asked| asked.elapsed() > silence_max) {
            tracing::info!(number, "ends a measurement of the network that nobody asks after any more");
            shared.stop.store(true, Ordering::Relaxed);
            return;
        }
    }
}

/// Over each way to it. The first failure of a way is the last that is said of it.
fn measure_node(shared: &Shared, asker: &Asker, map: &ClusterMap, node: NodeId, plan: &NetPlan) {
    let lanes = map.lanes(node);
    let ways = ways(&lanes, &asker.interfaces);
    if ways.is_empty() {
        let failure = "no way leads there: see `weft node list` and `interfaces`".to_owned();
        let nothing = Measure { failure: Some(failure), ..Measure::default() };
        shared.note(record(node, "none", NetLoad::Ping, nothing));
    }
    for over in ways {
        for load in [NetLoad::Ping, NetLoad::Write, NetLoad::Read] {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let measured = measure(asker, &lanes, &over, load, plan, &shared.stop);
            let failed = measured.failure.is_some();
            shared.note(record(node, &over.to_string(), load, measured));
            if failed {
                break;
            }
        }
    }
}

fn record(node: NodeId, way: &str, load: NetLoad, measure: Measure) -> NetMeasure {
    let Measure { requests, bytes, elapsed, p50_ns, p99_ns, p999_ns, max_ns, failure } = measure;
    NetMeasure {
        node,
        way: Bytes(way.as_bytes().to_vec()),
        load,
        requests,
        bytes,
        elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        p50_ns,
        p99_ns,
        p999_ns,
        max_ns,
        failure: Bytes(failure.unwrap_or_default().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::net::TcpListener;

    use cluster::map::{CapacityClass, Node, NodeState, Rail, ServiceKind, Target, TargetState};
    use net::{ClusterKey, Identity};
    use types::id::TargetId;

    use super::*;

    fn bench() -> NetBench {
        let key = ClusterKey::from_bytes([7; 32]);
        let identity = Identity::new(key, "test");
        NetBench::new(Asker { identity, interfaces: Arc::default() })
    }

    fn request(run: u64, nodes: Vec<NodeId>) -> NetStart {
        NetStart { run, plan: NetPlan { block: 4096, depth: 1, threads: 1, duration_ms: 10 }, nodes }
    }

    fn refusal(started: NetStarted) -> String {
        String::from_utf8(started.refused.0).expect("words")
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let bench = bench();
        assert!(refusal(bench.start(request(1, vec![NodeId(1)]))).contains("no cluster map"));
        bench.set_map(&Arc::new(ClusterMap::empty("c".into())));
        assert!(refusal(bench.start(request(1, Vec::new()))).contains("between 1 and"));
        let mut wrong = request(1, vec![NodeId(1)]);
        wrong.plan.block = 0;
        assert!(refusal(bench.start(wrong)).contains("8MiB"));
        assert_eq!(bench.status().run, None);
    }

    /// A node whose only lane takes connections, and never answers.
    fn silent_node() -> (ClusterMap, TcpListener) {
        let lane = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = lane.local_addr().expect("it has one");
        let mut map = ClusterMap::empty("c".into());
        let (id, kind, uuid, text) = (NodeId(1), ServiceKind::Storage, String::new(), String::new());
        let rails = vec![Rail { interface: "lo".into(), address: address.ip() }];
        let (state, alias) = (NodeState::Online, "silent".into());
        map.nodes.insert(id, Node { id, uuid: uuid.clone(), kind, alias, state, rails, metrics: text.clone() });
        let (node, id, ports, path) = (id, TargetId(1), vec![address.port()], text);
        let (state, class) = (TargetState::Good, CapacityClass::Normal);
        map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
        (map, lane)
    }

    /// CPUs that all threads of a run may use: those that measure have the name of the one that started them.
    fn cpus_of_run() -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for thread in fs::read_dir("/proc/self/task").expect("there is /proc").flatten() {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            found.extend(cpus.filter(|_| status.starts_with("Name:\tnetbench\n")).map(|cpus| cpus.trim().to_owned()));
        }
        found
    }

    #[test]
    fn a_run_has_all_cpus_of_the_service_and_not_those_of_the_lane_that_began_it() {
        let status = fs::read_to_string("/proc/self/status").expect("there is /proc");
        let all =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("told").trim().to_owned();
        let (bench, (map, _lane)) = (bench(), silent_node());
        bench.set_map(&Arc::new(map));
        let lane = || {
            ring::place::bind(&ring::place::allowed()[..1]).expect("its own CPU");
            refusal(bench.start(request(1, vec![NodeId(1)])))
        };
        assert_eq!(thread::scope(|scope| scope.spawn(lane).join()).expect("no panic"), "");
        let begin = Instant::now();
        while !cpus_of_run().iter().eq([&all]) {
            assert!(begin.elapsed() < Duration::from_secs(3), "{:?} of {all}", cpus_of_run());
            thread::sleep(Duration::from_millis(1));
        }
        bench.stop(0);
    }

    #[test]
    fn a_run_that_nobody_asks_after_ends() {
        const SILENCE: Duration = Duration::from_millis(500);
        let begun = || {
            let (mut bench, (map, lane)) = (bench(), silent_node());
            bench.silence_max = SILENCE;
            bench.set_map(&Arc::new(map));
            let mut long = request(1, vec![NodeId(1)]);
            long.plan.duration_ms = 3_600_000;
            assert_eq!(refusal(bench.start(long)), "");
            (bench, lane)
        };
        let is_stopped = |bench: &NetBench| bench.shared.stop.load(Ordering::Relaxed);
        // It goes on meanwhile; whether this thread had the time to ask so often. The node that it cannot reach ends it too,
        // some seconds later.
        let is_asked = |(bench, _): &(NetBench, TcpListener)| {
            let begin = Instant::now();
            let mut asked = begin;
            while begin.elapsed() < 4 * SILENCE {
                let is_under_way = bench.status().run.is_some_and(|run| run.under_way) && !is_stopped(bench);
                if asked.elapsed() > SILENCE / 2 {
                    return false;
                }
                asked = Instant::now();
                assert!(is_under_way, "somebody asks");
                thread::sleep(Duration::from_millis(10));
            }
            true
        };
        let (bench, _lane) = (0..20).map(|_| begun()).find(is_asked).expect("time to ask");
        let begin = Instant::now();
        while !is_stopped(&bench) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_run_that_panics_is_not_under_way_any_more() {
        let bench = bench();
        bench.set_map(&Arc::new(ClusterMap::empty("c".into())));
        bench.shared.state().run = Some(NetRun { run: 4, under_way: true, measures: Vec::new() });
        bench.spawn(4, |_| panic!("on purpose")).expect("there is room for a thread");
        let begin = Instant::now();
        while bench.status().run.is_some_and(|run| run.under_way) {
            assert!(begin.elapsed() < Duration::from_secs(10), "it refuses every other run");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(refusal(bench.start(request(5, vec![NodeId(1)]))), "");
    }

    #[test]
    fn a_run_ends_by_itself_and_says_where_no_way_leads() {
        let bench = bench();
        bench.set_map(&Arc::new(ClusterMap::empty("c".into())));
        assert_eq!(refusal(bench.start(request(5, vec![NodeId(1), NodeId(2)]))), "");
        let begin = Instant::now();
        let run = loop {
            let run = bench.status().run.expect("there is one");
            if !run.under_way {
                break run;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not end");
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((run.run, run.measures.len()), (5, 2));
        assert!(run.measures.iter().all(|measure| !measure.failure.0.is_empty() && measure.bytes == 0));
    }
}
