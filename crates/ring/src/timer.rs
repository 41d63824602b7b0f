//! Sleeping and bounded waiting.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::executor::{now, with_core};

/// Deadlines in order. The number tells apart those of one instant.
#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    fn insert(&mut self, deadline: Instant, waker: Waker) -> (Instant, u64) {
        self.next += 1;
        self.queue.insert((deadline, self.next), waker);
        (deadline, self.next)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 <= now { Some(entry.remove()) } else { None }
    }
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// Waits until `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, key: None }
}

pub struct Sleep {
    deadline: Instant,
    key: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_core(|core| {
            let mut timers = core.timers.borrow_mut();
            if let Some(key) = self.key.take() {
                timers.queue.remove(&key);
            }
            if self.deadline <= core.now.get() {
                return Poll::Ready(());
            }
            self.key = Some(timers.insert(self.deadline, cx.waker().clone()));
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            crate::executor::try_with_core(|core| core.timers.borrow_mut().queue.remove(&key));
        }
    }
}

/// The time was up before the future was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

/// Waits for `future` at most `duration`. A future that is given up may leave operations in flight: their buffers stay
/// alive inside the ring until the kernel is done with them.
///
/// # Errors
/// `Elapsed` when the time is up.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    let mut sleep = sleep(duration);
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
