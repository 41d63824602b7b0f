//! Clients that meet.

use rand::RngExt;
use rand::seq::IndexedRandom;
use types::error::Errno;
use types::id::{InodeId, ShardId};
use types::placement::Placement;

use crate::seeds::seeds;
use crate::sim::{Answer, Crash, Op, ROOT, Sim, name};

const CLIENTS: std::ops::RangeInclusive<u64> = 1..=5;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SEEDS: u64 = 8000;
const STEPS: u64 = 3000;

fn draw(sim: &mut Sim, known: &[InodeId]) -> Op {
    let [parent, other, one] = sim.inodes_of(known);
    let [text, other_text] = sim.words_of(&NAMES);
    match sim.rng.random_range(0..20) {
        0..5 => Op::Mkdir { parent, name: text },
        5..7 => Op::Create { parent, name: text },
        7..9 => Op::Rmdir { parent, name: text },
        9 if sim.rng.random_bool(0.5) => Op::Split { inode: parent, count: sim.rng.random_range(2..=3) },
        9 => Op::Unlink { parent, name: text },
        10 => Op::Link { inode: one, parent, name: text },
        11..18 => {
            let flags = *[0, 0, 0, 1, 2, 2].choose(&mut sim.rng).expect("some");
            Op::Rename { from: (parent, text), to: (other, other_text), flags }
        }
        18 => Op::Lookup { parent, name: text },
        _ => Op::List { inode: parent, cookie: 0 },
    }
}

/// Lets clients make, move and remove what they meet, while shards end in one of these ways now and then.
pub(crate) fn drive(sim: &mut Sim, crashes: &[Crash]) {
    let mut known = vec![ROOT];
    for _ in 0..STEPS {
        sim.keep_busy(CLIENTS, &mut known, 60, draw);
        sim.step();
        if !crashes.is_empty() && sim.rng.random_range(0..300) == 0 {
            let how = *crashes.choose(&mut sim.rng).expect("some");
            let node = sim.rng.random_range(0..3);
            sim.crash(node, how);
        }
    }
}

/// How many directories were split, and how many of the names left are in parts.
fn race(seed: u64, crashes: &[Crash]) -> (u64, usize) {
    // In some, directories are split by themselves as well.
    let mut sim = if seed % 3 == 2 { Sim::growing(seed, 3, 2) } else { Sim::new(seed, 3) };
    if seed % 2 == 1 {
        sim.run(1, Op::Split { inode: ROOT, count: 3 });
    }
    drive(&mut sim, crashes);
    sim.quiesce();
    sim.answers.clear();
    sim.orderly = true;
    // No loop, no name without its inode, and none twice.
    let tree = sim.tree(1);
    let inodes: std::collections::BTreeSet<_> = tree.values().collect();
    assert_eq!(sim.inodes(), inodes.len() as u64 + 1, "seed {seed}: an inode without a name");
    let parts: Vec<InodeId> = sim.all_parts();
    let names = parts.into_iter().map(|part| sim.list(1, part).len()).sum();
    (sim.split, names)
}

#[test]
fn racing_clients_leave_a_tree() {
    let (mut split, mut names) = (0, 0);
    let tried = seeds(0, SEEDS);
    for seed in tried.clone() {
        let (more, there) = race(seed, &[]);
        (split, names) = (split + more, names + there);
    }
    let count = tried.end - tried.start;
    assert!(count == 1 || split > count && names as u64 > 2 * count, "{split} split, {names} names in parts");
}

#[test]
fn racing_clients_leave_a_tree_though_processes_are_killed() {
    for seed in seeds(1000, SEEDS) {
        race(seed, &[Crash::Kill]);
    }
}

#[test]
fn racing_clients_leave_a_tree_though_the_power_is_cut() {
    for seed in seeds(2000, SEEDS) {
        race(seed, &[Crash::Kill, Crash::PowerCut, Crash::PowerCut]);
    }
}

/// A directory is split while names come and go in it: those that were there throughout are in each listing, once.
fn list_while_it_splits(seed: u64, crashes: bool) -> u64 {
    let by_itself = seed.is_multiple_of(2);
    let mut sim = if by_itself { Sim::growing(seed, 3, 23) } else { Sim::new(seed, 3) };
    let busy = two_directories(&mut sim, ["busy", "other"])[0];
    let stable: std::collections::BTreeSet<_> = (0..24).map(|n| name(&format!("stable-{n}"))).collect();
    for (text, n) in stable.iter().zip(0..) {
        let (parent, name) = (busy, text.clone());
        sim.run(1, if n % 3 == 0 { Op::Mkdir { parent, name } } else { Op::Create { parent, name } });
    }
    if !by_itself {
        sim.ask(5, Op::Split { inode: busy, count: 2 + (seed % 2) as u16 });
    }
    let passing = |sim: &mut Sim, _: &[InodeId]| {
        let (one, two) = (sim.rng.random_range(0..6), sim.rng.random_range(0..6));
        let (one, two) = (name(&format!("passing-{one}")), name(&format!("passing-{two}")));
        match sim.rng.random_range(0..5) {
            0 => Op::Create { parent: busy, name: one },
            1 => Op::Mkdir { parent: busy, name: one },
            2 => Op::Unlink { parent: busy, name: one },
            3 => Op::Rmdir { parent: busy, name: one },
            _ => Op::Rename { from: (busy, one), to: (busy, two), flags: 0 },
        }
    };
    for _ in 0..6 {
        let listed = sim.list_while(4, busy, |sim| {
            sim.keep_busy(1..=3, &mut vec![ROOT], 0, passing);
            if crashes && sim.rng.random_range(0..30) == 0 {
                let node = sim.rng.random_range(0..3);
                sim.crash(node, Crash::Kill);
            }
        });
        let names: Vec<_> = listed.into_iter().map(|entry| entry.name).filter(|name| stable.contains(name)).collect();
        assert_eq!(names.len(), stable.len(), "seed {seed}: {names:?}");
        assert_eq!(names.into_iter().collect::<std::collections::BTreeSet<_>>(), stable, "seed {seed}");
        let Answer::Inode(view) = sim.stat(4, busy) else { panic!("seed {seed}") };
        assert!((10..=16).contains(&view.attr.nlink), "seed {seed}: {} links", view.attr.nlink);
    }
    sim.quiesce();
    sim.all_parts().len() as u64
}

#[test]
fn a_listing_shows_all_while_the_directory_is_split() {
    for seed in seeds(0, SEEDS) {
        assert!(list_while_it_splits(seed, false) > 1, "seed {seed}: it is not split");
    }
}

#[test]
fn a_listing_shows_all_while_the_directory_is_split_and_processes_are_killed() {
    for seed in seeds(3000, SEEDS) {
        assert!(list_while_it_splits(seed, true) > 1, "seed {seed}: it is not split");
    }
}

/// A directory whose few names come and go all the time is split, one beside it that is used at times is not.
#[test]
fn a_directory_whose_names_change_all_the_time_is_split() {
    let mut sim = Sim::bustling(2, 3, 4);
    let [bustling, quiet] = two_directories(&mut sim, ["bustling", "quiet"])[..] else { panic!("two") };
    let come_and_go = |sim: &mut Sim, _: &[InodeId]| {
        let parent = if sim.rng.random_range(0..60) == 0 { quiet } else { bustling };
        let name = name(&format!("passing-{}", sim.rng.random_range(0..3)));
        if sim.rng.random() { Op::Create { parent, name } } else { Op::Unlink { parent, name } }
    };
    let begun_ms = sim.now_ms;
    while sim.parts_of(bustling).is_empty() {
        sim.keep_busy(1..=4, &mut vec![ROOT], 0, come_and_go);
        sim.step();
        sim.learn_parts(bustling);
        assert!(sim.now_ms < begun_ms + 60_000, "it is not split");
    }
    assert!(sim.now_ms > begun_ms + 5_000, "it was busy for {} ms alone", sim.now_ms - begun_ms);
    sim.quiesce();
    sim.learn_parts(quiet);
    assert_eq!((sim.parts_of(bustling).len(), sim.parts_of(quiet).len()), (3, 0));
}

#[test]
fn a_directory_that_is_never_left_alone_is_split() {
    let mut sim = Sim::bustling(2, 3, 4);
    sim.orderly = true;
    let bustling = two_directories(&mut sim, ["bustling", "other"])[0];
    sim.run(1, Op::Place { inode: bustling, placement: Placement::Shard(ShardId(2)) });
    let begun_ms = sim.now_ms;
    while sim.parts_of(bustling).is_empty() || sim.is_being_split(bustling) {
        bustle(&mut sim, bustling);
        sim.learn_parts(bustling);
        assert!(sim.now_ms < begun_ms + 200_000, "it is not split");
    }
    sim.quiesce();
}

/// Clients 1 to 32 make and remove directories of other shards in `bustling`, of which some are always on their way.
fn bustle(sim: &mut Sim, bustling: InodeId) {
    let come_and_go = |sim: &mut Sim, _: &[InodeId]| {
        let (parent, name) = (bustling, name(&format!("passing-{}", sim.rng.random_range(0..300))));
        if sim.rng.random() { Op::Mkdir { parent, name } } else { Op::Rmdir { parent, name } }
    };
    sim.keep_busy(1..=32, &mut vec![ROOT], 0, come_and_go);
    sim.step();
}

/// The client asks for it, and for that again where it is refused; `aside` happens meanwhile. What it is answered within
/// `most` steps.
fn bustle_until_answered(
    sim: &mut Sim,
    bustling: InodeId,
    (client, op, most): (u64, Op, usize),
    mut aside: impl FnMut(&mut Sim),
) -> Option<Answer> {
    sim.ask(client, op);
    for _ in 0..most {
        bustle(sim, bustling);
        aside(sim);
        if let Some(answer) = sim.answers.remove(&client) {
            return Some(answer);
        }
    }
    None
}

/// Two directories, in the first of which others make directories all the time.
fn bustling_and_other() -> (Sim, InodeId, InodeId) {
    let mut sim = Sim::new(2, 3);
    sim.orderly = true;
    let [bustling, other] = two_directories(&mut sim, ["bustling", "other"])[..] else { panic!("two") };
    sim.run(1, Op::Place { inode: bustling, placement: Placement::Shard(ShardId(2)) });
    (sim, bustling, other)
}

#[test]
fn a_name_comes_to_a_directory_that_is_always_looked_at_and_never_left_alone() {
    let (mut sim, bustling, other) = bustling_and_other();
    let (out, inside) = ((other, name("f")), (bustling, name("f")));
    sim.run(1, Op::Create { parent: other, name: name("f") });
    let look = |sim: &mut Sim| {
        sim.answers.remove(&40);
        if sim.is_idle(40) {
            sim.ask(40, Op::Stat { inode: bustling });
        }
    };
    for round in 0..20 {
        for (from, to) in [(out.clone(), inside.clone()), (inside.clone(), out.clone())] {
            let rename = Op::Rename { from, to, flags: 0 };
            let answer = bustle_until_answered(&mut sim, bustling, (41, rename, 20_000), look);
            assert_eq!(answer, Some(Answer::Done), "round {round}");
        }
    }
    sim.quiesce();
}

#[test]
fn a_directory_that_is_never_left_alone_is_not_removed_at_once() {
    let (mut sim, bustling, _) = bustling_and_other();
    sim.run(1, Op::Create { parent: bustling, name: name("stays") });
    sim.run(1, Op::Mkdir { parent: ROOT, name: name("another") });
    let over = Op::Rename { from: (ROOT, name("another")), to: (ROOT, name("bustling")), flags: 0 };
    for op in [Op::Rmdir { parent: ROOT, name: name("bustling") }, over] {
        let answer = bustle_until_answered(&mut sim, bustling, (40, op, 1000), |_| ());
        assert_eq!(answer, Some(Answer::Refused(Errno::ENOTEMPTY)));
    }
    sim.quiesce();
}

/// Many who move directories between directories wait for their turn, and take up no more than one request to another shard.
#[test]
fn many_moves_of_directories_take_their_turns() {
    for seed in seeds(0, 50) {
        let mut sim = Sim::new(seed, 3);
        let dirs = two_directories(&mut sim, ["one", "two"]);
        let movers = 10..=40;
        for client in movers.clone() {
            let (parent, name) = (dirs[client as usize % 2], name(&format!("moved-{client}")));
            assert!(matches!(sim.run(client, Op::Mkdir { parent, name }), Answer::Inode(_)));
        }
        sim.orderly = seed % 2 == 0;
        for client in movers.clone() {
            let (from, to) = (dirs[client as usize % 2], dirs[(client as usize + 1) % 2]);
            let moved = name(&format!("moved-{client}"));
            sim.ask(client, Op::Rename { from: (from, moved.clone()), to: (to, moved), flags: 0 });
        }
        for step in 0.. {
            if movers.clone().all(|client| sim.is_idle(client)) {
                break;
            }
            assert!(step < 200_000, "seed {seed}: they wait for ever");
            sim.step();
            if sim.orderly {
                assert!((1..3).all(|shard| sim.asking_for_token(shard) <= 1), "seed {seed}");
            } else if step % 500 == 0 {
                // Some do not wait for the end.
                let client = sim.rng.random_range(movers.clone());
                sim.kill(client);
            }
        }
        sim.quiesce();
        if sim.orderly {
            assert!(movers.clone().all(|client| sim.answers.get(&client) == Some(&Answer::Done)), "seed {seed}");
        }
    }
}

/// In the root, at home in two other shards.
fn two_directories(sim: &mut Sim, names: [&str; 2]) -> Vec<InodeId> {
    let mut dirs = Vec::new();
    for (shard, text) in (1..).zip(names) {
        sim.run(1, Op::Place { inode: ROOT, placement: Placement::Shard(ShardId(shard)) });
        let Answer::Inode(view) = sim.run(1, Op::Mkdir { parent: ROOT, name: name(text) }) else { panic!("made") };
        dirs.push(view.attr.inode);
    }
    dirs
}

/// Who sees that a name is gone sees it at its new place; who sees it at its new place does not see it at the old one.
#[test]
fn a_moved_name_is_never_missed_and_never_seen_twice() {
    for seed in seeds(0, SEEDS) {
        let mut sim = Sim::new(seed, 3);
        let dirs = two_directories(&mut sim, ["one", "two"]);
        let (old, new, ball) = (dirs[0], dirs[1], name("ball"));
        sim.run(1, Op::Create { parent: old, name: ball.clone() });
        sim.ask(1, Op::Rename { from: (old, ball.clone()), to: (new, ball.clone()), flags: 0 });
        for _ in 0..sim.rng.random_range(0..60) {
            sim.step();
        }
        for _ in 0..4 {
            if sim.rng.random_bool(0.5) {
                if sim.look(2, old, &ball).is_none() {
                    assert!(sim.look(2, new, &ball).is_some(), "seed {seed}: it is nowhere");
                }
            } else if sim.look(2, new, &ball).is_some() {
                assert!(sim.look(2, old, &ball).is_none(), "seed {seed}: it is there twice");
            }
        }
        assert_eq!(sim.wait(1), Answer::Done);
        sim.quiesce();
    }
}

/// Two directories moved into each other at the same time: one of the moves is refused.
#[test]
fn two_clients_cannot_make_a_loop() {
    for seed in seeds(0, SEEDS) {
        let mut sim = Sim::new(seed, 3);
        let dirs = two_directories(&mut sim, ["x", "y"]);
        sim.ask(1, Op::Rename { from: (ROOT, name("x")), to: (dirs[1], name("x")), flags: 0 });
        sim.ask(2, Op::Rename { from: (ROOT, name("y")), to: (dirs[0], name("y")), flags: 0 });
        let done = [sim.wait(1), sim.wait(2)].iter().filter(|answer| **answer == Answer::Done).count();
        assert_eq!(done, 1, "seed {seed}");
        sim.quiesce();
        sim.orderly = true;
        assert_eq!(sim.tree(1).len(), 2);
    }
}

/// Whether it happened or not: what somebody has seen after that is so for good.
#[test]
fn what_a_killed_client_had_asked_for_does_not_happen_later() {
    let (mut happened, mut did_not) = (0, 0);
    for seed in seeds(0, SEEDS) {
        let mut sim = Sim::new(seed, 3);
        let dirs = two_directories(&mut sim, ["one", "two"]);
        let (from, to) = ((dirs[0], name("ball")), (dirs[1], name("ball")));
        sim.run(1, Op::Create { parent: from.0, name: from.1.clone() });
        let op = match seed % 4 {
            0 => Op::Mkdir { parent: ROOT, name: name("three") },
            1 => Op::Rmdir { parent: ROOT, name: name("two") },
            2 => Op::Rename { from, to, flags: 0 },
            _ => Op::Rename { from: (ROOT, name("two")), to: (dirs[0], name("two")), flags: 0 },
        };
        let before = sim.tree(2);
        sim.ask(1, op);
        for _ in 0..sim.rng.random_range(0..80) {
            sim.step();
        }
        sim.kill(1);
        let seen = sim.tree(2);
        sim.quiesce();
        assert_eq!(sim.tree(2), seen, "seed {seed}: it happened afterwards");
        *(if seen == before { &mut did_not } else { &mut happened }) += 1;
    }
    assert!(happened > 0 && did_not > 0, "{happened} happened, {did_not} did not");
}
