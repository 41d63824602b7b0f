//! Waits, all of them bounded.

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
/// After `limit`, or where `work` panics. The thread stays behind then.
pub fn within<T: Send + 'static>(what: &str, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may be left to hear it.
        let _ = send.send(work());
    });
    receive.recv_timeout(limit).unwrap_or_else(|error| panic!("{what}: {error} after {limit:?}"))
}
