//! The rails of a running service or mount, as its metrics tell them.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use crate::endpoint::ask;

/// One process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Network {
    /// All that goes over each of its addresses.
    pub interfaces: Vec<InterfaceInfo>,
    /// Its ways to others, as far as it has gone them.
    pub rails: Vec<RailInfo>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct InterfaceInfo {
    /// Own address; `local`: within the host.
    pub rail: String,
    /// Bytes, since the process began.
    pub sent: u64,
    pub received: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RailInfo {
    /// Own address; `local`: within the host; `any`: as the routes say, before there was a connection.
    pub rail: String,
    /// The peer's address.
    pub peer: String,
    pub state: RailState,
    /// Open now.
    pub connections: u64,
    /// Bytes, since the process began.
    pub sent: u64,
    pub received: u64,
    /// As the kernel last measured it; 0 where it was not asked.
    pub round_trip_us: u64,
    /// Connections lost, or that could not be made.
    pub failures: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RailState {
    /// It works.
    Healthy,
    /// The last that happened on it was a failure.
    Failed,
    /// Nobody needs it at the moment.
    #[default]
    Idle,
}

/// Of the process behind `endpoint` (`host:port` of its metrics).
///
/// # Errors
/// Where it does not answer.
pub fn of(endpoint: &str) -> Result<Network> {
    Ok(read(&ask(endpoint, "GET", "/metrics", "")?))
}

fn read(text: &str) -> Network {
    let mut interfaces: BTreeMap<String, InterfaceInfo> = BTreeMap::new();
    let mut rails: BTreeMap<(String, String), (RailInfo, bool)> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, labels, value)) = parse(line) else { continue };
        let Some(rail) = label(labels, "rail") else { continue };
        let Some(peer) = label(labels, "peer") else {
            let interface = interfaces.entry(rail.to_owned()).or_default();
            rail.clone_into(&mut interface.rail);
            match name {
                "weft_sent_bytes_total" => interface.sent = value,
                "weft_received_bytes_total" => interface.received = value,
                _ => {}
            }
            continue;
        };
        let (info, healthy) = rails.entry((peer.to_owned(), rail.to_owned())).or_default();
        rail.clone_into(&mut info.rail);
        peer.clone_into(&mut info.peer);
        match name {
            "weft_rail_sent_bytes_total" => info.sent = value,
            "weft_rail_received_bytes_total" => info.received = value,
            "weft_rail_connections" => info.connections = value,
            "weft_rail_round_trip_microseconds" => info.round_trip_us = value,
            "weft_rail_failures_total" => info.failures = value,
            "weft_rail_healthy" => *healthy = value > 0,
            _ => {}
        }
    }
    let judged = |(info, healthy): (RailInfo, bool)| {
        let state = match (healthy, info.connections) {
            (false, 0) => RailState::Failed,
            (true, 0) => RailState::Idle,
            (false, _) => RailState::Failed,
            (true, _) => RailState::Healthy,
        };
        RailInfo { state, ..info }
    };
    Network { interfaces: interfaces.into_values().collect(), rails: rails.into_values().map(judged).collect() }
}

/// Name, labels and value of a line; numbers that are none of ours count as 0.
fn parse(line: &str) -> Option<(&str, &str, u64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    Some((name, labels, value.trim().parse().unwrap_or(0)))
}

/// Our own labels have no quotes inside.
fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| pair.strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_become_rails() {
        let network = read(
            r#"# HELP weft_sent_bytes Bytes
weft_sent_bytes_total{service="mount",rail="10.0.0.9"} 100
weft_received_bytes_total{service="mount",rail="10.0.0.9"} 50
weft_rail_sent_bytes_total{service="mount",rail="10.0.0.9",peer="10.0.0.1"} 90
weft_rail_connections{service="mount",rail="10.0.0.9",peer="10.0.0.1"} 2
weft_rail_healthy{service="mount",rail="10.0.0.9",peer="10.0.0.1"} 1
weft_rail_round_trip_microseconds{service="mount",rail="10.0.0.9",peer="10.0.0.1"} 130
weft_rail_failures_total{service="mount",rail="10.0.1.9",peer="10.0.1.1"} 3
weft_rail_healthy{service="mount",rail="10.0.1.9",peer="10.0.1.1"} 0
weft_map_epoch{service="mount"} 4
"#,
        );
        assert_eq!(network.interfaces, [InterfaceInfo { rail: "10.0.0.9".into(), sent: 100, received: 50 }]);
        let first = &network.rails[0];
        let shown = (first.rail.as_str(), first.peer.as_str(), first.state, first.sent, first.round_trip_us);
        assert_eq!(shown, ("10.0.0.9", "10.0.0.1", RailState::Healthy, 90, 130));
        assert_eq!((network.rails[1].state, network.rails[1].failures), (RailState::Failed, 3));
    }
}
