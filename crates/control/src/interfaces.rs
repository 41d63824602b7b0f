//! Under which addresses a service registers: its rails.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};

use cluster::map::Rail;
use conf::Fatal;

/// The rails of a service that listens on `listen`, best first. `wanted` names interfaces or addresses; without any,
/// a service whose mgmtd is on this host's loopback interface is for this host alone, and any other is reachable over all
/// interfaces that are up.
///
/// # Errors
/// Where a wanted interface is not there, or the kernel does not tell.
pub fn rails(listen: IpAddr, wanted: &[String], management: &str) -> Result<Vec<Rail>, Fatal> {
    let found = interfaces().map_err(|error| Fatal::failed(format!("cannot list network interfaces: {error}")))?;
    choose(&found, listen, wanted, is_local(management))
}

fn choose(found: &[Rail], listen: IpAddr, wanted: &[String], local: bool) -> Result<Vec<Rail>, Fatal> {
    if !listen.is_unspecified() {
        let known = found.iter().find(|rail| rail.address == listen).cloned();
        return Ok(vec![known.unwrap_or_else(|| Rail { interface: String::new(), address: listen })]);
    }
    let reachable = |rail: &&Rail| listen.is_ipv6() || rail.address.is_ipv4();
    if !wanted.is_empty() {
        let mut rails = Vec::new();
        for name in wanted {
            let matching = |rail: &&Rail| rail.interface == *name || rail.address.to_string() == *name;
            let before = rails.len();
            rails.extend(found.iter().filter(reachable).filter(matching).cloned());
            if rails.len() == before {
                return Err(Fatal::usage(format!("no interface {name} is up here: there are {}", names(found))));
            }
        }
        return Ok(rails);
    }
    let rails: Vec<Rail> =
        found.iter().filter(reachable).filter(|rail| rail.address.is_loopback() == local).cloned().collect();
    if rails.is_empty() {
        return Err(Fatal::usage(format!("no interface to register: set `interfaces`; there are {}", names(found))));
    }
    Ok(rails)
}

fn names(found: &[Rail]) -> String {
    let names: BTreeSet<&str> = found.iter().map(|rail| rail.interface.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Whether `host:port` is on this host's loopback interface.
fn is_local(management: &str) -> bool {
    management.to_socket_addrs().is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
}

/// Addresses of all interfaces that are up, IPv4 before IPv6; link-local ones mean nothing to other hosts.
fn interfaces() -> io::Result<Vec<Rail>> {
    let list = List::get()?;
    let mut rails = Vec::new();
    let mut next = list.0;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which lives until `list` is dropped.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the kernel's address of this entry, or null; valid as long as the list.
        let Some(address) = (unsafe { address_of(entry.ifa_addr) }) else { continue };
        // SAFETY: the name is a C string that lives as long as the list.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        rails.push(Rail { interface, address });
    }
    rails.sort_by_key(|rail| rail.address.is_ipv6());
    Ok(rails)
}

struct List(*mut libc::ifaddrs);

impl List {
    fn get() -> io::Result<Self> {
        let mut list = std::ptr::null_mut();
        // SAFETY: writes one pointer, which `drop` frees.
        let result = unsafe { libc::getifaddrs(&raw mut list) };
        if result == 0 { Ok(Self(list)) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// # Safety
/// `address` is null or points to a socket address of the length that its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller vouches for it; the family decides which type it is.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let bits = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(bits))))
            }
            libc::AF_INET6 => {
                let address = Ipv6Addr::from((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr);
                (!address.is_unicast_link_local()).then_some(IpAddr::V6(address))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    fn found() -> Vec<Rail> {
        let rail = |interface: &str, address: &str| Rail {
            interface: interface.into(),
            address: address.parse().expect("an address"),
        };
        vec![rail("lo", "127.0.0.1"), rail("eth0", "10.0.0.1"), rail("eth1", "10.0.1.1"), rail("eth0", "fd00::1")]
    }

    fn addresses(listen: IpAddr, wanted: &[&str], local: bool) -> Result<Vec<String>, String> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let rails = choose(&found(), listen, &wanted, local).map_err(|fatal| fatal.message)?;
        Ok(rails.iter().map(|rail| rail.address.to_string()).collect())
    }

    #[test]
    fn the_kernel_tells_at_least_the_loopback_interface() {
        let rails = interfaces().expect("the kernel answers");
        assert!(rails.iter().any(|rail| rail.interface == "lo" && rail.address.is_loopback()), "{rails:?}");
    }

    #[test]
    fn all_interfaces_but_loopback_unless_mgmtd_is_there() {
        assert_eq!(addresses(ANY, &[], false), Ok(vec!["10.0.0.1".into(), "10.0.1.1".into()]));
        assert_eq!(addresses(ANY, &[], true), Ok(vec!["127.0.0.1".into()]));
        let any6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        assert_eq!(addresses(any6, &[], false).map(|rails| rails.len()), Ok(3));
        assert!(is_local("127.0.0.1:7600") && !is_local("192.0.2.1:7600"));
    }

    #[test]
    fn what_is_named_is_taken_in_its_order_or_refused() {
        assert_eq!(addresses(ANY, &["eth1", "10.0.0.1"], true), Ok(vec!["10.0.1.1".into(), "10.0.0.1".into()]));
        let refusal = addresses(ANY, &["ib0"], false).unwrap_err();
        assert!(refusal.contains("no interface ib0") && refusal.contains("eth0, eth1, lo"), "{refusal}");
        let one = "192.0.2.7".parse().expect("an address");
        assert_eq!(addresses(one, &["eth1"], false), Ok(vec!["192.0.2.7".into()]), "a given address is the only one");
    }
}
