//! Why the service cannot go on: told by the thread that finds it, waited for by the one that ends the service.

use conf::Fatal;
use tokio::sync::watch;

#[derive(Clone, Default)]
pub(crate) struct Fault(watch::Sender<Option<Fatal>>);

impl Fault {
    /// The first that is told stands.
    pub(crate) fn tell(&self, fatal: Fatal) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert(fatal);
            is_first
        });
    }

    pub(crate) async fn told(&self) -> Fatal {
        let mut seen = self.0.subscribe();
        loop {
            if let Some(fatal) = seen.borrow_and_update().clone() {
                return fatal;
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Tells `message` when it is dropped: held by a thread, that it has ended, be it by a panic.
    pub(crate) fn unless_held(&self, message: impl Into<String>) -> Held {
        Held { fault: self.clone(), message: message.into() }
    }
}

pub(crate) struct Held {
    fault: Fault,
    message: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fault.tell(Fatal::failed(std::mem::take(&mut self.message)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn what_is_told(fault: &Fault) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(fault.told()).message
    }

    #[test]
    fn a_thread_that_ends_is_told_of_and_what_follows_is_not() {
        let fault = Fault::default();
        let held = fault.unless_held("it has ended");
        let thread = thread::spawn(move || drop(held));
        assert_eq!(what_is_told(&fault), "it has ended");
        thread.join().expect("it ends");
        fault.tell(Fatal::failed("what came of that"));
        assert_eq!(what_is_told(&fault), "it has ended");
    }
}
