//! The tests of `operations.rs` over `/dev/fuse`.

#[path = "operations.rs"]
mod operations;
