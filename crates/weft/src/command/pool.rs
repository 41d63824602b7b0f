//! Pools: named sets of storage groups.

use std::collections::BTreeMap;

use admin::Admin;
use admin::view::Lists;
use clap::Subcommand;
use cluster::map::ServiceKind;
use types::id::{GroupId, PoolId};

use crate::command::connect;
use crate::failure::{Failure, usage};
use crate::locate::Selection;
use crate::output::{Output, Table, bytes};

/// List and change pools: a directory names the pool that its new files go to
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: two of four groups become a pool of their own, for the files of one directory
  weft pool create fast
  weft pool assign fast 4 5
  weft entry set /mnt/weft/scratch --pool fast")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All pools with their groups and space
    #[command(after_help = "Example:\n  weft pool list")]
    List {
        #[command(flatten)]
        selection: Selection,
    },
    /// Make an empty pool
    #[command(after_help = "Example:\n  weft pool create fast")]
    Create {
        #[command(flatten)]
        selection: Selection,
        name: String,
    },
    /// Move storage groups into a pool; files that are there stay where they are
    #[command(after_help = "Example:\n  weft pool assign fast 4 5")]
    Assign {
        #[command(flatten)]
        selection: Selection,
        /// Name or number of the pool
        pool: String,
        /// Numbers of storage groups (`weft target list` shows them)
        #[arg(required = true)]
        groups: Vec<GroupId>,
    },
    /// Remove an empty pool
    #[command(after_help = "Example:\n  weft pool remove fast")]
    Remove {
        #[command(flatten)]
        selection: Selection,
        /// Name or number of the pool
        pool: String,
    },
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::List { selection } => list(&connect(&selection, None)?, output),
            Verb::Create { selection, name } => {
                let id = connect(&selection, None)?.create_pool(&name)?;
                output.show(&BTreeMap::from([("pool", id)]), |_| format!("pool {id} is called {name}"))
            }
            Verb::Assign { selection, pool, groups } => {
                let admin = connect(&selection, None)?;
                let id = find(&admin, &pool)?;
                refuse_unknown(&admin, &groups)?;
                for group in &groups {
                    admin.assign_pool(*group, id)?;
                }
                output.show(&BTreeMap::from([("groups", &groups)]), |_| format!("moved into pool {pool}"))
            }
            Verb::Remove { selection, pool } => {
                let admin = connect(&selection, None)?;
                let id = find(&admin, &pool)?;
                admin.remove_pool(id)?;
                output.show(&BTreeMap::from([("removed", id)]), |_| format!("removed pool {pool}"))
            }
        }
    }
}

fn list(admin: &Admin, output: Output) -> Result<(), Failure> {
    let view = admin.view()?;
    output.show(&Lists { map: &view.map, capacities: &view.capacities }.pools(), |pools| {
        let mut table = Table::new(["ID", "POOL", "FREE", "TOTAL", "GROUPS"]);
        for pool in pools {
            let groups: Vec<String> = pool.groups.iter().map(ToString::to_string).collect();
            let (free, total) = (bytes(pool.room.free_bytes), bytes(pool.room.total_bytes));
            table.row([pool.id.to_string(), pool.name.clone(), free, total, groups.join(",")]);
        }
        table.render()
    })
}

/// Before any is moved, so that what is refused has changed nothing.
fn refuse_unknown(admin: &Admin, groups: &[GroupId]) -> Result<(), Failure> {
    let view = admin.view()?;
    let is_storage = |id: &GroupId| view.map.groups.get(id).is_some_and(|group| group.kind == ServiceKind::Storage);
    match groups.iter().find(|group| !is_storage(group)) {
        Some(group) => Err(usage!("there is no storage group {group}: `weft target list` shows them")),
        None => Ok(()),
    }
}

/// By name or number.
pub(super) fn find(admin: &Admin, word: &str) -> Result<PoolId, Failure> {
    let view = admin.view()?;
    let by_name = view.map.pools.values().find(|pool| pool.name == word).map(|pool| pool.id);
    let by_number = word.parse().ok().filter(|id| view.map.pools.contains_key(id));
    by_name.or(by_number).ok_or_else(|| usage!("no pool is called {word:?}: `weft pool list` shows them"))
}
