//! What is told of what loses its last name by an operation over several shards.

use types::attr::{Attr, FileType};
use types::id::{InodeId, ShardId};
use types::placement::Placement;

use crate::sim::{Answer, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;

fn made(sim: &mut Sim, op: Op) -> Attr {
    match sim.run(CLIENT, op) {
        Answer::Inode(view) => view.attr,
        other => panic!("{other:?}"),
    }
}

fn placed(sim: &mut Sim, text: &str, shard: u16) -> InodeId {
    sim.run(CLIENT, Op::Place { inode: ROOT, placement: Placement::Shard(ShardId(shard)) });
    made(sim, Op::Mkdir { parent: ROOT, name: name(text) }).inode
}

fn rename(from: (InodeId, &str), to: (InodeId, &str)) -> Op {
    Op::Rename { from: (from.0, name(from.1)), to: (to.0, name(to.1)), flags: 0 }
}

/// What the client is told of what this removes.
fn told(sim: &mut Sim, op: Op) -> Option<Attr> {
    assert_eq!(sim.run(CLIENT, op), Answer::Done);
    let removed = sim.removed;
    sim.quiesce();
    removed
}

/// Nobody can be asked for it afterwards, and who has it open may ask for its attributes.
#[test]
fn a_fifo_that_loses_its_last_name_is_told_as_it_is_without() {
    let mut sim = Sim::new(5, 3);
    sim.orderly = true;
    let (one, two) = (placed(&mut sim, "one", 1), placed(&mut sim, "two", 2));
    // Removed where its name is, replaced there by what comes from its own shard, and by what comes from the third one.
    let ways: [fn(InodeId, InodeId) -> Op; 3] = [
        |_, two| Op::Unlink { parent: two, name: name("p") },
        |one, two| rename((one, "file"), (two, "p")),
        |_, two| rename((ROOT, "file"), (two, "p")),
    ];
    for way in ways {
        let fifo = made(&mut sim, Op::Fifo { parent: one, name: name("p") });
        made(&mut sim, Op::Link { inode: fifo.inode, parent: two, name: name("left") });
        assert_eq!(told(&mut sim, Op::Unlink { parent: two, name: name("left") }), None, "it has a name");
        for parent in [one, ROOT] {
            made(&mut sim, Op::Create { parent, name: name("file") });
        }
        assert_eq!(told(&mut sim, rename((one, "p"), (two, "p"))), None);
        let removed = told(&mut sim, way(one, two)).expect("told");
        assert_eq!(removed, Attr { nlink: 0, ctime: removed.ctime, ..fifo });
        assert!(fifo.inode.home() == ShardId(1) && removed.kind == FileType::Fifo && removed.ctime > fifo.ctime);
        for (parent, left) in [(one, "file"), (two, "p"), (ROOT, "file")] {
            if sim.look(CLIENT, parent, &name(left)).is_some() {
                assert_eq!(told(&mut sim, Op::Unlink { parent, name: name(left) }), None, "a regular file");
            }
        }
    }
}
