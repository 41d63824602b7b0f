//! What one shard does, over a store in memory. One program: each would take as long to build as all of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod against_model;
mod common;
mod crowds;
mod damage;
mod drafts;
mod ends;
mod flags;
mod flock;
mod given;
mod inline;
mod leases;
mod locks;
mod lost_memory;
mod nameless;
mod ops;
mod posix;
mod session_ends;
mod sessions;
mod speed;
mod telling;
mod walk;
