//! This host's network interfaces, as the kernel tells them.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pairs::Interface;

/// How long a list is good.
const FRESH: Duration = Duration::from_secs(1);

/// Addresses of all interfaces that are up, IPv4 before IPv6; link-local ones mean nothing to other hosts.
///
/// # Errors
/// Where the kernel does not tell.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let list = List::get()?;
    let mut found = Vec::new();
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
        if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
            continue;
        }
        // SAFETY: as above, of its mask.
        let mask = unsafe { address_of(entry.ifa_netmask) };
        let prefix = match mask {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones() as u8,
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones() as u8,
            None => {
                if address.is_ipv4() {
                    32
                } else {
                    128
                }
            }
        };
        // SAFETY: the name is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.push(Interface { name, address, prefix });
    }
    found.sort_by_key(|interface| interface.address.is_ipv6());
    Ok(found)
}

/// As [`interfaces`], as it was a second ago at most: for those who ask often.
#[must_use]
pub fn lately(now: Instant) -> Arc<[Interface]> {
    static LATELY: Mutex<Option<(Instant, Arc<[Interface]>)>> = Mutex::new(None);
    let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
    match &*lately {
        Some((then, found)) if now.saturating_duration_since(*then) < FRESH => Arc::clone(found),
        old => {
            let before = old.as_ref().map(|(_, found)| Arc::clone(found));
            let found = interfaces().map(Arc::from).unwrap_or_else(|_| before.unwrap_or_default());
            *lately = Some((now, Arc::clone(&found)));
            found
        }
    }
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
                Some(IpAddr::V6(Ipv6Addr::from((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_at_least_the_loopback_interface() {
        let found = interfaces().expect("the kernel answers");
        let is_it = |one: &Interface| one.name == "lo" && one.address.is_loopback() && one.prefix == 8;
        assert!(found.iter().any(is_it), "{found:?}");
    }
}
