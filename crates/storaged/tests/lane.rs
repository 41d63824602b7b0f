//! Lanes over loopback connections, with real directories: what a client core sees.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use net::{CallError, ClusterKey, Connection, Identity, Limits, To};
use ring::buf::{Buf, Slice};
use storaged::local::{LocalConfig, LocalNode};
use telemetry::names;
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId, ObjectId};
use types::time::Timestamp;
use wire::frame::Status;
use wire::op::Call;
use wire::v1::scrub::{ScrubStart, ScrubStatus};
use wire::v1::storage::{List, ObjectReply, Place, Read, Remove, Stat, Sync, TargetStat, Truncate, Write, WriteReply};

const GROUP: GroupId = GroupId(1);

fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

fn on_ring(test: impl Future<Output = ()>) {
    ring::Ring::new(&ring::Config::default()).expect("io_uring is there").run(test);
}

fn start(dir: &Path) -> LocalNode {
    start_with(dir, |_| {})
}

fn start_with(dir: &Path, change: impl FnOnce(&mut LocalConfig)) -> LocalNode {
    let mut config = LocalConfig::new(vec![dir.to_path_buf()], key());
    change(&mut config);
    LocalNode::start(&config).expect("it starts")
}

fn object(inode: u64) -> ObjectId {
    ObjectId { inode: InodeId(inode), stripe: 0 }
}

type Outcome = std::pin::Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// A client that knows the map and keeps a connection to each lane.
struct Client {
    lanes: Vec<Connection>,
    to: To,
}

impl Client {
    async fn connect(node: &LocalNode) -> Self {
        let map = node.map();
        let lanes = map.targets.values().next().expect("a target").ports.len();
        let identity = Identity::new(key(), "test");
        let mut connections = Vec::new();
        for lane in 0..lanes {
            let address = map.route_lane(GROUP, lane).expect("routed").addresses[0];
            connections.push(Connection::connect(address, &identity, &Limits::default()).await.expect("connected"));
        }
        let to = To { group: GROUP, generation: map.groups[&GROUP].generation, epoch: map.epoch };
        let client = Self { lanes: connections, to };
        // The lane learns of its map a moment after it serves.
        while client.call(object(1), &Stat { objects: Vec::new() }).await == Err(Status::StaleMap) {
            ring::sleep(Duration::from_millis(1)).await;
        }
        client
    }

    fn lane(&self, object: ObjectId) -> &Connection {
        &self.lanes[object.lane(self.lanes.len())]
    }

    async fn call<C: Call>(&self, object: ObjectId, request: &C) -> Result<C::Reply, Status> {
        self.lane(object).call(self.to, request).await.map_err(status)
    }

    async fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<WriteReply, Status> {
        self.write_version(object, offset, data, 0).await
    }

    async fn write_version(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        unchanged_since: u64,
    ) -> Result<WriteReply, Status> {
        let request =
            Write { object, offset, unchanged_since, at: Timestamp(0), not_before: Timestamp(0), durable: false };
        let payload = vec![Slice::from_vec(data.to_vec())];
        let answer = self.lane(object).call_payload(self.to, &request, payload, None).await;
        answer.map(|answer| answer.message).map_err(status)
    }

    async fn read(&self, object: ObjectId, offset: u64, length: u32) -> Result<(ObjectReply, Vec<u8>), Status> {
        let request = Read { object, offset, length };
        let into = Some(Buf::with_capacity(length as usize));
        let answer = self.lane(object).call_payload(self.to, &request, Vec::new(), into).await.map_err(status)?;
        Ok((answer.message, answer.payload.to_vec()))
    }
}

fn status(error: CallError) -> Status {
    match error {
        CallError::Status(status) => status,
        other => panic!("{other}"),
    }
}

fn errno(errno: Errno) -> Status {
    Status::Errno(errno)
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

#[test]
fn what_a_full_queue_refuses_may_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start_with(dir.path(), |config| config.queue_depth = 1);
    on_ring(async {
        let client = Rc::new(Client::connect(&node).await);
        let all = |inode| client.write(object(inode), 0, b"data");
        assert!(ring::join_all((1..=10).map(all)).await.iter().all(Result::is_ok));
        let sync = async |inode: u64| client.call(object(inode), &Sync { object: object(inode), since: 0 }).await;
        let outcomes = ring::join_all((0..200).map(|n| sync(1 + n % 10))).await;
        let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert!(done.len() >= 16, "{} were taken", done.len());
        assert!(!refused.is_empty() && refused.iter().all(|outcome| *outcome == Err(Status::Busy)), "{refused:?}");
        while sync(1).await == Err(Status::Busy) {
            ring::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.read(object(1), 0, 4).await.map(|(_, data)| data), Ok(b"data".to_vec()));
    });
    node.stop().expect("it stops");
}

#[test]
fn many_writes_and_reads_in_flight_keep_every_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start_with(dir.path(), |config| (config.lanes, config.open_files_max) = (2, 16));
    on_ring(async {
        let client = Rc::new(Client::connect(&node).await);
        // Pieces of 64 objects, of lengths around the limit for writes in place, all at once.
        let piece = |inode: u64, n: u64| {
            (n * 100_000, bytes(1 + ((inode * 7 + n * 13_337) % 99_000) as usize, inode * 100 + n))
        };
        let writes = (0..64u64).flat_map(|inode| (0..6u64).map(move |n| (inode, n)));
        let outcomes = ring::join_all(writes.clone().map(|(inode, n)| {
            let (client, (offset, data)) = (Rc::clone(&client), piece(inode, n));
            async move { client.write(object(inode), offset, &data).await }
        }))
        .await;
        assert!(outcomes.iter().all(Result::is_ok));
        let reads = ring::join_all(writes.map(|(inode, n)| {
            let client = Rc::clone(&client);
            let (offset, data) = piece(inode, n);
            async move { client.read(object(inode), offset, data.len() as u32).await.expect("read").1 == data }
        }))
        .await;
        assert!(reads.iter().all(|same| *same));
        for inode in 0..64 {
            client.call(object(inode), &Sync { object: object(inode), since: 0 }).await.expect("synced");
        }
    });
    node.stop().expect("it stops");
}

#[test]
fn overlapping_writes_take_effect_in_the_order_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Rc::new(Client::connect(&node).await);
        for round in 0..20u8 {
            let writes = (0..32u8).map(|n| {
                let client = Rc::clone(&client);
                // Large and small ones take different ways to the disk.
                let len = if n % 2 == 0 { 200_000 } else { 5000 };
                async move { client.write(object(5), 0, &vec![round ^ n; len]).await.expect("written").version }
            });
            let versions = ring::join_all(writes).await;
            assert!(versions.is_sorted() && versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
            let (_, data) = client.read(object(5), 0, 200_000).await.expect("read");
            assert!(data[..5000].iter().all(|&b| b == round ^ 31), "the last write is not on top");
            assert!(data[5000..].iter().all(|&b| b == round ^ 30));
        }
    });
    node.stop().expect("it stops");
}

#[test]
fn objects_have_the_time_of_modification_that_a_write_brings() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Client::connect(&node).await;
        for at in [Timestamp(-1), Timestamp(1_100_000_000_123_456_789), Timestamp(1_200_000_000_000_000_000)] {
            let (object, not_before) = (object(1), Timestamp(0));
            let request = Write { object, offset: 0, unchanged_since: 0, at, not_before, durable: false };
            let data = vec![Slice::from_vec(b"data".to_vec())];
            client.lane(object).call_payload(client.to, &request, data, None).await.expect("written");
            let reply = client.call(object, &Stat { objects: vec![object] }).await.expect("there");
            assert_eq!((reply.objects[0].mtime, reply.objects[0].size), (at, 4));
        }
        client.write(object(1), 0, b"now").await.expect("written");
        let reply = client.call(object(1), &Stat { objects: vec![object(1)] }).await.expect("there");
        assert!(reply.objects[0].mtime > Timestamp(1_700_000_000_000_000_000), "of its own");
        // The earliest that it may be, before and after what the host's clock says.
        for not_before in [reply.objects[0].mtime, Timestamp(i64::MAX / 2)] {
            let (object, at) = (object(1), Timestamp(0));
            let request = Write { object, offset: 0, unchanged_since: 0, at, not_before, durable: false };
            let data = vec![Slice::from_vec(b"data".to_vec())];
            client.lane(object).call_payload(client.to, &request, data, None).await.expect("written");
            let after = client.call(object, &Stat { objects: vec![object] }).await.expect("there");
            assert!(after.objects[0].mtime >= not_before, "{not_before:?}");
            let is_set = after.objects[0].mtime == not_before;
            assert_eq!(is_set, not_before == Timestamp(i64::MAX / 2), "{not_before:?}");
        }
    });
    node.stop().expect("it stops");
}

#[test]
fn a_write_of_nothing_is_refused_and_gives_no_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Client::connect(&node).await;
        client.write(object(1), 0, b"data").await.expect("written");
        for at in [0, 2, 1 << 20] {
            assert_eq!(client.write(object(1), at, b"").await, Err(errno(Errno::EINVAL)));
        }
        assert_eq!(client.read(object(1), 0, 100).await.map(|(reply, data)| (reply.size, data.len())), Ok((4, 4)));
    });
    node.stop().expect("it stops");
}

#[test]
fn a_sparse_object_is_gone_over_in_no_time() {
    const SIZE: u64 = 1 << 40;
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Client::connect(&node).await;
        client.write(object(1), 0, &bytes(700_000, 1)).await.expect("written");
        client.write(object(1), SIZE - 5, b"end of").await.expect("written");
        let started = client.call(object(1), &ScrubStart { run: 1, rate: 0, targets: 1 }).await.expect("answered");
        assert!(started.refused.0.is_empty());
        for _ in 0..2000 {
            let run = client.call(object(1), &ScrubStatus {}).await.expect("answered").run.expect("there is one");
            if !run.running {
                assert_eq!((run.bytes, run.bytes_total, run.corrupt), (SIZE + 1, SIZE + 1, 0));
                return;
            }
            ring::sleep(Duration::from_millis(5)).await;
        }
        panic!("it looks at holes");
    });
    node.stop().expect("it stops");
}

#[test]
fn versions_rise_and_guard_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    let last = std::cell::Cell::new(0);
    on_ring(async {
        let client = Client::connect(&node).await;
        let first = client.write(object(1), 0, b"one").await.expect("written").version;
        let second = client.write_version(object(1), 0, b"two", first).await.expect("the version is right").version;
        assert!(second > first);
        assert_eq!(client.write_version(object(1), 0, b"bad", first).await, Err(errno(Errno::ESTALE)));
        let (reply, data) = client.read(object(1), 0, 10).await.expect("read");
        assert_eq!((reply, &data[..]), (ObjectReply { version: second, size: 3 }, &b"two"[..]));
        let cut = Truncate { object: object(1), size: 1, unchanged_since: first };
        assert_eq!(client.call(object(1), &cut).await, Err(errno(Errno::ESTALE)));
        let cut = Truncate { unchanged_since: second, ..cut };
        last.set(client.call(object(1), &cut).await.expect("cut").version);
        // Of whatever object of the lane: that says that another one was not there.
        let lane = |object: ObjectId| object.lane(client.lanes.len());
        let other = (2..).map(object).find(|&other| lane(other) == lane(object(1))).expect("one of the lane");
        client.write_version(other, 0, b"new", last.get()).await.expect("it was not changed since");
        assert_eq!(client.write_version(other, 0, b"bad", last.get()).await, Err(errno(Errno::ESTALE)));
    });
    node.stop().expect("it stops");
    let node = start_with(dir.path(), |config| config.incarnation = 2);
    on_ring(async {
        let client = Client::connect(&node).await;
        let (reply, data) = client.read(object(1), 0, 10).await.expect("read");
        assert_eq!(data, b"t", "a restart keeps data");
        assert!(reply.version > last.get(), "a restart raises versions");
    });
    node.stop().expect("it stops");
}

/// What was acknowledged and not synced when the host lost its memory is not said to be on the disk; a stop and a kill lose
/// nothing.
#[test]
fn what_the_hosts_memory_had_is_known_to_be_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = |incarnation| start_with(dir.path(), |config| config.incarnation = incarnation);
    // As after another boot.
    let lose_memory = || {
        let path = dir.path().join("written.toml");
        let text = std::fs::read_to_string(&path).expect("there");
        let line = text.lines().find(|line| line.starts_with("epoch")).expect("an epoch");
        std::fs::write(&path, text.replace(line, "epoch = \"another\"")).expect("written");
    };
    let write = |node: &LocalNode, since: Option<u64>| {
        let version = Cell::new(0);
        on_ring(async {
            let client = Client::connect(node).await;
            if let Some(since) = since {
                let reply = client.call(object(1), &Sync { object: object(1), since }).await.expect("synced");
                version.set(u64::from(reply.lost));
            } else {
                version.set(client.write(object(1), 0, b"bytes").await.expect("written").version);
            }
        });
        version.get()
    };
    let sync = |node: &LocalNode, since| write(node, Some(since)) == 1;

    let node = start(1);
    let first = write(&node, None);
    assert!(!sync(&node, first));
    node.stop().expect("it stops");
    lose_memory();
    let node = start(2);
    assert!(!sync(&node, first), "all was written when it stopped");
    let second = write(&node, None);
    drop(node);
    let node = start(3);
    assert!(!sync(&node, second), "killed: the kernel has it");
    drop(node);
    lose_memory();
    let node = start(4);
    assert!(sync(&node, second) && sync(&node, first) && !sync(&node, 0));
    let third = write(&node, None);
    assert!(!sync(&node, third));
    node.stop().expect("it stops");
    let node = start(5);
    assert!(sync(&node, second) && !sync(&node, third), "what is lost stays so");
    node.stop().expect("it stops");
}

#[test]
fn removed_objects_are_gone_and_refuse_late_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Rc::new(Client::connect(&node).await);
        for inode in 1..=3 {
            client.write(object(inode), 0, &bytes(3 << 20, inode)).await.expect("written");
        }
        // Writes before it in the queue are removed with the rest; those after it are refused.
        let calls: Vec<Outcome> = vec![
            Box::pin({
                let client = Rc::clone(&client);
                async move { client.write(object(1), 0, &bytes(1 << 20, 9)).await.map(drop) }
            }),
            Box::pin({
                let client = Rc::clone(&client);
                async move { client.call(object(1), &Remove { object: object(1) }).await.map(drop) }
            }),
            Box::pin({
                let client = Rc::clone(&client);
                async move { client.write(object(1), 0, b"late").await.map(drop) }
            }),
        ];
        assert_eq!(ring::join_all(calls).await, [Ok(()), Ok(()), Err(errno(Errno::ESTALE))]);
        client.call(object(1), &Remove { object: object(1) }).await.expect("removed again");
        client.call(object(77), &Remove { object: object(77) }).await.expect("never was there");
        assert_eq!(client.write(object(77), 0, b"late").await, Err(errno(Errno::ESTALE)));
        let cut = Truncate { object: object(1), size: 5, unchanged_since: 0 };
        assert_eq!(client.call(object(1), &cut).await, Err(errno(Errno::ESTALE)));
        client.call(object(1), &Sync { object: object(1), since: 0 }).await.expect("nothing to sync");
        assert_eq!(client.read(object(1), 0, 10).await.expect("empty").1, b"");
        let stats = client.call(object(1), &Stat { objects: vec![object(1), object(2)] }).await.expect("told").objects;
        assert_eq!((stats[0].exists, stats[1].exists, stats[1].size), (false, true, 3 << 20));
        assert!(stats[1].blocks >= 3 << 11 && stats[1].mtime.0 > 0);
        let place = client.call(object(2), &Place { object: object(2) }).await.expect("told");
        let path = String::from_utf8(place.path.0).expect("plain path");
        assert!(place.exists);
        assert_eq!(std::fs::read(path).expect("a plain file"), bytes(3 << 20, 2));
        let page = client.call(object(1), &List { after: None, count: 100 }).await.expect("listed");
        assert_eq!(
            (page.objects.iter().map(|o| o.object).collect::<Vec<_>>(), page.end),
            (vec![object(2), object(3)], true)
        );
    });
    node.stop().expect("it stops");
}

#[test]
fn strangers_generations_and_lanes_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = start_with(dir.path(), |config| config.lanes = 2);
    on_ring(async {
        let mut client = Client::connect(&node).await;
        let good = client.to;
        for to in [To { group: GroupId(99), ..good }, To { generation: Generation(2), ..good }] {
            client.to = to;
            assert_eq!(client.write(object(1), 0, b"x").await, Err(Status::StaleMap));
        }
        client.to = good;
        let elsewhere = (1..).map(object).find(|o| o.lane(2) != object(1).lane(2)).expect("two lanes");
        assert_eq!(client.call(object(1), &Remove { object: elsewhere }).await, Err(Status::StaleMap));
        assert_eq!(client.call(object(1), &Stat { objects: vec![object(1), elsewhere] }).await, Err(Status::StaleMap));
        client.write(object(1), 0, b"x").await.expect("written");
        let stat = client.call(object(1), &TargetStat { group: GROUP }).await.expect("told");
        assert!(stat.total_bytes > stat.free_bytes && stat.free_bytes > 0 && stat.total_inodes > 0);
        // A new generation: the old one is refused from some moment on, the new one taken.
        node.change_map(|map| map.groups.get_mut(&GROUP).expect("there").generation = Generation(2));
        while client.write(object(1), 0, b"y").await.is_ok() {
            ring::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.write(object(1), 0, b"y").await, Err(Status::StaleMap));
        client.to = To { generation: Generation(2), epoch: Epoch(2), ..good };
        client.write(object(1), 0, b"z").await.expect("written");
        assert_eq!(client.read(object(1), 0, 9).await.expect("read").1, b"z");
    });
    node.stop().expect("it stops");
}

#[test]
fn bytes_that_are_refused_are_not_counted_as_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path());
    on_ring(async {
        let client = Client::connect(&node).await;
        let written = || node.metrics().counter(&names::WRITTEN_BYTES, &["1"]).get();
        let first = client.write(object(1), 0, b"first").await.expect("written").version;
        client.write(object(1), 0, b"second").await.expect("written");
        assert_eq!(written(), 11);
        assert_eq!(client.write_version(object(1), 0, b"bad", first).await, Err(errno(Errno::ESTALE)));
        assert_eq!(written(), 11);
    });
    node.stop().expect("it stops");
}

/// Else no mount could say how much space there is on the other targets.
#[test]
fn a_target_that_is_away_has_no_space_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, away) = (dir.path().join("target"), dir.path().join("away"));
    std::fs::create_dir(&path).expect("made");
    let node = start(&path);
    on_ring(async {
        let client = Client::connect(&node).await;
        let free = async || client.call(object(1), &TargetStat { group: GROUP }).await.map(|stat| stat.free_bytes);
        assert!(free().await.expect("told") > 0);
        std::fs::rename(&path, &away).expect("moved");
        assert!(!node.probe());
        assert_eq!(client.read(object(1), 0, 1).await.err(), Some(errno(Errno::EIO)));
        assert_eq!(free().await, Ok(0));
        std::fs::rename(&away, &path).expect("moved back");
        assert!(node.probe() && free().await.expect("told") > 0);
    });
    node.stop().expect("it stops");
}

#[test]
fn no_space_is_told_and_passes() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start_with(dir.path(), |config| config.reserve = u64::MAX);
    on_ring(async {
        let client = Client::connect(&node).await;
        assert_eq!(client.write(object(1), 0, b"x").await, Err(errno(Errno::ENOSPC)));
        let cut = Truncate { object: object(1), size: 1 << 40, unchanged_since: 0 };
        client.call(object(1), &cut).await.expect("a hole needs no space");
        client.call(object(1), &Remove { object: object(1) }).await.expect("removed");
    });
    node.stop().expect("it stops");
}

/// Random operations on a few objects from many tasks at once; each task owns a part of each object, so that its own
/// reads can be checked against its own model while others work next to it.
#[test]
fn random_operations_match_a_model() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start_with(dir.path(), |config| (config.lanes, config.open_files_max) = (2, 3));
    on_ring(async {
        let client = Rc::new(Client::connect(&node).await);
        let tasks = (0..8u64).map(|task| {
            let client = Rc::clone(&client);
            async move {
                let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
                let mut state = task + 1;
                let mut random = |below: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % below
                };
                const PART: u64 = 1 << 20;
                for step in 0..150 {
                    let inode = random(6);
                    let part = model.entry(inode).or_insert_with(|| vec![0; PART as usize]);
                    let offset = random(PART - 1);
                    let len = 1 + random((PART - offset).min(if step % 3 == 0 { 300_000 } else { 9000 }));
                    let range = offset as usize..(offset + len) as usize;
                    let base = task * PART;
                    match random(10) {
                        0..5 => {
                            let data = bytes(len as usize, random(1 << 30));
                            client.write(object(inode), base + offset, &data).await.expect("written");
                            part[range].copy_from_slice(&data);
                        }
                        5..9 => {
                            let mut data = client.read(object(inode), base + offset, len as u32).await.expect("read").1;
                            data.resize(len as usize, 0);
                            assert!(data == part[range], "task {task}, step {step}, object {inode}, {offset}+{len}");
                        }
                        _ => drop(
                            client
                                .call(object(inode), &Sync { object: object(inode), since: 0 })
                                .await
                                .expect("synced"),
                        ),
                    }
                }
            }
        });
        ring::join_all(tasks).await;
    });
    node.stop().expect("it stops");
}
