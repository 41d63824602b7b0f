//! The management service: owns the cluster map, tells who is there, and gives out ids.
//!
//! It promises that whatever it has answered or published is on its disk, and that ids are never given out twice. It
//! takes no part in file operations: a cluster goes on working while it restarts.
//!
//! Requests come in by gRPC on a tokio thread; one other thread owns the state machine and the store.

pub mod config;
mod grpc;
mod history;
mod metrics;
mod owner;
pub mod service;
mod store;

pub use config::Config;
pub use service::{Server, run};
