//! Who asks, and whether they still wait.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Poll, Waker};

use types::cred::Credentials;

use crate::dying;

/// The circumstances of one operation.
pub struct Context {
    pub uid: u32,
    pub gid: u32,
    /// The calling thread, in the mount's PID namespace; 0 where the kernel itself asks.
    pub pid: u32,
    /// Of the caller, for what is made; 0 in other operations.
    pub umask: u32,
    /// The kernel's number of the request.
    pub unique: u64,
    interrupt: Rc<Interrupt>,
}

impl Context {
    pub(crate) fn new(uid: u32, gid: u32, pid: u32, unique: u64, interrupt: Rc<Interrupt>) -> Self {
        Self { uid, gid, pid, umask: 0, unique, interrupt }
    }

    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials { uid: self.uid, gid: self.gid, umask: self.umask }
    }

    /// The caller got a signal and wants to stop waiting. An operation that has changed nothing yet may then answer
    /// `EINTR`; one that ignores it is waited for.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.raised.get()
    }

    /// The signal ends the caller, who will use no answer. One that it catches, or that stops it for a while, does not: it
    /// goes on with the answer as on a local file system, where nothing but death ends such an operation.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_interrupted() && (self.pid == 0 || dying::is_dying(self.pid))
    }

    /// Ready when the caller is interrupted. For one waiter at a time.
    pub async fn interrupted(&self) {
        std::future::poll_fn(|cx| {
            if self.interrupt.raised.get() {
                return Poll::Ready(());
            }
            *self.interrupt.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of process {} (user {}, group {})", self.unique, self.pid, self.uid, self.gid)
    }
}

/// The interrupt line of one worker, used by one request after the other.
#[derive(Default)]
pub(crate) struct Interrupt {
    /// The request that the worker waits for; 0 when none.
    unique: Cell<u64>,
    raised: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Interrupt {
    pub(crate) fn begin(&self, unique: u64) {
        self.unique.set(unique);
        self.raised.set(false);
    }

    pub(crate) fn end(&self) {
        self.unique.set(0);
        self.waker.borrow_mut().take();
    }

    /// True where this worker has the request.
    pub(crate) fn raise(&self, unique: u64) -> bool {
        if self.unique.get() != unique {
            return false;
        }
        self.raised.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context as TaskContext;

    use super::*;

    #[test]
    fn only_its_own_request_is_interrupted() {
        let line = Rc::new(Interrupt::default());
        line.begin(6);
        let context = Context::new(0, 0, 1, 6, Rc::clone(&line));
        let mut waiting = pin!(context.interrupted());
        let mut task = TaskContext::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut task).is_pending());
        assert!(!line.raise(8));
        assert!(waiting.as_mut().poll(&mut task).is_pending());
        assert!(line.raise(6));
        assert!(waiting.as_mut().poll(&mut task).is_ready());
        line.end();
        assert!(!line.raise(6), "the request is over");
        line.begin(10);
        assert!(!context.is_interrupted(), "a new request starts afresh");
    }
}
