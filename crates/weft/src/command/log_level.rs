//! What a running service logs.

use admin::log_level;
use serde::Serialize;

use crate::command::connect;
use crate::failure::{Failure, usage};
use crate::local::mounts;
use crate::local::runstate::RunState;
use crate::locate::{Cluster, Selection};
use crate::output::Output;

/// Show or change what a running service logs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: all of metad at debug, connections at trace; then back
  weft log-level metad-1 metad=debug,net=trace
  weft log-level metad-1 info")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Name of a node (`weft node list`), mgmtd, a mount point, or HOST:PORT of a metrics endpoint
    service: String,
    /// off, error, warn, info, debug, trace, or CRATE=LEVEL,...; without it the level is shown
    level: Option<String>,
}

#[derive(Serialize)]
struct Level {
    service: String,
    endpoint: String,
    level: String,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let endpoint = endpoint(&self.selection, &self.service)?;
        let level = match &self.level {
            Some(level) => log_level::set(&endpoint, level)?,
            None => log_level::get(&endpoint)?,
        };
        let level = Level { service: self.service, endpoint, level };
        output.show(&level, |level| format!("{} logs {}", level.service, level.level))
    }
}

/// `HOST:PORT` of the metrics of a node, a mount, mgmtd, or as given.
pub(super) fn endpoint(selection: &Selection, word: &str) -> Result<String, Failure> {
    let is_address = word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if is_address {
        return Ok(word.to_owned());
    }
    if let Some(mount) = mounts::at(word.as_ref())? {
        let state = RunState::read(&mount.point).filter(|state| !state.metrics.is_empty());
        return state.map(|state| state.metrics).ok_or_else(|| usage!("{word} was mounted by another user"));
    }
    if word == "mgmtd" {
        return mgmtd_endpoint(&selection.find(None)?);
    }
    let view = connect(selection, None)?.view()?;
    let node = view.map.nodes.values().find(|node| node.alias == word || node.id.to_string() == word);
    match node {
        Some(node) if node.metrics.is_empty() => Err(usage!("{word} serves no metrics: set metrics_listen for it")),
        Some(node) => Ok(node.metrics.clone()),
        None => Err(usage!("no service is called {word:?}: `weft node list` shows them")),
    }
}

fn mgmtd_endpoint(cluster: &Cluster) -> Result<String, Failure> {
    let Some(dir) = &cluster.dir else {
        return Err(usage!("give the HOST:PORT of mgmtd's metrics endpoint (its metrics_listen)"));
    };
    Ok(format!("127.0.0.1:{}", dir.spec()?.mgmtd_metrics_port))
}
