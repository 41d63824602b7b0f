//! A listener that any user of the host may connect to, and that takes no more than a small part of the process's descriptors:
//! the process shares them with what it is there for.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Further connections are taken when others have ended.
const CONNECTIONS_MAX: usize = 64;
/// A connection ends on which nothing was answered for so long. Who asks more often keeps it.
const SILENCE_MAX: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    silence_max: Duration,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), silence_max: SILENCE_MAX }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Never closed, so there is always a place some time.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let silence_max = self.silence_max;
        (Connection { stream, silence_max, end: Box::pin(sleep(silence_max)), _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Has its place until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    silence_max: Duration,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What is waited for has come, or it is too late. What is asked counts for nothing: a request may come byte by byte.
    fn in_time<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            ready!(self.end.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        outcome
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(context, buf);
        self.in_time(context, outcome)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(1..)) = outcome {
            let end = Instant::now() + self.silence_max;
            self.end.as_mut().reset(end);
        }
        self.in_time(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SILENCE: Duration = Duration::from_secs(1);
    /// Of who asks, though the machine does nothing for seconds in between.
    const LONG_SILENCE: Duration = Duration::from_secs(10);
    const SOON: Duration = Duration::from_secs(30);

    /// Descriptors of connections that were accepted at `address`.
    fn accepted(address: SocketAddr) -> usize {
        let of_peers = std::fs::read_to_string("/proc/net/tcp").expect("readable");
        let port = format!(":{:04X}", address.port());
        // Of each connection: local and remote address, state 1 (established), and the inode, 0 before it is accepted.
        let words = of_peers.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let its = words.filter(|word| word[1].ends_with(&port) && word[3] == "01" && word[9] != "0");
        // While others come, the kernel may show one twice.
        its.map(|word| word[9]).collect::<BTreeSet<_>>().len()
    }

    async fn serve(silence_max: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let bounded = Bounded { silence_max, ..Bounded::new(listener) };
        let router = Router::new().route("/", get(async || "ok\n"));
        tokio::spawn(async move { axum::serve(bounded, router).await });
        address
    }

    #[tokio::test]
    async fn connections_that_say_nothing_keep_nobody_out() {
        let address = serve(SILENCE).await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX + 20 {
            idle.push(TcpStream::connect(address).await.expect("the kernel takes it"));
        }
        let mut late = TcpStream::connect(address).await.expect("the kernel takes it");
        late.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("buffered");
        assert!(accepted(address) <= CONNECTIONS_MAX, "{}", accepted(address));
        let mut answer = String::new();
        let read = tokio::time::timeout(SOON, late.read_to_string(&mut answer)).await;
        read.expect("the others have ended").expect("it is answered");
        assert!(answer.ends_with("ok\n"), "{answer}");
    }

    #[tokio::test]
    async fn who_asks_keeps_its_connection_and_who_dawdles_does_not() {
        let address = serve(LONG_SILENCE).await;
        let (mut asking, mut dawdling) = (TcpStream::connect(address).await, TcpStream::connect(address).await);
        let (asking, dawdling) = (asking.as_mut().expect("it listens"), dawdling.as_mut().expect("it listens"));
        dawdling.write_all(b"GET / HTTP/1.1\r\nx: ").await.expect("it is there");
        let mut answer = [0; 512];
        for _ in 0..3 {
            asking.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is kept");
            let length = asking.read(&mut answer).await.expect("it is answered");
            assert!(answer[..length].ends_with(b"ok\n"));
            let _ = dawdling.write_all(b"x").await;
            tokio::time::sleep(LONG_SILENCE * 2 / 5).await;
        }
        let end = tokio::time::timeout(SOON, dawdling.read(&mut answer)).await.expect("it has ended");
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
