//! Which of our interfaces reach which of a peer's: pure. A pair is a rail.
//!
//! Interfaces of one network are paired in order: the first of ours with the first of theirs, and so on; who has fewer
//! uses them again. What else is possible between the two is spare: used where no rail of the first kind works. So is a
//! peer's address in none of our networks, unless all are such.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One address of one of this host's interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
    /// Bits of the address that name its network.
    pub prefix: u8,
}

/// What a configuration may say of interfaces: a name, an address, or a network as in `10.1.0.0/16`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    Name(String),
    Address(IpAddr),
    Network(IpAddr, u8),
}

/// A word that is none of these.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is no network: write it as 10.1.0.0/16")]
pub struct NoSelector(String);

impl FromStr for Selector {
    type Err = NoSelector;
    fn from_str(word: &str) -> Result<Self, NoSelector> {
        if let Ok(address) = word.parse() {
            return Ok(Self::Address(address));
        }
        let Some((address, prefix)) = word.split_once('/') else { return Ok(Self::Name(word.to_owned())) };
        let network = address.parse::<IpAddr>().ok().zip(prefix.parse::<u8>().ok());
        let (address, prefix) = network.ok_or_else(|| NoSelector(word.to_owned()))?;
        if prefix > bits(address) { Err(NoSelector(word.to_owned())) } else { Ok(Self::Network(address, prefix)) }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
            Self::Network(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

impl Selector {
    #[must_use]
    pub fn takes(&self, interface: &Interface) -> bool {
        match self {
            Self::Name(name) => interface.name == *name,
            Self::Address(address) => interface.address == *address,
            Self::Network(network, prefix) => in_network(interface.address, *network, *prefix),
        }
    }
}

/// What the selectors take of `found`, in their order and each once; without selectors all.
#[must_use]
pub fn select(found: &[Interface], selectors: &[Selector]) -> Vec<Interface> {
    if selectors.is_empty() {
        return found.to_vec();
    }
    let mut taken: Vec<Interface> = Vec::new();
    for selector in selectors {
        for interface in found.iter().filter(|interface| selector.takes(interface)) {
            if !taken.contains(interface) {
                taken.push(interface.clone());
            }
        }
    }
    taken
}

/// One way to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The interface to go out by; `None`: as the routes say.
    pub local: Option<Interface>,
    /// Packets must be tied to the device, since another of ours is in the same network.
    pub tied: bool,
    pub remote: IpAddr,
    /// Lower goes first: 0, or 1 for spares.
    pub rank: u8,
}

/// The rails between this host and a peer with `remotes`, both best first. `found` are all interfaces here, `locals` those
/// of them that may be used. A remote that is an address of this host stands for something else than the peer (a bridge
/// that every host has), unless all are. One in the network of an interface that may not be used is left out.
#[must_use]
pub fn pairs(locals: &[Interface], found: &[Interface], remotes: &[IpAddr]) -> Vec<Pair> {
    let is_here = |remote: &IpAddr| remote.is_loopback() || found.iter().any(|own| own.address == *remote);
    let elsewhere = remotes.iter().any(|remote| !is_here(remote));
    if !elsewhere {
        return remotes.iter().map(|&remote| routed(remote, 0)).collect();
    }
    let remotes: Vec<IpAddr> = remotes.iter().copied().filter(|remote| !is_here(remote)).collect();
    let reaches = |local: &Interface, remote: IpAddr| {
        !local.address.is_loopback() && in_network(remote, local.address, local.prefix)
    };
    let mut pairs: Vec<Pair> = Vec::new();
    let mut far = Vec::new();
    let mut done: Vec<IpAddr> = Vec::new();
    for &remote in &remotes {
        if done.contains(&remote) {
            continue;
        }
        let ours: Vec<&Interface> = locals.iter().filter(|local| reaches(local, remote)).collect();
        let Some(first) = ours.first() else {
            if !found.iter().any(|own| reaches(own, remote)) {
                far.push(remote);
            }
            continue;
        };
        // All of theirs in this network.
        let theirs: Vec<IpAddr> = remotes.iter().copied().filter(|&other| reaches(first, other)).collect();
        done.extend(&theirs);
        network(&ours, &theirs, &mut pairs);
    }
    let rank = u8::from(!pairs.is_empty());
    pairs.extend(far.into_iter().map(|remote| routed(remote, rank)));
    pairs.sort_by_key(|pair| pair.rank);
    pairs
}

/// Within one network.
fn network(ours: &[&Interface], theirs: &[IpAddr], pairs: &mut Vec<Pair>) {
    let steps = ours.len().max(theirs.len());
    for (at, local) in ours.iter().enumerate() {
        for (to, &remote) in theirs.iter().enumerate() {
            let is_first = (0..steps).any(|step| step % ours.len() == at && step % theirs.len() == to);
            pairs.push(Pair { local: Some((*local).clone()), tied: ours.len() > 1, remote, rank: u8::from(!is_first) });
        }
    }
}

fn routed(remote: IpAddr, rank: u8) -> Pair {
    Pair { local: None, tied: false, remote, rank }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let shift = |width: u8| u32::from(width.saturating_sub(prefix));
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (address.to_bits() ^ network.to_bits()).checked_shr(shift(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits()).checked_shr(shift(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interface(name: &str, address: &str, prefix: u8) -> Interface {
        Interface { name: name.into(), address: address.parse().expect("an address"), prefix }
    }

    fn addresses(words: &[&str]) -> Vec<IpAddr> {
        words.iter().map(|word| word.parse().expect("an address")).collect()
    }

    fn shown(locals: &[Interface], remotes: &[&str]) -> Vec<String> {
        let show = |pair: Pair| {
            let local = pair.local.map_or_else(|| "routed".to_owned(), |local| local.name);
            format!("{local}{} {} {}", if pair.tied { " tied" } else { "" }, pair.remote, pair.rank)
        };
        pairs(locals, locals, &addresses(remotes)).into_iter().map(show).collect()
    }

    #[test]
    fn networks_meet_and_what_is_in_none_is_spare() {
        let ours = [interface("a", "10.0.0.9", 24), interface("b", "10.0.1.9", 24)];
        let found = shown(&ours, &["10.0.1.1", "10.0.0.1", "192.0.2.1"]);
        assert_eq!(found, ["b 10.0.1.1 0", "a 10.0.0.1 0", "routed 192.0.2.1 1"]);
        assert_eq!(shown(&ours, &["192.0.2.1"]), ["routed 192.0.2.1 0"], "where nothing meets, the routes decide");
    }

    #[test]
    fn what_may_not_be_used_is_no_spare_either() {
        let found = [interface("a", "10.0.0.9", 24), interface("b", "10.0.1.9", 24)];
        let to = |remotes| pairs(&found[..1], &found, &addresses(remotes)).len();
        assert_eq!((to(&["10.0.0.1", "10.0.1.1"]), to(&["10.0.1.1"]), to(&["10.0.1.1", "192.0.2.1"])), (1, 0, 1));
    }

    #[test]
    fn in_one_network_interfaces_are_paired_in_order_and_tied() {
        let ours = [interface("a", "10.0.0.8", 24), interface("b", "10.0.0.9", 24)];
        let found = shown(&ours, &["10.0.0.1", "10.0.0.2"]);
        let expected = ["a tied 10.0.0.1 0", "b tied 10.0.0.2 0", "a tied 10.0.0.2 1", "b tied 10.0.0.1 1"];
        assert_eq!(found, expected);
        assert_eq!(shown(&ours, &["10.0.0.1"]), ["a tied 10.0.0.1 0", "b tied 10.0.0.1 0"]);
        assert_eq!(shown(&ours[..1], &["10.0.0.1", "10.0.0.2"]), ["a 10.0.0.1 0", "a 10.0.0.2 0"]);
    }

    #[test]
    fn an_own_address_is_no_way_to_another_host() {
        let ours = [interface("a", "10.0.0.9", 24), interface("bridge", "172.17.0.1", 16)];
        assert_eq!(shown(&ours, &["10.0.0.1", "172.17.0.1"]), ["a 10.0.0.1 0"]);
        assert_eq!(shown(&ours, &["10.0.0.9", "172.17.0.1"]).len(), 2, "a peer on this host has them all");
        assert_eq!(shown(&ours, &["127.0.0.1"]), ["routed 127.0.0.1 0"]);
    }

    #[test]
    fn selectors_filter_and_order() {
        let found = [interface("a", "10.0.0.9", 24), interface("b", "10.0.1.9", 24), interface("a", "fd00::9", 64)];
        let names = |words: &[&str]| -> Vec<String> {
            let selectors: Vec<Selector> = words.iter().map(|word| word.parse().expect("a selector")).collect();
            select(&found, &selectors).into_iter().map(|one| one.address.to_string()).collect()
        };
        assert_eq!(names(&[]), ["10.0.0.9", "10.0.1.9", "fd00::9"]);
        assert_eq!(names(&["b", "a"]), ["10.0.1.9", "10.0.0.9", "fd00::9"]);
        assert_eq!(names(&["10.0.1.0/24", "10.0.0.0/16"]), ["10.0.1.9", "10.0.0.9"]);
        assert_eq!(names(&["fd00::9", "nosuch"]), ["fd00::9"]);
        assert_eq!("10.0.0.0/33".parse::<Selector>(), Err(NoSelector("10.0.0.0/33".into())));
        assert_eq!(
            "x/8".parse::<Selector>().expect_err("no network").to_string(),
            "x/8 is no network: write it as 10.1.0.0/16"
        );
    }

    proptest! {
        /// Whatever the interfaces are: every peer has a rail of the first rank, every interface that can is in one, no
        /// pair is there twice.
        #[test]
        fn nothing_is_left_out_or_doubled(
            ours in prop::collection::btree_set((0u8..3, 1u8..6), 0..5),
            theirs in prop::collection::btree_set((0u8..4, 10u8..16), 1..5),
        ) {
            let locals: Vec<Interface> =
                ours.iter().map(|(net, host)| interface("x", &format!("10.0.{net}.{host}"), 24)).collect();
            let remotes: Vec<IpAddr> = theirs.iter().map(|(net, host)| IpAddr::from([10, 0, *net, *host])).collect();
            let found = pairs(&locals, &locals, &remotes);
            prop_assert!(found.iter().any(|pair| pair.rank == 0));
            for remote in &remotes {
                prop_assert!(found.iter().any(|pair| pair.remote == *remote));
            }
            for (at, pair) in found.iter().enumerate() {
                prop_assert!(!found[..at].iter().any(|other| (&other.local, other.remote) == (&pair.local, pair.remote)));
            }
            for local in &locals {
                let meets = remotes.iter().any(|&remote| in_network(remote, local.address, 24));
                let used = found.iter().any(|pair| pair.rank == 0 && pair.local.as_ref() == Some(local));
                prop_assert_eq!(meets, used);
            }
        }
    }
}
