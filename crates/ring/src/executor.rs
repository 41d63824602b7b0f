//! Tasks and turns.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::company::Company;
use crate::driver::{Driver, Wakeup};
use crate::place;
use crate::timer::Timers;

/// Most task polls of one turn, so that tasks which wake each other cannot keep the loop from the kernel.
const POLLS_PER_TURN_MAX: usize = 4096;
/// Most rounds of [`turn_end`] within one turn: one for a batch, one for the replies that it releases, and some.
const ROUNDS_PER_TURN_MAX: usize = 8;

/// How a ring is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Submission queue entries; rounded up to a power of two.
    pub entries: u32,
    /// Binds the calling thread to this CPU.
    pub cpu: Option<usize>,
    /// How long to look for completions before going to sleep, where experience says that it pays; longer, within four times
    /// that, where waits have lately been longer. Zero: never.
    pub spin: Duration,
    /// Loops among which one stays awake, where it may look at all, while another one is at work.
    pub company: Option<Arc<Company>>,
    /// Most threads that the kernel may use at once for this ring's calls on files that would block (buffered writes on
    /// ext4, fsync).
    pub workers: u32,
    /// Makes the rings for files at once, and not when each is needed first: a call of a program's must not fail since the
    /// process has no descriptor left for them.
    pub files: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { entries: 256, cpu: None, spin: Duration::from_micros(100), company: None, workers: 16, files: false }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// The state that tasks reach through the thread-local.
pub(crate) struct Core {
    pub(crate) driver: RefCell<Driver>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) now: Cell<Instant>,
    run_queue: RefCell<VecDeque<Arc<TaskWaker>>>,
    turn_end: RefCell<Vec<Waker>>,
    next_turn: RefCell<Vec<Waker>>,
    spawned: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
    remote: Arc<Remote>,
}

/// Wake-ups from other threads.
struct Remote {
    owner: ThreadId,
    queue: Mutex<Vec<Arc<TaskWaker>>>,
    wakeup: Wakeup,
}

/// One per task; clones of its `Waker` may go to other threads.
struct TaskWaker {
    key: usize,
    /// In a queue already: further wake-ups add nothing.
    queued: AtomicBool,
    remote: Arc<Remote>,
}

impl TaskWaker {
    fn new(key: usize, remote: &Arc<Remote>) -> Self {
        Self { key, queued: AtomicBool::new(false), remote: Arc::clone(remote) }
    }
}

/// The main future's key; spawned tasks have slab keys below.
const MAIN: usize = usize::MAX;

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if thread::current().id() == self.remote.owner {
            let mut waker = Some(self);
            try_with_core(|core| core.run_queue.borrow_mut().extend(waker.take()));
            // Without a core the ring is being taken down on this thread, and its tasks with it.
            return;
        }
        let remote = Arc::clone(&self.remote);
        remote.queue.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        remote.wakeup.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.load(Ordering::Acquire) {
            Arc::clone(self).wake();
        }
    }
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    state: Arc<TaskWaker>,
}

/// The executor of one thread.
pub struct Ring {
    core: Rc<Core>,
    tasks: Slab<Option<Task>>,
    /// Empty, for their room: of the lists of what waits for a turn's end, and of what was spawned.
    waiting: Vec<Waker>,
    adopted: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Ring {
    /// # Errors
    /// Where the kernel refuses a ring (needs Linux 6.1 with io_uring enabled) or the CPU to bind to.
    pub fn new(config: &Config) -> io::Result<Self> {
        if let Some(cpu) = config.cpu {
            place::bind(&[cpu])?;
        }
        let wakeup = Wakeup::new()?;
        let driver = Driver::new(config, wakeup.fd()).map_err(explained)?;
        let remote = Arc::new(Remote { owner: thread::current().id(), queue: Mutex::default(), wakeup });
        let core = Core {
            driver: RefCell::new(driver),
            timers: RefCell::default(),
            now: Cell::new(Instant::now()),
            run_queue: RefCell::default(),
            turn_end: RefCell::default(),
            next_turn: RefCell::default(),
            spawned: RefCell::default(),
            remote,
        };
        Ok(Self { core: Rc::new(core), tasks: Slab::new(), waiting: Vec::new(), adopted: Vec::new() })
    }

    /// Runs `main`, and everything it spawns, until `main` is ready. Tasks that are left stay for the next `run`, or
    /// are dropped with the ring.
    ///
    /// # Panics
    /// If this thread runs a ring already, or the kernel refuses to wait (which it does for no reason that a program
    /// can mend).
    pub fn run<F: Future>(&mut self, main: F) -> F::Output {
        let _entered = Entered::new(&self.core);
        let mut main = std::pin::pin!(main);
        let main_state = Arc::new(TaskWaker::new(MAIN, &self.core.remote));
        let main_waker = Waker::from(Arc::clone(&main_state));
        main_state.queued.store(true, Ordering::Release);
        self.core.run_queue.borrow_mut().push_back(Arc::clone(&main_state));
        loop {
            self.core.now.set(Instant::now());
            self.wake_due_timers();
            let mut output = None;
            self.turn(&mut |state| {
                // Woken again in the turn that finished it, it must not be polled again.
                if output.is_none()
                    && Arc::ptr_eq(state, &main_state)
                    && let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&main_waker))
                {
                    output = Some(value);
                }
            });
            if let Some(output) = output {
                return output;
            }
            self.enter_kernel();
            let waiting = std::mem::take(&mut *self.core.next_turn.borrow_mut());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    fn turn(&mut self, poll_main: &mut dyn FnMut(&Arc<TaskWaker>)) {
        let mut polls = 0;
        for _ in 0..ROUNDS_PER_TURN_MAX {
            loop {
                self.adopt_spawned();
                let next = self.core.run_queue.borrow_mut().pop_front();
                let Some(state) = next else { break };
                state.queued.store(false, Ordering::Release);
                if state.key == MAIN {
                    poll_main(&state)
                } else {
                    self.poll_task(&state)
                }
                polls += 1;
                if polls >= POLLS_PER_TURN_MAX {
                    return;
                }
            }
            std::mem::swap(&mut self.waiting, &mut *self.core.turn_end.borrow_mut());
            if self.waiting.is_empty() {
                return;
            }
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn adopt_spawned(&mut self) {
        std::mem::swap(&mut self.adopted, &mut *self.core.spawned.borrow_mut());
        for future in self.adopted.drain(..) {
            let key = self.tasks.vacant_key();
            let state = Arc::new(TaskWaker::new(key, &self.core.remote));
            let waker = Waker::from(Arc::clone(&state));
            state.queued.store(true, Ordering::Release);
            self.core.run_queue.borrow_mut().push_back(Arc::clone(&state));
            self.tasks.insert(Some(Task { future, waker, state }));
        }
    }

    fn poll_task(&mut self, state: &Arc<TaskWaker>) {
        // A waker that outlived its task may name a slot that another task has now.
        let Some(slot) = self.tasks.get_mut(state.key) else { return };
        let Some(mut task) = slot.take_if(|task| Arc::ptr_eq(&task.state, state)) else { return };
        match task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Ready(()) => {
                self.tasks.remove(state.key);
            }
            Poll::Pending => self.tasks[state.key] = Some(task),
        }
    }

    fn wake_due_timers(&self) {
        let now = self.core.now.get();
        let waited = self.core.timers.borrow_mut().take_tick(now);
        waited.into_iter().for_each(|(_, waker)| waker.wake());
        loop {
            let due = self.core.timers.borrow_mut().take_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    fn enter_kernel(&self) {
        let idle = self.core.run_queue.borrow().is_empty()
            && self.core.turn_end.borrow().is_empty()
            && self.core.next_turn.borrow().is_empty()
            && self.core.spawned.borrow().is_empty();
        let wait = if idle { self.time_to_next_timer() } else { Some(Duration::ZERO) };
        self.core.driver.borrow_mut().enter(wait).expect("io_uring_enter with valid arguments");
        Driver::complete_all(&self.core.driver);
        if self.core.driver.borrow_mut().take_remote_signal() {
            self.core.remote.wakeup.clear();
            let woken = std::mem::take(&mut *self.core.remote.queue.lock().unwrap_or_else(PoisonError::into_inner));
            self.core.run_queue.borrow_mut().extend(woken);
        }
    }

    fn time_to_next_timer(&self) -> Option<Duration> {
        let deadline = self.core.timers.borrow().next_deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }
}

/// Who reads this is told that it is not about FUSE, sockets or files.
fn explained(error: io::Error) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => " (forbidden by kernel.io_uring_disabled or a container's seccomp profile)",
        Some(libc::EINVAL) => " (needs Linux 6.1)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot make an io_uring: {error}{hint}"))
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Tasks first: dropping them abandons their operations, whose buffers the driver keeps until the kernel is done.
        let entered = Entered::new(&self.core);
        self.tasks.clear();
        self.core.spawned.borrow_mut().clear();
        self.core.turn_end.borrow_mut().clear();
        self.core.next_turn.borrow_mut().clear();
        self.core.run_queue.borrow_mut().clear();
        drop(entered);
    }
}

/// Makes the core current for as long as it lives.
struct Entered;

impl Entered {
    fn new(core: &Rc<Core>) -> Self {
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "a thread runs one ring at a time");
            *current = Some(Rc::clone(core));
        });
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = None);
    }
}

pub(crate) fn with_core<R>(f: impl FnOnce(&Rc<Core>) -> R) -> R {
    CURRENT.with_borrow(|current| f(current.as_ref().expect("called inside Ring::run")))
}

pub(crate) fn try_with_core<R>(f: impl FnOnce(&Rc<Core>) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(f)).ok().flatten()
}

/// Starts a task on the current ring.
///
/// # Panics
/// Outside [`Ring::run`], as every function of this crate that waits.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    // At its place first: futures are large, and each closure on the way would move it.
    let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
    with_core(|core| core.spawned.borrow_mut().push(future));
}

/// The time as of the beginning of this turn.
pub fn now() -> Instant {
    with_core(|core| core.now.get())
}

/// Resumes when every task that could run in this turn has run, before the kernel is entered: the place to do once
/// what the turn gathered.
pub async fn turn_end() {
    park_once(|core, waker| core.turn_end.borrow_mut().push(waker)).await;
}

/// Resumes after the kernel was entered once, without waiting there: what this turn submitted is on its way then, and
/// what completed meanwhile runs before.
pub async fn next_turn() {
    park_once(|core, waker| core.next_turn.borrow_mut().push(waker)).await;
}

/// Lets the other runnable tasks go first, once: again and again, it would hold up those that wait for [`turn_end`], and a
/// long work uses [`next_turn`].
pub async fn yield_now() {
    park_once(|_, waker| waker.wake()).await;
}

async fn park_once(park: impl FnOnce(&Rc<Core>, Waker)) {
    let mut park = Some(park);
    std::future::poll_fn(|cx| match park.take() {
        Some(park) => {
            with_core(|core| park(core, cx.waker().clone()));
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_use_io_uring_is_told_why() {
        let told = |errno| explained(io::Error::from_raw_os_error(errno)).to_string();
        for (errno, hint) in [(libc::EPERM, "seccomp"), (libc::ENOSYS, "seccomp"), (libc::EINVAL, "needs Linux 6.1")] {
            assert!(told(errno).starts_with("cannot make an io_uring: ") && told(errno).contains(hint), "{errno}");
        }
        assert_eq!(told(libc::EMFILE), "cannot make an io_uring: Too many open files (os error 24)");
    }
}
