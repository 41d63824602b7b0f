//! Networks: which ways processes use to each other, how those are, and what goes over them.

use std::collections::BTreeMap;

use admin::net::{Network, RailState};
use serde::Serialize;

use crate::command::{connect, endpoint};
use crate::failure::Failure;
use crate::local::mounts;
use crate::local::runstate::RunState;
use crate::locate::Selection;
use crate::output::{Output, Table, bytes};

/// Show the rails of services and mounts: their health, connections, bytes and round trips
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: of one mount, and of all nodes and the mounts on this host
  weft net /mnt/weft
  weft net --json")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Names of nodes (`weft node list`), mount points, or HOST:PORT of metrics endpoints; none: all nodes that serve
    /// metrics, and the mounts on this host
    services: Vec<String>,
}

#[derive(Serialize)]
struct Of {
    service: String,
    #[serde(flatten)]
    network: Network,
    /// Why nothing is known of it.
    error: Option<String>,
}

/// A service, and where it tells of its network, or why it cannot be asked.
type Endpoint = (String, Result<String, Failure>);

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let endpoints = if self.services.is_empty() { self.all()? } else { self.named()? };
        let all: Vec<Of> = endpoints.into_iter().map(ask).collect();
        let names = if output.json { BTreeMap::new() } else { self.names() };
        output.show(&all, |all| text(all, &names))?;
        if all.iter().all(|of| of.error.is_none()) { Ok(()) } else { Err(Failure::Found) }
    }

    /// Where one is named that cannot be asked at all, the words have to be others.
    fn named(&self) -> Result<Vec<Endpoint>, Failure> {
        let endpoint = |service: &String| match endpoint::find(&self.selection, service) {
            Err(Failure::Usage(reason)) => Err(Failure::Usage(reason)),
            endpoint => Ok((service.clone(), endpoint)),
        };
        self.services.iter().map(endpoint).collect()
    }

    fn all(&self) -> Result<Vec<Endpoint>, Failure> {
        let cluster = self.selection.find(None)?;
        let view = connect(&self.selection, None)?.view()?;
        let nodes = view.map.nodes.values().filter(|node| !node.metrics.is_empty());
        let mut all: Vec<Endpoint> = nodes.map(|node| (node.alias.clone(), endpoint::of_node(node))).collect();
        for mount in mounts::list()?.into_iter().filter(|mount| mount.is_of(&cluster.mgmtd)) {
            let state = RunState::read(&mount.point).filter(|state| !state.metrics.is_empty());
            all.extend(state.map(|state| (mount.point.display().to_string(), Ok(state.metrics))));
        }
        Ok(all)
    }

    /// Whose address is whose. Where mgmtd does not tell, addresses say enough.
    fn names(&self) -> BTreeMap<String, String> {
        let path = self.services.first().map(std::path::Path::new);
        let Ok(view) = connect(&self.selection, path).and_then(|admin| Ok(admin.view()?)) else {
            return BTreeMap::new();
        };
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for node in view.map.nodes.values() {
            for rail in &node.rails {
                let name = names.entry(rail.address.to_string()).or_default();
                *name = if name.is_empty() { node.alias.clone() } else { format!("{name},{}", node.alias) };
            }
        }
        names
    }
}

/// Who does not answer keeps nobody from telling of the others.
fn ask((service, endpoint): Endpoint) -> Of {
    match endpoint.and_then(|endpoint| Ok(admin::net::of(&endpoint)?)) {
        Ok(network) => Of { service, network, error: None },
        Err(failure) => Of { service, network: Network::default(), error: Some(failure.to_string()) },
    }
}

fn text(all: &[Of], names: &BTreeMap<String, String>) -> String {
    let errors = all.iter().filter_map(|of| Some(format!("{}: {}\n", of.service, of.error.as_ref()?)));
    table(all, names) + &errors.collect::<String>()
}

fn table(all: &[Of], names: &BTreeMap<String, String>) -> String {
    let head = ["SERVICE", "RAIL", "PEER", "NODES", "STATE", "CONNECTIONS", "SENT", "RECEIVED", "RTT", "FAILURES"];
    let mut table = Table::new(head);
    for Of { service, network, .. } in all {
        for rail in &network.rails {
            let state = match rail.state {
                RailState::Healthy => "healthy",
                RailState::Failed => "FAILED",
                RailState::Idle => "idle",
            };
            table.row([
                service.clone(),
                rail.rail.clone(),
                rail.peer.clone(),
                names.get(&rail.peer).cloned().unwrap_or_else(|| "-".to_owned()),
                state.to_owned(),
                rail.connections.to_string(),
                bytes(rail.sent),
                bytes(rail.received),
                if rail.round_trip_us == 0 { "-".to_owned() } else { format!("{} us", rail.round_trip_us) },
                rail.failures.to_string(),
            ]);
        }
        for interface in &network.interfaces {
            let dash = || "-".to_owned();
            table.row([
                service.clone(),
                interface.rail.clone(),
                "all".to_owned(),
                dash(),
                dash(),
                dash(),
                bytes(interface.sent),
                bytes(interface.received),
                dash(),
                dash(),
            ]);
        }
    }
    table.render()
}
