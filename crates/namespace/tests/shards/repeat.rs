//! A seed that finds a fault finds it again: the same messages at the same times, and the same bytes in every store.

use crate::sim::{Crash, Sim};
use crate::{leases, racing};

/// Everything that can happen: leases, splits, kills and power cuts.
fn record(seed: u64) -> String {
    let mut sim = if seed.is_multiple_of(2) { Sim::leasing(seed, 3) } else { Sim::growing(seed, 3, 2) };
    sim.begin_record();
    if seed.is_multiple_of(2) {
        leases::drive(&mut sim, Some(400));
    } else {
        racing::drive(&mut sim, &[Crash::Kill, Crash::PowerCut]);
    }
    sim.quiesce();
    sim.take_record()
}

#[test]
fn one_seed_is_one_run() {
    for seed in 5000..5010 {
        let (one, two) = (record(seed), record(seed));
        let differs = one.lines().zip(two.lines()).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert!(one == two && one.lines().count() > 1000, "seed {seed}: {} and {} bytes", one.len(), two.len());
        assert_ne!(one, record(seed + 1000), "seed {seed}: another one is the same run");
    }
}
