//! What the tests of a shard over the loopback interface share.
#![allow(unreachable_pub, reason = "a module of a test")]

use std::future::Future;

use net::ClusterKey;

pub fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

pub fn on_ring<F: Future>(main: impl FnOnce() -> F) -> F::Output {
    let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
    ring.run(async { main().await })
}
