//! The check of a whole cluster: do names, inodes and objects belong together?
//!
//! It runs while the cluster works, so what it reads is not of one instant: a pass finds *suspicions*. Only what a pass
//! and two later ones find alike, about an inode that did not change between them, is reported. It reads, and changes
//! nothing. Where a storage target is away, it tells what cannot be said without it, and checks the rest. It holds everything
//! that it reads in memory: about 80 bytes for each inode, name and object.

mod check;
mod collect;
mod finding;
mod snapshot;
mod sorted;
mod users;

pub(crate) use collect::run;
pub use collect::{NotAsked, Report, Stage};
pub use finding::{Finding, Kind};
pub(crate) use users::Users;
