//! What clients hold open while its names come, go and move in several shards.

use namespace::acl::DEFAULT;
use rand::RngExt;
use rand::seq::IndexedRandom;
use types::flags::FileFlags;
use types::id::InodeId;

use crate::seeds::seeds;
use crate::sim::{Answer, Crash, Op, ROOT, Sim, name};

const CLIENTS: std::ops::RangeInclusive<u64> = 1..=5;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SEEDS: u64 = 3000;
const STEPS: u64 = 3000;

fn draw(sim: &mut Sim, known: &[InodeId]) -> Op {
    let [parent, other, one] = sim.inodes_of(known);
    let [text, other_text] = sim.words_of(&NAMES);
    match sim.rng.random_range(0..30) {
        0..3 => Op::Mkdir { parent, name: text },
        3..5 => Op::Create { parent, name: text },
        5 => Op::TmpFile { parent },
        6..9 => Op::Open { inode: one },
        9..12 => Op::Close { inode: one },
        12 => Op::Rmdir { parent, name: text },
        13..15 => Op::Unlink { parent, name: text },
        15..17 => Op::Link { inode: one, parent, name: text },
        17 if sim.rng.random_bool(0.5) => Op::Split { inode: parent, count: sim.rng.random_range(2..=3) },
        17 => Op::Chmod { inode: parent, mode: *[0o755, 0o2755].choose(&mut sim.rng).expect("some") },
        18 => Op::SetXattr { inode: parent, name: DEFAULT, value: default_acl(sim.rng.random_range(0..8)) },
        19 => {
            let flags = *[FileFlags::NONE, FileFlags::NONE, FileFlags::APPEND].choose(&mut sim.rng).expect("some");
            Op::Flag { inode: parent, flags }
        }
        20 => Op::List { inode: parent, cookie: 0 },
        21 => Op::Stat { inode: one },
        22 => Op::Lookup { parent, name: text },
        _ => {
            let flags = *[0, 0, 0, 1, 2, 2, 4].choose(&mut sim.rng).expect("some");
            Op::Rename { from: (parent, text), to: (other, other_text), flags }
        }
    }
}

fn default_acl(mask: u16) -> Vec<u8> {
    let entries =
        [(0x01u16, 7u16, u32::MAX), (0x02, 7, 9), (0x04, 5, u32::MAX), (0x10, mask, u32::MAX), (0x20, 0, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

fn race(seed: u64, crashes: &[Crash]) {
    let mut sim = match seed % 3 {
        0 => Sim::new(seed, 3),
        1 => Sim::leasing(seed, 3),
        _ => Sim::growing(seed, 3, 2),
    };
    let has_leases = seed % 3 == 1;
    let mut known = vec![ROOT];
    for _ in 0..STEPS {
        sim.keep_busy(CLIENTS, &mut known, 60, draw);
        sim.step();
        match sim.rng.random_range(0..600) {
            0..2 if !crashes.is_empty() => {
                let how = *crashes.choose(&mut sim.rng).expect("some");
                // A power cut may take back what was believed.
                let how = if has_leases { Crash::Kill } else { how };
                let node = sim.rng.random_range(0..3);
                sim.crash(node, how);
            }
            2 if !has_leases => {
                let (node, client) = (sim.rng.random_range(0..3), sim.rng.random_range(CLIENTS));
                sim.leave(node, client);
            }
            3 => {
                let client = sim.rng.random_range(CLIENTS);
                sim.kill(client);
            }
            _ => {}
        }
    }
    sim.quiesce();
    assert_eq!(sim.unlike_parts(), [], "seed {seed}");
    sim.answers.clear();
    sim.orderly = true;
    let tree = sim.tree(6);
    for client in CLIENTS {
        for node in 0..3 {
            sim.leave(node, client);
        }
    }
    sim.quiesce();
    assert_eq!(sim.tree(6), tree, "seed {seed}");
    let inodes: std::collections::BTreeSet<_> = tree.values().collect();
    assert_eq!(sim.inodes(), inodes.len() as u64 + 1, "seed {seed}: an inode that nobody holds");
}

#[test]
fn what_nobody_holds_goes() {
    for seed in seeds(0, SEEDS) {
        race(seed, &[]);
    }
}

#[test]
fn what_nobody_holds_goes_though_processes_are_killed() {
    for seed in seeds(1000, SEEDS) {
        race(seed, &[Crash::Kill]);
    }
}

#[test]
fn what_nobody_holds_goes_though_the_power_is_cut() {
    for seed in seeds(2000, SEEDS) {
        race(seed, &[Crash::Kill, Crash::PowerCut, Crash::PowerCut]);
    }
}

#[test]
fn a_split_directory_that_was_removed_can_be_changed_by_who_may_hold_it() {
    let mut sim = Sim::new(5, 3);
    sim.orderly = true;
    let Answer::Inode(made) = sim.run(1, Op::Mkdir { parent: ROOT, name: name("d") }) else { panic!("not made") };
    let inode = made.attr.inode;
    assert!(matches!(sim.run(1, Op::Split { inode, count: 3 }), Answer::Parts(_)));
    // It does not come back, so what was removed is kept for a while.
    sim.run(2, Op::Open { inode });
    sim.crash(usize::from(inode.home().0), Crash::Kill);
    assert_eq!(sim.run(1, Op::Rmdir { parent: ROOT, name: name("d") }), Answer::Done);
    let answer = sim.run(1, Op::Chmod { inode, mode: 0o700 });
    let Answer::Inode(changed) = answer else { panic!("{answer:?}") };
    assert_eq!((changed.attr.mode, changed.attr.nlink), (0o700, 0));
}
