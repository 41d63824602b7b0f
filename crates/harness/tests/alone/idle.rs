//! A cluster that nobody uses leaves the CPU to others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::Cluster;
use harness::process;

use crate::alone;

/// For everything that follows a start to be done.
const SETTLING: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(20);
/// Of the time of one CPU.
const SHARE_MAX: f64 = 0.01;

/// What each process of the cluster has used of CPUs since it began.
fn used(cluster: &Cluster) -> BTreeMap<i32, Duration> {
    cluster.running().into_iter().filter_map(|pid| Some((pid, process::cpu_time(pid)?))).collect()
}

#[test]
fn an_idle_cluster_uses_under_one_percent_of_a_core() {
    let _turn = alone();
    let cluster = Cluster::start();
    // It has worked before: what was opened then stays open.
    for number in 0..100 {
        let path = cluster.path(&format!("file-{number}"));
        fs::write(&path, vec![7; 100_000]).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    }
    thread::sleep(SETTLING);
    let (begun, before) = (Instant::now(), used(&cluster));
    thread::sleep(WATCHED);
    let after = used(&cluster);
    let watched = begun.elapsed();
    assert!(before.len() >= 5 && before.keys().eq(after.keys()), "{before:?} and then {after:?}");
    let of_each: BTreeMap<i32, Duration> = after.iter().map(|(pid, used)| (*pid, *used - before[pid])).collect();
    let share = of_each.values().sum::<Duration>().as_secs_f64() / watched.as_secs_f64();
    assert!(share < SHARE_MAX, "{:.2} % of one core: {of_each:?}", share * 100.0);
    cluster.down().expect_ok();
}
