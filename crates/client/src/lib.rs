//! The client core: routing, retries, striping, sizes. It knows no FUSE; the mount, the benches and the C library are
//! faces of it.
//!
//! One [`Shared`] per mount (or process): the cluster map, the session, the open files. One [`Client`] per thread, on
//! that thread's ring, with connections of its own, so that an operation never changes threads.
//!
//! What it promises: what it has answered, another client sees; a server that restarts is waited for, up to a bound;
//! a change is executed exactly once however often it was sent.
//!
//! Under a lease (`lease`) it keeps what it was told: directories (`kept`), attributes of open files and contents of
//! small ones (`contents`), and what was read ahead (`ahead`). Before others change any of that, it has forgotten it.
//! Under a lease it also keeps back what it was given: writes (`unwritten`) and new files (`draft`). Before others look
//! at any of that, it has sent it. Of inodes that are gone it remembers what a local file system would still answer
//! (`graves`, `sightings`). Its answers say for how long their receiver may believe them.
//!
//! What it never does: answer from what it keeps when the lease on that is recalled or over, or run a thread of its own
//! on the request path.

// Calls: on whose behalf, to whom, how often.
mod caller; // on whose behalf an operation runs
mod doubts; // changes of objects that were given up and may still happen
mod given_up; // changes of names that were given up and may still happen
mod later; // what nobody waits for goes with the next request
mod looks; // how often it is looked whether another task is done
mod making; // one task makes a connection, for all that need it
mod promise; // what one task brings, and others wait for
mod retry; // when to try again, and when to give up
mod router; // from a group to a connection, and calls over it
mod sequence; // the numbers under which changes are done once

// The session: how it begins, lives and ends, and what its threads share.
pub mod config; // what a client process may choose
mod connect; // from an address and a key to a client
mod endings; // answers that were overtaken by a close or a restart
mod few; // tables that mostly have nothing in them
mod goodbye; // the end of a session
mod heartbeat; // tells shards that this client lives
mod metrics; // what a mount shows of its memory and its map
mod mutex; // locks of what threads share
mod shards; // what is known of each shard
mod shared; // what the threads of one mount share
mod telling; // tells a shard that has restarted what is held in it

// Names, directories and attributes.
mod acl; // access control lists
mod behind; // which directories a change over several shards takes
mod directory; // listing directories
mod flags; // flags of files (`chattr`)
mod graves; // what removed directories and devices answer while in use
mod names; // operations on names and attributes
mod parts; // directories that are split, asked as one
mod path; // a path on its way to its inode, by the rules of POSIX
mod set_ids; // set-user-id, set-group-id, and what is for the owner alone
mod sightings; // how inodes were when a name last led to them
mod splits; // which directories are split, as far as is known
mod statfs; // capacity of the whole file system
mod walk; // asks for a path without a kernel in between
mod xattr; // extended attributes

// Open files: what is known of each, from its open to its close.
mod close; // closing: the life of a file after its last handle
mod done; // waiting for a file that another task is busy with
mod end; // who appends and cuts: the lock on the end of a file
mod file; // the bookkeeping of one open file
mod gather; // the size of a striped file at one moment
mod intent; // write intents, asked for before the first change of data
mod linger; // files that stay open at the shard after their last handle
mod locks; // `flock` and `fcntl`
mod open; // opening
mod overlaps; // changes of objects beside a truncate
mod set_times; // times that are set while a file is open
mod settle; // who knows the size, and telling the shard
mod truncate; // the objects first, then the inode
mod unsettled; // files that could not be settled
mod was_read; // telling a shard when a file was read last

// Data: on its way to and from the objects.
mod append; // each write whole, at the end as it is then
mod copy; // copies on the servers
mod data; // reading, writing and syncing, striped over the groups
mod inline; // contents in the metadata
mod losses; // who has yet to be told of what was lost
mod space; // reserving space, holes
mod sync_habit; // notices who syncs each write
mod unsynced; // what may not be on the disks

// Leases, and what is kept under them: answers, and what programs were told is done.
mod ahead; // reads ahead
mod bare; // which inodes have no extended attributes
mod contents; // attributes of open files, and contents of small ones
mod draft; // what is kept back of a new file
mod kept; // directories of which enough is known
mod lately; // tables that drop what was not used lately
mod lease; // what may be believed without asking, and its end
mod list_ahead; // lists directories before a program comes to them
mod listings; // which listings the kernel may keep
mod own; // reading of files that this mount alone writes
mod patience; // when to ask for a lease that is missing
mod publish; // when a draft is told to the shard
mod recall; // gives leases back
mod renewal; // renews leases on what is read again and again
mod streams; // who reads a file on, and how far ahead to ask
mod tours; // in which order a program walks through a tree
mod unwritten; // writes that are kept back

// For tests.
#[cfg(test)]
mod test_client; // a client in a cluster without servers
#[cfg(test)]
mod test_cluster; // a shard whose answers the test gives

pub use caller::Caller;
pub use connect::{Cluster, Connected, connect};
pub use data::Durability;
pub use directory::Listing;
pub use end::Place;
pub use lease::{Gate, Lease};
pub use listings::MayKeep;
pub use locks::{LockAsk, LockHolder};
pub use names::{Known, Looked, Named};
pub use recall::{Keeper, obey_recalls};
pub use router::Client;
pub use set_ids::{Right, Standing};
pub use shared::Shared;
pub use statfs::StatFs;
