//! Streams that have proved the cluster key: the handshake of the data plane, over tokio.

use std::io;

use net::handshake::{Established, Handshake, HandshakeError, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Runs the handshake on `stream`. Time limits are the caller's.
pub(crate) async fn shake(
    machine: &mut (impl Handshake + Send),
    stream: &mut TcpStream,
) -> Result<Established, HandshakeError> {
    let mut received = Vec::new();
    loop {
        match machine.step(&received) {
            Step::Send(bytes) => {
                stream.write_all(&bytes).await.map_err(ended)?;
                received.clear();
            }
            Step::Receive(len) => {
                received.resize(len, 0);
                stream.read_exact(&mut received).await.map_err(ended)?;
            }
            Step::Done(result) => return result,
        }
    }
}

fn ended(_: io::Error) -> HandshakeError {
    HandshakeError::Ended
}
