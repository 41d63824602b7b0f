//! How full the targets are.

use admin::view::{Lists, Room};

use crate::command::{connect, service_kind};
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::{Output, Table, bytes};

/// Show the space of every target, and in all
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft df --dir .weft")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let view = connect(&self.selection, None)?.view()?;
        output.show(&Lists { map: &view.map, capacities: &view.capacities }.space(), |space| {
            let mut table =
                Table::new(["TARGET", "KIND", "NODE", "POOL", "TOTAL", "USED", "FREE", "USE", "INODES FREE"]);
            for target in &space.targets {
                let pool = target.pool.clone().unwrap_or("-".to_owned());
                let room = target.room.unwrap_or_default();
                table.row(row(target.id.to_string(), service_kind(target.kind), &target.node_alias, pool, room));
            }
            table.row(row("all".to_owned(), "metadata", "-", "-".to_owned(), space.metadata));
            table.row(row("all".to_owned(), "storage", "-", "-".to_owned(), space.storage));
            table.render()
        })
    }
}

fn row(target: String, kind: &str, node: &str, pool: String, room: Room) -> [String; 9] {
    let used = room.total_bytes.saturating_sub(room.free_bytes);
    let percent = (used.saturating_mul(100)).div_ceil(room.total_bytes.max(1));
    [
        target,
        kind.to_owned(),
        node.to_owned(),
        pool,
        bytes(room.total_bytes),
        bytes(used),
        bytes(room.free_bytes),
        format!("{percent}%"),
        room.free_inodes.to_string(),
    ]
}
