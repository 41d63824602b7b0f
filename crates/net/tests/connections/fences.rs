//! What is asked on a connection that its caller gives up has its end before it is asked again.

use std::rc::Rc;
use std::time::Duration;

use net::{CallError, Connection, Limits, Peer, To};
use types::error::Errno;
use types::id::SessionId;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::op::Ping;
use wire::v1::session::{Fence, FenceSession};
use wire::v1::storage::Write;

use crate::common::{Raw, aside, identity, identity_of, object, run, serve, serve_at, until};

fn write(stripe: u32) -> Write {
    Write::new(object(stripe), 0)
}

fn fence(id: &[u8]) -> Fence {
    Fence { connection: Bytes(id.to_vec()) }
}

#[test]
fn a_fence_is_answered_when_the_old_connection_is_at_rest() {
    run(async {
        let running = serve(Limits::default());
        running.store.hold.set(true);
        let address = running.address;
        let old = aside(move || {
            let mut old = Raw::connect(address);
            let frame = old.frame(1, &write(1), b"old");
            old.send(&frame);
            old
        })
        .await;
        until(|| running.store.requests.get() == 1).await;
        running.store.hold.set(false);

        let connection = Connection::connect(address, &identity(), &Limits::default()).await.unwrap();
        let fence = fence(&old.established.id);
        let early = ring::timeout(Duration::from_millis(50), connection.call_patiently(To::default(), &fence)).await;
        assert!(early.is_err(), "answered while an old write is at work");
        running.store.answer_held();
        connection.call_patiently(To::default(), &fence).await.unwrap();

        // Nothing comes through the old connection any more.
        let (closed, _old) = aside(move || {
            let mut old = old;
            // The answer that was on its way may still come, or not.
            let frame = old.frame(2, &write(2), b"late");
            let _ = std::io::Write::write_all(&mut old.stream, &frame);
            while old.read_frame().is_ok() {}
            (true, old)
        })
        .await;
        assert!(closed);
        assert_eq!(running.store.requests.get(), 1, "a late write was taken");
        connection.call(To::default(), &Ping {}).await.unwrap();
    });
}

#[test]
fn a_fence_for_a_connection_that_is_gone_is_answered_at_once_and_nonsense_is_refused() {
    run(async {
        let running = serve(Limits::default());
        let connection = Connection::connect(running.address, &identity(), &Limits::default()).await.unwrap();
        connection.call_patiently(To::default(), &fence(&[7; 16])).await.unwrap();
        let refused = connection.call_patiently(To::default(), &fence(b"short")).await.unwrap_err();
        assert_eq!(refused, CallError::Status(Status::Errno(Errno::EINVAL)));
        assert!(!connection.is_closed());
    });
}

/// Whether a write that goes out on it now is refused with the connection.
async fn is_over(mut raw: Raw) -> bool {
    aside(move || {
        let frame = raw.frame(9, &write(9), b"late");
        let _ = std::io::Write::write_all(&mut raw.stream, &frame);
        while raw.read_frame().is_ok() {}
        raw.is_closed_by_peer()
    })
    .await
}

#[test]
fn all_connections_of_a_client_are_ended_and_only_its_own() {
    run(async {
        let running = serve(Limits::default());
        let address = running.address;
        // `Raw` is the client with session 1.
        let (old, also, unborn) = aside(move || {
            let unborn = std::net::TcpStream::connect(address).unwrap();
            (Raw::connect(address), Raw::connect(address), unborn)
        })
        .await;
        let other = identity_of(1, 2);
        let bystander = Connection::connect(address, &other, &Limits::default()).await.unwrap();
        let shard = Connection::connect(address, &identity_of(1, 3), &Limits::default()).await.unwrap();
        let session = SessionId(1);
        shard.call_patiently(To::default(), &FenceSession { session }).await.unwrap();
        assert!(is_over(old).await && is_over(also).await);
        // Its handshake was under way: what comes of it was asked for before.
        let late = aside(move || Raw::over(unborn)).await;
        assert!(is_over(late).await);
        assert_eq!(running.store.requests.get(), 0, "a late write was taken");

        bystander.call(To::default(), &Ping {}).await.unwrap();
        let nobody = FenceSession { session: SessionId(0) };
        let refused = shard.call_patiently(To::default(), &nobody).await.unwrap_err();
        assert_eq!(refused, CallError::Status(Status::Errno(Errno::EINVAL)));
        // It may come back, and knows then what it lost.
        let back = Connection::connect(address, &identity(), &Limits::default()).await.unwrap();
        back.call_payload(To::default(), &write(3), Vec::new(), None).await.unwrap();
    });
}

#[test]
fn a_peer_waits_for_what_it_asked_on_a_lost_connection() {
    run(async {
        let running = serve(Limits::default());
        let limits = Limits { silence: Duration::from_millis(200), ..Limits::default() };
        let peer = Rc::new(Peer::new(vec![running.address], Rc::new(identity()), limits));
        let connection = peer.connection().await.unwrap();
        // The server takes the write and says nothing, not even to pings.
        running.store.hold.set(true);
        let lost = connection.call_payload(To::default(), &write(1), Vec::new(), None).await.unwrap_err();
        assert!(matches!(lost, CallError::Closed(_)), "{lost}");
        running.store.hold.set(false);

        assert!(peer.pick().is_none(), "what is not fenced has no successor");
        let early = ring::timeout(Duration::from_millis(50), peer.connection()).await;
        assert!(early.is_err(), "a connection while the old write is at work");
        running.store.answer_held();
        peer.connection().await.unwrap().call(To::default(), &Ping {}).await.unwrap();
        assert!(peer.pick().is_some());
    });
}

#[test]
fn a_connection_that_was_given_out_is_fenced_though_its_rail_is_none_any_more() {
    run(async {
        let running = serve_at("0.0.0.0:0".parse().unwrap(), identity(), Limits::default());
        let at = |last| std::net::SocketAddr::from(([127, 0, 0, last], running.address.port()));
        let limits = Limits { silence: Duration::from_millis(200), ..Limits::default() };
        let peer = Rc::new(Peer::new(vec![at(1)], Rc::new(identity()), limits));
        let given_out = peer.connection().await.unwrap();
        peer.set_addresses(vec![at(2)]);
        // Nothing is under way on it at this moment.
        let successor = peer.connection().await.unwrap();
        assert_eq!(successor.address(), at(2));

        running.store.hold.set(true);
        let lost = given_out.call_payload(To::default(), &write(1), Vec::new(), None).await.unwrap_err();
        assert!(matches!(lost, CallError::Closed(_)), "{lost}");
        running.store.hold.set(false);
        assert!(peer.pick().is_none(), "what is not fenced has no successor");
        running.store.answer_held();
        peer.connection().await.unwrap().call(To::default(), &Ping {}).await.unwrap();
    });
}

#[test]
fn a_connection_that_is_made_while_the_rails_change_is_fenced() {
    run(async {
        let running = serve_at("0.0.0.0:0".parse().unwrap(), identity(), Limits::default());
        let at = |last| std::net::SocketAddr::from(([127, 0, 0, last], running.address.port()));
        let limits = Limits { silence: Duration::from_millis(200), ..Limits::default() };
        let peer = Rc::new(Peer::new(vec![at(1)], Rc::new(identity()), limits));
        let (connecting, moving) = (Rc::clone(&peer), Rc::clone(&peer));
        let (sender, made) = ring::sync::oneshot();
        ring::spawn(async move { sender.send(connecting.connection().await) });
        for _ in 0..2 {
            ring::yield_now().await;
        }
        moving.set_addresses(vec![at(2)]);
        let given_out = made.await.unwrap().unwrap();
        assert_eq!(given_out.address(), at(1));

        running.store.hold.set(true);
        let lost = given_out.call_payload(To::default(), &write(1), Vec::new(), None).await.unwrap_err();
        assert!(matches!(lost, CallError::Closed(_)), "{lost}");
        let early = ring::timeout(Duration::from_millis(50), peer.connection()).await;
        assert!(early.is_err(), "a connection while the old write is at work");
        running.store.hold.set(false);
        running.store.answer_held();
        peer.connection().await.unwrap().call(To::default(), &Ping {}).await.unwrap();
    });
}
