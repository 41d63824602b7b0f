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
                table.row(row(target.id.to_string(), service_kind(target.kind), &target.node_alias, pool, target.room));
            }
            table.row(row("all".to_owned(), "metadata", "-", "-".to_owned(), Some(space.metadata)));
            table.row(row("all".to_owned(), "storage", "-", "-".to_owned(), Some(space.storage)));
            let unknown = space.targets.iter().filter(|target| target.room.is_none()).count();
            let note = format!("{unknown} targets have not said how full they are, and are in no sum\n");
            table.render() + if unknown > 0 { &note } else { "" }
        })
    }
}

fn row(target: String, kind: &str, node: &str, pool: String, room: Option<Room>) -> [String; 9] {
    let Some(room) = room else {
        let unknown = || "?".to_owned();
        let (kind, node) = (kind.to_owned(), node.to_owned());
        return [target, kind, node, pool, unknown(), unknown(), unknown(), unknown(), unknown()];
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_knows_is_not_nothing() {
        let cells = |room| row("3".to_owned(), "storage", "storaged-1", "default".to_owned(), room)[4..].to_vec();
        assert_eq!(cells(None), ["?"; 5]);
        let room = Room { total_bytes: 4096, free_bytes: 1024, ..Room::default() };
        assert_eq!(cells(Some(room))[3..], ["75%", "0"]);
    }
}
