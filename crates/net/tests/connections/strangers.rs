//! Another node at an address of a peer: both have it, or it leads elsewhere from here.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use net::{CallError, ConnectError, Identity, Limits, Peer, To};
use wire::op::Ping;
use wire::v1::storage::Write;

use crate::common::{Running, identity, identity_of, object, run, serve_at, until};

const WANTED: &str = "wanted";

/// Says that it is this node.
fn serve_node(node: &str, at: &str, incarnation: u64) -> Running {
    let identity = Identity { node: node.to_owned(), ..identity_of(1, incarnation) };
    serve_at(at.parse().unwrap(), identity, Limits::default())
}

fn peer(addresses: &[SocketAddr], limits: Limits) -> Rc<Peer> {
    Rc::new(Peer::new(addresses.to_vec(), Rc::new(identity()), limits).of_node(WANTED))
}

fn is_stranger(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Stranger { .. })
}

#[test]
fn requests_go_past_a_stranger_at_the_better_rail() {
    run(async {
        for local_sockets in [false, true] {
            let limits = Limits { local_sockets, ..Limits::default() };
            let (stranger, right) = (serve_node("other", "127.0.0.2:0", 1), serve_node(WANTED, "127.0.0.3:0", 1));
            // They have their local sockets by then.
            ring::next_turn().await;
            let peer = peer(&[stranger.address, right.address], limits);
            let error = peer.connection().await.err().unwrap();
            let told = format!("another node answers at {}: other, not {WANTED}", stranger.address);
            assert!(error.to_string() == told && !error.is_permanent(), "{error}");
            let found = peer.connection().await.unwrap();
            assert_eq!(found.address(), right.address);
            for _ in 0..20 {
                peer.pick().unwrap().call(To::default(), &Ping {}).await.unwrap();
            }
            assert!(!found.is_closed() && right.store.requests.get() > 0);
            assert_eq!(stranger.store.requests.get(), 0);
            let attempts = stranger.store.connects.get();
            assert_eq!(attempts, 1 + usize::from(local_sockets), "a local socket first, and then TCP");
        }
    });
}

/// It knows nothing of what the wanted one may still do, whichever number of starts it has.
#[test]
fn a_stranger_answers_for_nothing_that_the_wanted_one_may_still_do() {
    run(async {
        for incarnation in [1, 2] {
            let (right, stranger) =
                (serve_node(WANTED, "127.0.0.1:0", 1), serve_node("other", "127.0.0.1:0", incarnation));
            let peer = peer(&[right.address], Limits { silence: Duration::from_millis(200), ..Limits::default() });
            let connection = peer.connection().await.unwrap();
            right.store.hold.set(true);
            let write = Write::new(object(1), 0);
            let lost = connection.call_payload(To::default(), &write, Vec::new(), None).await.unwrap_err();
            assert!(matches!(lost, CallError::Closed(_)), "{lost}");
            right.store.hold.set(false);

            peer.set_addresses(vec![stranger.address]);
            assert!(is_stranger(&peer.connection().await.err().unwrap()));
            peer.set_addresses(vec![stranger.address, right.address]);
            let early = ring::timeout(Duration::from_millis(500), async { while peer.connection().await.is_err() {} });
            assert!(early.await.is_err(), "a connection while the old write is at work");
            assert!(peer.pick().is_none());
            right.store.answer_held();
            while peer.connection().await.is_err() {}
            assert_eq!(peer.pick().unwrap().address(), right.address);
        }
    });
}

#[test]
fn who_comes_back_to_its_address_is_found_there() {
    run(async {
        let mut stranger = serve_node("other", "127.0.0.1:0", 1);
        let peer = peer(&[stranger.address], Limits { local_sockets: false, ..Limits::default() });
        for _ in 0..3 {
            assert!(is_stranger(&peer.connection().await.err().unwrap()));
        }
        stranger.stop();
        until(|| stranger.store.disconnects.borrow().len() == stranger.store.connects.get()).await;
        let _right = serve_node(WANTED, &stranger.address.to_string(), 1);
        let found = ring::timeout(Duration::from_secs(3), async { while peer.connection().await.is_err() {} });
        found.await.unwrap();
    });
}

#[test]
fn where_one_side_does_not_say_which_node_it_means_it_is_the_right_one() {
    run(async {
        let (nobody, somebody) = (serve_node("", "127.0.0.1:0", 1), serve_node("other", "127.0.0.1:0", 1));
        peer(&[nobody.address], Limits::default()).connection().await.unwrap();
        let anybody = Peer::new(vec![somebody.address], Rc::new(identity()), Limits::default());
        anybody.connection().await.unwrap();
    });
}
