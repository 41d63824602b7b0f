//! The listening sockets of the lanes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use cluster::map::Rail;
use conf::Fatal;

/// How long a port may stay bound after the process that had it was killed.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// One socket per lane and the ports that they have.
pub(crate) struct Listeners {
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) ports: Vec<u16>,
}

/// Where to listen: a node that is registered on the loopback interface alone does not listen on others.
pub(crate) fn address(listen: IpAddr, rails: &[Rail]) -> IpAddr {
    let local = rails.iter().all(|rail| rail.address == IpAddr::V4(Ipv4Addr::LOCALHOST));
    if listen.is_unspecified() && local { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen }
}

impl Listeners {
    /// Ports `first`, `first + 1` and so on.
    ///
    /// # Errors
    /// One line that names the port; exit code 2.
    pub(crate) fn fixed(address: IpAddr, first: u16, lanes: usize) -> Result<Self, Fatal> {
        let ports: Vec<u16> = (first..=u16::MAX).take(lanes).collect();
        Self::bind(address, &ports, PATIENCE).map_err(|(at, error)| match error.kind() {
            io::ErrorKind::AddrInUse => {
                Fatal::usage(format!("{at} is in use: stop the service that has it, or choose another port"))
            }
            _ => Fatal::usage(format!("cannot listen on {at}: {error}")),
        })
    }

    /// The ports of the last start where they are free, else any.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub(crate) fn any(address: IpAddr, last: &[u16], lanes: usize) -> Result<Self, Fatal> {
        if last.len() == lanes
            && let Ok(listeners) = Self::bind(address, last, PATIENCE)
        {
            return Ok(listeners);
        }
        Self::bind(address, &vec![0; lanes], Duration::ZERO)
            .map_err(|(at, error)| Fatal::usage(format!("cannot listen on {}: {error}", at.ip())))
    }

    fn bind(address: IpAddr, ports: &[u16], patience: Duration) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Self { sockets: Vec::new(), ports: Vec::new() };
        let deadline = Instant::now() + patience;
        for &port in ports {
            let at = SocketAddr::new(address, port);
            let (socket, bound) = bind_one(at, deadline).map_err(|error| (at, error))?;
            listeners.sockets.push(socket);
            listeners.ports.push(bound.port());
        }
        Ok(listeners)
    }
}

fn bind_one(at: SocketAddr, deadline: Instant) -> io::Result<(OwnedFd, SocketAddr)> {
    loop {
        match ring::op::listen(at) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn the_last_ports_are_taken_again_unless_somebody_has_them() {
        let first = Listeners::any(LOCAL, &[], 2).expect("free ports");
        let ports = first.ports.clone();
        drop(first);
        let again = Listeners::any(LOCAL, &ports, 2).expect("free again");
        assert_eq!(again.ports, ports);
        let refused = Listeners::fixed(LOCAL, ports[0], 1).err().expect("in use");
        assert!(refused.code == 2 && refused.message.contains("is in use"), "{refused}");
        let others = Listeners::any(LOCAL, &ports, 2).expect("others are free");
        assert!(others.ports.iter().all(|port| !ports.contains(port)));
    }

    #[test]
    fn a_local_node_listens_locally() {
        let rail = |address: &str| Rail { interface: "x".into(), address: address.parse().expect("an address") };
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!(address(any, &[rail("127.0.0.1")]), LOCAL);
        assert_eq!(address(any, &[rail("10.0.0.1"), rail("127.0.0.1")]), any);
        assert_eq!(address("10.0.0.1".parse().expect("an address"), &[rail("127.0.0.1")]).to_string(), "10.0.0.1");
    }
}
