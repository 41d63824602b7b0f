//! Each operation, with a crash of each shard at each step: it happens once as a whole, or not at all.

use std::collections::BTreeMap;

use namespace::acl::{ACCESS, DEFAULT};
use namespace::view::InodeView;
use rand::SeedableRng;
use rand::rngs::StdRng;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, ShardId};
use types::placement::Placement;

use crate::sim::{Answer, Crash, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;
const SHARDS: usize = 3;

/// A small tree over all shards.
struct Tree {
    /// Directories in shards 0, 1 and 2; below each its `file`, and a directory `empty` in the next shard.
    dirs: [InodeId; SHARDS],
    files: [InodeId; SHARDS],
    /// A directory in shard 0 that is split over all shards: with a directory in shard 1, and a file in each shard.
    split: InodeId,
    /// Empty and split, in `dirs[0]`.
    hollow: InodeId,
    /// Empty and whole, in `dirs[2]` and in its shard.
    bare: InodeId,
    /// A file without a name in shard 1, held open by the client.
    unnamed: InodeId,
}

fn placed(sim: &mut Sim, parent: InodeId, text: &str, shard: usize) -> InodeId {
    let placement = Placement::Shard(ShardId(shard as u16));
    sim.run(CLIENT, Op::Place { inode: parent, placement });
    match sim.run(CLIENT, Op::Mkdir { parent, name: name(text) }) {
        Answer::Inode(view) => {
            assert_eq!(usize::from(view.attr.inode.home().0), shard);
            assert!(!view.elsewhere && view.attr.nlink == 2);
            view.attr.inode
        }
        other => panic!("{other:?}"),
    }
}

fn grow(sim: &mut Sim) -> Tree {
    let mut tree =
        Tree { dirs: [ROOT; SHARDS], files: [ROOT; SHARDS], split: ROOT, hollow: ROOT, bare: ROOT, unnamed: ROOT };
    for shard in 0..SHARDS {
        let dir = placed(sim, ROOT, ["zero", "one", "two"][shard], shard);
        placed(sim, dir, "empty", (shard + 1) % SHARDS);
        let made = sim.run(CLIENT, Op::Create { parent: dir, name: name("file") });
        let Answer::Inode(view) = made else { panic!("{made:?}") };
        (tree.dirs[shard], tree.files[shard]) = (dir, view.attr.inode);
    }
    tree.bare = placed(sim, tree.dirs[2], "bare", 2);
    tree.split = placed(sim, ROOT, "split", 0);
    tree.hollow = placed(sim, tree.dirs[0], "hollow", 1);
    for inode in [tree.split, tree.hollow] {
        let Answer::Parts(parts) = sim.run(CLIENT, Op::Split { inode, count: SHARDS as u16 }) else { panic!("split") };
        assert_eq!(parts.len(), SHARDS);
    }
    for text in PER_SHARD {
        let made = sim.run(CLIENT, Op::Create { parent: tree.split, name: name(text) });
        assert!(matches!(&made, Answer::Inode(view) if !view.elsewhere), "{made:?}");
    }
    placed(sim, tree.split, "inner", 1);
    // A file with a name in another shard than its own, to be unlinked and replaced.
    let link = Op::Link { inode: tree.files[1], parent: tree.dirs[0], name: name("far") };
    assert!(matches!(sim.run(CLIENT, link), Answer::Inode(view) if view.elsewhere));
    tree
}

/// Names that fall to the three parts of a directory, in their order.
const PER_SHARD: [&str; SHARDS] = ["a", "file1", "file0"];

type Make = fn(&Tree) -> Op;

fn rename(from: (InodeId, &str), to: (InodeId, &str), flags: u32) -> Op {
    Op::Rename { from: (from.0, name(from.1)), to: (to.0, name(to.1)), flags }
}

/// Every kind of operation over several shards.
const OPERATIONS: &[(&str, Make)] = &[
    ("mkdir", |tree| Op::Mkdir { parent: tree.dirs[0], name: name("new") }),
    ("rmdir", |tree| Op::Rmdir { parent: tree.dirs[1], name: name("empty") }),
    ("link", |tree| Op::Link { inode: tree.files[2], parent: tree.dirs[1], name: name("linked") }),
    ("link of what has no name", |tree| Op::Link { inode: tree.unnamed, parent: tree.dirs[0], name: name("named") }),
    ("unlink", |tree| Op::Unlink { parent: tree.dirs[0], name: name("far") }),
    ("file to another shard", |tree| rename((tree.dirs[0], "file"), (tree.dirs[1], "moved"), 0)),
    ("file of another shard", |tree| rename((tree.dirs[0], "far"), (tree.dirs[2], "moved"), 0)),
    ("file over file", |tree| rename((tree.dirs[0], "far"), (tree.dirs[2], "file"), 0)),
    ("exchange of files", |tree| rename((tree.dirs[0], "file"), (tree.dirs[2], "file"), 2)),
    ("directory to another shard", |tree| rename((tree.dirs[1], "empty"), (tree.dirs[0], "moved"), 0)),
    ("directory over directory", |tree| rename((tree.dirs[1], "empty"), (tree.dirs[2], "empty"), 0)),
    ("exchange of directories", |tree| rename((ROOT, "one"), (tree.dirs[2], "empty"), 2)),
    ("within a directory", |_| rename((ROOT, "one"), (ROOT, "renamed"), 0)),
    ("split", |tree| Op::Split { inode: tree.bare, count: 3 }),
    ("split of what has entries", |tree| Op::Split { inode: tree.dirs[0], count: 3 }),
    ("mkdir in a split directory", |tree| Op::Mkdir { parent: tree.split, name: name("new") }),
    ("between parts", |tree| rename((tree.split, PER_SHARD[0]), (tree.split, "moved"), 0)),
    ("over what is in another part", |tree| rename((tree.split, PER_SHARD[1]), (tree.split, PER_SHARD[2]), 0)),
    ("exchange of parts", |tree| rename((tree.split, PER_SHARD[1]), (tree.split, "inner"), 2)),
    ("directory between parts", |tree| rename((tree.split, "inner"), (tree.split, "moved"), 0)),
    ("out of a split directory", |tree| rename((tree.split, "inner"), (tree.dirs[1], "moved"), 0)),
    ("into a split directory", |tree| rename((tree.dirs[1], "empty"), (tree.split, "moved"), 0)),
    ("over a split directory", |tree| rename((tree.dirs[1], "empty"), (tree.dirs[0], "hollow"), 0)),
    ("of a split directory", |tree| rename((tree.dirs[0], "hollow"), (tree.dirs[1], "moved"), 0)),
    ("rmdir of a split directory", |tree| Op::Rmdir { parent: tree.dirs[0], name: name("hollow") }),
    ("link into a split directory", |tree| Op::Link { inode: tree.files[2], parent: tree.split, name: name("linked") }),
    ("chmod of a split directory", |tree| Op::Chmod { inode: tree.split, mode: 0o2710 }),
    ("flags of a split directory", |tree| Op::Flag { inode: tree.split, flags: FileFlags::APPEND }),
    ("default ACL of a split directory", |tree| Op::SetXattr {
        inode: tree.split,
        name: DEFAULT,
        value: default_acl(),
    }),
];

/// Paths and inodes; those that the operation made are 0.
type Paths = BTreeMap<String, InodeId>;

#[test]
fn a_crash_at_any_step_leaves_all_or_nothing() {
    let mut crashes = 0;
    for (what, make) in OPERATIONS {
        let done = without_crash(*make);
        for how in [Crash::Kill, Crash::PowerCut] {
            for node in 0..SHARDS {
                for event in 0.. {
                    crashes += 1;
                    let context = format!("{what}: {how:?} of shard {node} at event {event}");
                    if one_crash(&context, *make, how, node, event, &done) {
                        break;
                    }
                }
            }
        }
    }
    assert!(crashes > 1000, "{crashes}");
}

fn prepare() -> (Sim, Tree, Paths) {
    let mut sim = Sim::new(1, SHARDS);
    sim.orderly = true;
    let mut tree = grow(&mut sim);
    sim.run(CLIENT, Op::Place { inode: tree.dirs[0], placement: Placement::Shard(ShardId(2)) });
    sim.run(CLIENT, Op::SetXattr { inode: tree.dirs[0], name: DEFAULT, value: default_acl() });
    sim.quiesce();
    let before = described(&mut sim);
    let made = sim.run(CLIENT, Op::TmpFile { parent: tree.dirs[1] });
    let Answer::Inode(view) = made else { panic!("{made:?}") };
    tree.unnamed = view.attr.inode;
    while !sim.is_at_rest() {
        sim.step();
    }
    (sim, tree, before)
}

/// Owner, a named user, group, mask, others.
fn default_acl() -> Vec<u8> {
    let entries = [(1u16, 7u16, u32::MAX), (2, 6, 7), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    value
}

fn paths(sim: &mut Sim, before: &Paths) -> Paths {
    let known = |inode: &InodeId| before.values().any(|known| known == inode);
    let paths = described(sim).into_iter();
    paths.map(|(path, inode)| (path, if known(&inode) { inode } else { InodeId(0) })).collect()
}

/// The tree, with what is to be seen of each inode, and of the parts of directories.
fn described(sim: &mut Sim) -> Paths {
    let mut paths = Paths::new();
    for (path, inode) in sim.tree(CLIENT) {
        let Answer::Inode(view) = sim.stat(CLIENT, inode) else { panic!("{path}") };
        let (mode, nlink) = (view.attr.mode, view.attr.nlink);
        let mut text = format!("{path} {mode:o} {nlink}{}", flagged(&view));
        sim.learn_parts(inode);
        for part in sim.parts_of(inode) {
            let Answer::Inode(view) = sim.run(CLIENT, Op::Stat { inode: part }) else { panic!("{path}: {part}") };
            let has_acl = sim.run(CLIENT, Op::GetXattr { inode: part, name: DEFAULT }) == Answer::Value(default_acl());
            text = format!("{text} ({:o} {has_acl}{})", view.attr.mode, flagged(&view));
        }
        paths.insert(text, inode);
    }
    paths
}

/// Its flags, with a space before them.
fn flagged(view: &InodeView) -> String {
    view.flags.names().map(|name| format!(" {name}")).collect()
}

fn without_crash(make: Make) -> Paths {
    let (mut sim, tree, before) = prepare();
    let answer = sim.run(CLIENT, make(&tree));
    assert!(!matches!(answer, Answer::Refused(_)), "{answer:?}");
    sim.quiesce();
    let done = paths(&mut sim, &before);
    assert_ne!(done, before);
    done
}

/// True where nothing was under way any more.
fn one_crash(context: &str, make: Make, how: Crash, node: usize, event: u64, done: &Paths) -> bool {
    let (mut sim, tree, before) = prepare();
    sim.rng = StdRng::seed_from_u64(event);
    sim.ask(CLIENT, make(&tree));
    for _ in 0..event {
        sim.step();
    }
    let over = sim.is_at_rest();
    sim.crash(node, how);
    // An answer may be on its way from before the crash.
    let answered = sim.is_idle(CLIENT) || sim.is_answered(CLIENT);
    if !sim.is_idle(CLIENT) {
        // The client asks again until it is answered: whatever happened before the crash, it happens once.
        let answer = sim.wait(CLIENT);
        assert!(!matches!(answer, Answer::Refused(_)), "{context}: {answer:?}");
    }
    sim.quiesce();
    sim.answers.clear();
    let after = paths(&mut sim, &before);
    let lost = answered && how == Crash::PowerCut && after == before;
    assert!(after == *done || lost, "{context}: {after:?} is neither {before:?} nor {done:?}");
    over
}

#[test]
fn a_directory_in_another_shard_inherits_acls() {
    let (mut sim, tree, _) = prepare();
    let made = sim.run(CLIENT, Op::Mkdir { parent: tree.dirs[0], name: name("new") });
    let Answer::Inode(view) = made else { panic!("{made:?}") };
    let inode = view.attr.inode;
    assert_eq!((inode.home(), view.attr.mode), (ShardId(2), 0o750));
    sim.quiesce();
    assert_eq!(sim.run(CLIENT, Op::GetXattr { inode, name: DEFAULT }), Answer::Value(default_acl()));
    let Answer::Value(access) = sim.run(CLIENT, Op::GetXattr { inode, name: ACCESS }) else { panic!("it has one") };
    assert_eq!(namespace::acl::Acl::parse(&access).map(|acl| acl.mode()), Ok(0o750));
    // And what is made there inherits again.
    let made = sim.run(CLIENT, Op::Create { parent: inode, name: name("file") });
    assert!(matches!(&made, Answer::Inode(view) if view.attr.mode == 0o640), "{made:?}");
}

#[test]
fn a_file_without_a_name_gets_one_in_another_shard_though_its_holder_leaves() {
    let (mut named, mut gone) = (0, 0);
    for event in 0.. {
        let (mut sim, tree, before) = prepare();
        let inode = tree.unnamed;
        sim.ask(CLIENT, Op::Link { inode, parent: tree.dirs[0], name: name("named") });
        for _ in 0..event {
            sim.step();
        }
        let over = sim.is_at_rest();
        sim.leave(usize::from(inode.home().0), CLIENT);
        let answer = sim.wait(CLIENT);
        sim.quiesce();
        let mut expected = before;
        let links = match answer {
            Answer::Inode(view) => {
                assert_eq!(view.attr.inode, inode);
                expected.insert("/zero/named 600 1".into(), inode);
                named += 1;
                Some(1)
            }
            Answer::Refused(Errno::ESTALE) => {
                gone += 1;
                None
            }
            other => panic!("{event}: {other:?}"),
        };
        assert_eq!(described(&mut sim), expected, "{event}");
        let found = match sim.run(CLIENT, Op::Stat { inode }) {
            Answer::Inode(view) => Some(view.attr.nlink),
            _ => None,
        };
        assert_eq!(found, links, "{event}");
        if over {
            break;
        }
    }
    assert!(named > 0 && gone > 0, "{named} named, {gone} gone");
}
