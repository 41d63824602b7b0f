//! Leases of several shards: whatever a client was told to believe is true until it is told otherwise or its term is over,
//! though operations over several shards change it.

use kv::memory::MemoryKv;
use namespace::error::Error;
use namespace::schema::edge::Edge;
use namespace::shard::Shard;
use namespace::transaction::part::{Part, Vote};
use namespace::view::Exactly;
use rand::RngExt;
use rand::seq::IndexedRandom;
use types::attr::{FileType, SetAttr};
use types::cred::Conditions;
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::placement::Placement;
use types::time::Timestamp;
use types::walk::WalkNames;

use crate::node::{Splits, config};
use crate::seeds::seeds;
use crate::sim::{Answer, Crash, Op, ROOT, Sim, name};

const CLIENTS: std::ops::RangeInclusive<u64> = 1..=4;
const NAMES: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 8000;
const STEPS: u64 = 6000;

fn draw(sim: &mut Sim, known: &[InodeId]) -> Op {
    let [parent, other, one] = sim.inodes_of(known);
    let [text, other_text] = sim.words_of(&NAMES);
    match sim.rng.random_range(0..60) {
        0..12 | 40..46 => Op::Lookup { parent, name: text },
        46..52 => {
            let [third] = sim.words_of(&NAMES);
            let names = WalkNames::new(vec![text, other_text, third]).expect("a few");
            Op::Walk { start: parent, names, leases: true }
        }
        12..20 | 52..56 => Op::Stat { inode: one },
        56..60 => Op::Renew { inode: one },
        20..22 => Op::List { inode: parent, cookie: 0 },
        22..25 => Op::Mkdir { parent, name: text },
        25..27 => Op::Create { parent, name: text },
        27..29 => Op::Rmdir { parent, name: text },
        29..31 => Op::Unlink { parent, name: text },
        31 => Op::Link { inode: one, parent, name: text },
        32 if sim.rng.random_bool(0.3) => Op::Split { inode: parent, count: sim.rng.random_range(2..=3) },
        32..34 => Op::Chmod { inode: one, mode: sim.rng.random_range(0..0o1000) },
        _ => {
            let flags = *[0, 0, 0, 1, 2, 2].choose(&mut sim.rng).expect("some");
            Op::Rename { from: (parent, text), to: (other, other_text), flags }
        }
    }
}

/// Lets clients look again and again at what they change, while shards are killed about once in so many steps.
pub(crate) fn drive(sim: &mut Sim, killed_in: Option<u64>) {
    let mut known = vec![ROOT];
    for _ in 0..STEPS {
        sim.keep_busy(CLIENTS, &mut known, 12, draw);
        sim.step();
        if let Some(steps) = killed_in
            && sim.rng.random_range(0..steps) == 0
        {
            let node = sim.rng.random_range(0..3);
            sim.crash(node, Crash::Kill);
        }
    }
}

/// Leases that were given, and went on, recalls, and directories that were split.
fn believe(seed: u64, killed_in: Option<u64>) -> [u64; 4] {
    let mut sim = Sim::leasing(seed, 3);
    if seed % 2 == 1 {
        sim.run(1, Op::Split { inode: ROOT, count: 3 });
    }
    drive(&mut sim, killed_in);
    sim.quiesce();
    [sim.beliefs.learned, sim.beliefs.renewed, sim.beliefs.recalled, sim.split]
}

#[test]
fn what_clients_may_believe_is_true() {
    let (mut sums, tried) = ([0; 4], seeds(0, SEEDS));
    for seed in tried.clone() {
        believe(seed, None).into_iter().zip(&mut sums).for_each(|(one, sum)| *sum += one);
    }
    let ([learned, renewed, recalled, split], count) = (sums, tried.end - tried.start);
    assert!(count == 1 || split > count / 2, "{split} split");
    assert!(learned > 100 * count && recalled > 50 * count, "{learned} leases, {recalled} recalls");
    assert!(renewed > count, "{renewed} renewed");
}

#[test]
fn what_clients_may_believe_is_true_though_processes_are_killed() {
    for seed in seeds(1000, SEEDS) {
        believe(seed, Some(400));
    }
}

/// One shard of several, asked by hand.
fn participant() -> Shard<MemoryKv> {
    let mut shard = Shard::open(MemoryKv::new(), config(0, 3_000, Splits::default()), Timestamp(1), 1).expect("opens");
    shard.set_shards(vec![ShardId(0), ShardId(1)], vec![ShardId(0), ShardId(1)]);
    for session in [SessionId(1), SessionId(2)] {
        shard.session_open(session, b"").expect("opens");
        shard.listen(session, true);
    }
    shard
}

#[test]
fn a_promise_waits_for_the_leases_of_others() {
    let (asker, other) = (SessionId(1), SessionId(2));
    let transaction = TransactionId(InodeId::new(ShardId(1), 77).0);
    let entry = Part::Entry { parent: ROOT, name: name("x"), becomes: None };
    let mut shard = participant();
    for session in [asker, other] {
        assert!(shard.getattr(session, ROOT).expect("there").lease_ms > 0);
    }
    assert_eq!(shard.prepare(asker, transaction, 0, vec![entry.clone()]), Err(Error::Recalling));
    assert!(shard.recalls(asker).is_empty(), "nobody is in its own way");
    let recalls = shard.recalls(other);
    assert_eq!((recalls.len(), recalls[0].inode), (1, ROOT));
    assert!(shard.getattr(asker, ROOT).is_ok(), "nothing is locked");
    shard.acknowledge_recalls(other, &[recalls[0].id]);
    assert!(!shard.take_ended_recalls().is_empty());
    assert_eq!(shard.prepare(asker, transaction, 0, vec![entry]), Ok(vec![Vote::Entry(None)]));
    assert_eq!(shard.getattr(other, ROOT), Err(Error::Blocked(transaction)));
}

#[test]
fn a_name_waits_for_its_mover_only_where_that_may_have_leases() {
    let (mover, other, stranger) = (SessionId(1), SessionId(2), SessionId(3));
    let [first, second] = [77, 78].map(|n| TransactionId(InodeId::new(ShardId(1), n).0));
    let entry = |becomes| vec![Part::Entry { parent: ROOT, name: name("x"), becomes }];
    let moved = Edge { child: InodeId::new(ShardId(1), 99), kind: FileType::Regular };
    let taken = |mover, silent_ms: Option<u64>| {
        let mut shard = participant();
        if let Some(ms) = silent_ms {
            shard.listen(mover, false);
            shard.begin_turn(Timestamp(2), 1 + ms);
        }
        shard.prepare(mover, first, 0, entry(Some(moved))).expect("promised");
        shard.commit().expect("commits");
        shard.finish(first, true, None).expect("done");
        shard.commit().expect("commits");
        shard.prepare(other, second, 0, entry(None)).map(drop)
    };
    assert_eq!(taken(mover, None), Err(Error::Recalling));
    assert_eq!(taken(mover, Some(3_000)), Err(Error::Recalling), "it may believe what another shard has told it");
    assert_eq!(taken(stranger, None), Ok(()), "it never listened");
}

#[test]
fn a_promise_is_not_given_to_a_transaction_that_was_given_up_meanwhile() {
    let (asker, other) = (SessionId(1), SessionId(2));
    let transaction = TransactionId(InodeId::new(ShardId(1), 77).0);
    let entry = Part::Entry { parent: ROOT, name: name("x"), becomes: None };
    let mut shard = participant();
    assert!(shard.getattr(other, ROOT).expect("there").lease_ms > 0);
    assert_eq!(shard.prepare(asker, transaction, 0, vec![entry.clone()]), Err(Error::Recalling));
    shard.finish(transaction, false, None).expect("harmless");
    let recalls = shard.recalls(other);
    shard.acknowledge_recalls(other, &[recalls[0].id]);
    assert_eq!(shard.prepare(asker, transaction, 0, vec![entry]), Err(Error::Again));
    assert!(shard.getattr(other, ROOT).is_ok(), "nothing is locked");
}

#[test]
fn a_coordinator_gives_no_lease_on_what_it_has_locked() {
    let (asker, other) = (SessionId(1), SessionId(2));
    let mut shard = participant();
    let exactly =
        |sequence| Exactly { session: asker, sequence, answered_below: sequence, given: Conditions::default() };
    let change = namespace::view::PolicyChange {
        directories: Some(Placement::Shard(ShardId(1))),
        ..namespace::view::PolicyChange::default()
    };
    shard.set_policy(exactly(1), ROOT, &change).expect("set");
    let cred = types::cred::Credentials { uid: 0, gid: 0, umask: 0 };
    let made = shard.mkdir(exactly(2), ROOT, &name("d"), 0o755, cred);
    assert!(matches!(made, Err(Error::Blocked(_))), "the other shard is asked");
    assert!(shard.has_begun(asker, 2) && !shard.has_begun(asker, 3) && !shard.has_begun(other, 2));
    let root = shard.getattr(other, ROOT).expect("what was before is true until it is decided");
    assert_eq!(root.lease_ms, 0);
    let namespace::view::Looked::Absent { lease_ms } = shard.lookup(other, ROOT, &name("d")).expect("told") else {
        panic!("not yet")
    };
    assert_eq!(lease_ms, 0);
    // Its mode may change meanwhile: nothing of what is locked is lost by it.
    shard.set(exactly(3), ROOT, &SetAttr { mode: Some(0o700), ..SetAttr::default() }, false).expect("set");
}

/// A directory in each of two shards, with a file each, of which `mover` knows the first by its name.
fn two_files(sim: &mut Sim, mover: u64, other: u64) -> [InodeId; 2] {
    let parents = [0, 1].map(|shard| {
        sim.run(other, Op::Place { inode: ROOT, placement: Placement::Shard(ShardId(shard)) });
        let made = sim.run(other, Op::Mkdir { parent: ROOT, name: name(&format!("dir{shard}")) });
        let Answer::Inode(view) = made else { panic!("{made:?}") };
        sim.run(other, Op::Create { parent: view.attr.inode, name: name("file") });
        assert!(matches!(sim.run(mover, Op::Stat { inode: view.attr.inode }), Answer::Inode(_)));
        view.attr.inode
    });
    let found = sim.run(mover, Op::Lookup { parent: parents[0], name: name("file") });
    assert!(matches!(&found, Answer::Inode(view) if view.name_lease_ms > 0), "{found:?}");
    parents
}

#[test]
fn a_name_that_came_from_another_shard_is_taken_back_before_it_changes() {
    let (mover, other) = (1, 2);
    for flags in [0, 2] {
        for killed in [None, Some(0), Some(1)] {
            let mut sim = Sim::leasing(1, 2);
            sim.orderly = true;
            let [from, to] = two_files(&mut sim, mover, other);
            let rename = Op::Rename { from: (from, name("file")), to: (to, name("file")), flags };
            assert_eq!(sim.run(mover, rename), Answer::Done);
            assert!(sim.beliefs.in_name(mover, to, &name("file")), "it takes along what it knew");
            if let Some(index) = killed {
                sim.crash(index, Crash::Kill);
            }
            // What the mover believes is held against the truth at each turn.
            assert_eq!(sim.run(other, Op::Unlink { parent: to, name: name("file") }), Answer::Done);
            assert!(!sim.beliefs.in_name(mover, to, &name("file")), "{flags} {killed:?}");
            sim.quiesce();
        }
    }
}
