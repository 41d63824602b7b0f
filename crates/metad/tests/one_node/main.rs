//! Shards of one node, asked over the loopback interface. One program: each would take as long to build as all of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod fences;
mod locks;
mod shard;
mod transact;
