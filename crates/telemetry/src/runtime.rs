//! tokio for what is not on the data path: one thread, one single-threaded runtime.

use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs `main` to its end on a new thread called `name` (at most 15 bytes show in `top`), on a tokio runtime of that
/// thread's own. `main` is made on that thread, so its future needs not be `Send`.
///
/// # Errors
/// Where the runtime or the thread cannot be made.
pub fn spawn<F, T>(name: &str, main: impl FnOnce() -> F + Send + 'static) -> io::Result<JoinHandle<T>>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let runtime = current_thread()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(async move { main().await }))
}

/// A single-threaded runtime with timers and sockets, for a thread that is there already.
///
/// # Errors
/// Where the kernel refuses its epoll instance.
pub fn current_thread() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Hears a signal from now on, also while `runtime` does not run yet: the signal does not end the process, and is told of when
/// it does.
///
/// # Errors
/// Where the signal cannot be heard.
pub fn hear(runtime: &Runtime, kind: SignalKind) -> io::Result<Signal> {
    let _here = runtime.enter();
    signal(kind)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_signal_that_came_too_early_is_told_of_later() {
        let runtime = current_thread().expect("a runtime");
        // One that nobody sends by accident, and that is ignored where nobody hears it.
        let mut urgent = hear(&runtime, SignalKind::from_raw(23)).expect("it can be heard");
        let sent = std::process::Command::new("kill").args(["-URG", &std::process::id().to_string()]).status();
        assert!(sent.expect("it can be started").success());
        let told = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), urgent.recv()).await });
        assert_eq!(told.expect("it was told"), Some(()));
    }
}
