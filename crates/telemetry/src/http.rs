//! The endpoint of every service for people and for Prometheus:
//! `GET /metrics`, `GET /log-level`, `PUT /log-level` (body: a level, or `metad=debug,net=trace`), `GET /healthz`.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::ListenerExt;
use socket2::{SockRef, TcpKeepalive};
use tokio::sync::oneshot;

use crate::bounded::Bounded;
use crate::log::LogHandle;
use crate::metrics::Metrics;
use crate::runtime;

/// A connection without traffic is asked after this whether its peer is there...
const PEER_IDLE: Duration = Duration::from_secs(60);
/// ...and then so often.
const PEER_ASKED: Duration = Duration::from_secs(10);

/// A running endpoint; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` (port 0 takes a free one) and serves on a thread of its own.
    ///
    /// # Errors
    /// Where the address is in use or the thread cannot be made.
    pub fn start(address: SocketAddr, metrics: Metrics, log: LogHandle) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = runtime::spawn("metrics", move || async move {
            tokio::select! {
                result = serve(listener, metrics, log) => {
                    tracing::error!(?result, "the metrics endpoint has stopped");
                }
                _ = stopped => {}
            }
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who asks for metrics keeps its connection for the next time. Where it has vanished without a word (a host without power, a
/// firewall that has forgotten the connection), that would last for ever.
fn notice_end_of_peer(stream: &tokio::net::TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(PEER_IDLE).with_interval(PEER_ASKED).with_retries(3);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::warn!(%error, "a connection to the metrics endpoint may outlive its peer");
    }
}

/// Serves until the runtime ends; for services that run tokio anyway.
///
/// # Errors
/// Where the listener fails for good.
pub async fn serve(listener: std::net::TcpListener, metrics: Metrics, log: LogHandle) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let listener = Bounded::new(listener).tap_io(|connection| notice_end_of_peer(connection.stream()));
    axum::serve(listener, router(metrics, log)).await
}

fn router(metrics: Metrics, log: LogHandle) -> Router {
    let scrape = Router::new().route("/metrics", get(show_metrics)).with_state(metrics);
    let levels = Router::new().route("/log-level", get(show_level).put(set_level)).with_state(log);
    Router::new().route("/healthz", get(async || "ok\n")).merge(scrape).merge(levels)
}

async fn show_metrics(State(metrics): State<Metrics>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.text())
}

async fn show_level(State(log): State<LogHandle>) -> String {
    log.current() + "\n"
}

async fn set_level(State(log): State<LogHandle>, filter: String) -> (StatusCode, String) {
    match log.set(&filter) {
        Ok(()) => (StatusCode::OK, log.current() + "\n"),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;
    use crate::names;

    fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("it takes the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        answer
    }

    #[test]
    fn serves_metrics_levels_and_health_until_dropped() {
        let metrics = Metrics::new("test");
        metrics.gauge(&names::MAP_EPOCH, &[]).set(42);
        let log = LogHandle::detached("info");
        // An address of its own: another test may be given the port that becomes free.
        let server = Server::start(([127, 90, 4, 1], 0).into(), metrics, log).expect("a free port");
        let address = server.address();
        assert!(ask(address, "GET", "/metrics", "").contains("weft_map_epoch{service=\"test\"} 42"));
        assert!(ask(address, "GET", "/healthz", "").ends_with("ok\n"));
        assert!(ask(address, "PUT", "/log-level", "http=debug").starts_with("HTTP/1.1 200"));
        assert!(ask(address, "GET", "/log-level", "").ends_with("http=debug\n"));
        assert!(ask(address, "PUT", "/log-level", "loud").starts_with("HTTP/1.1 400"));
        drop(server);
        // A program that another test starts has the listener as well until its exec.
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_ok() {
            assert!(Instant::now() < until, "still listens after the drop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[tokio::test]
    async fn a_peer_that_has_vanished_is_noticed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let stream = tokio::net::TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        assert!(!SockRef::from(&stream).keepalive().expect("a socket"));
        notice_end_of_peer(&stream);
        assert!(SockRef::from(&stream).keepalive().expect("a socket"));
    }

    #[test]
    fn a_port_in_use_is_an_error_at_once() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let log = LogHandle::detached("info");
        let result = Server::start(taken.local_addr().expect("bound"), Metrics::new("test"), log);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
