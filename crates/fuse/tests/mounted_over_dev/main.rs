//! The tests of `mounted` over `/dev/fuse`: what a kernel without io_uring for FUSE has.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../mounted/against_tmpfs.rs"]
mod against_tmpfs;
#[path = "../mounted/common/mod.rs"]
mod common;
#[path = "../mounted/operations.rs"]
mod operations;
#[path = "../mounted/session.rs"]
mod session;
