//! The control plane: gRPC between mgmtd and everybody else, over streams that have proved the cluster key.
//!
//! [`Client`] is the typed way to ask mgmtd; [`Agent`] keeps a service or client registered and its view of the cluster
//! fresh, on a thread of its own; [`server`] is what mgmtd listens with.

pub mod agent;
pub mod client;
pub mod convert;
pub mod disk;
pub mod error;
pub mod interfaces;
pub mod node;
pub mod server;
mod transport;
pub mod view;

pub use agent::{Agent, AgentConfig, Update};
pub use client::{Client, Wanted};
pub use error::ControlError;
pub use node::{Deletion, Registered};
pub use view::View;

/// Messages and service as generated from `proto/weft.proto`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_docs)]
pub mod proto {
    tonic::include_proto!("weft.v1");
}

/// Largest message of the control plane, in bytes: a map of a hundred thousand targets.
pub(crate) const MESSAGE_MAX: usize = 64 << 20;
