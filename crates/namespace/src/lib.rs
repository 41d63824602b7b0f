//! The brain of a metadata shard: the namespace's rules over an ordered key-value store, and the sessions that use it.
//!
//! `shard::Shard` is what a metadata service drives: one value per shard, used by one thread. It has no I/O but the
//! store, no clock and no dice: the time comes with `begin_turn`, the seed with `Config`. A turn is
//! `begin_turn`, any number of operations, `commit`; **no answer may leave before `commit` returned `Ok`**, and where it
//! fails, every operation of the turn failed.
//!
//! - `schema`: one file per key family, and the table of them all.
//! - `namespace`: inodes, edges and their caches; changes of a turn gathered into one write batch.
//! - `ops`: one file per operation on the namespace, with its whole story.
//! - `acl`: what access control lists are valid, and how they follow the permission bits.
//! - `shard`: sessions, opens, write intents, orphans and stored replies around the operations.
//! - `leases`: which session may keep what it was told, and recalls.
//! - `transaction`: operations over several shards.
//! - `locks`: who holds which locks on files, who waits for them, and who may go on.
//! - `check`: what must hold of a whole store.

pub mod acl;
mod busy;
pub mod check;
mod cold;
mod complete;
mod config;
mod edges;
pub mod error;
mod homes;
mod hot;
mod inodes;
mod leases;
pub mod locks;
pub mod namespace;
pub mod ops;
mod placement;
pub mod schema;
pub mod shard;
pub mod transaction;
pub mod view;
