//! The tests of `against_tmpfs.rs` over `/dev/fuse`.

#[path = "against_tmpfs.rs"]
mod against_tmpfs;
