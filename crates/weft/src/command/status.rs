//! Everything about a cluster at a glance.

use admin::view::{Lists, NodeInfo, Room, TargetInfo};
use serde::Serialize;

use crate::command::{endpoint, node, target};
use crate::failure::Failure;
use crate::local::mounts;
use crate::local::state::State;
use crate::locate::{Cluster, Selection};
use crate::output::{Output, Table, bytes};

/// Show what runs: processes, nodes, targets, space, mounts
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: exit code 1 where the cluster does not answer
  weft status --dir .weft")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
}

#[derive(Serialize)]
struct Status {
    mgmtd: String,
    /// `host:port` of its metrics; absent where it serves none, or its configuration is on another host.
    mgmtd_metrics: Option<String>,
    /// UUID of the cluster; absent where mgmtd does not answer.
    cluster: Option<String>,
    epoch: Option<u64>,
    /// Why mgmtd could not be asked.
    error: Option<String>,
    /// The processes that `weft up` keeps running, where it does.
    local: Option<State>,
    nodes: Vec<NodeInfo>,
    targets: Vec<TargetInfo>,
    storage: Option<Room>,
    /// On this machine.
    mounts: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let cluster = self.selection.find(None)?;
        let status = gather(&cluster)?;
        output.show(&status, text)?;
        match &status.error {
            None => Ok(()),
            Some(error) => Err(anyhow::anyhow!("{error}").into()),
        }
    }
}

fn gather(cluster: &Cluster) -> Result<Status, Failure> {
    let local = match &cluster.dir {
        Some(dir) if dir.is_running()? => State::read(dir)?,
        Some(_) | None => None,
    };
    // Where the configuration cannot be read, mgmtd says so at its start.
    let mgmtd_metrics = cluster.dir.as_ref().and_then(|dir| endpoint::of_mgmtd(dir).ok().flatten());
    let here = mounts::list()?.into_iter().filter(|mount| mount.is_of(&cluster.mgmtd));
    let mut status = Status {
        mgmtd: cluster.mgmtd.clone(),
        mgmtd_metrics,
        cluster: None,
        epoch: None,
        error: None,
        local,
        nodes: Vec::new(),
        targets: Vec::new(),
        storage: None,
        mounts: here.map(|mount| mount.point.display().to_string()).collect(),
    };
    // What this machine knows is shown also where mgmtd does not answer.
    let asked = super::connect_to(cluster).and_then(|admin| Ok((admin.view()?, admin)));
    match asked {
        Ok((view, admin)) => {
            let lists = Lists { map: &view.map, capacities: &view.capacities };
            status.cluster = Some(admin.cluster().to_owned());
            status.epoch = Some(view.map.epoch.0);
            (status.nodes, status.targets) = (lists.nodes(), lists.targets());
            status.storage = Some(lists.space().storage);
        }
        Err(error) => status.error = Some(error.to_string()),
    }
    Ok(status)
}

fn text(status: &Status) -> String {
    let mut parts = Vec::new();
    let (cluster, epoch) = (status.cluster.as_deref().unwrap_or("unknown"), status.epoch.unwrap_or(0));
    let metrics = status.mgmtd_metrics.as_ref().map(|at| format!(" (metrics at {at})")).unwrap_or_default();
    parts.push(format!("cluster {cluster}, map epoch {epoch}, mgmtd at {}{metrics}\n", status.mgmtd));
    if let Some(local) = &status.local {
        let mut table = Table::new(["PROCESS", "PID", "STATE", "RESTARTS", "LAST EXIT"]);
        for (name, process) in &local.processes {
            let pid = if process.pid == 0 { "-".to_owned() } else { process.pid.to_string() };
            let last = if process.last_exit.is_empty() { "-".to_owned() } else { process.last_exit.clone() };
            table.row([name.clone(), pid, process.phase.name().to_owned(), process.restarts.to_string(), last]);
        }
        parts.push(table.render());
    }
    if status.error.is_none() {
        parts.push(node::table(&status.nodes));
        parts.push(target::table(&status.targets));
    }
    let mut last = Vec::new();
    if let Some(storage) = &status.storage {
        last.push(format!("storage: {} free of {}", bytes(storage.free_bytes), bytes(storage.total_bytes)));
    }
    let mounts = if status.mounts.is_empty() { "none on this machine".to_owned() } else { status.mounts.join(", ") };
    last.push(format!("mounts: {mounts}"));
    parts.push(last.join("\n"));
    parts.join("\n")
}
