//! Nodes: list, name, forget.

use std::collections::BTreeMap;

use admin::Admin;
use admin::view::{Lists, NodeInfo};
use clap::Subcommand;
use serde::Serialize;
use types::id::NodeId;

use crate::command::{connect, service_kind};
use crate::failure::{Failure, usage};
use crate::locate::Selection;
use crate::output::{Output, Table};

/// List, name and delete nodes: the running services of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft node list
  weft node delete storaged-2        # shows what would go
  weft node delete storaged-2 --yes")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All nodes with their states
    #[command(after_help = "Example:\n  weft node list --json")]
    List {
        #[command(flatten)]
        selection: Selection,
    },
    /// Give a node another name
    #[command(after_help = "Example:\n  weft node rename storaged-2 rack1-a")]
    Rename {
        #[command(flatten)]
        selection: Selection,
        /// Name or number of the node
        node: String,
        /// Its new name
        alias: String,
    },
    /// Forget a node that has ended, with its targets, which no file needs any more
    #[command(after_help = "Example:\n  weft node delete storaged-2 --yes")]
    Delete {
        #[command(flatten)]
        selection: Selection,
        /// Name or number of the node
        node: String,
        /// Do it; without this, only show what would be done
        #[arg(long)]
        yes: bool,
    },
}

/// What a command that deletes did, or would do.
#[derive(Serialize)]
pub(super) struct Deletion {
    pub(super) deleted: Vec<String>,
    pub(super) dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::List { selection } => {
                let view = connect(&selection, None)?.view()?;
                output.show(&Lists { map: &view.map, capacities: &view.capacities }.nodes(), |nodes| table(nodes))
            }
            Verb::Rename { selection, node, alias } => {
                let admin = connect(&selection, None)?;
                let id = find(&admin, &node)?;
                admin.set_alias(id, &alias)?;
                output.show(&BTreeMap::from([("alias", &alias)]), |_| format!("node {id} is called {alias}"))
            }
            Verb::Delete { selection, node, yes } => {
                let admin = connect(&selection, None)?;
                let id = find(&admin, &node)?;
                let deletion = Deletion { deleted: admin.delete_node(id, yes)?, dry_run: !yes };
                output.show(&deletion, Deletion::text)
            }
        }
    }
}

impl Deletion {
    pub(super) fn text(&self) -> String {
        let head = if self.dry_run { "would delete (add --yes to do it):" } else { "deleted:" };
        format!("{head}\n  {}", self.deleted.join("\n  "))
    }
}

/// By name or number.
fn find(admin: &Admin, word: &str) -> Result<NodeId, Failure> {
    let view = admin.view()?;
    let by_number = word.parse().ok().filter(|id| view.map.nodes.contains_key(id));
    let by_alias = view.map.nodes.values().find(|node| node.alias == word).map(|node| node.id);
    by_alias.or(by_number).ok_or_else(|| usage!("no node is called {word:?}: `weft node list` shows them"))
}

pub(super) fn table(nodes: &[NodeInfo]) -> String {
    let mut table = Table::new(["ID", "NODE", "SERVICE", "STATE", "ADDRESSES", "METRICS", "TARGETS"]);
    for node in nodes {
        let targets: Vec<String> = node.targets.iter().map(ToString::to_string).collect();
        table.row([
            node.id.to_string(),
            node.alias.clone(),
            service_kind(node.kind).to_owned(),
            super::word(&node.state),
            node.addresses.join(","),
            if node.metrics.is_empty() { "-".to_owned() } else { node.metrics.clone() },
            targets.join(","),
        ]);
    }
    table.render()
}
