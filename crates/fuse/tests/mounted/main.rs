//! Real mounts, over io_uring where the kernel has it. One program: each would take as long to build as all of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod against_tmpfs;
mod common;
mod operations;
mod session;
