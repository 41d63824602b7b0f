//! The FUSE front-end: the kernel's protocol on one side, the trait [`filesystem::FileSystem`] on the other.
//!
//! One loop per CPU, each a thread with a ring of its own: request in, whatever the file system does on the same ring
//! (network included), reply out, and no hand-over to another thread. The kernel gives any request to any loop.
//!
//! What this crate never does: know of Weft's servers, keep file data, or let one bad request or a panic end the mount.

mod abi;
mod abort;
mod arrivals;
mod baton;
pub mod context;
mod decode;
mod dev;
mod dispatch;
mod dying;
mod early;
mod file_flags;
pub mod filesystem;
mod init;
pub mod listing;
mod lookups;
mod metrics;
pub mod model_fs;
mod mount;
mod notify;
mod operation;
pub mod options;
mod reply;
mod session;
pub mod signals;
mod spare;
mod team;
mod transport;
mod uring;
mod worker;

pub use arrivals::Arrivals;
pub use context::Context;
pub use decode::asked;
pub use filesystem::FileSystem;
pub use mount::{MountError, is_dead, unmount};
pub use notify::{Noted, Notifier};
pub use options::{Channel, Options};
pub use session::{Handle, mount};
