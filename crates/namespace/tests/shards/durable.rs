//! What was called durable outlives power cuts, wherever it lies.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::seq::IndexedRandom;
use types::id::InodeId;

use crate::seeds::seeds;
use crate::sim::{Crash, Op, ROOT, Sim};

const CLIENTS: std::ops::RangeInclusive<u64> = 1..=4;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const SEEDS: u64 = 1000;
const STEPS: u64 = 3000;

/// Nothing that takes an inode its last name.
fn draw(sim: &mut Sim, known: &[InodeId]) -> Op {
    let [parent, other, one] = sim.inodes_of(known);
    let [text, other_text] = sim.words_of(&NAMES);
    match sim.rng.random_range(0..20) {
        0..7 => Op::Mkdir { parent, name: text },
        7..12 => Op::Create { parent, name: text },
        12 => Op::Split { inode: parent, count: sim.rng.random_range(2..=3) },
        13..16 => Op::Link { inode: one, parent, name: text },
        _ => {
            let flags = *[1, 1, 2, 2, 5].choose(&mut sim.rng).expect("some");
            Op::Rename { from: (parent, text), to: (other, other_text), flags }
        }
    }
}

#[test]
fn what_is_durable_outlives_power_cuts() {
    let mut kept = 0;
    for seed in seeds(0, SEEDS) {
        let mut sim = match seed % 3 {
            0 => Sim::new(seed, 3),
            1 => Sim::bustling(seed, 3, 1),
            _ => Sim::growing(seed, 3, 2),
        };
        let (mut known, mut durable) = (vec![ROOT], BTreeSet::new());
        for _ in 0..STEPS {
            sim.keep_busy(CLIENTS, &mut known, 60, draw);
            sim.step();
            if sim.rng.random_range(0..10) == 0 {
                // Mostly of what was made just now.
                let from = if sim.rng.random_bool(0.7) { known.len().saturating_sub(4) } else { 0 };
                let inode = *known[from..].choose(&mut sim.rng).expect("root is known");
                durable.extend(sim.try_fsync(inode));
            }
            if sim.rng.random_range(0..200) == 0 {
                let how = *[Crash::Kill, Crash::PowerCut, Crash::PowerCut].choose(&mut sim.rng).expect("some");
                let node = sim.rng.random_range(0..3);
                sim.crash(node, how);
            }
        }
        sim.quiesce();
        sim.answers.clear();
        sim.forget_parts();
        sim.orderly = true;
        let there: BTreeSet<InodeId> = sim.tree(1).into_values().chain([ROOT]).collect();
        let lost: Vec<_> = durable.difference(&there).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} of {durable:?}");
        assert_eq!(sim.inodes(), there.len() as u64, "seed {seed}: an inode without a name");
        kept += durable.len();
    }
    assert!(kept > 0);
}
