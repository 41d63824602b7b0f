//! Memory is bounded: of a cluster that has nothing to do, and of one that copies.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::dice::scale;
use harness::memory::{highest_during, pss};
use harness::metrics::sum;

use crate::alone;

const MIB: u64 = 1 << 20;

#[test]
fn an_idle_cluster_has_less_than_400_mib() {
    let _turn = alone();
    let cluster = Cluster::start();
    thread::sleep(Duration::from_secs(2));
    let sizes: Vec<(String, u64)> = cluster.pids().into_iter().map(|(name, pid)| (name, pss(pid) / MIB)).collect();
    println!("PSS in MiB: {sizes:?}");
    assert_eq!(sizes.len(), 5, "all of them");
    assert!(sizes.iter().all(|(_, size)| *size > 0), "each has some");
    let all: u64 = sizes.iter().map(|(_, size)| size).sum();
    assert!(all < 400, "{all} MiB: {sizes:?}");
}

/// One large file onto the mount and off it again. `WEFT_TEST_COPY_MIB=6144` for a run by hand.
#[test]
fn a_long_copy_does_not_grow_any_process() {
    let _turn = alone();
    let total = scale("WEFT_TEST_COPY_MIB", 1024);
    let cluster = Cluster::start();
    let copy = |mib: u64| {
        let mut source = File::create(cluster.beside("source")).unwrap();
        let mut block: Vec<u8> = (0..MIB).map(|at| at as u8).collect();
        for number in 0..mib {
            block[..8].copy_from_slice(&number.to_le_bytes());
            source.write_all(&block).unwrap();
        }
        drop(source);
        let (source, there, back) = (cluster.beside("source"), cluster.path("copy"), cluster.beside("back"));
        for (from, to) in [(&source, &there), (&there, &back)] {
            let status = Command::new("cp").arg(from).arg(to).status().unwrap();
            assert!(status.success(), "cp {} {}", from.display(), to.display());
        }
        assert!(Command::new("cmp").arg(&source).arg(&back).status().unwrap().success(), "the copy of a copy differs");
        [source, there, back].iter().for_each(|path| fs::remove_file(path).unwrap());
    };
    // Buffers and pools come with the first work; after that nothing more may.
    let pids = cluster.pids();
    let warm = highest_during(&pids, || copy(128));
    let high = highest_during(&pids, || copy(total));
    for (((name, _), warm), high) in pids.iter().zip(&warm).zip(&high) {
        println!("{name}: {} MiB warm, {} MiB at the highest", warm / MIB, high / MIB);
        assert!(*warm > 0 && *high < warm + 48 * MIB, "{name} grew from {} to {} MiB", warm / MIB, high / MIB);
        assert!(*high < 300 * MIB, "{name} has {} MiB", high / MIB);
    }
    assert_eq!(pids, cluster.pids(), "nothing was started again");
    // Server and client are on one host: nearly all of it went through shared memory, there and back.
    let placed = sum(&cluster, "storage", "weft_placed_bytes_total", &[]);
    assert!(placed > (2 * total * MIB) as f64 * 0.9, "{placed} bytes of {total} MiB, twice");
}
