//! Ctrl-C, `kill` and a terminal that goes away end a run in order: what it started is stopped, and its folder goes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::{Context, Result, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Process id of the measurement under way; 0: none.
static MEASURING: AtomicI32 = AtomicI32::new(0);

/// From now on these signals are only noted, and end the measurement under way.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn catch() -> Result<()> {
    extern "C" fn note(_signal: i32) {
        INTERRUPTED.store(true, Ordering::SeqCst);
        end_measurement();
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler uses atomics and kill, which are allowed in a signal handler.
        let previous = unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
        if previous == libc::SIG_ERR {
            return Err(io::Error::last_os_error()).context("cannot catch signals");
        }
    }
    Ok(())
}

/// # Errors
/// Where a signal came.
pub(crate) fn check() -> Result<()> {
    ensure!(!INTERRUPTED.load(Ordering::SeqCst), "interrupted");
    Ok(())
}

fn end_measurement() {
    let process = MEASURING.load(Ordering::SeqCst);
    if process > 0 {
        // With the programs that it has started.
        // SAFETY: kill touches no memory; the process has not been waited for, so the number of its group is its own.
        unsafe { libc::kill(-process, libc::SIGTERM) };
    }
}

/// The measurement under way, until this is dropped: before it is waited for.
pub(crate) struct Measuring;

impl Measuring {
    pub(crate) fn begin(process: u32) -> Self {
        MEASURING.store(i32::try_from(process).unwrap_or(0), Ordering::SeqCst);
        if INTERRUPTED.load(Ordering::SeqCst) {
            end_measurement();
        }
        Self
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURING.store(0, Ordering::SeqCst);
    }
}
