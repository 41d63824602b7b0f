//! A peer that goes away and comes back.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use net::{CallError, ConnectError, Connection, Limits, Peer, To};
use telemetry::metrics::Metrics;
use wire::op::Ping;

use crate::common::{Running, identity, identity_of, run, serve, serve_at, until};

fn peer(addresses: Vec<SocketAddr>) -> Rc<Peer> {
    Rc::new(Peer::new(addresses, Rc::new(identity()), Limits::default()))
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What all tests of this program are counted into; each has an address of its own.
static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
    let metrics = Metrics::new("test");
    net::metrics::install(&metrics);
    metrics
});

/// The values of a metric of rails, of those to `peer`.
fn of_rails(name: &str, peer: SocketAddr) -> Vec<i64> {
    let peer = format!("peer=\"{}\"", peer.ip());
    let text = METRICS.text();
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(&peer));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

/// Ends the service while a request over `connection` waits for its answer.
async fn stop_while_asked(running: &mut Running, connection: &Connection) {
    running.store.hold.set(true);
    let waiting = connection.clone();
    ring::spawn(async move { drop(waiting.call(To::default(), &Ping {}).await) });
    until(|| running.store.held.borrow().len() == 1).await;
    running.stop();
    until(|| connection.is_closed()).await;
}

#[test]
fn a_restarted_service_is_found_again() {
    run(async {
        let mut running = serve(Limits::default());
        let address = running.address;
        let peer = peer(vec![address]);
        let connection = peer.connection().await.unwrap();
        assert_eq!(connection.incarnation(), 1);
        running.store.hold.set(true);
        let waiting = connection.clone();
        let (sender, outcome) = ring::sync::oneshot();
        ring::spawn(async move { sender.send(waiting.call(To::default(), &Ping {}).await) });
        until(|| running.store.held.borrow().len() == 1).await;
        running.stop();
        assert!(matches!(outcome.await.unwrap(), Err(CallError::Closed(_))), "what was in flight is told");
        assert!(connection.is_closed());
        // The held request's answer has nowhere to go, and that is fine.
        running.store.answer_held();

        let error = peer.connection().await.err().unwrap();
        assert!(matches!(error, ConnectError::Io { .. }), "{error}");
        let _running = serve_at(address, identity_of(1, 2), Limits::default());
        let connection = peer.connection().await.unwrap();
        assert_eq!(connection.incarnation(), 2);
        connection.call(To::default(), &Ping {}).await.unwrap();
    });
}

/// Services that start again take any free ports: the one that a peer had may be another service's, and alive.
#[test]
fn a_peer_that_has_moved_is_not_looked_for_where_it_was() {
    run(async {
        let (former, present) = (serve(Limits::default()), serve(Limits::default()));
        let peer = peer(vec![former.address]);
        assert_eq!(peer.connection().await.unwrap().address(), former.address);
        peer.set_addresses(vec![present.address]);
        assert!(peer.pick().is_none(), "the connection to its former address is not given out");
        assert_eq!(peer.connection().await.unwrap().address(), present.address);
        assert_eq!(peer.pick().unwrap().address(), present.address);
        // Those to addresses that it still has stay.
        peer.set_addresses(vec![present.address, former.address]);
        peer.connection().await.unwrap().call(To::default(), &Ping {}).await.unwrap();
        assert_eq!(present.store.connects.get(), 1);
    });
}

#[test]
fn all_who_ask_at_once_share_one_connection() {
    run(async {
        let running = serve(Limits::default());
        let peer = peer(vec![running.address]);
        let asked = (0..20).map(|_| {
            let peer = Rc::clone(&peer);
            async move { peer.connection().await.unwrap().call(To::default(), &Ping {}).await.unwrap() }
        });
        ring::join_all(asked).await;
        assert_eq!(running.store.connects.get(), 1);
    });
}

#[test]
fn one_attempt_fails_for_all_who_wait_and_pauses_grow() {
    run(async {
        let peer = peer(vec![nobody()]);
        let asked = (0..5).map(|_| {
            let peer = Rc::clone(&peer);
            async move { peer.connection().await.is_err() }
        });
        let begin = Instant::now();
        assert!(ring::join_all(asked).await.into_iter().all(|failed| failed));
        assert!(begin.elapsed() < Duration::from_millis(500), "one attempt, no pause before it");
        for _ in 0..5 {
            peer.connection().await.err().unwrap();
        }
        let elapsed = begin.elapsed().as_millis();
        assert!((10 + 20 + 40 + 80 + 160..5000).contains(&elapsed), "{elapsed} ms");
    });
}

#[test]
fn an_attempt_whose_caller_goes_away_frees_the_turn() {
    run(async {
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = peer(vec![mute.local_addr().unwrap()]);
        assert!(ring::timeout(Duration::from_millis(30), peer.connection()).await.is_err());
        drop(mute);
        assert!(peer.connection().await.is_err());
    });
}

#[test]
fn another_rail_takes_the_place_of_a_dead_one() {
    run(async {
        let mut first = serve(Limits::default());
        let second = serve(Limits::default());
        let peer = peer(vec![first.address, second.address]);
        assert_eq!(peer.connection().await.unwrap().address(), first.address);
        first.stop();
        until(|| peer.current().is_none()).await;
        assert_eq!(peer.connection().await.unwrap().address(), second.address);
    });
}

#[test]
fn a_dead_rail_costs_one_failed_attempt() {
    run(async {
        let running = serve(Limits::default());
        let peer = peer(vec![nobody(), running.address]);
        assert!(peer.connection().await.is_err());
        assert_eq!(peer.connection().await.unwrap().address(), running.address);
        assert!(Peer::new(Vec::new(), Rc::new(identity()), Limits::default()).connection().await.is_err());
    });
}

#[test]
fn a_connection_that_nobody_uses_is_closed_and_one_with_a_question_under_way_is_not() {
    run(async {
        let running = serve(Limits::default());
        let disconnects = || running.store.disconnects.borrow().len();
        let limits = Limits { unused: Duration::from_millis(100), ..Limits::default() };
        let peer = Rc::new(Peer::new(vec![running.address], Rc::new(identity()), limits));
        let connection = peer.connection().await.unwrap();
        running.store.hold.set(true);
        let (waiting, (sender, outcome)) = (connection.clone(), ring::sync::oneshot());
        ring::spawn(async move { sender.send(waiting.call(To::default(), &Ping {}).await) });
        ring::sleep(Duration::from_millis(500)).await;
        assert!(!connection.is_closed(), "it is waited for");
        running.store.hold.set(false);
        running.store.answer_held();
        outcome.await.unwrap().unwrap();

        let weak = connection.downgrade();
        drop(connection);
        until(|| disconnects() == 1).await;
        assert!(weak.upgrade().is_none(), "nothing of it is kept");
        assert!(peer.pick().is_none());
        let again = peer.connection().await.unwrap();
        again.call(To::default(), &Ping {}).await.unwrap();
        assert_eq!((running.store.connects.get(), disconnects()), (2, 1));
    });
}

#[test]
fn a_connection_that_is_to_be_kept_is_not_closed_for_disuse() {
    run(async {
        let running = serve(Limits::default());
        let limits = Limits { unused: Duration::from_millis(100), ..Limits::default() };
        let peers = [true, false].map(|_| Peer::new(vec![running.address], Rc::new(identity()), limits.clone()));
        peers[0].connection().await.unwrap().keep();
        peers[1].connection().await.unwrap();
        until(|| running.store.disconnects.borrow().len() == 1).await;
        ring::sleep(Duration::from_millis(200)).await;
        assert!(peers[0].pick().is_some() && peers[1].pick().is_none());
    });
}

#[test]
fn who_connects_again_after_disuse_begins_at_the_same_rail() {
    run(async {
        let running = serve_at("0.0.0.0:0".parse().unwrap(), identity(), Limits::default());
        let at = |last| SocketAddr::from(([127, 0, 0, last], running.address.port()));
        let limits = Limits { unused: Duration::from_millis(100), local_sockets: false, ..Limits::default() };
        let peer = Rc::new(Peer::new(vec![at(2), at(3)], Rc::new(identity()), limits));
        for round in 1..=3 {
            assert_eq!(peer.connection().await.unwrap().address(), at(2));
            until(|| running.store.disconnects.borrow().len() == round).await;
        }
    });
}

#[test]
fn a_service_that_stops_while_nobody_asks_it_says_nothing_of_its_rail() {
    run(async {
        LazyLock::force(&METRICS);
        let mut running = serve_at("127.0.0.61:0".parse().unwrap(), identity(), Limits::default());
        let (address, peer) = (running.address, peer(vec![running.address]));
        let connection = peer.connection().await.unwrap();
        connection.call(To::default(), &Ping {}).await.unwrap();
        running.stop();
        until(|| connection.is_closed()).await;
        assert_eq!(
            (of_rails("weft_rail_failures", address), of_rails("weft_rail_healthy", address)),
            (vec![1], vec![1])
        );
        // Whoever needs it finds out.
        assert!(peer.connection().await.is_err());
        assert!(of_rails("weft_rail_healthy", address).contains(&0));

        let mut running = serve_at("127.0.0.62:0".parse().unwrap(), identity(), Limits::default());
        let connection = Connection::connect(running.address, &identity(), &Limits::default()).await.unwrap();
        stop_while_asked(&mut running, &connection).await;
        assert_eq!(of_rails("weft_rail_healthy", running.address), [0]);
    });
}

#[test]
fn what_is_heard_of_one_service_of_this_host_is_said_of_the_way_to_all() {
    run(async {
        LazyLock::force(&METRICS);
        let [mut first, second] =
            [(); 2].map(|()| serve_at("127.0.0.63:0".parse().unwrap(), identity(), Limits::default()));
        let limits = Limits { silence: Duration::from_millis(400), ..Limits::default() };
        let _heard = Connection::connect(second.address, &identity(), &limits).await.unwrap();
        let connection = Connection::connect(first.address, &identity(), &Limits::default()).await.unwrap();
        stop_while_asked(&mut first, &connection).await;
        assert_eq!(of_rails("weft_rail_failures", first.address), [1]);
        until(|| of_rails("weft_rail_healthy", first.address) == [1]).await;
    });
}
