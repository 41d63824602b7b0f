//! The client core: routing, retries, striping, sizes. It knows no FUSE; the mount, the benches and the C library are
//! faces of it.
//!
//! One [`Shared`] per mount (or process): the cluster map, the session, the open files. One [`Client`] per thread, on
//! that thread's ring, with connections of its own, so that an operation never changes threads.
//!
//! What it promises: what it has answered, another client sees; a server that restarts is waited for, up to a bound;
//! a change is executed exactly once however often it was sent. Writes it keeps back as long as nobody else looks
//! (`unwritten`). What it never does: keep names, attributes or data itself beyond the answer to the operation at hand
//! (its answers say for how long their receiver may: see `lease`; for no longer than that it keeps what `kept` says of
//! directories and `contents` of small files, and what `ahead` has read ahead), or run a thread of its own
//! on the request path.

mod acl;
mod ahead;
mod append;
mod bare;
mod caller;
pub mod config;
mod connect;
mod contents;
mod copy;
mod data;
mod directory;
mod doubts;
mod draft;
mod end;
mod endings;
mod file;
mod flags;
mod gather;
mod given_up;
mod goodbye;
mod graves;
mod heartbeat;
mod inline;
mod kept;
mod later;
mod lease;
mod linger;
mod list_ahead;
mod listings;
mod locks;
mod looks;
mod losses;
mod making;
mod metrics;
mod names;
mod open;
mod overlaps;
mod own;
mod parts;
mod path;
mod patience;
mod promise;
mod publish;
mod recall;
mod renewal;
mod retry;
mod router;
mod sequence;
mod set_ids;
mod set_times;
mod settle;
mod shared;
mod sightings;
mod space;
mod splits;
mod statfs;
mod streams;
mod sync_habit;
mod telling;
#[cfg(test)]
mod test_client;
#[cfg(test)]
mod test_cluster;
mod tours;
mod truncate;
mod unsettled;
mod unsynced;
mod unwritten;
mod walk;
mod was_read;
mod xattr;

pub use caller::Caller;
pub use connect::{Cluster, Connected, connect};
pub use data::Durability;
pub use directory::Listing;
pub use lease::{Gate, Lease};
pub use listings::MayKeep;
pub use locks::{LockAsk, LockHolder};
pub use names::{Known, Looked, Named};
pub use recall::{Keeper, obey_recalls};
pub use router::Client;
pub use set_ids::{Right, Standing};
pub use shared::Shared;
pub use statfs::StatFs;
