//! From an empty directory to a mounted file system in less than 5 seconds.
//!
//! Wall-clock time is what is promised, and most of it is waiting: for disks, for services to find each other. So it is
//! measured as it is, with nothing else of the suite beside it. No allowance is made for a busy machine.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};

use crate::alone;

const LIMIT: Duration = Duration::from_secs(5);
/// The median of so many counts: one may meet the page cache being written back.
const ROUNDS: usize = 3;

/// The command's time with its start and end, and then the first file.
fn up(cluster: &Cluster) -> Duration {
    let begin = Instant::now();
    cluster.up().expect_ok();
    fs::write(cluster.path("first"), b"x").unwrap();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_cluster_is_up_and_mounted_within_five_seconds() {
    let _turn = alone();
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let cluster = Cluster::unborn(Shape::default());
        fresh.push(up(&cluster));
        cluster.down().expect_ok();
        again.push(up(&cluster));
        cluster.down().expect_ok();
    }
    println!("from nothing {fresh:.2?}, with its data {again:.2?}");
    let (fresh, again) = (median(fresh), median(again));
    assert!(fresh < LIMIT, "from an empty directory: {fresh:?}");
    assert!(again < LIMIT, "where its data is there: {again:?}");
}
