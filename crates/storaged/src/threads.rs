//! Starting threads where that may fail for a while: the limit of processes is that of a user, or of a container, and somebody
//! else may have reached it.

use std::io;
use std::thread::{self, JoinHandle};

pub(crate) type Main = Box<dyn FnOnce() + Send>;

/// How threads are started; tests refuse some.
pub(crate) type Start = fn(&str, Main) -> io::Result<JoinHandle<()>>;

/// # Errors
/// Where the system has no room for one more.
pub(crate) fn start(name: &str, main: Main) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(main)
}

/// A thread that is given `work` and has it back where it cannot be made.
///
/// # Errors
/// The work, and why.
pub(crate) fn give<T: Send + 'static>(
    start: Start,
    name: &str,
    work: T,
    act: impl FnOnce(T) + Send + 'static,
) -> Result<JoinHandle<()>, (T, io::Error)> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let main = Box::new(move || {
        if let Ok(work) = receiver.recv() {
            act(work);
        }
    });
    match start(name, main) {
        Ok(thread) => {
            // It waits for that.
            let _ = sender.send(work);
            Ok(thread)
        }
        Err(error) => Err((work, error)),
    }
}

#[cfg(test)]
pub(crate) fn refuse(_name: &str, _main: Main) -> io::Result<JoinHandle<()>> {
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}
