//! Who is measured: ours, and what it is measured against.

pub(crate) mod ceiling;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod core;
pub(crate) mod flight;
pub(crate) mod idle;
pub(crate) mod inodes;
pub(crate) mod paths;
pub(crate) mod ping;
pub(crate) mod rocks;
pub(crate) mod shard;
pub(crate) mod shards;
pub(crate) mod stopwatch;
pub(crate) mod tool;
