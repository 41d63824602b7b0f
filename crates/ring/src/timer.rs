//! Sleeping and bounded waiting.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::executor::{now, with_core};

/// Deadlines in order. The number tells apart those of one instant.
#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    /// Who waits for the next tick, and when that is.
    waiting: Slab<Waker>,
    tick_at: Option<Instant>,
    ticks: u64,
}

impl Timers {
    fn insert(&mut self, deadline: Instant, waker: Waker) -> (Instant, u64) {
        self.next += 1;
        self.queue.insert((deadline, self.next), waker);
        (deadline, self.next)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let first = self.queue.first_key_value().map(|((deadline, _), _)| *deadline);
        first.into_iter().chain(self.tick_at).min()
    }

    /// All who waited for a tick that is due.
    pub(crate) fn take_tick(&mut self, now: Instant) -> Slab<Waker> {
        if self.tick_at.is_none_or(|at| now < at) {
            return Slab::new();
        }
        self.tick_at = None;
        self.ticks += 1;
        std::mem::take(&mut self.waiting)
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

/// Waits for the next of the moments that are `period` apart and are the same for all. Who looks after something now and
/// then does it together with the others of its thread: an idle thread wakes once for all of them.
pub fn next_look(period: Duration) -> Sleep {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = now();
    Sleep { deadline: now + until_next(now.saturating_duration_since(*BEGUN), period), key: None }
}

/// From `since_begun` to the next multiple of `period`: more than none of it, so that nobody looks twice at once.
fn until_next(since_begun: Duration, period: Duration) -> Duration {
    let period = period.as_nanos().max(1);
    let rest = period - since_begun.as_nanos() % period;
    Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX))
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

/// Time between ticks.
const TICK: Duration = Duration::from_millis(100);

/// Waits for the next tick, which comes within 100 ms. For what nearly every request needs and hardly ever comes to:
/// this costs a small part of a timer of its own.
pub fn tick() -> Tick {
    Tick { place: None }
}

pub struct Tick {
    /// The count of ticks when this began, and where it waits until that changes.
    place: Option<(u64, usize)>,
}

impl Future for Tick {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_core(|core| {
            let timers = &mut *core.timers.borrow_mut();
            match self.place {
                Some((ticks, _)) if ticks != timers.ticks => return Poll::Ready(()),
                Some((_, key)) => timers.waiting[key].clone_from(cx.waker()),
                None => {
                    timers.tick_at.get_or_insert_with(|| core.now.get() + TICK);
                    self.place = Some((timers.ticks, timers.waiting.insert(cx.waker().clone())));
                }
            }
            Poll::Pending
        })
    }
}

impl Drop for Tick {
    fn drop(&mut self) {
        let Some((ticks, key)) = self.place else { return };
        crate::executor::try_with_core(|core| {
            let timers = &mut *core.timers.borrow_mut();
            if timers.ticks == ticks {
                timers.waiting.remove(key);
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_is_ahead_and_the_same_for_all() {
        let ms = Duration::from_millis;
        assert_eq!(until_next(ms(0), ms(200)), ms(200));
        assert_eq!(until_next(ms(1), ms(200)), ms(199));
        assert_eq!(until_next(ms(399), ms(200)), ms(1));
        assert_eq!(until_next(ms(400), ms(200)), ms(200));
        // The slower ones fall on moments of the faster.
        assert_eq!(until_next(ms(730), ms(100)), ms(70));
        assert_eq!(until_next(ms(730), ms(400)), ms(70));
    }
}
