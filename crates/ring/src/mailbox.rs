//! Values from other threads into a ring: for what is rare (a new cluster map, a sync that finished), not for requests.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    queue: VecDeque<T>,
    waker: Option<Waker>,
    senders: usize,
    receiver_gone: bool,
}

type Shared<T> = Arc<Mutex<State<T>>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    // A panic while holding the lock leaves the queue whole: every critical section is a single push or pop.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both halves may be made on any thread; the receiver is awaited on a ring.
#[must_use]
pub fn mailbox<T: Send>() -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::new(), waker: None, senders: 1, receiver_gone: false };
    let shared = Arc::new(Mutex::new(state));
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

pub struct Sender<T> {
    shared: Shared<T>,
}

impl<T: Send> Sender<T> {
    /// Queues `value` and wakes the receiver's ring. False where the receiver is gone.
    pub fn send(&self, value: T) -> bool {
        let mut state = lock(&self.shared);
        if state.receiver_gone {
            return false;
        }
        state.queue.push_back(value);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.shared).senders += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.senders -= 1;
        let waker = if state.senders == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub struct Receiver<T> {
    shared: Shared<T>,
}

impl<T: Send> Receiver<T> {
    /// The next value in order, or `None` when all senders are gone and the queue is empty.
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv { receiver: self }
    }

    /// The next value if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        lock(&self.shared).queue.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.receiver_gone = true;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        drop(left);
    }
}

pub struct Recv<'a, T> {
    receiver: &'a mut Receiver<T>,
}

impl<T: Send> Future for Recv<'_, T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.receiver.shared);
        if let Some(value) = state.queue.pop_front() {
            return Poll::Ready(Some(value));
        }
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
