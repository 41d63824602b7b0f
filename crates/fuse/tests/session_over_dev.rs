//! The tests of `session.rs` over `/dev/fuse`.

#[path = "session.rs"]
mod session;
