//! Under which addresses a service registers: its rails.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use cluster::map::Rail;
use conf::Fatal;
use net::interfaces::interfaces;
use net::pairs::{Interface, NoSelector, Selector, select};

/// The rails of a service that listens on `listen`, best first. `wanted` names interfaces, addresses or networks; without
/// any, a service whose mgmtd is on this host's loopback interface is for this host alone, and any other is reachable over
/// all interfaces that are up.
///
/// # Errors
/// Where a wanted interface is not there, or the kernel does not tell.
pub fn rails(listen: IpAddr, wanted: &[String], management: &str) -> Result<Vec<Rail>, Fatal> {
    choose(&found()?, listen, wanted, Reach::of(management))
}

/// Whom a service is for, by the address of its mgmtd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// This host alone.
    Here,
    /// All hosts; while this one is in no network, itself.
    HereAtLeast,
    Everywhere,
}

/// The rails of a service that runs, as they change: what was registered, and what there is now.
#[derive(Clone, Debug)]
pub struct Watched {
    listen: IpAddr,
    wanted: Vec<String>,
    reach: Reach,
    /// Rails that are registered and are not there now: since how many looks.
    missing: u32,
    /// Where the metrics are served.
    metrics: Option<SocketAddr>,
}

/// Looks after which what is missing is withdrawn: an interface that is down for some moments keeps its place.
const MISSING_MAX: u32 = 10;

impl Watched {
    #[must_use]
    pub fn new(listen: IpAddr, wanted: &[String], management: &str) -> Self {
        Self { listen, wanted: wanted.to_vec(), reach: Reach::of(management), missing: 0, metrics: None }
    }

    /// Also tells the address at which the service's metrics are served.
    #[must_use]
    pub fn with_metrics(self, metrics: Option<SocketAddr>) -> Self {
        Self { metrics, ..self }
    }

    /// Where others find these metrics while the service has these rails.
    pub(crate) fn metrics_at(&self, rails: &[Rail]) -> Option<String> {
        self.metrics.map(|metrics| seen_at(metrics, rails).to_string())
    }

    /// The rails to register now, where they are others than `registered`.
    pub fn changed(&mut self, registered: &[Rail]) -> Option<Vec<Rail>> {
        let found = interfaces().ok()?;
        self.compare(&found, registered)
    }

    fn compare(&mut self, found: &[Interface], registered: &[Rail]) -> Option<Vec<Rail>> {
        if !self.listen.is_unspecified() {
            return None;
        }
        // Of those that are named, those that are there.
        let there = |word: &&String| {
            word.parse().is_ok_and(|selector: Selector| found.iter().any(|interface| selector.takes(interface)))
        };
        let wanted: Vec<String> = self.wanted.iter().filter(there).cloned().collect();
        if wanted.is_empty() && !self.wanted.is_empty() {
            return None;
        }
        let now = choose(found, self.listen, &wanted, self.reach).ok()?;
        let is_here_alone = |rails: &[Rail]| rails.iter().all(|rail| rail.address.is_loopback());
        if self.reach == Reach::HereAtLeast && is_here_alone(&now) && !is_here_alone(registered) {
            return None;
        }
        let is_missing = registered.iter().any(|rail| !now.contains(rail));
        self.missing = if is_missing { self.missing + 1 } else { 0 };
        let is_new = now.iter().any(|rail| !registered.contains(rail));
        match (is_new, self.missing) {
            (true, 0) | (_, MISSING_MAX..) => Some(now),
            (true, _) => {
                let kept = registered.iter().filter(|rail| !now.contains(rail)).cloned();
                Some(now.iter().cloned().chain(kept).collect())
            }
            (false, _) => None,
        }
    }
}

/// Where others find what listens on `endpoint` at a node with these `rails`: "all addresses" would lead each of them to itself.
#[must_use]
pub fn seen_at(endpoint: SocketAddr, rails: &[Rail]) -> SocketAddr {
    let leads_there = |rail: &&Rail| endpoint.is_ipv6() || rail.address.is_ipv4();
    match rails.iter().find(leads_there) {
        Some(rail) if endpoint.ip().is_unspecified() => SocketAddr::new(rail.address, endpoint.port()),
        _ => endpoint,
    }
}

fn found() -> Result<Vec<Interface>, Fatal> {
    interfaces().map_err(|error| Fatal::failed(format!("cannot list network interfaces: {error}")))
}

/// What a configuration says of interfaces, in its order.
///
/// # Errors
/// Where a word with a `/` is no network.
pub fn selectors(wanted: &[String]) -> Result<Arc<[Selector]>, Fatal> {
    let parsed: Result<Vec<Selector>, NoSelector> = wanted.iter().map(|word| word.parse()).collect();
    parsed.map(Arc::from).map_err(|error| Fatal::usage(format!("interfaces: {error}")))
}

/// As [`selectors`], for who only goes out by them: at least one must be there now.
///
/// # Errors
/// Also where none of them is up here.
pub fn usable(wanted: &[String]) -> Result<Arc<[Selector]>, Fatal> {
    let (selectors, found) = (selectors(wanted)?, found()?);
    if !selectors.is_empty() && select(&found, &selectors).is_empty() {
        return Err(none(&wanted.join(", "), &found));
    }
    Ok(selectors)
}

fn none(wanted: &str, found: &[Interface]) -> Fatal {
    Fatal::usage(format!("interfaces: no interface {wanted} is up here: there are {}", names(found)))
}

fn only_ipv4(unheard: &[Interface]) -> Fatal {
    Fatal::usage(format!(
        "listen: at IPv4 addresses alone, and here are none but on the loopback interface, or none that `interfaces` names: \
         listen at :: ([::]:0 in metad's file) to use the IPv6 addresses of {}",
        names(unheard)
    ))
}

fn rail(interface: &Interface) -> Rail {
    Rail { interface: interface.name.clone(), address: interface.address }
}

fn choose(found: &[Interface], listen: IpAddr, wanted: &[String], reach: Reach) -> Result<Vec<Rail>, Fatal> {
    if !listen.is_unspecified() {
        let known = found.iter().find(|interface| interface.address == listen).map(rail);
        return Ok(vec![known.unwrap_or_else(|| Rail { interface: String::new(), address: listen })]);
    }
    let reachable = |interface: &&Interface| listen.is_ipv6() || interface.address.is_ipv4();
    let (found, unheard): (Vec<Interface>, Vec<Interface>) = found.iter().cloned().partition(|one| reachable(&one));
    let selectors = selectors(wanted)?;
    for selector in selectors.iter() {
        if unheard.iter().any(|one| selector.takes(one)) && !found.iter().any(|one| selector.takes(one)) {
            return Err(only_ipv4(&unheard));
        }
        if !found.iter().any(|interface| selector.takes(interface)) {
            return Err(none(&selector.to_string(), &found));
        }
    }
    if !selectors.is_empty() {
        return Ok(select(&found, &selectors).iter().map(rail).collect());
    }
    let (loopback, others): (Vec<&Interface>, Vec<&Interface>) =
        found.iter().partition(|interface| interface.address.is_loopback());
    let chosen = match reach {
        Reach::Here => loopback,
        Reach::HereAtLeast if others.is_empty() => loopback,
        Reach::HereAtLeast | Reach::Everywhere => others,
    };
    let rails: Vec<Rail> = chosen.into_iter().map(rail).collect();
    if rails.is_empty() && unheard.iter().any(|interface| !interface.address.is_loopback()) {
        return Err(only_ipv4(&unheard));
    }
    if rails.is_empty() {
        return Err(Fatal::usage(format!("no interface to register: set `interfaces`; there are {}", names(&found))));
    }
    Ok(rails)
}

fn names(found: &[Interface]) -> String {
    let names: BTreeSet<&str> = found.iter().map(|interface| interface.name.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

impl Reach {
    /// By `host:port`. The own name of a host does not say that it is for this one alone, though it often stands for a loopback
    /// address there (127.0.1.1 on Debian): others know it by that name too.
    fn of(management: &str) -> Self {
        let is_loopback = || {
            let found = management.to_socket_addrs();
            found.is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
        };
        let is_address = management.parse::<SocketAddr>().is_ok();
        match is_loopback() {
            true if is_address || management.contains("localhost") || management.contains("loopback") => Self::Here,
            true => Self::HereAtLeast,
            false => Self::Everywhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    fn found() -> Vec<Interface> {
        let one = |name: &str, address: &str| Interface {
            name: name.into(),
            address: address.parse().expect("an address"),
            prefix: 24,
        };
        vec![one("lo", "127.0.0.1"), one("eth0", "10.0.0.1"), one("eth1", "10.0.1.1"), one("eth0", "fd00::1")]
    }

    /// Which may stand for a loopback address here, or for none.
    fn hostname() -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has one");
        if name.contains("localhost") { "unnamed".to_owned() } else { name.trim().to_owned() }
    }

    fn addresses(listen: IpAddr, wanted: &[&str], reach: Reach) -> Result<Vec<String>, String> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let rails = choose(&found(), listen, &wanted, reach).map_err(|fatal| fatal.message)?;
        Ok(rails.iter().map(|rail| rail.address.to_string()).collect())
    }

    #[test]
    fn all_interfaces_but_loopback_unless_mgmtd_is_there() {
        assert_eq!(addresses(ANY, &[], Reach::Everywhere), Ok(vec!["10.0.0.1".into(), "10.0.1.1".into()]));
        assert_eq!(addresses(ANY, &[], Reach::Here), Ok(vec!["127.0.0.1".into()]));
        assert_eq!(addresses(ANY, &[], Reach::HereAtLeast), addresses(ANY, &[], Reach::Everywhere));
        let alone = choose(&found()[..1], ANY, &[], Reach::HereAtLeast).expect("it is in no network");
        assert_eq!(alone[0].address, Ipv4Addr::LOCALHOST);
        assert!(choose(&found()[..1], ANY, &[], Reach::Everywhere).is_err());
        let any6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        assert_eq!(addresses(any6, &[], Reach::Everywhere).map(|rails| rails.len()), Ok(3));
        assert!(["127.0.0.1:7600", "[::1]:7600", "localhost:7600"].iter().all(|at| Reach::of(at) == Reach::Here));
        assert_eq!(Reach::of("192.0.2.1:7600"), Reach::Everywhere);
        assert_ne!(Reach::of(&format!("{}:7600", hostname())), Reach::Here);
    }

    #[test]
    fn a_host_without_ipv4_is_told_how_to_listen() {
        let sixth: Vec<Interface> =
            found().into_iter().filter(|one| one.name == "lo" || one.address.is_ipv6()).collect();
        let refusal = choose(&sixth, ANY, &[], Reach::Everywhere).map_err(|fatal| fatal.message).unwrap_err();
        assert!(refusal.contains("listen at ::"), "{refusal}");
        assert!(choose(&sixth, ANY, &[], Reach::Here).is_ok() && choose(&sixth, ANY, &[], Reach::HereAtLeast).is_ok());
        assert!(choose(&sixth, IpAddr::V6(Ipv6Addr::UNSPECIFIED), &[], Reach::Everywhere).is_ok());
    }

    #[test]
    fn what_listens_everywhere_is_found_at_the_first_rail() {
        let rails = choose(&found(), IpAddr::V6(Ipv6Addr::UNSPECIFIED), &[], Reach::Everywhere).expect("rails");
        let at = |endpoint: &str| seen_at(endpoint.parse().expect("an address"), &rails[1..]).to_string();
        assert_eq!(at("0.0.0.0:9"), "10.0.1.1:9");
        assert_eq!(at("[::]:9"), "10.0.1.1:9");
        assert_eq!(at("192.0.2.1:9"), "192.0.2.1:9");
        let only_sixth = seen_at("0.0.0.0:9".parse().expect("an address"), &rails[2..]);
        assert!(only_sixth.ip().is_unspecified(), "it is not there");
        let mut watched = Watched::new(ANY, &[], "192.0.2.1:1");
        assert_eq!(watched.metrics_at(&rails), None, "it serves none");
        watched = watched.with_metrics(Some("0.0.0.0:9".parse().expect("an address")));
        assert_eq!(watched.metrics_at(&rails), Some("10.0.0.1:9".to_owned()));
        assert_eq!(watched.metrics_at(&rails[1..]), Some("10.0.1.1:9".to_owned()));
    }

    #[test]
    fn a_host_that_is_in_no_network_for_a_while_keeps_what_others_know() {
        let name = format!("{}:1", hostname());
        let mut watched = Watched { reach: Reach::HereAtLeast, ..Watched::new(ANY, &[], &name) };
        let all = choose(&found(), ANY, &[], Reach::HereAtLeast).expect("rails");
        assert!((0..2 * MISSING_MAX).all(|_| watched.compare(&found()[..1], &all).is_none()));
        let alone = choose(&found()[..1], ANY, &[], Reach::HereAtLeast).expect("rails");
        assert_eq!(watched.compare(&found()[..1], &alone), None);
        let now = watched.compare(&found(), &alone).expect("it is in one now");
        assert_eq!(now[..all.len()], all[..]);
    }

    #[test]
    fn what_comes_is_registered_at_once_and_what_goes_after_a_while() {
        let mut watched = Watched::new(ANY, &[], "192.0.2.1:1");
        let all = choose(&found(), ANY, &[], Reach::Everywhere).expect("rails");
        assert_eq!(watched.compare(&found(), &all), None);
        assert_eq!(watched.compare(&found(), &all[..1]), Some(all.clone()));
        for _ in 1..MISSING_MAX {
            assert_eq!(watched.compare(&found()[..2], &all), None);
        }
        assert_eq!(watched.compare(&found()[..2], &all), Some(all[..1].to_vec()));
        // Back in time.
        assert_eq!(watched.compare(&found(), &all), None);
        assert_eq!(watched.compare(&found()[..2], &all), None);
        let mut named = Watched::new(ANY, &["eth1".into(), "eth9".into()], "192.0.2.1:1");
        assert_eq!(named.compare(&found(), &all[1..]), None, "one that was never there changes nothing");
        assert_eq!(named.compare(&[], &all[1..]), None, "without any interface the last ones stay");
    }

    #[test]
    fn what_is_named_is_taken_in_its_order_or_refused() {
        assert_eq!(addresses(ANY, &["eth1", "10.0.0.1"], Reach::Here), Ok(vec!["10.0.1.1".into(), "10.0.0.1".into()]));
        let refusal = addresses(ANY, &["ib0"], Reach::Everywhere).unwrap_err();
        assert!(refusal.contains("no interface ib0") && refusal.contains("eth0, eth1, lo"), "{refusal}");
        assert_eq!(addresses(ANY, &["10.0.1.0/24"], Reach::Everywhere), Ok(vec!["10.0.1.1".into()]));
        let refusal = addresses(ANY, &["fd00::/64"], Reach::Everywhere).unwrap_err();
        assert!(refusal.contains("listen at ::") && refusal.contains("eth0"), "{refusal}");
        let refusal = addresses(ANY, &["eth0/x"], Reach::Everywhere).unwrap_err();
        assert!(refusal.contains("eth0/x is no network"), "{refusal}");
        let one = "192.0.2.7".parse().expect("an address");
        assert_eq!(
            addresses(one, &["eth1"], Reach::Everywhere),
            Ok(vec!["192.0.2.7".into()]),
            "a given address is the only one"
        );
    }
}
