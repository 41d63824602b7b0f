//! What mgmtd listens with: connections are handed to gRPC only after they have proved the cluster key.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use net::handshake::{HandshakeError, Responder};
use net::metrics::Counted;
use telemetry::seldom::Seldom;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::MESSAGE_MAX;
use crate::proto::management_server::{Management, ManagementServer};
use crate::transport::shake;

/// Longest time for a stranger to prove the key.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Handshakes at a time: strangers cannot take all memory.
const HANDSHAKES: usize = 256;
/// The log is to keep other lines than those of what is tried again all the time.
static CANNOT_ACCEPT: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(Duration::from_secs(10)));

/// The gRPC service around `management`, with the limits of the control plane.
pub fn service<M: Management>(management: M) -> ManagementServer<M> {
    ManagementServer::new(management).max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX)
}

/// Accepts on `listener` for as long as the stream lives; yields the connections that hold the key of `identity`.
pub fn incoming(listener: TcpListener, identity: net::Identity) -> ReceiverStream<io::Result<Peer>> {
    let (proved, incoming) = mpsc::channel(HANDSHAKES);
    tokio::spawn(accept(listener, Arc::new(identity), proved));
    ReceiverStream::new(incoming)
}

async fn accept(listener: TcpListener, identity: Arc<net::Identity>, proved: mpsc::Sender<io::Result<Peer>>) {
    let slots = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("it is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = proved.closed() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let (identity, proved) = (Arc::clone(&identity), proved.clone());
                tokio::spawn(async move {
                    if let Some(peer) = prove(stream, address, &identity).await {
                        // Fails only when the server has stopped.
                        let _ = proved.send(Ok(peer)).await;
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of descriptors, or the peer is gone already: others may fare better a moment later.
                if let Some(left_out) = CANNOT_ACCEPT.is_due(Instant::now()) {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn prove(mut stream: TcpStream, address: SocketAddr, identity: &net::Identity) -> Option<Peer> {
    let mut responder = Responder::new(identity);
    let shaken = timeout(HANDSHAKE_MAX, shake(&mut responder, &mut stream)).await;
    match shaken {
        Ok(Ok(established)) => {
            // Answers are small and waited for.
            let _ = stream.set_nodelay(true);
            let counted = Counted::accepted(stream.local_addr().ok()?.ip());
            Some(Peer { stream, counted, info: PeerInfo { address, name: established.peer.name } })
        }
        Ok(Err(error)) => refuse(address, &error),
        Err(_) => refuse(address, &HandshakeError::TimedOut),
    }
}

fn refuse(address: SocketAddr, reason: &HandshakeError) -> Option<Peer> {
    net::refusal::note(address, reason);
    None
}

/// A connection that has proved the key.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    counted: Counted,
    info: PeerInfo,
}

/// Who is at the other end; in the extensions of each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    pub address: SocketAddr,
    /// What it called itself.
    pub name: String,
}

impl Connected for Peer {
    type ConnectInfo = PeerInfo;
    fn connect_info(&self) -> PeerInfo {
        self.info.clone()
    }
}

impl Peer {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.counted.sent(*bytes);
        }
        written
    }
}

impl AsyncRead for Peer {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.counted.received(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for Peer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use net::ClusterKey;
    use tokio::io::AsyncReadExt;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn who_looks_whether_the_port_is_open_does_not_fill_the_log() {
        let lines = Arc::new(AtomicUsize::new(0));
        let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&lines)));
        telemetry::runtime::current_thread().expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let _incoming = incoming(listener, net::Identity::new(ClusterKey::from_bytes([7; 32]), "test"));
            for _ in 0..100 {
                let mut stream = TcpStream::connect(address).await.expect("connected");
                tokio::io::AsyncWriteExt::shutdown(&mut stream).await.expect("shut");
                assert_eq!(stream.read(&mut [0]).await.expect("closed"), 0);
            }
        });
        assert_eq!(lines.load(Ordering::Relaxed), 1);
    }
}
