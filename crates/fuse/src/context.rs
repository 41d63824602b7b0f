//! Who asks, and whether they still wait.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use types::cred::Credentials;

use crate::abi::InHeader;
use crate::dying;
use crate::operation::Operation;

/// A request that has waited for so long asks for itself whether its caller ends, and again each time. The kernel may not
/// have told: over io_uring it forgets to where the signal came between the request and its delivery, and over the device
/// nobody reads what it says while as many requests as may be are in flight.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The circumstances of one operation.
pub struct Context {
    pub uid: u32,
    pub gid: u32,
    /// The calling thread, in the mount's PID namespace; 0 where the kernel itself asks.
    pub pid: u32,
    /// The umask of the caller, for what is made; 0 in other operations.
    pub umask: u32,
    /// The kernel's number of the request.
    pub unique: u64,
    interrupt: Rc<Interrupt>,
    /// When it asks for itself whether the caller ends; never where the end of the caller is not that of the request.
    ask_at: Cell<Option<Instant>>,
}

impl Context {
    pub(crate) fn new(uid: u32, gid: u32, pid: u32, unique: u64, interrupt: Rc<Interrupt>) -> Self {
        Self { uid, gid, pid, umask: 0, unique, interrupt, ask_at: Cell::new(None) }
    }

    /// The context of a request that begins `now`.
    pub(crate) fn of(header: &InHeader, operation: &Operation, interrupt: Rc<Interrupt>, now: Instant) -> Self {
        let mut context = Self::new(header.uid, header.gid, header.pid, header.unique, interrupt);
        context.umask = operation.umask();
        if operation.ends_with_its_caller() {
            context.waits(now);
        }
        context
    }

    /// The caller waits for the answer, from now on.
    pub(crate) fn waits(&self, now: Instant) {
        self.ask_at.set(Some(now + ASK_EVERY));
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
        if self.is_interrupted() {
            return self.pid == 0 || dying::is_dying(self.pid);
        }
        let now = Instant::now();
        if self.ask_at.get().is_some_and(|at| now >= at) {
            self.waits(now);
            self.look_at_caller();
        }
        self.interrupt.killed.get() == self.unique
    }

    fn look_at_caller(&self) {
        let (interrupt, unique, pid) = (Rc::clone(&self.interrupt), self.unique, self.pid);
        ring::spawn(async move {
            if dying::is_killed(pid).await {
                interrupt.killed.set(unique);
            }
        });
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
    /// Nobody but its caller has something of it.
    ends_with_its_caller: Cell<bool>,
    raised: Cell<bool>,
    /// The request whose caller was seen to end; 0 before.
    killed: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Interrupt {
    pub(crate) fn begin(&self, unique: u64, ends_with_its_caller: bool) {
        self.unique.set(unique);
        self.ends_with_its_caller.set(ends_with_its_caller);
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

    /// The connection to the kernel is gone, and every caller has its error: whatever is done for the caller alone is to end.
    pub(crate) fn caller_is_gone(&self) {
        let unique = self.unique.get();
        if unique != 0 && self.ends_with_its_caller.get() {
            self.raise(unique);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::process::Command;
    use std::task::Context as TaskContext;

    use super::*;

    /// Of whom the kernel has said nothing.
    #[test]
    fn who_waits_for_long_is_looked_at() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it runs");
        let pid = child.id();
        let signal = |signal: i32| {
            // SAFETY: a system call without memory, on a child that nobody has waited for.
            assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        };
        let line = Rc::new(Interrupt::default());
        let of_child = |unique| Context::new(0, 0, pid, unique, Rc::clone(&line));
        let is_seen_to_end = async |context: &Context| {
            context.ask_at.set(Some(Instant::now()));
            let _ = context.is_ending();
            ring::sleep(Duration::from_millis(200)).await;
            context.is_ending()
        };
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
            let context = of_child(6);
            assert!(!is_seen_to_end(&context).await, "it lives");
            // A stopped process has its end before it.
            signal(libc::SIGSTOP);
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
            while !stat().contains(") T ") {
                ring::sleep(Duration::from_millis(5)).await;
            }
            signal(libc::SIGTERM);
            assert!(!context.is_ending(), "it was asked just now");
            while !is_seen_to_end(&context).await {}
            assert!(!of_child(8).is_ending(), "its end is not that of the request");
            signal(libc::SIGKILL);
        });
        child.wait().expect("it ends");
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
            assert!(!is_seen_to_end(&of_child(10)).await, "of one that is gone nobody knows why");
        });
    }

    #[test]
    fn only_its_own_request_is_interrupted() {
        let line = Rc::new(Interrupt::default());
        line.begin(6, true);
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
        line.begin(10, true);
        assert!(!context.is_interrupted(), "a new request starts afresh");
    }

    #[test]
    fn without_a_connection_only_what_others_have_something_of_goes_on() {
        let line = Rc::new(Interrupt::default());
        let context = Context::new(0, 0, 1, 6, Rc::clone(&line));
        line.caller_is_gone();
        assert!(!context.is_interrupted(), "there is no request");
        line.begin(6, false);
        line.caller_is_gone();
        assert!(!context.is_interrupted(), "a close is done to its end");
        line.begin(6, true);
        line.caller_is_gone();
        assert!(context.is_interrupted());
    }
}
