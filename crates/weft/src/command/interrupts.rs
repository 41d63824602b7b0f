//! Signals that end a command, and what it starts that is to outlive them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C is ours to answer: the flag is raised by it, and what was started is stopped in order.
///
/// # Errors
/// Where the kernel takes no handler.
pub(crate) fn catch_interrupts() -> Result<&'static AtomicBool> {
    catch(&[libc::SIGINT, libc::SIGTERM])
}

/// As `catch_interrupts`, and the flag is raised too when the terminal is gone. Who is to outlive that (`nohup`) does.
///
/// # Errors
/// Where the kernel takes no handler.
pub(crate) fn catch_ends() -> Result<&'static AtomicBool> {
    catch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
}

fn catch(signals: &[i32]) -> Result<&'static AtomicBool> {
    extern "C" fn note(_signal: i32) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for &signal in signals {
        // SAFETY: the handler stores to an atomic, which is allowed in a signal handler.
        let previous = unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
        if previous == libc::SIG_ERR {
            return Err(io::Error::last_os_error()).context("cannot catch signals");
        }
        if signal == libc::SIGHUP && previous == libc::SIG_IGN {
            // SAFETY: as above, without a handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    Ok(&INTERRUPTED)
}

/// Lets the child go on when its terminal is gone, and not hear its Ctrl-C.
pub(crate) fn lead_session(command: &mut Command) {
    // SAFETY: setsid is safe between fork and exec; it cannot fail in a child that leads no group.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
}
