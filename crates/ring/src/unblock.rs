//! Helper threads for calls that the kernel offers in blocking form alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, mem, ptr, slice, thread};

use crate::buf::Slice;
use crate::mailbox;
use crate::place;
use crate::timer::sleep;

/// Threads that all of a process shares.
const SHARED_MAX: usize = 4;
/// A thread that had nothing to do for so long ends, but for the last one.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Between attempts to start a first thread: it doubles from one to the other.
const START_PAUSE_MIN: Duration = Duration::from_millis(10);
const START_PAUSE_MAX: Duration = Duration::from_millis(200);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that make blocking calls for rings: at most so many at once, started when they are needed. What blocks one
/// group of them holds up no other. Clones are the same group.
#[derive(Clone)]
pub struct Helpers(Arc<Group>);

struct Group {
    name: &'static str,
    threads_max: usize,
    /// Starts a thread of this name.
    start: fn(&str, Job) -> io::Result<()>,
    state: Mutex<State>,
    come: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// That there is no thread, and none can be started, was told.
    told: bool,
}

impl Helpers {
    /// `name`: of the threads, for people. At least one thread is allowed.
    #[must_use]
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        Self::starting(name, threads_max, |name, main| thread::Builder::new().name(name.into()).spawn(main).map(|_| ()))
    }

    fn starting(name: &'static str, threads_max: usize, start: fn(&str, Job) -> io::Result<()>) -> Self {
        let threads_max = threads_max.max(1);
        Self(Arc::new(Group { name, threads_max, start, state: Mutex::default(), come: Condvar::new() }))
    }

    /// Runs `call` on a helper thread while this ring goes on. For what is rare or slow anyway: listings, large unlinks.
    /// Who asks while all threads are at work waits in line, in the order of asking; so does who asks while the system has no
    /// room for a first one.
    ///
    /// # Panics
    /// If `call` panics.
    pub async fn run<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, mut receiver) = mailbox::mailbox();
        let call = Box::new(move || {
            sender.send(call());
        });
        self.0.lock().jobs.push_back(call);
        let mut pause = START_PAUSE_MIN;
        // Also who gave up waiting has left its call in line: it is run by the thread that another one starts.
        while !self.0.call_thread() {
            sleep(pause).await;
            pause = (pause * 2).min(START_PAUSE_MAX);
        }
        receiver.recv().await.expect("the call answers unless it panics")
    }

    /// As [`Self::run`], of a call that is given `data`: it stays where it is.
    ///
    /// # Panics
    /// As that does.
    pub async fn run_with<T: Send + 'static>(&self, data: Slice, call: impl FnOnce(&[u8]) -> T + Send + 'static) -> T {
        let (start, len) = (data.as_ptr().expose_provenance(), data.len());
        let lent = Lent { data: Some(data), given_back: Arc::default() };
        let given_back = Arc::clone(&lent.given_back);
        self.run(move || {
            // SAFETY: `lent` keeps the memory, which nobody changes, until it is given back.
            let outcome = call(unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(start), len) });
            given_back.store(true, Ordering::Release);
            outcome
        })
        .await
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that a thread comes for what is in line. False where there is none, and none can be started: a shortage that
    /// may pass, and no reason to end.
    fn call_thread(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        if state.idle >= state.jobs.len() {
            self.come.notify_one();
            return true;
        }
        if state.threads < self.threads_max {
            let group = Arc::clone(self);
            let main = Box::new(move || {
                // Of whoever asked first it would have the CPU that is bound to its own work.
                place::as_main_thread();
                group.work();
            });
            match (self.start)(self.name, main) {
                Ok(()) => {
                    state.threads += 1;
                    state.told = false;
                }
                Err(error) if state.threads == 0 && !mem::replace(&mut state.told, true) => {
                    let name = self.name;
                    tracing::warn!(%error, name, "cannot start a helper thread: what needs it waits, and it is tried again");
                }
                Err(_) => {}
            }
        }
        state.threads > 0
    }

    fn work(self: &Arc<Self>) {
        let slot = ThreadSlot(self);
        let mut state = self.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            }
            state.idle += 1;
            let (woken, wait) = self.come.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            // The last one stays as long as somebody may have work for it: that another can be started then is not sure.
            let may_end = state.threads > 1 || Arc::strong_count(self) == 1;
            if wait.timed_out() && state.jobs.is_empty() && may_end {
                // At once: who gives a job from here on starts a thread for it.
                state.threads -= 1;
                mem::forget(slot);
                return;
            }
        }
    }
}

/// A thread's place in its group, given back where a call panics.
struct ThreadSlot<'a>(&'a Group);

impl Drop for ThreadSlot<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}

/// What a helper thread reads. Given up before it is given back, it is better leaked than freed under its hands.
struct Lent {
    data: Option<Slice>,
    given_back: Arc<AtomicBool>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.given_back.load(Ordering::Acquire) {
            mem::forget(self.data.take());
        }
    }
}

/// As [`Helpers::run`], on threads that the whole process shares.
///
/// # Panics
/// If `call` panics.
pub async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    static SHARED: OnceLock<Helpers> = OnceLock::new();
    SHARED.get_or_init(|| Helpers::new("unblock", SHARED_MAX)).run(call).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::{Config, Ring, spawn};

    #[test]
    fn who_needs_a_thread_that_cannot_be_started_waits_and_the_others_go_on() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let helpers = Helpers::starting("scarce", 2, |_, main| {
            if ASKED.fetch_add(1, Ordering::Relaxed) < 3 {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            thread::Builder::new().spawn(main).map(|_| ())
        });
        let mut ring = Ring::new(&Config::default()).expect("a ring");
        ring.run(async {
            let ticks = Rc::new(Cell::new(0));
            let ticking = Rc::clone(&ticks);
            spawn(async move {
                loop {
                    sleep(Duration::from_millis(1)).await;
                    ticking.set(ticking.get() + 1);
                }
            });
            assert_eq!(helpers.run(|| 7).await, 7);
            assert!(ASKED.load(Ordering::Relaxed) == 4 && ticks.get() > 3, "{} ticks", ticks.get());
            assert_eq!(helpers.run(|| 8).await, 8, "the next one as ever");
        });
    }
}
