//! Waiting for other tasks of the same thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes tasks that wait for a condition. A notice given while nobody waits is kept for the next one that does (one,
/// however many were given).
#[derive(Default)]
pub struct Notify {
    waiting: RefCell<VecDeque<Rc<Cell<Waiting>>>>,
    kept: Cell<bool>,
}

#[derive(Default)]
enum Waiting {
    #[default]
    Notified,
    Asleep(Waker),
    Gone,
}

impl Notify {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn notify_one(&self) {
        while let Some(slot) = self.waiting.borrow_mut().pop_front() {
            if let Waiting::Asleep(waker) = slot.replace(Waiting::Notified) {
                waker.wake();
                return;
            }
        }
        self.kept.set(true);
    }

    /// Wakes all that wait now; keeps nothing for later.
    pub fn notify_all(&self) {
        for slot in self.waiting.borrow_mut().drain(..) {
            if let Waiting::Asleep(waker) = slot.replace(Waiting::Notified) {
                waker.wake();
            }
        }
    }

    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, slot: None }
    }
}

pub struct Notified<'a> {
    notify: &'a Notify,
    slot: Option<Rc<Cell<Waiting>>>,
}

impl Future for Notified<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.slot.as_ref() {
            None => {
                if self.notify.kept.take() {
                    return Poll::Ready(());
                }
                let slot = Rc::new(Cell::new(Waiting::Asleep(cx.waker().clone())));
                self.notify.waiting.borrow_mut().push_back(Rc::clone(&slot));
                self.slot = Some(slot);
                Poll::Pending
            }
            Some(slot) => {
                if matches!(slot.replace(Waiting::Gone), Waiting::Notified) {
                    self.slot = None;
                    return Poll::Ready(());
                }
                slot.set(Waiting::Asleep(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        // A notice that this one got but never saw goes to the next.
        if matches!(slot.replace(Waiting::Gone), Waiting::Notified) {
            self.notify.notify_one();
        } else {
            self.notify.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &slot));
        }
    }
}

/// One value from one task to another.
#[must_use]
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Rc::new(Slot { value: Cell::new(None), waker: Cell::new(None), closed: Cell::new(false) });
    (Sender { slot: Rc::clone(&slot) }, Receiver { slot })
}

struct Slot<T> {
    value: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
    closed: Cell<bool>,
}

pub struct Sender<T> {
    slot: Rc<Slot<T>>,
}

impl<T> Sender<T> {
    pub fn send(self, value: T) {
        self.slot.value.set(Some(value));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.slot.closed.set(true);
        if let Some(waker) = self.slot.waker.take() {
            waker.wake();
        }
    }
}

/// Ready with the value, or with `None` when the sender went away without one.
pub struct Receiver<T> {
    slot: Rc<Slot<T>>,
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if self.slot.closed.get() {
            return Poll::Ready(None);
        }
        self.slot.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// A number of permits, handed out in the order of asking.
pub struct Semaphore {
    free: Cell<usize>,
    total: usize,
    waiting: RefCell<VecDeque<Rc<Turn>>>,
}

struct Turn {
    wanted: usize,
    state: Cell<Option<Waker>>,
    granted: Cell<bool>,
}

impl Semaphore {
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Self { free: Cell::new(permits), total: permits, waiting: RefCell::default() }
    }

    #[must_use]
    pub fn available(&self) -> usize {
        self.free.get()
    }

    /// Takes `count` permits, or as many as there are in all where that is less (so that one oversized request can
    /// still go, alone). They return when the [`Permit`] is dropped.
    pub fn acquire(self: &Rc<Self>, count: usize) -> Acquire {
        Acquire { semaphore: Rc::clone(self), count: count.min(self.total), turn: None }
    }

    /// As [`Self::acquire`], only without waiting.
    #[must_use]
    pub fn try_acquire(self: &Rc<Self>, count: usize) -> Option<Permit> {
        let count = count.min(self.total);
        if self.waiting.borrow().is_empty() && self.free.get() >= count {
            self.free.set(self.free.get() - count);
            return Some(Permit { semaphore: Rc::clone(self), count });
        }
        None
    }

    fn release(&self, count: usize) {
        self.free.set(self.free.get() + count);
        self.grant();
    }

    fn grant(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(turn) = waiting.front() {
            if turn.wanted > self.free.get() {
                return;
            }
            self.free.set(self.free.get() - turn.wanted);
            turn.granted.set(true);
            if let Some(waker) = turn.state.take() {
                waker.wake();
            }
            waiting.pop_front();
        }
    }
}

pub struct Acquire {
    semaphore: Rc<Semaphore>,
    count: usize,
    turn: Option<Rc<Turn>>,
}

impl Future for Acquire {
    type Output = Permit;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        if let Some(turn) = self.turn.clone() {
            if turn.granted.get() {
                self.turn = None;
                return Poll::Ready(Permit { semaphore: Rc::clone(&self.semaphore), count: self.count });
            }
            turn.state.set(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        if let Some(permit) = self.semaphore.try_acquire(self.count) {
            return Poll::Ready(permit);
        }
        let turn =
            Rc::new(Turn { wanted: self.count, state: Cell::new(Some(cx.waker().clone())), granted: Cell::new(false) });
        self.semaphore.waiting.borrow_mut().push_back(Rc::clone(&turn));
        self.turn = Some(turn);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if turn.granted.get() {
            self.semaphore.release(self.count);
        } else {
            self.semaphore.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &turn));
            self.semaphore.grant();
        }
    }
}

/// Permits in use.
pub struct Permit {
    semaphore: Rc<Semaphore>,
    count: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.release(self.count);
    }
}
