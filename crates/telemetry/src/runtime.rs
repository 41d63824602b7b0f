//! tokio for what is not on the data path: one thread, one single-threaded runtime.

use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};

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
pub fn current_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
