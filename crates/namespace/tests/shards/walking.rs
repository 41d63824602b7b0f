//! Paths over several shards, in as few requests as shards are met: they lead to what single lookups find.

use std::collections::BTreeSet;

use namespace::view::Walked;
use rand::RngExt;
use rand::seq::IndexedRandom;
use types::error::Errno;
use types::id::{InodeId, ShardId};
use types::name::Name;
use types::name_hash::name_hash;
use types::parts::PartNumber;
use types::placement::Placement;
use types::walk::{WalkEnd, WalkNames};

use crate::seeds::seeds;
use crate::sim::{Answer, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SEEDS: u64 = 60;
const OPERATIONS: u64 = 150;
const PATHS: u64 = 60;

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

/// One request.
fn walk(sim: &mut Sim, start: InodeId, names: &[Name]) -> Result<Walked, Errno> {
    let names = WalkNames::new(names.to_vec()).expect("some");
    match sim.run(CLIENT, Op::Walk { start, names, leases: false }) {
        Answer::Walked(walked) => Ok(walked),
        Answer::Refused(errno) => Err(errno),
        other => panic!("{other:?}"),
    }
}

/// The inodes that the names of a path from the root lead to, as far as they do, by walks; and which shards were asked.
fn resolve(sim: &mut Sim, path: &[Name]) -> (Vec<InodeId>, Vec<ShardId>) {
    let (mut found, mut asked, mut at) = (Vec::new(), Vec::new(), ROOT);
    loop {
        asked.push(at.home());
        let walked = walk(sim, at, &path[found.len()..]).expect("nothing changes");
        found.extend(walked.steps.iter().map(|view| view.attr.inode));
        match walked.end {
            WalkEnd::GoOn(next) => at = next,
            WalkEnd::Found | WalkEnd::Absent | WalkEnd::NotDirectory => return (found, asked),
            WalkEnd::Symlink => panic!("there is none"),
        }
        assert!(asked.len() <= 2 * path.len(), "{asked:?}");
    }
}

/// The inodes that the names of a path lead to, by single lookups; with the shards on the way: each directory's, and
/// that of its part which has the name.
fn look(sim: &mut Sim, path: &[Name]) -> (Vec<InodeId>, Vec<ShardId>) {
    let (mut found, mut met, mut at) = (Vec::new(), Vec::new(), ROOT);
    for text in path {
        let answer = sim.run(CLIENT, Op::Lookup { parent: at, name: text.clone() });
        if answer == Answer::Refused(Errno::ENOTDIR) {
            break;
        }
        let parts = sim.parts_of(at);
        let part = PartNumber::of_hash(name_hash(text), parts.len() as u16);
        let part = parts.get(usize::from(part.index)).copied().unwrap_or(at);
        met.extend([at.home(), part.home()]);
        match answer {
            Answer::Inode(view) => at = view.attr.inode,
            Answer::Absent(_) => break,
            other => panic!("{other:?}"),
        }
        found.push(at);
    }
    met.dedup();
    (found, met)
}

fn grow(sim: &mut Sim) {
    let mut directories = vec![ROOT];
    for _ in 0..OPERATIONS {
        let parent = *directories.choose(&mut sim.rng).expect("root is there");
        let text = name(NAMES.choose(&mut sim.rng).expect("some"));
        let op = match sim.rng.random_range(0..12) {
            0..7 => Op::Mkdir { parent, name: text },
            7..9 => Op::Create { parent, name: text },
            9 => Op::Rmdir { parent, name: text },
            10 => Op::Unlink { parent, name: text },
            _ => Op::Split { inode: parent, count: sim.rng.random_range(2..=3) },
        };
        let is_mkdir = matches!(op, Op::Mkdir { .. });
        if let Answer::Inode(view) = sim.run(CLIENT, op)
            && is_mkdir
        {
            directories.push(view.attr.inode);
        }
    }
}

/// Paths that exist, and some that go on beyond what exists.
fn draw(sim: &mut Sim, tree: &[String]) -> Vec<Name> {
    let known = tree.choose(&mut sim.rng).cloned().unwrap_or_default();
    let mut path: Vec<Name> = known.split('/').filter(|text| !text.is_empty()).map(name).collect();
    for _ in 0..sim.rng.random_range(0..3) {
        path.push(name(NAMES.choose(&mut sim.rng).expect("some")));
    }
    if path.is_empty() { names(&["a"]) } else { path }
}

#[test]
fn walks_lead_where_single_lookups_do() {
    let (mut requests, mut lookups, mut deepest) = (0, 0, 0);
    for seed in seeds(0, SEEDS) {
        let mut sim = if seed % 3 == 2 { Sim::growing(seed, 3, 3) } else { Sim::new(seed, 3) };
        grow(&mut sim);
        sim.quiesce();
        sim.orderly = true;
        let tree: Vec<String> = sim.tree(CLIENT).into_keys().collect();
        for _ in 0..PATHS {
            let path = draw(&mut sim, &tree);
            let (found, met) = look(&mut sim, &path);
            // No shard is asked twice without another one between.
            assert_eq!(resolve(&mut sim, &path), (found.clone(), met.clone()), "seed {seed}: {path:?}");
            requests += met.len();
            lookups += path.len();
            deepest = deepest.max(found.len());
        }
    }
    assert!(deepest >= 6 && requests < lookups, "{requests} walks for {lookups} names, {deepest} deep");
}

fn made(sim: &mut Sim, parent: InodeId, text: &str) -> InodeId {
    match sim.run(CLIENT, Op::Mkdir { parent, name: name(text) }) {
        Answer::Inode(view) => view.attr.inode,
        other => panic!("{text}: {other:?}"),
    }
}

/// A directory in this shard, whose own new directories stay there.
fn made_in(sim: &mut Sim, shard: u16, parent: InodeId, text: &str) -> InodeId {
    sim.run(CLIENT, Op::Place { inode: parent, placement: Placement::Shard(ShardId(shard)) });
    let made = made(sim, parent, text);
    assert_eq!(made.home(), ShardId(shard));
    made
}

fn orderly(seed: u64) -> Sim {
    let mut sim = Sim::new(seed, 2);
    sim.orderly = true;
    sim
}

#[test]
fn a_walk_ends_where_another_shard_goes_on() {
    let mut sim = orderly(1);
    let here = made_in(&mut sim, 0, ROOT, "here");
    let there = made_in(&mut sim, 1, here, "there");
    let below = made(&mut sim, there, "below");
    let path = names(&["here", "there", "below"]);
    let walked = walk(&mut sim, ROOT, &path).expect("walks");
    assert_eq!(walked.end, WalkEnd::GoOn(there));
    let steps: Vec<(InodeId, bool)> = walked.steps.iter().map(|view| (view.attr.inode, view.elsewhere)).collect();
    assert_eq!(steps, [(here, false), (there, true)]);
    let walked = walk(&mut sim, there, &path[2..]).expect("walks");
    assert_eq!((walked.end, walked.steps[0].attr.inode, walked.steps[0].elsewhere), (WalkEnd::Found, below, false));
    // The last one may be at home anywhere.
    let walked = walk(&mut sim, ROOT, &path[..2]).expect("walks");
    assert_eq!((walked.end, walked.steps[1].elsewhere), (WalkEnd::Found, true));
    // A directory of another shard is none of this one.
    sim.run(CLIENT, Op::Rmdir { parent: there, name: name("below") });
    assert_eq!(walk(&mut sim, below, &path[..1]), Err(Errno::ENOENT));
}

#[test]
fn a_walk_goes_on_in_parts_of_its_own_shard() {
    let mut sim = orderly(2);
    let split = made_in(&mut sim, 0, ROOT, "split");
    let children: Vec<(String, InodeId)> =
        ('a'..='p').map(|c| (c.to_string(), made(&mut sim, split, &c.to_string()))).collect();
    sim.run(CLIENT, Op::Split { inode: split, count: 2 });
    sim.quiesce();
    sim.orderly = true;
    sim.learn_parts(split);
    let parts = sim.parts_of(split);
    let mut ends = BTreeSet::new();
    for (text, child) in &children {
        let path = names(&["split", text, "no"]);
        let part = parts[usize::from(PartNumber::of_hash(name_hash(&path[1]), 2).index)];
        let walked = walk(&mut sim, ROOT, &path).expect("walks");
        ends.insert(part.home());
        if part.home() == ShardId(0) {
            // All of it is here, whatever the parts are called.
            let found: Vec<InodeId> = walked.steps.iter().map(|view| view.attr.inode).collect();
            assert_eq!((found, walked.end), (vec![split, *child], WalkEnd::Absent));
        } else {
            assert_eq!((walked.steps.len(), walked.end), (1, WalkEnd::GoOn(part)));
            let walked = walk(&mut sim, part, &path[1..]).expect("walks");
            assert_eq!((walked.steps[0].attr.inode, walked.steps.len()), (*child, 1));
            // The names of the other part are not there.
            let other = parts.iter().copied().find(|other| *other != part).expect("two");
            assert_eq!(walk(&mut sim, other, &path[1..]), Err(Errno::EREMOTE));
        }
    }
    assert_eq!(ends.len(), 2);
}
