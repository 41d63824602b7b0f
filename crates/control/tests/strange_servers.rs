//! What a caller is told when something other than its mgmtd listens there.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use control::{Client, ControlError};
use net::handshake::{Responder, drive_blocking};
use net::{ClusterKey, Identity};

fn identity() -> Identity {
    Identity { key: ClusterKey::from_bytes([7; 32]), cluster: String::new(), name: "test".into(), incarnation: 1 }
}

/// Serves one connection with `serve`.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || serve(listener.accept().expect("a caller").0));
    address
}

fn failure(address: SocketAddr, patience: Duration) -> ControlError {
    let runtime = telemetry::runtime::current_thread().expect("a runtime");
    let result = runtime.block_on(Client::connect(&address.to_string(), &identity(), patience));
    result.expect_err("connected to a strange server")
}

#[test]
fn another_version_is_named_with_the_remedy() {
    let address = server(|mut stream| {
        let mut newer = Responder::with_versions(&identity(), (90, 99));
        let _ = drive_blocking(&mut newer, &mut stream);
    });
    let error = failure(address, Duration::from_secs(5));
    assert!(error.is_permanent());
    let text = error.to_string();
    assert!(text.contains("versions 90 to 99") && text.contains("upgrade the older one"), "{text}");
}

#[test]
fn a_server_of_another_kind_is_no_mgmtd() {
    let address = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        thread::sleep(Duration::from_secs(2));
    });
    let error = failure(address, Duration::from_secs(5));
    assert!(error.is_permanent() && error.to_string().contains("does not speak Weft"), "{error}");
}

#[test]
fn a_server_that_says_nothing_takes_no_longer_than_the_patience() {
    let address = server(|stream| {
        thread::sleep(Duration::from_secs(5));
        drop(stream);
    });
    let started = Instant::now();
    let error = failure(address, Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(!error.is_permanent());
    assert!(error.to_string().contains("did not answer within 300 ms"), "{error}");
}
