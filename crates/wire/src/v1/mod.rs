//! Version 1 of the messages.
//!
//! To add a message: a line in [`crate::op::Op`], its struct in `meta`, `lock`, `storage`, `bench`, `netbench`, `scrub` or
//! `session`, its golden bytes in `tests/golden.rs`, and its arm in the dispatch of the service that answers it. A change to a
//! message that has been released is a new version module, never an edit.

pub mod bench;
pub mod lock;
pub mod meta;
pub mod netbench;
pub mod scrub;
pub mod session;
pub mod storage;
pub mod transaction;
