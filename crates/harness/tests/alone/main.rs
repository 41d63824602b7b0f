//! What measures the whole machine: time on a clock, CPUs, memory. `cargo test` runs one program at a time, and the tests of
//! this one take turns, so that nothing else of the suite runs beside any of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod idle;
mod memory;
mod start;

/// While this is held, no other test of this program runs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // One that failed has left nothing that the next would meet.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
