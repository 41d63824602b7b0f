//! Waits, all of them bounded.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);

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
