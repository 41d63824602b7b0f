//! Waits, all of them bounded.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);
const KILLS_IN_A_ROW: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks until there is an answer.
///
/// # Panics
/// After `limit`, saying what was waited for.
pub fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < limit, "{what}: not so after {limit:?}");
        thread::sleep(POLL);
    }
}

/// Before the kill with this number. A service that is killed again and again is started ever later, and with two of them one
/// is always away: so every few kills this waits until `done` has grown, or nobody is to go on.
///
/// # Panics
/// Where neither is so within five minutes.
pub fn until_others_get_on(kill: u64, done: &AtomicU64, stop: &AtomicBool) {
    if kill == 0 || !kill.is_multiple_of(KILLS_IN_A_ROW) {
        return;
    }
    let so_far = done.load(Ordering::Relaxed);
    let has_grown = || done.load(Ordering::Relaxed) > so_far + 10;
    until("somebody gets on", PATIENCE, || (has_grown() || stop.load(Ordering::Relaxed)).then_some(()));
}

/// Does in another thread what may block for ever.
///
/// # Panics
/// After `limit`, saying where in the kernel it waits as far as root may see that, or where `work` panics. The thread stays
/// behind then.
pub fn within<T: Send + 'static>(what: &str, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // SAFETY: gettid cannot fail and touches no memory.
        let _ = tell.send(unsafe { libc::gettid() });
        // Nobody may be left to hear it.
        let _ = send.send(work());
    });
    receive.recv_timeout(limit).unwrap_or_else(|error| {
        let stack = told.try_recv().map(|thread| fs::read_to_string(format!("/proc/self/task/{thread}/stack")));
        let stack = stack.map(Result::unwrap_or_default).unwrap_or_default();
        panic!("{what}: {error} after {limit:?}; it waits at\n{stack}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "sleeping: timed out")]
    fn what_blocks_is_given_up() {
        within("sleeping", Duration::from_millis(10), || thread::sleep(Duration::from_secs(1)));
    }
}
