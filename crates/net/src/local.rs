//! Connections within one host: the same frames through a UNIX socket, which costs a fraction of what TCP does even on
//! the loopback interface (and knows no congestion control, whose pacing costs as much again).
//!
//! Every listener has one beside its TCP socket, under an abstract name made of its address; such names are apart for
//! each network namespace, as addresses are. Who finds nothing there takes TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener};

use ring::op;

/// Any port will do to ask the kernel for a route: nothing is sent.
const DISCARD: u16 = 9;

/// The name under which the listener with this address is found: one on all addresses by its port alone, since no other
/// can have that port then.
fn name(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("weft:{}", address.port()) } else { format!("weft:{address}") }
}

/// The socket beside the TCP listener, and the address that its callers are shown under: they have no port.
///
/// # Errors
/// `AddrInUse` where somebody has the name.
pub(crate) fn listen(listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let address = TcpListener::from(listener.as_fd().try_clone_to_owned()?).local_addr()?;
    let listener = UnixListener::bind_addr(&LocalAddr::from_abstract_name(name(address))?)?;
    Ok((listener.into(), SocketAddr::new(address.ip(), 0)))
}

/// A connection to whoever listens at `address`, where that is on this host and has such a socket. Others than root and
/// the own user may have taken the name to keep callers from the service: their sockets are passed by.
pub(crate) async fn connect(address: SocketAddr) -> Option<OwnedFd> {
    if !is_here(address.ip()) {
        return None;
    }
    for name in [format!("weft:{address}"), format!("weft:{}", address.port())] {
        if let Ok(socket) = op::connect_local(name.as_bytes()).await
            && op::peer_user(&socket).is_ok_and(|user| user == 0 || user == op::own_user())
        {
            return Some(socket);
        }
    }
    None
}

/// Whether packets to this address stay on this host: they go out from the same address then.
fn is_here(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let route = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, DISCARD))?;
        socket.local_addr()
    });
    ip.is_loopback() || route.is_ok_and(|from| from.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_own_host() {
        assert!(is_here([127, 0, 0, 1].into()) && is_here([127, 0, 0, 7].into()));
        // Reserved for documentation: nobody has them.
        assert!(!is_here([192, 0, 2, 1].into()) && !is_here("2001:db8::1".parse().expect("an address")));
    }

    #[test]
    fn listeners_are_told_apart() {
        let name = |address: &str| name(address.parse().expect("an address"));
        assert_eq!(name("0.0.0.0:7"), name("[::]:7"));
        assert_ne!(name("127.0.0.1:7"), name("127.0.0.2:7"));
        assert_ne!(name("127.0.0.1:7"), name("127.0.0.1:8"));
    }
}
