//! Flags of files (`chattr`) where what an operation concerns lies in several shards.

use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, ShardId};
use types::placement::Placement;

use crate::sim::{Answer, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;

/// Two directories in different shards, neither of them root's, and what is in them.
struct Tree {
    one: InodeId,
    two: InodeId,
    /// `one/file`, which `two` has as `far`.
    file: InodeId,
    /// `two/file`.
    other: InodeId,
    /// `one/empty`, in the shard of `two`.
    empty: InodeId,
}

fn made(sim: &mut Sim, op: Op) -> InodeId {
    match sim.run(CLIENT, op) {
        Answer::Inode(view) => view.attr.inode,
        other => panic!("{other:?}"),
    }
}

fn placed(sim: &mut Sim, parent: InodeId, text: &str, shard: u16) -> InodeId {
    sim.run(CLIENT, Op::Place { inode: parent, placement: Placement::Shard(ShardId(shard)) });
    made(sim, Op::Mkdir { parent, name: name(text) })
}

fn grow(sim: &mut Sim) -> Tree {
    let (one, two) = (placed(sim, ROOT, "one", 1), placed(sim, ROOT, "two", 2));
    let empty = placed(sim, one, "empty", 2);
    let file = made(sim, Op::Create { parent: one, name: name("file") });
    let other = made(sim, Op::Create { parent: two, name: name("file") });
    made(sim, Op::Link { inode: file, parent: two, name: name("far") });
    assert_ne!(file.home(), other.home());
    Tree { one, two, file, other, empty }
}

fn rename(from: (InodeId, &str), to: (InodeId, &str), flags: u32) -> Op {
    Op::Rename { from: (from.0, name(from.1)), to: (to.0, name(to.1)), flags }
}

const FREE: [bool; 2] = [true; 2];
const FIXED: [bool; 2] = [false; 2];
/// An append-only directory gets names more.
const GETS: [bool; 2] = [false, true];

type Make = fn(&Tree) -> Op;
type Pick = fn(&Tree) -> InodeId;

/// What is permitted where the inode is immutable, and where it is append only.
type Case = (&'static str, Make, &'static [(Pick, [bool; 2])]);

const CASES: &[Case] = &[
    ("mkdir", |t| Op::Mkdir { parent: t.one, name: name("new") }, &[(|t| t.one, GETS), (|t| t.two, FREE)]),
    ("rmdir", |t| Op::Rmdir { parent: t.one, name: name("empty") }, &[(|t| t.one, FIXED), (|t| t.empty, FIXED)]),
    (
        "link",
        |t| Op::Link { inode: t.other, parent: t.one, name: name("new") },
        &[(|t| t.one, GETS), (|t| t.other, FIXED), (|t| t.two, FREE)],
    ),
    (
        "unlink",
        |t| Op::Unlink { parent: t.two, name: name("far") },
        &[(|t| t.two, FIXED), (|t| t.file, FIXED), (|t| t.one, FREE)],
    ),
    (
        "move",
        |t| rename((t.two, "far"), (t.one, "new"), 0),
        &[(|t| t.two, FIXED), (|t| t.one, GETS), (|t| t.file, FIXED)],
    ),
    (
        "move of a directory",
        |t| rename((t.one, "empty"), (t.two, "new"), 0),
        &[(|t| t.one, FIXED), (|t| t.two, GETS), (|t| t.empty, FIXED)],
    ),
    (
        "replace",
        |t| rename((t.one, "file"), (t.two, "file"), 0),
        &[(|t| t.one, FIXED), (|t| t.two, FIXED), (|t| t.file, FIXED), (|t| t.other, FIXED)],
    ),
    (
        "exchange",
        |t| rename((t.one, "file"), (t.two, "file"), 2),
        &[(|t| t.one, FIXED), (|t| t.two, FIXED), (|t| t.file, FIXED), (|t| t.other, FIXED)],
    ),
];

fn flag(sim: &mut Sim, inode: InodeId, flags: FileFlags) {
    let Answer::Inode(view) = sim.run(CLIENT, Op::Flag { inode, flags }) else { panic!("not set") };
    assert_eq!(view.flags, flags);
}

#[test]
fn every_shard_that_is_asked_obeys() {
    for (what, make, picks) in CASES {
        for (pick, permits) in *picks {
            for (flags, permitted) in [FileFlags::IMMUTABLE, FileFlags::APPEND].into_iter().zip(permits) {
                let mut sim = Sim::new(5, 3);
                let tree = grow(&mut sim);
                flag(&mut sim, pick(&tree), flags);
                let answer = sim.run(CLIENT, make(&tree));
                let is_refused = answer == Answer::Refused(Errno::EPERM);
                assert_eq!(is_refused, !permitted, "{what}, {flags} {}: {answer:?}", pick(&tree));
                if is_refused {
                    flag(&mut sim, pick(&tree), FileFlags::NONE);
                    let answer = sim.run(CLIENT, make(&tree));
                    assert!(!matches!(answer, Answer::Refused(_)), "{what} after it: {answer:?}");
                }
                sim.quiesce();
            }
        }
    }
}

#[test]
fn a_directory_in_another_shard_inherits() {
    let mut sim = Sim::new(6, 3);
    let tree = grow(&mut sim);
    let all = FileFlags::from_bits(0xe0).expect("all but one");
    flag(&mut sim, tree.one, all);
    let new = made(&mut sim, Op::Mkdir { parent: tree.one, name: name("new") });
    assert_ne!(new.home(), tree.one.home());
    let Answer::Inode(view) = sim.run(CLIENT, Op::Stat { inode: new }) else { panic!("it is there") };
    assert_eq!(view.flags, all.inherited());
    sim.quiesce();
}

/// Set before it is split, or after.
#[test]
fn parts_of_a_directory_obey_its_flags() {
    for before in [true, false] {
        let mut sim = Sim::new(7, 3);
        let tree = grow(&mut sim);
        let names = ["a", "b", "c", "d", "e", "f"].map(name);
        for name in names.clone() {
            made(&mut sim, Op::Create { parent: tree.empty, name });
        }
        if before {
            flag(&mut sim, tree.empty, FileFlags::APPEND);
        }
        let split = sim.run(CLIENT, Op::Split { inode: tree.empty, count: 3 });
        assert!(matches!(split, Answer::Parts(_)), "{split:?}");
        sim.quiesce();
        if !before {
            flag(&mut sim, tree.empty, FileFlags::APPEND);
        }
        for name in names.clone() {
            let answer = sim.run(CLIENT, Op::Unlink { parent: tree.empty, name: name.clone() });
            assert_eq!(answer, Answer::Refused(Errno::EPERM), "{name}");
        }
        let more = ["g", "h", "i", "k", "l"].map(name);
        for name in more.clone() {
            made(&mut sim, Op::Create { parent: tree.empty, name });
        }
        flag(&mut sim, tree.empty, FileFlags::IMMUTABLE);
        for name in ["m", "n", "o", "p", "q"].map(name) {
            let answer = sim.run(CLIENT, Op::Create { parent: tree.empty, name });
            assert_eq!(answer, Answer::Refused(Errno::EPERM));
        }
        let answer = sim.run(CLIENT, Op::Rmdir { parent: tree.one, name: name("empty") });
        assert_eq!(answer, Answer::Refused(Errno::EPERM));
        flag(&mut sim, tree.empty, FileFlags::NONE);
        for name in names.into_iter().chain(more) {
            assert_eq!(sim.run(CLIENT, Op::Unlink { parent: tree.empty, name }), Answer::Done);
        }
        assert_eq!(sim.run(CLIENT, Op::Rmdir { parent: tree.one, name: name("empty") }), Answer::Done);
        sim.quiesce();
    }
}

/// Parts hear of a flag after its decision, and until then what comes in there from other shards waits.
#[test]
fn a_split_directory_is_immutable_in_all_its_parts_at_once() {
    for seed in 0..60 {
        let mut sim = Sim::new(seed, 3);
        sim.orderly = true;
        let tree = grow(&mut sim);
        let split = placed(&mut sim, ROOT, "split", 0);
        assert!(matches!(sim.run(CLIENT, Op::Split { inode: split, count: 3 }), Answer::Parts(_)));
        // The parts are known to the client.
        let inside = made(&mut sim, Op::Create { parent: split, name: name("file0") });
        assert_eq!(inside.home(), ShardId(1));
        sim.orderly = false;
        flag(&mut sim, split, FileFlags::IMMUTABLE);
        let answer = sim.run(CLIENT, rename((tree.two, "file"), (split, "file0"), 0));
        assert_eq!(answer, Answer::Refused(Errno::EPERM), "seed {seed}");
        sim.quiesce();
    }
}
