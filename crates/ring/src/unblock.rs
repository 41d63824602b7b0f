//! Helper threads for calls that the kernel offers in blocking form alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{mem, ptr, slice, thread};

use crate::buf::Slice;
use crate::mailbox;
use crate::place;

/// Threads that all of a process shares.
const SHARED_MAX: usize = 4;
/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that make blocking calls for rings: at most so many at once, started when they are needed. What blocks one
/// group of them holds up no other. Clones are the same group.
#[derive(Clone)]
pub struct Helpers(Arc<Group>);

struct Group {
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    come: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Helpers {
    /// `name`: of the threads, for people. At least one thread is allowed.
    #[must_use]
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        let threads_max = threads_max.max(1);
        Self(Arc::new(Group { name, threads_max, state: Mutex::default(), come: Condvar::new() }))
    }

    /// Runs `call` on a helper thread while this ring goes on. For what is rare or slow anyway: listings, large unlinks.
    /// Who asks while all threads are at work waits in line, in the order of asking.
    ///
    /// # Panics
    /// If `call` panics, or the system has no room for a first thread.
    pub async fn run<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, mut receiver) = mailbox::mailbox();
        self.give(Box::new(move || {
            sender.send(call());
        }));
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

    fn give(&self, job: Job) {
        let mut state = self.0.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.0.come.notify_one();
        } else if state.threads < self.0.threads_max {
            let group = Arc::clone(&self.0);
            let started = thread::Builder::new().name(group.name.into()).spawn(move || {
                // Of whoever asked first it would have the CPU that is bound to its own work.
                place::as_main_thread();
                group.work();
            });
            match started {
                Ok(_) => state.threads += 1,
                Err(error) => assert!(state.threads > 0, "the system cannot start a helper thread: {error}"),
            }
        }
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
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
            if wait.timed_out() && state.jobs.is_empty() {
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
/// If `call` panics, or the system has no room for a first thread.
pub async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    static SHARED: OnceLock<Helpers> = OnceLock::new();
    SHARED.get_or_init(|| Helpers::new("unblock", SHARED_MAX)).run(call).await
}
