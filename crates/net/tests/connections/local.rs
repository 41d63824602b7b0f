//! Connections within one host.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener};
use std::time::Duration;

use net::{Connection, Limits, To};
use wire::op::Ping;

use crate::common::{identity, run, serve, serve_at, serve_on};

/// One call, and the port that the server saw its caller at; a local socket has none.
async fn port_of_caller(running: &crate::common::Running, limits: &Limits) -> u16 {
    let connection = Connection::connect(running.address, &identity(), limits).await.unwrap();
    connection.call(To::default(), &Ping {}).await.unwrap();
    running.store.peers.borrow().last().unwrap().address.port()
}

#[test]
fn callers_on_the_same_host_come_through_the_local_socket() {
    run(async {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let mut running = serve_at(address.parse().unwrap(), identity(), Limits::default());
            if running.address.ip().is_unspecified() {
                running.address.set_ip([127, 0, 0, 1].into());
            }
            ring::next_turn().await;
            assert_eq!(port_of_caller(&running, &Limits::default()).await, 0, "{address}");
            let tcp = Limits { local_sockets: false, ..Limits::default() };
            assert_ne!(port_of_caller(&running, &tcp).await, 0, "{address}");
        }
    });
}

/// A service that is starting is known, and its port open, before it serves.
#[test]
fn who_calls_before_the_service_begins_comes_through_the_local_socket_too() {
    run(async {
        let (listener, address) = ring::op::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (connected, connection) = ring::sync::oneshot();
        ring::spawn(async move {
            let connection = Connection::connect(address, &identity(), &Limits::default()).await.unwrap();
            connection.call(To::default(), &Ping {}).await.unwrap();
            connected.send(connection);
        });
        ring::op::poll_exclusive(listener.as_raw_fd()).await.unwrap();
        let running = serve_on(listener, address, identity(), Limits::default());
        let _connection = connection.await.unwrap();
        assert_eq!(running.store.peers.borrow().last().unwrap().address.port(), 0);
    });
}

#[test]
fn who_has_taken_the_name_keeps_nobody_away() {
    run(async {
        let address: SocketAddr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let name = LocalAddr::from_abstract_name(format!("weft:{address}")).unwrap();
        let taken = UnixListener::bind_addr(&name).unwrap();
        let turning_away = std::thread::spawn(move || drop((taken.accept().unwrap(), taken)));
        let running = serve_at(address, identity(), Limits::default());
        let limits = Limits::default();
        assert_ne!(port_of_caller(&running, &limits).await, 0);
        turning_away.join().unwrap();
        // As soon as the name is free, the service has it.
        let deadline = ring::now() + Duration::from_secs(5);
        while port_of_caller(&running, &limits).await != 0 {
            assert!(ring::now() < deadline, "the service did not take the name");
            ring::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_service_that_ends_gives_its_name_back() {
    run(async {
        let mut first = serve(Limits::default());
        ring::next_turn().await;
        assert_eq!(port_of_caller(&first, &Limits::default()).await, 0);
        let address = first.address;
        first.stop();
        ring::sleep(Duration::from_millis(20)).await;
        let second = serve_at(address, identity(), Limits::default());
        ring::sleep(Duration::from_millis(200)).await;
        assert_eq!(port_of_caller(&second, &Limits::default()).await, 0);
    });
}
