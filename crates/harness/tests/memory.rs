//! Memory is bounded: of a cluster that has nothing to do, and of one that copies.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::dice::scale;
use harness::memory::{pss, rss};

const MIB: u64 = 1 << 20;

#[test]
fn an_idle_cluster_has_less_than_400_mib() {
    let cluster = Cluster::start();
    thread::sleep(Duration::from_secs(2));
    let sizes: Vec<(String, u64)> = cluster.pids().into_iter().map(|(name, pid)| (name, pss(pid) / MIB)).collect();
    println!("PSS in MiB: {sizes:?}");
    assert_eq!(sizes.len(), 5, "all of them");
    assert!(sizes.iter().all(|(_, size)| *size > 0), "each has some");
    let all: u64 = sizes.iter().map(|(_, size)| size).sum();
    assert!(all < 400, "{all} MiB: {sizes:?}");
}

/// `WEFT_TEST_COPY_MIB=8192` for a run by hand.
#[test]
fn a_long_copy_does_not_grow_any_process() {
    let total = scale("WEFT_TEST_COPY_MIB", 1024);
    let cluster = Cluster::start();
    let copy = |name: &str, mib: u64| {
        let block: Vec<u8> = (0..MIB).map(|at| at as u8).collect();
        let mut file = File::create(cluster.path(name)).unwrap();
        (0..mib).for_each(|_| file.write_all(&block).unwrap());
        drop(file);
        let mut file = File::open(cluster.path(name)).unwrap();
        let mut read = vec![0; MIB as usize];
        for _ in 0..mib {
            file.read_exact(&mut read).unwrap();
            assert!(read == block);
        }
        fs::remove_file(cluster.path(name)).unwrap();
    };
    // Buffers and pools come with the first work; after that nothing more may.
    copy("warm", 128);
    let before = cluster.pids();
    let sizes = || -> Vec<u64> { before.iter().map(|(_, pid)| rss(*pid)).collect() };
    let warm = sizes();
    let mut highest = warm.clone();
    for part in 0..(total / 128).max(1) {
        copy(&format!("part-{part}"), 128);
        highest = highest.iter().zip(sizes()).map(|(high, now)| *high.max(&now)).collect();
    }
    for (((name, _), warm), high) in before.iter().zip(&warm).zip(&highest) {
        println!("{name}: {} MiB warm, {} MiB at the highest", warm / MIB, high / MIB);
        assert!(*high < warm + 48 * MIB, "{name} grew from {} to {} MiB", warm / MIB, high / MIB);
        assert!(*high < 300 * MIB, "{name} has {} MiB", high / MIB);
    }
    assert_eq!(before, cluster.pids(), "nothing was started again");
}
