//! Connections over the loopback interface, with good peers and bad ones. One program: each would take as long to build as
//! all of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod common;
mod fences;
mod handshake;
mod hostile;
mod local;
mod reconnect;
mod sharing;
mod slow;
mod strangers;
