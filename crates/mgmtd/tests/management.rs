//! The management service as its callers see it: over sockets, across restarts, with the wrong key, on the wrong disk.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::capacity::Capacity;
use cluster::event::{Registration, Report, Seen, TargetRegistration};
use cluster::map::{NodeState, Rail, ServiceKind, TargetState};
use control::agent::OnUpdate;
use control::node::Reporter;
use control::{Agent, AgentConfig, Client, ControlError, Update, View, Wanted};
use mgmtd::{Config, Server};
use net::ClusterKey;
use telemetry::metrics::Metrics;
use types::id::{NodeId, PoolId, SessionId, ShardId, TargetId};

const PATIENCE: Duration = Duration::from_secs(10);

/// A directory for one cluster, with its key.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let place = Self { root };
        ClusterKey::generate().expect("entropy").write_file(&place.key_file()).expect("written");
        place
    }

    fn key_file(&self) -> PathBuf {
        self.root.path().join("key")
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("mgmtd")
    }

    fn identity(&self, cluster: &str) -> net::Identity {
        let key = ClusterKey::from_file(&self.key_file()).expect("written above");
        net::Identity { cluster: cluster.to_owned(), incarnation: 1, ..net::Identity::new(key, "test") }
    }

    fn config(&self, set: &[(&'static str, &str)]) -> Config {
        let mut flags = conf::Flags::<Config>::default();
        let defaults = [
            ("dir", self.dir().display().to_string()),
            ("key_file", self.key_file().display().to_string()),
            ("listen", "127.0.0.1:0".to_owned()),
            ("init", "true".to_owned()),
        ];
        for (key, value) in &defaults {
            if !set.iter().any(|(set, _)| set == key) {
                flags.give(key, value);
            }
        }
        for (key, value) in set {
            flags.give(key, value);
        }
        conf::Sources { file: None, environment: &conf::Environment::new(), flags: &flags }.load().expect("valid")
    }

    fn start(&self, set: &[(&'static str, &str)]) -> Server {
        Server::start(&self.config(set), &Metrics::new("test")).expect("it starts")
    }

    fn refusal(&self, set: &[(&'static str, &str)]) -> String {
        let Err(fatal) = Server::start(&self.config(set), &Metrics::new("test")) else { panic!("it started") };
        assert_eq!(fatal.code, 2, "{fatal}");
        assert!(!fatal.message.contains('\n'), "more than a line: {fatal}");
        fatal.message
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    telemetry::runtime::current_thread().expect("a runtime").block_on(future)
}

async fn connect(place: &Place, address: SocketAddr) -> Client {
    Client::connect(&address.to_string(), &place.identity(""), PATIENCE).await.expect("it answers")
}

fn spec(uuid: &str, kind: ServiceKind, targets: &[&str]) -> Registration {
    let target = |uuid: &&str| TargetRegistration {
        uuid: (*uuid).to_owned(),
        id: None,
        path: format!("/{uuid}"),
        ports: vec![1],
        report: Report::default(),
    };
    Registration {
        cluster: String::new(),
        uuid: uuid.to_owned(),
        kind,
        id: None,
        alias: String::new(),
        incarnation: 1,
        rails: vec![Rail { interface: "lo".into(), address: [127, 0, 0, 1].into() }],
        metrics: String::new(),
        targets: targets.iter().map(target).collect(),
    }
}

fn report(free_bytes: u64) -> Report {
    let capacity = Capacity { total_bytes: 1 << 40, free_bytes, total_inodes: 0, free_inodes: 0 };
    Report { capacity, failing: false, empty: false }
}

fn reporter(targets: usize) -> Reporter {
    Box::new(move || vec![report(1 << 39); targets])
}

fn ignore() -> OnUpdate {
    Box::new(|_| {})
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("known").is_dir() {
            copy_dir(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

#[test]
fn ids_survive_a_crash_without_a_close() {
    let place = Place::new();
    let server = place.start(&[]);
    let (before, session) = block_on(async {
        let client = connect(&place, server.address()).await;
        client
            .register_node(&spec("m", ServiceKind::Metadata, &["mt"]), &[report(1)], &View::default())
            .await
            .expect("registered");
        let storage = spec("s", ServiceKind::Storage, &["a", "b"]);
        client.register_node(&storage, &[report(1), report(1)], &View::default()).await.expect("registered");
        client.create_pool("fast").await.expect("a new name");
        let session = client.register_client("test").await.expect("a session");
        (client.view().await.expect("a view"), session)
    });
    // What the disk holds at this moment is what a killed process leaves.
    let image = place.root.path().join("image");
    copy_dir(&place.dir(), &image);
    let restarted = place.start(&[("dir", &image.display().to_string()), ("init", "false")]);
    assert_eq!(restarted.cluster(), server.cluster());
    block_on(async {
        let client = connect(&place, restarted.address()).await;
        assert_eq!(client.view().await.expect("a view").map, before.map);
        let storage = spec("s", ServiceKind::Storage, &["b", "a", "c"]);
        let (registered, view) =
            client.register_node(&storage, &[report(1); 3], &View::default()).await.expect("registered");
        assert_eq!((registered.node, registered.targets), (NodeId(2), vec![TargetId(3), TargetId(2), TargetId(4)]));
        assert_eq!(registered.cluster, server.cluster());
        assert!(view.map.epoch > before.map.epoch);
        assert!(client.register_client("test").await.expect("a session") > session);
    });
}

#[test]
fn a_node_that_runs_takes_up_targets() {
    let place = Place::new();
    let server = place.start(&[("offline_after", "2s")]);
    let start = |uuid: &str, targets: &[&str]| {
        let management = server.address().to_string();
        let config = AgentConfig { management, identity: place.identity(""), rails: None };
        let registration = spec(uuid, ServiceKind::Storage, targets);
        let agent = Agent::start_node(config, registration, reporter(targets.len()), ignore()).expect("a thread");
        agent.registered(Some(PATIENCE)).expect("registered");
        agent
    };
    let (node, _other) = (start("s", &["a"]), start("t", &["x"]));
    let more = |targets: &[&str]| spec("s", ServiceKind::Storage, targets).targets;
    let registered = block_on(node.add_targets(more(&["b", "c"]), reporter(3))).expect("new ones");
    let ids = [1, 3, 4].map(TargetId);
    assert_eq!(registered.targets, ids);
    assert_eq!(node.registered(None), Ok(registered.clone()));
    // A service that could not take them up asks again.
    let again = block_on(node.add_targets(more(&["c", "b"]), reporter(3))).expect("known ones");
    assert_eq!(again, registered);
    // What is refused leaves the node as it was, and known.
    let refused = block_on(node.add_targets(more(&["x"]), reporter(4))).expect_err("it is another node's");
    assert!(refused.code == 2 && refused.message.contains("target"), "{refused}");
    let view = node.wait_view(Some(PATIENCE), |view| Some(view.clone())).expect("a view");
    assert!(ids.iter().all(|id| view.map.targets[id].node == NodeId(1) && !view.map.targets[id].ports.is_empty()));
    // The reports are for all of them from then on, so the space of the new ones is known.
    block_on(async {
        let client = connect(&place, server.address()).await;
        let wanted = Wanted { space: true, ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        let mut view = View::default();
        while !ids.iter().all(|id| view.capacities.contains_key(id)) {
            view = tokio::time::timeout(PATIENCE, watch.next()).await.expect("space of each").expect("a view");
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(node.view().map.nodes[&NodeId(1)].state, NodeState::Online, "its heartbeats go on");

    server.stop().expect("in order");
    // By then it knows that.
    std::thread::sleep(Duration::from_secs(1));
    let failed = block_on(node.add_targets(more(&["d"]), reporter(4))).expect_err("nobody is there");
    assert_eq!(failed.code, 1, "{failed}");
}

/// The way to the management service, of which answers can be lost.
struct Way {
    address: SocketAddr,
    mute: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let way = Self { address, mute: Arc::default(), streams: Arc::default() };
        let (mute, streams) = (Arc::clone(&way.mute), Arc::clone(&way.streams));
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                let (caller, server) = (caller.expect("a caller"), TcpStream::connect(server).expect("it listens"));
                let both = [&caller, &server].map(|stream| stream.try_clone().expect("a descriptor"));
                streams.lock().expect("no panic").extend(both);
                let [back, to] = [&server, &caller].map(|stream| stream.try_clone().expect("a descriptor"));
                let mute = Arc::clone(&mute);
                std::thread::spawn(move || carry(caller, server, &AtomicBool::new(false)));
                std::thread::spawn(move || carry(back, to, &mute));
            }
        });
        way
    }

    fn cut(&self) {
        for stream in self.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mute: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !mute.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn an_addition_whose_answer_is_lost_is_asked_for_until_it_is_known() {
    let place = Place::new();
    let server = place.start(&[]);
    let way = Way::to(server.address());
    let config = AgentConfig { management: way.address.to_string(), identity: place.identity(""), rails: None };
    let agent = Agent::start_node(config, spec("s", ServiceKind::Storage, &["a"]), reporter(1), ignore());
    let node = agent.expect("a thread");
    node.registered(Some(PATIENCE)).expect("registered");
    way.mute.store(true, Ordering::SeqCst);
    let more = spec("s", ServiceKind::Storage, &["b"]).targets;
    let registered = std::thread::scope(|scope| {
        let asking = scope.spawn(|| block_on(node.add_targets(more, reporter(2))));
        let known = block_on(async {
            let client = connect(&place, server.address()).await;
            while !client.view().await.expect("a view").map.targets.contains_key(&TargetId(2)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            client.view().await.expect("a view")
        });
        assert!(!known.map.targets[&TargetId(2)].ports.is_empty());
        way.cut();
        way.mute.store(false, Ordering::SeqCst);
        asking.join().expect("no panic").expect("it is part of the cluster")
    });
    assert_eq!(registered.targets, [1, 2].map(TargetId));
    assert_eq!(node.registered(None), Ok(registered));
    let view = block_on(async { connect(&place, server.address()).await.view().await.expect("a view") });
    assert!(!view.map.targets[&TargetId(2)].ports.is_empty(), "it can be reached");
}

#[test]
fn subscribers_see_changes_and_space() {
    let place = Place::new();
    let server = place.start(&[("offline_after", "2s")]);
    block_on(async {
        let client = connect(&place, server.address()).await;
        let wanted = Wanted { space: true, ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        let first = watch.next().await.expect("the map as it is");
        assert!(first.map.nodes.is_empty() && first.map.pools.contains_key(&PoolId::DEFAULT));
        let storage = spec("s", ServiceKind::Storage, &["a"]);
        let (registered, _) =
            client.register_node(&storage, &[report(1 << 39)], &View::default()).await.expect("registered");
        let mut view = watch.next().await.expect("an update");
        assert_eq!(view.map.nodes[&registered.node].state, NodeState::Online);
        let target = TargetId(1);
        // Space comes beside the map, without an epoch.
        let epoch = view.map.epoch;
        client.heartbeat(registered.node, 1, &[(target, report(1 << 38))]).await.expect("registered");
        while view.capacities.get(&target).is_none_or(|capacity| capacity.free_bytes != 1 << 38) {
            view = tokio::time::timeout(PATIENCE, watch.next()).await.expect("in time").expect("an update");
        }
        assert_eq!(view.map.epoch, epoch);
        // Silence: probably offline, then offline.
        let mut states = Vec::new();
        while states.last() != Some(&NodeState::Offline) {
            let view = tokio::time::timeout(PATIENCE, watch.next()).await.expect("in time").expect("an update");
            states.push(view.map.nodes[&registered.node].state);
        }
        states.dedup();
        assert_eq!(states, [NodeState::ProbablyOffline, NodeState::Offline]);
        // The end of the service ends the subscription, which does not keep it from stopping.
        let started = Instant::now();
        let stopping = tokio::task::spawn_blocking(move || server.stop());
        assert!(matches!(watch.next().await, Err(ControlError::Lost { .. })));
        stopping.await.expect("no panic").expect("in order");
        assert!(started.elapsed() < Duration::from_secs(5), "took {:?} to stop", started.elapsed());
    });
}

#[test]
fn subscribers_are_told_what_differs_from_what_they_know() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound");
    let set = [("listen", &*port.to_string())];
    let server = place.start(&set);
    let known = block_on(async {
        let client = connect(&place, server.address()).await;
        // As many pools as make a map that is much longer than what differs.
        for number in 0..50 {
            client.create_pool(&format!("p{number}")).await.expect("a new name");
        }
        let wanted = Wanted { changes: true, ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        let first = watch.next().await.expect("the map as it is");
        client.create_pool("another").await.expect("a new name");
        let second = watch.next().await.expect("what differs");
        assert_eq!((second.map.pools.len(), first.map.pools.len()), (52, 51));
        assert_eq!(second, client.view().await.expect("a view"));
        // Who comes again with an old one is told what differs as well.
        let wanted = Wanted { changes: true, known: Some(first), ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        assert_eq!(watch.next().await.expect("a view"), second);
        second
    });
    server.stop().expect("in order");
    // After a restart there is nothing to tell, until something changes.
    let server = place.start(&set);
    block_on(async {
        let client = connect(&place, server.address()).await;
        let wanted = Wanted { changes: true, known: Some(known.clone()), ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        assert!(tokio::time::timeout(Duration::from_millis(300), watch.next()).await.is_err(), "nothing has changed");
        client.create_pool("one-more").await.expect("a new name");
        assert_eq!(watch.next().await.expect("a view"), client.view().await.expect("a view"));
        // Nor is there for a service that registers: what is known of the map goes on from there.
        let storage = spec("s", ServiceKind::Storage, &["a"]);
        let now = client.view().await.expect("a view");
        let (_, view) = client.register_node(&storage, &[report(1)], &now).await.expect("registered");
        assert_eq!(view.map, client.view().await.expect("a view").map);
        // One that knows another map under that epoch is told the whole.
        let mut strange = (*known.map).clone();
        strange.pools.remove(&PoolId(2));
        let strange = View::new(strange, Arc::default());
        let (_, view) = client.register_node(&storage, &[report(1)], &strange).await.expect("registered");
        assert_eq!(view.map, client.view().await.expect("a view").map);
        let wanted = Wanted { changes: true, known: Some(strange), ..Wanted::default() };
        let mut watch = client.watch(&Seen::default(), wanted).await.expect("subscribed");
        assert_eq!(watch.next().await.expect("a view").map, client.view().await.expect("a view").map);
    });
}

#[test]
fn strangers_and_other_clusters_are_told_apart() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address().to_string();
    block_on(async {
        let stranger = net::Identity { key: ClusterKey::generate().expect("entropy"), ..place.identity("") };
        let error = Client::connect(&address, &stranger, PATIENCE).await.expect_err("a wrong key was taken");
        assert!(error.is_permanent() && error.to_string().contains("wrong cluster key"), "{error}");
        let error = Client::connect(&address, &place.identity("c-2"), PATIENCE).await.expect_err("taken");
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains(&format!("belongs to cluster {}, not c-2", server.cluster())), "{error}");
        let nobody = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("bound").to_string()
        };
        let error = Client::connect(&nobody, &place.identity(""), PATIENCE).await.expect_err("nobody answered");
        assert!(!error.is_permanent());
        assert!(error.to_string().starts_with(&format!("no mgmtd answers at {nobody}: ")), "{error}");
        // The good ones are served all the same.
        connect(&place, server.address()).await.view().await.expect("a view");
    });
}

#[test]
fn administrators_verbs_work_and_refusals_say_why() {
    let place = Place::new();
    let server = place.start(&[]);
    block_on(async {
        let client = connect(&place, server.address()).await;
        let storage = spec("s", ServiceKind::Storage, &["a"]);
        let (registered, _) = client.register_node(&storage, &[report(1)], &View::default()).await.expect("registered");
        client.set_alias(registered.node, "north").await.expect("free");
        let error = client.set_alias(NodeId(99), "x").await.expect_err("no such node");
        assert_eq!(error, ControlError::Refused("there is no node 99".to_owned()));
        let pool = client.create_pool("fast").await.expect("free");
        let group = *client.view().await.expect("a view").map.groups.keys().next().expect("one");
        client.assign_pool(group, pool).await.expect("there");
        let error = client.remove_pool(pool).await.expect_err("in use");
        assert!(error.to_string().contains("pool fast still has 1 groups"), "{error}");
        let error = client.delete_target(TargetId(1), None).await.expect_err("not empty");
        assert!(error.to_string().contains("not known to be empty"), "{error}");
        let (ours, theirs) = (SessionId(7), SessionId(8));
        let empty = Report { empty: true, ..report(1) };
        client.heartbeat(registered.node, 1, &[(TargetId(1), empty)]).await.expect("registered");
        let deletion = client.delete_target(TargetId(1), None).await.expect("empty");
        assert_eq!((deletion.lines.len(), deletion.heartbeat), (2, Duration::from_secs(2)));
        assert!(client.view().await.expect("a view").map.targets.contains_key(&TargetId(1)), "a dry run");
        let error = client.delete_target(TargetId(1), Some(ours)).await.expect_err("it takes new files");
        assert!(matches!(error, ControlError::Refused(_)), "{error}");
        assert_eq!(client.take_out(TargetId(1), ours).await, Ok(true), "its node decided");
        client.put_back(TargetId(1), None, ours).await.expect("there");
        let view = client.view().await.expect("a view");
        assert_eq!(view.map.targets[&TargetId(1)].state, TargetState::Bad, "until its node says otherwise");
        assert_eq!(client.take_out(TargetId(1), theirs).await, Ok(true));
        let error = client.put_back(TargetId(1), Some(TargetState::Good), ours).await.expect_err("set by another one");
        assert!(matches!(error, ControlError::Refused(_)), "{error}");
        let error = client.delete_target(TargetId(1), Some(ours)).await.expect_err("set by another one");
        assert!(error.to_string().contains("somebody else"), "{error}");
        assert_eq!(client.take_out(TargetId(1), ours).await, Ok(false));
        for _ in 0..2 {
            let error = client.delete_target(TargetId(1), Some(ours)).await.expect_err("its word is old");
            assert!(matches!(error, ControlError::NotHeard(_)), "{error}");
            client.heartbeat(registered.node, 1, &[(TargetId(1), empty)]).await.expect("registered");
        }
        client.delete_target(TargetId(1), Some(ours)).await.expect("empty");
        client.remove_pool(pool).await.expect("empty");
        let view = client.view().await.expect("a view");
        assert!(view.map.targets.is_empty());
        assert_eq!(view.map.nodes[&registered.node].alias, "north");
    });
}

#[test]
fn an_agent_waits_for_mgmtd_and_outlives_its_restart() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound");
    let listen = port.to_string();
    let config = AgentConfig { management: listen.clone(), identity: place.identity(""), rails: None };
    let views = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&views);
    let on_update: OnUpdate = Box::new(move |update| {
        assert!(matches!(update, Update::View(_)), "{update:?}");
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let metadata = spec("m", ServiceKind::Metadata, &["mt"]);
    let agent = Agent::start_node(config.clone(), metadata, reporter(1), on_update).expect("a thread");
    let fatal = agent.registered(Some(Duration::from_millis(200))).expect_err("nobody there");
    assert_eq!(fatal.code, 1);
    assert!(fatal.message.starts_with("no mgmtd answers at "), "{fatal}");

    let set = [("listen", listen.as_str()), ("offline_after", "1s")];
    let server = place.start(&set);
    let started = Instant::now();
    let registered = agent.registered(Some(PATIENCE)).expect("it is there now");
    assert!(started.elapsed() < Duration::from_secs(2), "took {:?} to register", started.elapsed());
    assert_eq!(registered.node, NodeId(1));
    let client = Agent::start_client(config, "test", ignore()).expect("a thread");
    let session = client.session(Some(PATIENCE)).expect("a session");
    client.wait_view(Some(PATIENCE), |view| view.map.route_shard(ShardId(0))).expect("shard 0 is there");
    assert_eq!(client.cluster(), server.cluster());
    // Heartbeats keep it online for several times the limit.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.view().map.nodes[&NodeId(1)].state, NodeState::Online);

    server.stop().expect("in order");
    let _server = place.start(&set);
    let known = client.view().map.epoch;
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.view().map.nodes[&NodeId(1)].state, NodeState::Online, "it has not registered again");
    assert_eq!(agent.registered(Some(PATIENCE)).expect("still").node, NodeId(1));
    assert_eq!(client.session(Some(PATIENCE)).expect("still"), session);
    assert!(client.view().map.epoch >= known);
    assert!(views.load(Ordering::Relaxed) > 0);
    // Its end is noticed.
    drop(agent);
    let offline = |view: &control::View| (view.map.nodes[&NodeId(1)].state == NodeState::Offline).then_some(());
    client.wait_view(Some(PATIENCE), offline).expect("offline at last");
}

#[test]
fn what_is_changed_after_an_old_store_was_restored_reaches_those_who_know_better() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound");
    let listen = port.to_string();
    let set = [("listen", listen.as_str())];
    let server = place.start(&set);
    let backup = place.root.path().join("backup");
    copy_dir(&place.dir(), &backup);
    let config = AgentConfig { management: listen.clone(), identity: place.identity(""), rails: None };
    let client = Agent::start_client(config.clone(), "test", ignore()).expect("a thread");
    let session = client.session(Some(PATIENCE)).expect("a session");
    block_on(async {
        let admin = connect(&place, server.address()).await;
        for name in ["a", "b", "c"] {
            admin.create_pool(name).await.expect("a new name");
        }
    });
    client.wait_view(Some(PATIENCE), |view| (view.map.pools.len() == 4).then_some(())).expect("it watches");
    let seen = client.view().map.epoch;

    server.stop().expect("in order");
    fs::remove_dir_all(place.dir()).expect("removed");
    copy_dir(&backup, &place.dir());
    let server = place.start(&set);
    // Those of whom nobody tells are gone; what comes after them has numbers that nobody had.
    let restored = |view: &control::View| (view.map.pools.len() == 1 && view.map.epoch > seen).then_some(());
    client.wait_view(Some(PATIENCE), restored).expect("it takes the map of the restored store");
    block_on(async {
        let admin = connect(&place, server.address()).await;
        assert_eq!(admin.create_pool("d").await.expect("a new name"), PoolId(5));
    });
    client.wait_view(Some(PATIENCE), |view| view.map.pools.get(&PoolId(5)).map(drop)).expect("it is told");
    let other = Agent::start_client(config, "test", ignore()).expect("a thread");
    assert!(other.session(Some(PATIENCE)).expect("a session") > session);
}

#[test]
fn no_session_comes_again_where_an_old_store_was_restored_and_nobody_is_there_who_had_it() {
    let place = Place::new();
    let session = || {
        let server = place.start(&[]);
        let config =
            AgentConfig { management: server.address().to_string(), identity: place.identity(""), rails: None };
        let client = Agent::start_client(config, "test", ignore()).expect("a thread");
        let session = client.session(Some(PATIENCE)).expect("a session");
        drop(client);
        server.stop().expect("in order");
        session
    };
    let mut last = session();
    let backup = place.root.path().join("backup");
    copy_dir(&place.dir(), &backup);
    for _ in 0..2 {
        // Starts within one second are told apart by the store alone.
        std::thread::sleep(Duration::from_millis(1100));
        let next = session();
        assert!(next > last, "{next} after {last}");
        last = next;
        fs::remove_dir_all(place.dir()).expect("removed");
        copy_dir(&backup, &place.dir());
    }
}

#[test]
fn what_stands_in_mgmtds_place_for_a_while_is_no_reason_to_end() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound");
    let listen = port.to_string();
    let set = [("listen", listen.as_str()), ("offline_after", "1s")];
    let server = place.start(&set);
    let config = AgentConfig { management: listen.clone(), identity: place.identity(""), rails: None };
    let node = spec("s", ServiceKind::Storage, &["a"]);
    let never_refused = || -> OnUpdate { Box::new(|update| assert!(matches!(update, Update::View(_)), "{update:?}")) };
    let agent = Agent::start_node(config.clone(), node, reporter(1), never_refused()).expect("a thread");
    agent.registered(Some(PATIENCE)).expect("registered");
    let client = Agent::start_client(config, "test", never_refused()).expect("a thread");
    client.wait_view(Some(PATIENCE), |view| view.map.nodes.contains_key(&NodeId(1)).then_some(())).expect("a view");

    server.stop().expect("in order");
    let stranger = TcpListener::bind(port).expect("free again");
    // Both agents, more than once.
    for _ in 0..6 {
        let (mut caller, _) = stranger.accept().expect("a caller");
        caller.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").expect("written");
    }
    drop(stranger);

    let server = place.start(&set);
    block_on(async { connect(&place, server.address()).await.create_pool("new").await.expect("free") });
    let again = |view: &control::View| {
        let online = view.map.nodes[&NodeId(1)].state == NodeState::Online;
        (online && view.map.pools.len() == 2).then_some(())
    };
    client.wait_view(Some(PATIENCE), again).expect("the client watches again");
    // It would be offline by now.
    std::thread::sleep(Duration::from_millis(2500));
    client.wait_view(Some(PATIENCE), again).expect("the node has registered again");
    assert!(agent.registered(None).is_ok() && client.session(None).is_ok());
}

#[test]
fn an_agent_that_is_refused_for_good_ends_with_exit_code_2() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address().to_string();
    let (sender, updates) = std::sync::mpsc::channel();
    let tell: OnUpdate = Box::new(move |update| drop(sender.send(update)));
    let config = AgentConfig { management: address.clone(), identity: place.identity("c-2"), rails: None };
    let node = spec("s", ServiceKind::Storage, &["a"]);
    let agent = Agent::start_node(config, node.clone(), reporter(1), tell).expect("a thread");
    let fatal = agent.registered(Some(PATIENCE)).expect_err("another cluster");
    assert_eq!(fatal.code, 2);
    assert_eq!(updates.recv_timeout(PATIENCE), Ok(Update::Refused(fatal)));

    let config = AgentConfig { management: address, identity: place.identity(""), rails: None };
    let first = Agent::start_node(config.clone(), node.clone(), reporter(1), ignore()).expect("a thread");
    first.registered(Some(PATIENCE)).expect("taken");
    let alias = first.registered(None).expect("known").alias;
    let clash = Registration { alias: alias.clone(), ..spec("t", ServiceKind::Storage, &["b"]) };
    let second = Agent::start_node(config, clash, reporter(1), ignore()).expect("a thread");
    let fatal = second.registered(Some(PATIENCE)).expect_err("the alias is taken");
    assert_eq!((fatal.code, fatal.message), (2, format!("the alias {alias} belongs to node 1: choose another one")));
}

#[test]
fn what_is_wrong_at_the_start_is_one_line_and_changes_nothing() {
    let place = Place::new();
    assert!(place.refusal(&[("init", "false")]).contains("does not exist"));
    assert!(place.refusal(&[("key_file", "/nonexistent")]).contains("/nonexistent"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("free");
    let address = taken.local_addr().expect("bound").to_string();
    assert!(place.refusal(&[("listen", &address)]).contains(&format!("{address} is in use")));
    assert!(!place.dir().exists(), "a start that failed has left something");

    let server = place.start(&[]);
    assert!(place.refusal(&[]).contains("another service (pid "));
    let cluster = server.cluster().to_owned();
    server.stop().expect("in order");

    let other = Place::new();
    let server = other.start(&[]);
    server.stop().expect("in order");
    let (store, aside) = (place.dir().join("store"), place.root.path().join("aside"));
    fs::rename(&store, &aside).expect("moved");
    let text = place.refusal(&[]);
    assert!(text.contains(&format!("is gone, which held cluster {cluster}")), "{text}");
    copy_dir(&other.dir().join("store"), &store);
    assert!(place.refusal(&[]).contains(&format!("belongs to cluster {cluster}, but")));
    fs::remove_dir_all(&store).expect("removed");
    copy_dir(&aside, &store);
    for entry in fs::read_dir(&store).expect("readable") {
        let path = entry.expect("readable").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST")) {
            fs::write(path, b"nonsense").expect("written");
        }
    }
    let text = place.refusal(&[]);
    assert!(text.contains("store: "), "{text}");
    // With the old store all is as it was.
    fs::remove_dir_all(&store).expect("removed");
    fs::rename(&aside, &store).expect("moved");
    assert_eq!(place.start(&[("init", "false")]).cluster(), cluster);
}
