//! The ways to a node that are worth a measurement of their own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::interfaces::interfaces;
use crate::pairs::{Interface, Pair, Selector, pairs, select};

/// Over what requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Over {
    /// This rail alone.
    Rail(Pair),
    /// As clients do it: each request over the rail with the least under way.
    AllRails,
    /// The node is on this host: a local socket.
    WithinHost,
    /// The node is on this host, but asked over TCP and without memory that both see, as if it were elsewhere.
    Loopback,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::Rail(Pair { local: Some(local), remote, .. }) => {
                write!(f, "{} {} > {remote}", local.name, local.address)
            }
            Over::Rail(Pair { local: None, remote, .. }) => write!(f, "routed > {remote}"),
            Over::AllRails => f.write_str("all rails"),
            Over::WithinHost => f.write_str("within the host"),
            Over::Loopback => f.write_str("loopback"),
        }
    }
}

/// Each rail to a node with these addresses that is no spare, and then all of them together; `interfaces` chooses those to
/// go out by. None where nothing leads there.
#[must_use]
pub fn ways(lanes: &[Vec<SocketAddr>], selectors: &[Selector]) -> Vec<Over> {
    let found = interfaces().unwrap_or_default();
    let remotes: Vec<IpAddr> = lanes.first().into_iter().flatten().map(SocketAddr::ip).collect();
    choose(&found, selectors, &remotes)
}

fn choose(found: &[Interface], selectors: &[Selector], remotes: &[IpAddr]) -> Vec<Over> {
    let is_here = |remote: IpAddr| remote.is_loopback() || found.iter().any(|own| own.address == remote);
    let rails: Vec<Pair> =
        pairs(&select(found, selectors), found, remotes).into_iter().filter(|pair| pair.rank == 0).collect();
    if rails.iter().any(|rail| is_here(rail.remote)) {
        return vec![Over::WithinHost];
    }
    let several = rails.len() > 1;
    rails.into_iter().map(Over::Rail).chain(several.then_some(Over::AllRails)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: [u8; 4]) -> Interface {
        Interface { name: name.into(), address: address.into(), prefix: 24 }
    }

    fn shown(found: &[Interface], selectors: &[&str], remotes: &[[u8; 4]]) -> Vec<String> {
        let selectors: Vec<Selector> = selectors.iter().map(|word| word.parse().expect("a selector")).collect();
        let remotes: Vec<IpAddr> = remotes.iter().map(|&remote| remote.into()).collect();
        choose(found, &selectors, &remotes).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_rail_and_then_all_of_them() {
        let two = [interface("a", [10, 0, 0, 2]), interface("b", [10, 0, 1, 2])];
        let both = shown(&two, &[], &[[10, 0, 0, 1], [10, 0, 1, 1]]);
        assert_eq!(both, ["a 10.0.0.2 > 10.0.0.1", "b 10.0.1.2 > 10.0.1.1", "all rails"]);
        assert_eq!(shown(&two, &["b"], &[[10, 0, 0, 1], [10, 0, 1, 1]]), ["b 10.0.1.2 > 10.0.1.1"]);
        assert_eq!(shown(&two, &[], &[[10, 0, 0, 1]]), ["a 10.0.0.2 > 10.0.0.1"]);
        assert_eq!(shown(&two, &[], &[[192, 0, 2, 1]]), ["routed > 192.0.2.1"]);
    }

    #[test]
    fn within_a_host_there_are_no_rails() {
        let two = [interface("a", [10, 0, 0, 2]), interface("b", [10, 0, 1, 2])];
        assert_eq!(shown(&two, &[], &[[10, 0, 0, 2], [10, 0, 1, 2]]), ["within the host"]);
        assert_eq!(shown(&two, &[], &[[127, 0, 0, 1]]), ["within the host"]);
        assert!(shown(&two, &[], &[]).is_empty());
    }
}
