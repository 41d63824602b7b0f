//! Whose turn it is to read: one baton per loop, passed among its workers.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What became of a baton that was given away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// A waiting worker has it.
    ToWaiter,
    /// Nobody waits; it still is with the one who gave it away.
    Refused,
}

/// The last to wait is the first to get it: its memory is warm.
#[derive(Default)]
pub(crate) struct Baton {
    /// Nobody has it.
    free: Cell<bool>,
    waiting: RefCell<Vec<Rc<Waiter>>>,
    closed: Cell<bool>,
}

struct Waiter {
    has_baton: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Baton {
    /// Hands it to somebody who waits.
    pub(crate) fn pass(&self) -> Passed {
        let Some(waiter) = self.waiting.borrow_mut().pop() else { return Passed::Refused };
        waiter.has_baton.set(true);
        waiter.waker.borrow().wake_by_ref();
        Passed::ToWaiter
    }

    /// Puts it down where nobody waits: the next to come takes it.
    pub(crate) fn put_down(&self) {
        self.free.set(true);
    }

    /// Waits for it; false when there will be no more.
    pub(crate) fn take(&self) -> Take<'_> {
        Take { baton: self, waiter: None }
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for waiter in waiting {
            waiter.waker.borrow().wake_by_ref();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }
}

pub(crate) struct Take<'a> {
    baton: &'a Baton,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Take<'_> {
    type Output = bool;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let baton = self.baton;
        if baton.closed.get() {
            return Poll::Ready(false);
        }
        if let Some(waiter) = &self.waiter {
            if waiter.has_baton.get() {
                self.waiter = None;
                return Poll::Ready(true);
            }
            waiter.waker.borrow_mut().clone_from(cx.waker());
            return Poll::Pending;
        }
        if baton.free.replace(false) {
            return Poll::Ready(true);
        }
        let waiter = Rc::new(Waiter { has_baton: Cell::new(false), waker: RefCell::new(cx.waker().clone()) });
        baton.waiting.borrow_mut().push(Rc::clone(&waiter));
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.has_baton.get() {
            // Got it and never knew.
            if self.baton.pass() == Passed::Refused {
                self.baton.put_down();
            }
        } else {
            self.baton.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn poll(take: &mut Pin<&mut Take<'_>>) -> Poll<bool> {
        take.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_holds_it_at_a_time() {
        let baton = Baton::default();
        assert_eq!(baton.pass(), Passed::Refused);
        let (mut first, mut second) = (pin!(baton.take()), pin!(baton.take()));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        assert_eq!(baton.pass(), Passed::ToWaiter);
        assert!(poll(&mut first).is_pending());
        assert_eq!(poll(&mut second), Poll::Ready(true), "the last to wait");
        assert_eq!(baton.pass(), Passed::ToWaiter);
        assert_eq!(poll(&mut first), Poll::Ready(true));
        baton.put_down();
        let mut third = pin!(baton.take());
        assert_eq!(poll(&mut third), Poll::Ready(true));
    }

    #[test]
    fn a_baton_given_to_one_who_left_is_not_lost() {
        let baton = Baton::default();
        {
            let mut leaver = pin!(baton.take());
            assert!(poll(&mut leaver).is_pending());
            assert_eq!(baton.pass(), Passed::ToWaiter);
        }
        let mut next = pin!(baton.take());
        assert_eq!(poll(&mut next), Poll::Ready(true));
    }

    #[test]
    fn closing_ends_all_waiting() {
        let baton = Baton::default();
        let mut take = pin!(baton.take());
        assert!(poll(&mut take).is_pending());
        baton.close();
        assert_eq!(poll(&mut take), Poll::Ready(false));
    }
}
