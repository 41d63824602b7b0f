//! Names of one hash where several shards have to agree on them.

use types::error::Errno;
use types::id::{InodeId, ShardId};
use types::name::Name;
use types::name_hash::SAME_HASH_MAX;
use types::placement::Placement;

use crate::collisions::names_of;
use crate::sim::{Answer, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;

fn placed(sim: &mut Sim, text: &str, shard: u16) -> InodeId {
    sim.run(CLIENT, Op::Place { inode: ROOT, placement: Placement::Shard(ShardId(shard)) });
    match sim.run(CLIENT, Op::Mkdir { parent: ROOT, name: name(text) }) {
        Answer::Inode(view) => view.attr.inode,
        other => panic!("{other:?}"),
    }
}

fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Errno::ENOSPC))
}

#[test]
fn no_shard_takes_one_too_many_from_another() {
    let mut sim = Sim::new(1, 3);
    let (full, other) = (placed(&mut sim, "full", 1), placed(&mut sim, "other", 2));
    let made = names_of(0x0123_4567_89ab_cdef, 2, SAME_HASH_MAX as u64 + 1);
    let names: Vec<Name> = made.iter().map(|bytes| Name::new(bytes).expect("a name")).collect();
    let (inside, more) = names.split_at(SAME_HASH_MAX);
    for name in inside {
        let made = sim.run(CLIENT, Op::Create { parent: full, name: name.clone() });
        assert!(matches!(made, Answer::Inode(_)), "{made:?}");
    }
    let Answer::Inode(file) = sim.run(CLIENT, Op::Create { parent: other, name: name("file") }) else { panic!("made") };
    let refused = |sim: &mut Sim| {
        let name_of = || (full, more[0].clone());
        let rename = Op::Rename { from: (other, name("file")), to: name_of(), flags: 0 };
        assert!(is_refused(&sim.run(CLIENT, rename)));
        let link = Op::Link { inode: file.attr.inode, parent: full, name: name_of().1 };
        assert!(is_refused(&sim.run(CLIENT, link)));
        assert!(is_refused(&sim.run(CLIENT, Op::Create { parent: full, name: name_of().1 })));
    };
    refused(&mut sim);
    // They go to a part together, and that takes no more either.
    assert!(matches!(sim.run(CLIENT, Op::Split { inode: full, count: 3 }), Answer::Parts(_)));
    sim.quiesce();
    refused(&mut sim);
    sim.run(CLIENT, Op::Unlink { parent: full, name: inside[3].clone() });
    let rename = Op::Rename { from: (other, name("file")), to: (full, more[0].clone()), flags: 0 };
    let renamed = sim.run(CLIENT, rename);
    assert!(matches!(renamed, Answer::Done), "{renamed:?}");
    sim.quiesce();
    sim.check();
}
