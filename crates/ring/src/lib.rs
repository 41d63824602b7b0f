//! A single-threaded executor over `io_uring`: one [`Ring`] per thread, its tasks `!Send`, its buffers owned.
//!
//! Everything on the request path of a service is one of these: sockets, files and timers in one thread, so that no
//! request is ever handed to another one (a wake-up on another CPU costs more than a metadata operation).
//!
//! A *turn* of the loop: take completions, poll every runnable task, poll those that asked for [`turn_end`], then enter
//! the kernel once with all submissions. Work that gains from batching (a write batch, a socket's replies) waits for
//! the turn's end.
//!
//! File reads and file writes have ring pairs of their own, so that neither starves the other or the sockets.
//!
//! What this crate never does: block in a system call while a task is runnable, lock, or free memory that the kernel
//! may still write to.

pub mod buf;
mod company;
mod driver;
mod executor;
mod join;
pub mod mailbox;
pub mod memory;
pub mod op;
pub mod place;
pub mod shared;
mod slab;
mod slots;
mod spin;
mod standstill;
pub mod sync;
mod tally;
mod timer;
mod unblock;

pub use company::Company;
pub use executor::{Config, Ring, next_turn, now, spawn, turn_end, yield_now};
pub use join::join_all;
pub use standstill::asleep;
pub use timer::{Elapsed, Sleep, Tick, next_look, sleep, sleep_until, tick, timeout};
pub use unblock::Helpers;
