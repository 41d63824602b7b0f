//! Targets: list, judge, forget.

use std::collections::BTreeMap;

use admin::view::{Lists, TargetInfo};
use clap::{Subcommand, ValueEnum};
use cluster::map::TargetState;
use types::id::TargetId;

use crate::command::node::Deletion;
use crate::command::{connect, service_kind};
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::{Output, Table, bytes};

/// Of a target that is deleted: its service would be refused with it.
const STAYS_OUT: &str = "\nafterwards, take its directory out of `targets` in the configuration of its service, which does \
    not start with it any more";

/// List, mark and delete targets: the units of storage of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft target list
  weft target set-state 3 bad")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All targets with their states and space
    #[command(after_help = "Example:\n  weft target list --json")]
    List {
        #[command(flatten)]
        selection: Selection,
    },
    /// Say how a target is: a bad one gets no new files
    #[command(after_help = "Example:\n  weft target set-state 3 good")]
    SetState {
        #[command(flatten)]
        selection: Selection,
        target: TargetId,
        state: State,
    },
    /// Forget a target that no file needs any more
    #[command(after_help = "Example:\n  weft target delete 3 --yes")]
    Delete {
        #[command(flatten)]
        selection: Selection,
        target: TargetId,
        /// Do it; without this, only show what would be done
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    Good,
    NeedsResync,
    Bad,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::List { selection } => {
                let view = connect(&selection, None)?.view()?;
                output.show(&Lists { map: &view.map, capacities: &view.capacities }.targets(), |list| table(list))
            }
            Verb::SetState { selection, target, state } => {
                let state = match state {
                    State::Good => TargetState::Good,
                    State::NeedsResync => TargetState::NeedsResync,
                    State::Bad => TargetState::Bad,
                };
                connect(&selection, None)?.set_target_state(target, state)?;
                output.show(&BTreeMap::from([("state", state)]), |_| {
                    format!("target {target} is {}", super::word(&state))
                })
            }
            Verb::Delete { selection, target, yes } => {
                let deletion =
                    Deletion { deleted: connect(&selection, None)?.delete_target(target, yes)?, dry_run: !yes };
                output.show(&deletion, |deletion| deletion.text() + STAYS_OUT)
            }
        }
    }
}

pub(super) fn table(targets: &[TargetInfo]) -> String {
    let mut table =
        Table::new(["ID", "KIND", "NODE", "STATE", "SPACE", "GROUP", "POOL", "SHARD", "FREE", "TOTAL", "PATH"]);
    for target in targets {
        let size =
            |of: fn(&admin::view::Room) -> u64| target.room.as_ref().map_or("?".to_owned(), |room| bytes(of(room)));
        let shards: Vec<String> = target.shards.iter().map(ToString::to_string).collect();
        table.row([
            target.id.to_string(),
            service_kind(target.kind).to_owned(),
            target.node_alias.clone(),
            super::word(&target.state),
            super::word(&target.class),
            target.group.map_or("-".to_owned(), |group| group.to_string()),
            target.pool.clone().unwrap_or("-".to_owned()),
            if shards.is_empty() { "-".to_owned() } else { shards.join(",") },
            size(|room| room.free_bytes),
            size(|room| room.total_bytes),
            target.path.clone(),
        ]);
    }
    let mut text = table.render();
    for target in targets.iter().filter(|target| target.left_out) {
        let TargetInfo { id, node_alias, path, .. } = target;
        text += &format!(
            "target {id} is not served: {node_alias} cannot open {path}, and its log says why, or has it no more in its configuration\n"
        );
    }
    text
}
