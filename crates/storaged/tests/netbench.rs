//! NetBench against real lanes: what it counts, what it leaves alone, and how it ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use net::bench::{Asker, Over, measure, ways};
use net::{CallError, ClusterKey, Connection, Identity, Limits, To};
use ring::buf::{Buf, Slice};
use storaged::local::{LocalConfig, LocalNode};
use types::error::Errno;
use types::id::{GroupId, InodeId, NodeId, ObjectId};
use wire::frame::Status;
use wire::v1::netbench::{BLOCK_MAX, NetLoad, NetPlan, NetRead, NetStart, NetStatus, NetStop, NetWrite};
use wire::v1::storage::{Read, Write};

const GROUP: GroupId = GroupId(1);

fn identity() -> Identity {
    let key = ClusterKey::from_bytes([7; 32]);
    Identity::new(key, "test")
}

fn asker() -> Asker {
    Asker { identity: identity(), interfaces: Arc::default() }
}

fn start(dir: &Path) -> (LocalNode, Vec<Vec<SocketAddr>>) {
    let mut config = LocalConfig::new(vec![dir.to_path_buf()], identity().key);
    config.lanes = 2;
    let node = LocalNode::start(&config).expect("it starts");
    let id = node.map().nodes.keys().next().copied().expect("a node");
    let lanes = node.map().lanes(id);
    assert_eq!(lanes.len(), 2);
    (node, lanes)
}

fn on_ring(test: impl Future<Output = ()>) {
    ring::Ring::new(&ring::Config::default()).expect("io_uring is there").run(test);
}

/// All files with their lengths.
fn files(dir: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).expect("readable") {
            let entry = entry.expect("readable");
            let attr = entry.metadata().expect("there");
            if attr.is_dir() {
                open.push(entry.path());
            } else {
                found.insert(entry.path().display().to_string(), attr.len());
            }
        }
    }
    found
}

#[test]
fn loads_are_counted_and_leave_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_node, lanes) = start(dir.path());
    let before = files(dir.path());
    let over = &ways(&lanes, &[])[0];
    assert_eq!(*over, Over::WithinHost);
    let plan = NetPlan { block: 96 << 10, depth: 8, threads: 2, duration_ms: 300 };
    for load in [NetLoad::Ping, NetLoad::Write, NetLoad::Read] {
        let measured = measure(&asker(), &lanes, over, load, &plan, &AtomicBool::new(false));
        assert_eq!(measured.failure, None, "{load:?}");
        let each = if load == NetLoad::Ping { 0 } else { u64::from(plan.block) };
        assert!(measured.requests > 0 && measured.bytes == measured.requests * each, "{load:?}: {measured:?}");
        let least = if load == NetLoad::Ping { 55 } else { 290 };
        assert!(measured.elapsed >= Duration::from_millis(least), "{load:?}: {measured:?}");
        assert!(0 < measured.p50_ns && measured.p50_ns <= measured.p99_ns && measured.p99_ns <= measured.max_ns);
    }
    assert_eq!(files(dir.path()), before);
}

/// Nothing that is stored is touched, whatever the header of such a request says.
#[test]
fn stored_bytes_are_as_they_were() {
    let dir = tempfile::tempdir().expect("a directory");
    let (node, lanes) = start(dir.path());
    on_ring(async {
        let object = ObjectId { inode: InodeId(42), stripe: 0 };
        let address = lanes[object.lane(2)][0];
        let connection = Connection::connect(address, &identity(), &Limits::default()).await.expect("connected");
        let (map, stored) = (node.map(), b"what a program wrote".to_vec());
        let to = To { group: GROUP, generation: map.groups[&GROUP].generation, epoch: map.epoch };
        let write = Write::new(object, 0);
        while let Err(error) = connection.call_payload(to, &write, vec![Slice::from_vec(stored.clone())], None).await {
            assert_eq!(error, CallError::Status(Status::StaleMap), "until it has its map");
            ring::sleep(Duration::from_millis(1)).await;
        }
        for to in [to, To::default()] {
            let payload = vec![Slice::from_vec(vec![0xff; 100_000])];
            let written = connection.call_payload(to, &NetWrite {}, payload, None).await.expect("forgotten");
            assert_eq!(written.message.length, 100_000);
            let into = Some(Buf::with_capacity(5_000));
            let read = connection.call_payload(to, &NetRead { length: 5_000 }, Vec::new(), into).await.expect("read");
            assert_eq!(read.payload.len(), 5_000);
            assert!(!read.payload.windows(4).any(|window| window == b"what"), "from memory");
        }
        let into = Some(Buf::with_capacity(100));
        let read = Read { object, offset: 0, length: 100 };
        let answer = connection.call_payload(to, &read, Vec::new(), into).await.expect("it is there");
        assert_eq!(answer.payload.to_vec(), stored);
    });
}

#[test]
fn too_long_reads_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_node, lanes) = start(dir.path());
    on_ring(async {
        let connection = Connection::connect(lanes[0][0], &identity(), &Limits::default()).await.expect("connected");
        let refused = connection.call(To::default(), &NetRead { length: BLOCK_MAX + 1 }).await.expect_err("too long");
        assert_eq!(refused, CallError::Status(Status::Errno(Errno::EINVAL)));
        let into = Some(Buf::with_capacity(BLOCK_MAX as usize));
        let longest = NetRead { length: BLOCK_MAX };
        let answer = connection.call_payload(To::default(), &longest, Vec::new(), into).await.expect("allowed");
        assert_eq!(answer.payload.len(), BLOCK_MAX as usize);
    });
}

#[test]
fn a_server_that_dies_ends_the_measurement_with_a_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let (node, lanes) = start(dir.path());
    let plan = NetPlan { block: 64 << 10, depth: 4, threads: 2, duration_ms: 30_000 };
    let begin = Instant::now();
    let measured = thread::scope(|scope| {
        let measuring = scope
            .spawn(|| measure(&asker(), &lanes, &Over::WithinHost, NetLoad::Write, &plan, &AtomicBool::new(false)));
        thread::sleep(Duration::from_millis(300));
        node.stop().expect("it stops");
        measuring.join().expect("no panic")
    });
    let failure = measured.failure.expect("it failed");
    assert!(failure.contains("127.0.0.1:"), "{failure}");
    assert!(begin.elapsed() < Duration::from_secs(15), "it ended at once");
    assert!(measured.requests > 0);
    let nobody = measure(&asker(), &lanes, &Over::WithinHost, NetLoad::Read, &plan, &AtomicBool::new(false));
    assert!(nobody.failure.is_some_and(|failure| failure.contains("127.0.0.1:")));
}

#[test]
fn a_measurement_that_is_stopped_ends_soon() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_node, lanes) = start(dir.path());
    let plan = NetPlan { block: 4096, depth: 4, threads: 1, duration_ms: 60_000 };
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let measured = thread::scope(|scope| {
        let measuring = scope.spawn(|| measure(&asker(), &lanes, &Over::WithinHost, NetLoad::Read, &plan, &stop));
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        measuring.join().expect("no panic")
    });
    assert_eq!(measured.failure.as_deref(), Some("stopped"));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

/// A node that is told to measure does so by itself, one run at a time.
#[test]
fn a_node_measures_when_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_node, lanes) = start(dir.path());
    on_ring(async {
        let connection = Connection::connect(lanes[1][0], &identity(), &Limits::default()).await.expect("connected");
        let to = To::default();
        let plan = NetPlan { block: 4096, depth: 2, threads: 1, duration_ms: 200 };
        let request = NetStart { run: 7, plan, nodes: vec![NodeId(1)] };
        let begin = Instant::now();
        // Until it has its map.
        while !connection.call(to, &request).await.expect("answered").refused.0.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            ring::sleep(Duration::from_millis(1)).await;
        }
        let again = connection.call(to, &NetStart { run: 8, ..request.clone() }).await.expect("answered");
        assert!(String::from_utf8_lossy(&again.refused.0).contains("busy"), "{again:?}");
        let run = loop {
            let run = connection.call(to, &NetStatus {}).await.expect("answered").run.expect("there is one");
            if !run.under_way {
                break run;
            }
            assert!(begin.elapsed() < Duration::from_secs(20));
            ring::sleep(Duration::from_millis(5)).await;
        };
        let loads: Vec<_> = run.measures.iter().map(|measure| measure.load).collect();
        assert_eq!(loads, [NetLoad::Ping, NetLoad::Write, NetLoad::Read], "{run:?}");
        assert!(run.measures.iter().all(|measure| measure.failure.0.is_empty() && measure.requests > 0));
        let long = NetPlan { duration_ms: 60_000, ..request.plan.clone() };
        connection.call(to, &NetStart { run: 9, plan: long, ..request }).await.expect("answered");
        connection.call(to, &NetStop { run: 9 }).await.expect("answered");
        let begin = Instant::now();
        while connection.call(to, &NetStatus {}).await.expect("answered").run.expect("there").under_way {
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not stop");
            ring::sleep(Duration::from_millis(5)).await;
        }
    });
}
