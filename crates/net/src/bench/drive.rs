//! The asking side: threads of its own, each with a ring and connections, that keep requests in flight for a time.

use std::cell::{Cell, RefCell};
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use ring::sync::Semaphore;
use wire::frame::HEADER_LEN;
use wire::op::Ping;
use wire::v1::netbench::{NetLoad, NetPlan, NetRead, NetWrite};

use super::histogram::{Histogram, percentile};
use super::memory::{is_whole, to_send};
use super::ways::{Over, ways};
use crate::connection::{Connection, To};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::pairs::Selector;
use crate::peer::Peer;
use crate::way::{Way, Whom};

/// Beyond the measurement's time, for the requests that are under way then.
const GRACE: Duration = Duration::from_secs(20);
/// For all rails to be connected, where there are several.
const GATHER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// Pings take this part of the time, and at most [`PING_MAX`].
const PING_SHARE: u32 = 5;
const PING_MAX: Duration = Duration::from_secs(1);
/// Bytes beside those in flight that a thread may share with a server on its host.
const SHARED_BESIDE: usize = 16 << 20;

/// Who measures.
#[derive(Clone)]
pub struct Asker {
    pub identity: Identity,
    /// Interfaces to go out by, best first; none: all.
    pub interfaces: Arc<[Selector]>,
}

/// What came of a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measure {
    pub requests: u64,
    pub bytes: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// What half, 99 %, 99.9 % and all of the requests took at most, in nanoseconds: at most 6.25 % too high.
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// Why it ended before its time.
    pub failure: Option<String>,
}

/// Keeps `plan.depth` requests in flight to `lanes` (of each its addresses, one per interface, spread evenly) for as long as
/// the plan says or until `stop`; pings are one at a time on one thread. Blocks until all is answered, or for 20 s more.
#[must_use]
pub fn measure(
    asker: &Asker,
    lanes: &[Vec<SocketAddr>],
    over: &Over,
    load: NetLoad,
    plan: &NetPlan,
    stop: &AtomicBool,
) -> Measure {
    measure_on(|_| Builder::new(), asker, lanes, over, load, plan, stop)
}

/// `builder`: what makes the thread of this number.
fn measure_on(
    builder: impl Fn(u32) -> Builder,
    asker: &Asker,
    lanes: &[Vec<SocketAddr>],
    over: &Over,
    load: NetLoad,
    plan: &NetPlan,
    stop: &AtomicBool,
) -> Measure {
    let threads = if load == NetLoad::Ping { 1 } else { plan.threads.max(1) };
    let gate = Gate::of(threads);
    let tallies: Vec<Result<Tally, String>> = thread::scope(|scope| {
        let spawn = |number: u32| {
            let seat = Seat(&gate);
            let depth = if load == NetLoad::Ping { 1 } else { share(plan.depth, threads, number) };
            let work = Work { asker, lanes, over, load, plan, stop, depth };
            builder(number).spawn_scoped(scope, move || work.run(seat))
        };
        let spawned: Vec<_> = (0..threads).map(spawn).collect();
        spawned
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())),
                Err(error) => Err(format!("cannot start a thread: {error}")),
            })
            .collect()
    });
    sum(tallies)
}

/// Where the threads of a measurement wait for each other, to begin together.
struct Gate {
    /// Threads that are not ready yet; `None` where one never will be.
    awaited: Mutex<Option<u32>>,
    changed: Condvar,
}

impl Gate {
    fn of(threads: u32) -> Self {
        Self { awaited: Mutex::new(Some(threads)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a thread comes to the gate with: one that could not be made, or has failed before it was ready, has dropped it.
struct Seat<'a>(&'a Gate);

impl Seat<'_> {
    /// Waits for all others. False where one of them never comes: then nobody begins.
    fn wait(self) -> bool {
        let gate = self.0;
        mem::forget(self);
        let mut awaited = gate.lock();
        *awaited = awaited.map(|count| count - 1);
        gate.changed.notify_all();
        let awaited = gate.changed.wait_while(awaited, |awaited| awaited.is_some_and(|count| count > 0));
        awaited.unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
        self.0.changed.notify_all();
    }
}

/// How many of `depth` requests thread `number` of `threads` has.
fn share(depth: u32, threads: u32, number: u32) -> u32 {
    depth / threads + u32::from(number < depth % threads)
}

fn sum(tallies: Vec<Result<Tally, String>>) -> Measure {
    let mut measure = Measure::default();
    let mut histogram = Histogram::new();
    for tally in tallies {
        match tally {
            Ok(tally) => {
                measure.requests += tally.requests;
                measure.bytes += tally.bytes;
                measure.elapsed = measure.elapsed.max(tally.elapsed);
                measure.failure = measure.failure.or(tally.failure);
                histogram.add(&tally.histogram);
            }
            Err(failure) => measure.failure = measure.failure.or(Some(failure)),
        }
    }
    let latencies = histogram.latencies();
    let took = |share| percentile(&latencies, share).unwrap_or(0);
    (measure.p50_ns, measure.p99_ns, measure.p999_ns) = (took(0.5), took(0.99), took(0.999));
    measure.max_ns = took(1.0);
    measure
}

/// What one thread has done.
struct Tally {
    requests: u64,
    bytes: u64,
    elapsed: Duration,
    histogram: Histogram,
    failure: Option<String>,
}

impl Tally {
    fn nothing() -> Self {
        Self { requests: 0, bytes: 0, elapsed: Duration::ZERO, histogram: Histogram::new(), failure: None }
    }
}

/// The part of one thread.
struct Work<'a> {
    asker: &'a Asker,
    lanes: &'a [Vec<SocketAddr>],
    over: &'a Over,
    load: NetLoad,
    plan: &'a NetPlan,
    stop: &'a AtomicBool,
    depth: u32,
}

impl Work<'_> {
    fn run(&self, seat: Seat<'_>) -> Result<Tally, String> {
        let ring = ring::Ring::new(&ring::Config::default());
        let mut ring = ring.map_err(|error| format!("cannot make a ring: {error}"))?;
        if *self.over != Over::Loopback {
            ring::shared::lend(self.plan.block as usize * (self.depth as usize + 1) + SHARED_BESIDE);
        }
        ring.run(async {
            let links = Links::make(self.asker, self.lanes, self.over, self.limits()).await?;
            // Why another one never comes, that one says.
            Ok(if seat.wait() { self.drive(Rc::new(links)).await } else { Tally::nothing() })
        })
    }

    /// Room for all that are to be in flight, be it on one connection. (A server has at most its own bound of each connection
    /// at work: the rest has been sent as far as its socket takes it.)
    fn limits(&self) -> Limits {
        let usual = Limits::default();
        let (depth, each) = (self.depth as usize, self.plan.block as usize + HEADER_LEN);
        let (requests, bytes) = (usual.requests.max(depth), usual.bytes.max(depth * each));
        Limits { requests, bytes, interfaces: Arc::clone(&self.asker.interfaces), ..usual }
    }

    fn time(&self) -> Duration {
        let all = Duration::from_millis(self.plan.duration_ms);
        if self.load == NetLoad::Ping { (all / PING_SHARE).min(PING_MAX) } else { all }
    }

    async fn drive(&self, links: Rc<Links>) -> Tally {
        let begin = Instant::now();
        let bytes = if self.load == NetLoad::Write { self.plan.block as usize } else { 0 };
        let flight = Rc::new(Flight {
            links,
            load: self.load,
            block: self.plan.block,
            payload: to_send(bytes),
            end: begin + self.time(),
            over: Cell::new(false),
            tally: RefCell::new(Tally::nothing()),
        });
        let depth = self.depth as usize;
        let seats = Rc::new(Semaphore::new(depth));
        for number in 0..depth {
            let seat = seats.acquire(1).await;
            let flight = Rc::clone(&flight);
            ring::spawn(async move {
                flight.pilot(number).await;
                drop(seat);
            });
        }
        let limit = begin + self.time() + GRACE;
        loop {
            match ring::timeout(LOOK, seats.acquire(depth)).await {
                Ok(_) => break,
                Err(_) if Instant::now() > limit => {
                    flight.fail("requests were not answered within 20 s of the end".to_owned());
                    break;
                }
                Err(_) if self.stop.load(Ordering::Relaxed) => flight.fail("stopped".to_owned()),
                Err(_) => {}
            }
        }
        let tally = flight.tally.replace(Tally::nothing());
        Tally { elapsed: begin.elapsed(), ..tally }
    }
}

/// What the requests of one thread share.
struct Flight {
    links: Rc<Links>,
    load: NetLoad,
    block: u32,
    payload: Slice,
    end: Instant,
    over: Cell<bool>,
    tally: RefCell<Tally>,
}

impl Flight {
    /// One request after the other.
    async fn pilot(&self, number: usize) {
        let mut turn = number;
        while !self.over.get() && Instant::now() < self.end {
            let asked = Instant::now();
            let outcome = match self.links.pick(turn).await {
                Ok(connection) => self.ask(&connection).await,
                Err(failure) => Err(failure),
            };
            turn += 1;
            match outcome {
                Ok(bytes) => {
                    let mut tally = self.tally.borrow_mut();
                    tally.requests += 1;
                    tally.bytes += bytes;
                    tally.histogram.note(asked.elapsed());
                }
                Err(failure) => return self.fail(failure),
            }
        }
    }

    async fn ask(&self, connection: &Connection) -> Result<u64, String> {
        let failed = |error: crate::CallError| format!("{}: {error}", connection.address());
        let length = self.block as usize;
        match self.load {
            NetLoad::Ping => connection.call(To::default(), &Ping {}).await.map(|_| 0).map_err(failed),
            NetLoad::Write => {
                let payload = vec![self.payload.clone()];
                let answer =
                    connection.call_payload(To::default(), &NetWrite {}, payload, None).await.map_err(failed)?;
                if answer.message.length != self.block {
                    let got = answer.message.length;
                    return Err(format!("{}: {got} bytes arrived of {length}", connection.address()));
                }
                Ok(u64::from(self.block))
            }
            NetLoad::Read => {
                let (request, into) = (NetRead { length: self.block }, Buf::shareable(length));
                let answer =
                    connection.call_payload(To::default(), &request, Vec::new(), Some(into)).await.map_err(failed)?;
                if !is_whole(&answer.payload, length) {
                    return Err(format!("{}: other bytes came than are to be sent", connection.address()));
                }
                Ok(u64::from(self.block))
            }
        }
    }

    /// The first reason counts, and ends all.
    fn fail(&self, failure: String) {
        self.over.set(true);
        self.tally.borrow_mut().failure.get_or_insert(failure);
    }
}

/// Connections of one thread.
enum Links {
    /// To each lane, over one rail.
    Fixed(Vec<Connection>),
    /// To each lane, over whichever rail.
    Free(Vec<Peer>),
}

impl Links {
    async fn make(asker: &Asker, lanes: &[Vec<SocketAddr>], over: &Over, limits: Limits) -> Result<Self, String> {
        if lanes.is_empty() {
            return Err("it has no address".to_owned());
        }
        let pair = match over {
            Over::Rail(pair) => pair,
            Over::AllRails | Over::WithinHost => return Self::gather(asker, lanes, &limits).await,
            Over::Loopback => return Self::loopback(asker, lanes, limits).await,
        };
        let way = Way::of(pair, true);
        let mut links = Vec::new();
        for lane in lanes {
            let address = lane.iter().find(|address| address.ip() == pair.remote);
            let address = *address.ok_or_else(|| format!("a lane has no address {}", pair.remote))?;
            let whom = Whom { address, node: "" };
            let connected = Connection::connect_by(&way, whom, &asker.identity, &limits).await;
            links.push(connected.map_err(|error| error.to_string())?);
        }
        Ok(Self::Fixed(links))
    }

    async fn loopback(asker: &Asker, lanes: &[Vec<SocketAddr>], limits: Limits) -> Result<Self, String> {
        let limits = Limits { local_sockets: false, ..limits };
        let mut links = Vec::new();
        for &address in lanes.iter().filter_map(|lane| lane.first()) {
            let connected = Connection::connect(address, &asker.identity, &limits).await;
            links.push(connected.map_err(|error| error.to_string())?);
        }
        Ok(Self::Fixed(links))
    }

    /// Until all rails that can be used are connected.
    async fn gather(asker: &Asker, lanes: &[Vec<SocketAddr>], limits: &Limits) -> Result<Self, String> {
        let identity = Rc::new(asker.identity.clone());
        let begin = Instant::now();
        let mut peers = Vec::new();
        for (lane, addresses) in lanes.iter().enumerate() {
            let peer = Peer::starting_at(lane, addresses.clone(), Rc::clone(&identity), limits.clone());
            peer.connection().await.map_err(|error| error.to_string())?;
            let is_rail = |over: &&Over| matches!(over, Over::Rail(_));
            let rails = ways(std::slice::from_ref(addresses), &asker.interfaces).iter().filter(is_rail).count();
            // From the first look for a connection on it keeps all rails connected.
            while peer.pick().is_none() || (peer.width() < rails && begin.elapsed() < GATHER) {
                ring::sleep(LOOK).await;
                peer.connection().await.map_err(|error| error.to_string())?;
            }
            peers.push(peer);
        }
        Ok(Self::Free(peers))
    }

    async fn pick(&self, turn: usize) -> Result<Connection, String> {
        match self {
            Links::Fixed(links) => Ok(links[turn % links.len()].clone()),
            Links::Free(peers) => {
                let peer = &peers[turn % peers.len()];
                match peer.pick() {
                    Some(connection) => Ok(connection),
                    None => peer.connection().await.map_err(|error| error.to_string()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn requests_are_shared_out_whole() {
        for (depth, threads) in [(16, 1), (16, 3), (3, 3), (256, 64)] {
            let all: Vec<u32> = (0..threads).map(|number| share(depth, threads, number)).collect();
            assert_eq!(all.iter().sum::<u32>(), depth);
            assert!(all.iter().all(|&one| one >= 1 && all[0] - one <= 1), "{all:?}");
        }
    }

    fn asker() -> Asker {
        let key = crate::key::ClusterKey::from_bytes([7; 32]);
        Asker { identity: Identity::new(key, "test"), interfaces: Arc::default() }
    }

    #[test]
    fn a_measurement_ends_also_where_some_of_its_threads_cannot_be_made() {
        for (made, reason) in [(2, "no address"), (0, "cannot start a thread")] {
            let (sender, ended) = mpsc::channel();
            thread::spawn(move || {
                // No address space has room for such a stack.
                let builder = |number| if number < made { Builder::new() } else { Builder::new().stack_size(1 << 60) };
                let (load, stop) = (NetLoad::Write, AtomicBool::new(false));
                let plan = NetPlan { block: 4096, depth: 4, threads: 4, duration_ms: 10 };
                sender.send(measure_on(builder, &asker(), &[], &Over::Loopback, load, &plan, &stop))
            });
            let measured = ended.recv_timeout(Duration::from_secs(10)).expect("nobody waits for those");
            let failure = measured.failure.expect("it failed");
            assert!(failure.contains(reason), "{failure}");
        }
    }

    #[test]
    fn who_is_at_the_gate_goes_on_when_all_are_there_or_one_never_comes() {
        for is_lost in [false, true] {
            let gate = Gate::of(3);
            let (first, second, third) = (Seat(&gate), Seat(&gate), Seat(&gate));
            let began = thread::scope(|scope| {
                let threads = [first, second].map(|seat| scope.spawn(|| seat.wait()));
                thread::sleep(LOOK);
                assert!(threads.iter().all(|thread| !thread.is_finished()));
                if is_lost {
                    drop(third);
                } else {
                    assert!(third.wait());
                }
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert_eq!(began, [!is_lost; 2]);
        }
    }

    #[test]
    fn one_connection_has_room_for_all_that_is_to_be_in_flight() {
        let asker = asker();
        let (stop, load) = (AtomicBool::new(false), NetLoad::Write);
        for (block, depth) in [(4 << 20, 256), (1 << 20, 128), (1, 1)] {
            let plan = NetPlan { block, depth, threads: 1, duration_ms: 1 };
            let work =
                Work { asker: &asker, lanes: &[], over: &Over::WithinHost, load, plan: &plan, stop: &stop, depth };
            let Limits { requests, bytes, .. } = work.limits();
            assert!(requests >= depth as usize && bytes >= depth as usize * (block as usize + HEADER_LEN));
        }
    }

    #[test]
    fn the_slowest_thread_and_the_first_failure_count() {
        let tally = |ms: u64, failure: Option<&str>| {
            let mut histogram = Histogram::new();
            histogram.note(Duration::from_millis(ms));
            let (elapsed, failure) = (Duration::from_millis(ms), failure.map(str::to_owned));
            Ok(Tally { requests: 1, bytes: 10, elapsed, histogram, failure })
        };
        let measure = sum(vec![tally(10, None), tally(30, Some("one")), Err("other".to_owned())]);
        assert_eq!((measure.requests, measure.bytes, measure.elapsed.as_millis()), (2, 20, 30));
        assert_eq!(measure.failure.as_deref(), Some("one"));
        assert!(measure.p50_ns >= 10_000_000 && measure.p50_ns < 11_000_000, "{measure:?}");
        assert!(measure.max_ns >= 30_000_000, "{measure:?}");
    }
}
