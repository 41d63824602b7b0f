//! Where a running service or mount serves its metrics and its log level.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cluster::map::{Node, NodeState};

use crate::command::connect;
use crate::failure::{Failure, usage};
use crate::local::dir::ClusterDir;
use crate::local::mounts;
use crate::local::runstate::RunState;
use crate::locate::Selection;

const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// `HOST:PORT` of a node, a mount, mgmtd, or as given.
pub(super) fn find(selection: &Selection, word: &str) -> Result<String, Failure> {
    let is_address = word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if is_address {
        return Ok(word.to_owned());
    }
    if let Some(mount) = mounts::at(word.as_ref())? {
        let state = written_down(&mount.point).filter(|state| !state.metrics.is_empty());
        let elsewhere = || usage!("{word} was mounted by another user, or in another session");
        return state.map(|state| state.metrics).ok_or_else(elsewhere);
    }
    if word == "mgmtd" {
        let dir = selection.find(None)?.dir;
        let dir = dir.ok_or_else(|| usage!("give the HOST:PORT of mgmtd's metrics endpoint (its metrics_listen)"))?;
        return of_mgmtd(&dir)?.ok_or_else(|| usage!("mgmtd serves no metrics: set metrics_listen for it"));
    }
    let view = connect(selection, None)?.view()?;
    let node = view.map.nodes.values().find(|node| node.alias == word || node.id.to_string() == word);
    of_node(node.ok_or_else(|| usage!("no service is called {word:?}: `weft node list` shows them"))?)
}

/// What the mount's process says of it, which it does a moment after it has mounted.
fn written_down(point: &Path) -> Option<RunState> {
    let begin = Instant::now();
    loop {
        let state = RunState::read(point);
        if state.is_some() || begin.elapsed() > WRITTEN_WITHIN {
            return state;
        }
        thread::sleep(POLL);
    }
}

/// Of the mgmtd of a cluster on this host, as its configuration says; `None` where it serves none.
pub(super) fn of_mgmtd(dir: &ClusterDir) -> Result<Option<String>, Failure> {
    let config = conf::load::<mgmtd::config::Config>(Some(&dir.config_file("mgmtd")), &conf::Flags::default());
    let config = config.map_err(anyhow::Error::new)?;
    Ok(config.metrics_listen.map(|at| at.to_string()))
}

/// # Errors
/// Where it serves none, or none that can be reached from here.
pub(super) fn of_node(node: &Node) -> Result<String, Failure> {
    let name = &node.alias;
    if node.metrics.is_empty() {
        return Err(usage!("{name} serves no metrics: set metrics_listen for it"));
    }
    if node.state == NodeState::Offline {
        return Err(anyhow::anyhow!("{name} is offline: start it").into());
    }
    // The loopback interface of this host leads to some other service.
    if is_loopback(&node.metrics) && !node.rails.iter().any(|rail| is_ours(rail.address)) {
        return Err(usage!(
            "{name} serves its metrics to its own host alone, at {}: ask there, or set metrics_listen for it",
            node.metrics
        ));
    }
    Ok(node.metrics.clone())
}

fn is_loopback(endpoint: &str) -> bool {
    endpoint.parse().is_ok_and(|address: SocketAddr| address.ip().is_loopback())
}

/// It is an address of this host: only those can be bound.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use cluster::map::{Rail, ServiceKind};
    use types::id::NodeId;

    use super::*;

    #[test]
    fn what_other_hosts_serve_to_themselves_is_not_asked_for_here() {
        let node = |address: &str, metrics: &str, state| Node {
            id: NodeId(1),
            uuid: String::new(),
            kind: ServiceKind::Storage,
            alias: "far".to_owned(),
            state,
            rails: vec![Rail { interface: "x".to_owned(), address: address.parse().expect("an address") }],
            metrics: metrics.to_owned(),
        };
        let online = NodeState::Online;
        assert_eq!(of_node(&node("127.0.0.1", "127.0.0.1:9", online)).expect("it is here"), "127.0.0.1:9");
        assert_eq!(of_node(&node("192.0.2.1", "192.0.2.1:9", online)).expect("it can be reached"), "192.0.2.1:9");
        for (node, reason) in [
            (node("192.0.2.1", "127.0.0.1:9", online), "far serves its metrics to its own host alone"),
            (node("192.0.2.1", "[::1]:9", online), "to its own host alone"),
            (node("127.0.0.1", "127.0.0.1:9", NodeState::Offline), "far is offline"),
            (node("127.0.0.1", "", online), "serves no metrics"),
        ] {
            let refusal = of_node(&node).expect_err("it cannot be asked").to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
