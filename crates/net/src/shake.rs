//! The handshake over a socket of the ring.

use std::os::fd::RawFd;
use std::time::Duration;

use ring::buf::{Buf, Slice};
use ring::op;

use crate::handshake::{Established, Handshake, HandshakeError, Step};

/// Drives `machine` to its end within `limit`.
pub(crate) async fn shake(
    socket: RawFd,
    machine: impl Handshake,
    limit: Duration,
) -> Result<Established, HandshakeError> {
    ring::timeout(limit, drive(socket, machine)).await.unwrap_or(Err(HandshakeError::TimedOut))
}

async fn drive(socket: RawFd, mut machine: impl Handshake) -> Result<Established, HandshakeError> {
    let mut received = Buf::with_capacity(0);
    loop {
        match machine.step(&received) {
            Step::Send(bytes) => {
                op::send_all(socket, vec![Slice::from_vec(bytes)]).await.map_err(|_| HandshakeError::Ended)?;
                received.truncate(0);
            }
            Step::Receive(len) => {
                let (result, buf) = op::recv_exact(socket, Buf::with_capacity(len)).await;
                result.map_err(|_| HandshakeError::Ended)?;
                received = buf;
            }
            Step::Done(result) => return result,
        }
    }
}
