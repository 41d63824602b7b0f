//! The data plane: connections between processes that hold the same cluster key, and calls over them.

pub mod handshake;
mod identity;
mod key;

pub use identity::Identity;
pub use key::{ClusterKey, KeyError};
