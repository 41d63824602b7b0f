//! Waiting for several futures of one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Of so many each wake-up polls all that are left: that costs less than to know which of them is concerned.
const FEW: usize = 32;

struct Joined<F: Future> {
    future: Pin<Box<F>>,
    output: Option<F::Output>,
}

impl<F: Future> Joined<F> {
    /// Whether it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.output.is_none()
            && let Poll::Ready(output) = self.future.as_mut().poll(cx)
        {
            self.output = Some(output);
        }
        self.output.is_some()
    }
}

/// Runs the futures concurrently and gives their outputs in order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut joined: Vec<Joined<F>> =
        futures.into_iter().map(|future| Joined { future: Box::pin(future), output: None }).collect();
    if joined.len() <= FEW {
        poll_fn(|cx| {
            let mut waiting = false;
            for one in &mut joined {
                waiting |= !one.poll(cx);
            }
            if waiting { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    } else {
        let mut many = Many::new(joined.len());
        poll_fn(|cx| many.poll(&mut joined, cx)).await;
    }
    joined.into_iter().filter_map(|one| one.output).collect()
}

/// Which of many futures are to be polled.
struct Many {
    children: Vec<(Arc<Child>, Waker)>,
    shared: Arc<Shared>,
    /// That have not ended.
    left: usize,
    /// Empty, for its room.
    due: Vec<usize>,
}

/// The wakers may go to other threads.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// That were woken since they were polled last.
    due: Vec<usize>,
    /// Of the task that waits for all.
    task: Option<Waker>,
}

struct Child {
    index: usize,
    /// Among those that are due already.
    queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Child {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut state = self.shared.lock();
            state.due.push(self.index);
            // It leaves another one before it takes what is due.
            state.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Many {
    /// All are due at first.
    fn new(count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        shared.lock().due.extend(0..count);
        let child = |index| {
            let child = Arc::new(Child { index, queued: AtomicBool::new(true), shared: Arc::clone(&shared) });
            (Arc::clone(&child), Waker::from(child))
        };
        let children = (0..count).map(child).collect();
        Self { children, shared, left: count, due: Vec::new() }
    }

    fn poll<F: Future>(&mut self, joined: &mut [Joined<F>], cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.shared.lock();
            state.task = Some(cx.waker().clone());
            std::mem::swap(&mut state.due, &mut self.due);
        }
        for index in self.due.drain(..) {
            let (child, waker) = &self.children[index];
            // Before it is polled: who wakes it from here on wants it polled once more, and what others woke it for is seen.
            child.queued.swap(false, Ordering::AcqRel);
            let one = &mut joined[index];
            // A waker may outlive what it was for.
            if one.output.is_none() && one.poll(&mut Context::from_waker(waker)) {
                self.left -= 1;
            }
        }
        if self.left > 0 { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::pin::pin;
    use std::rc::Rc;
    use std::thread;

    use super::*;
    use crate::{Config, Ring, mailbox, yield_now};

    #[test]
    fn of_many_those_alone_are_polled_that_were_woken() {
        const MANY: usize = 2000;
        let (polls, ended) = (Cell::new(0), Rc::new(RefCell::new(vec![false; MANY])));
        let wakers: RefCell<Vec<Option<Waker>>> = RefCell::new(vec![None; MANY]);
        let all = join_all((0..MANY).map(|index| {
            let (polls, ended, wakers) = (&polls, &ended, &wakers);
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                wakers.borrow_mut()[index] = Some(cx.waker().clone());
                if ended.borrow()[index] { Poll::Ready(index) } else { Poll::Pending }
            })
        }));
        let (mut all, mut cx) = (pin!(all), Context::from_waker(Waker::noop()));
        assert!(all.as_mut().poll(&mut cx).is_pending());
        for index in (0..MANY).rev() {
            ended.borrow_mut()[index] = true;
            let waker = wakers.borrow()[index].clone().expect("it waits");
            // More than once, also after it has ended.
            waker.wake_by_ref();
            waker.wake_by_ref();
            let done = all.as_mut().poll(&mut cx);
            assert_eq!(done, if index == 0 { Poll::Ready((0..MANY).collect()) } else { Poll::Pending });
            waker.wake();
        }
        assert_eq!(polls.get(), 2 * MANY);
    }

    #[test]
    fn no_wake_up_is_lost_of_many() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..500).map(|_| mailbox::mailbox()).unzip();
        let other = thread::spawn(move || senders.iter().enumerate().all(|(number, sender)| sender.send(number)));
        let wait = async |mut receiver: mailbox::Receiver<usize>| {
            yield_now().await;
            receiver.recv().await.expect("sent")
        };
        let mut ring = Ring::new(&Config::default()).expect("a ring");
        let sent = ring.run(join_all(receivers.into_iter().map(wait)));
        assert!(other.join().expect("no panic") && sent == (0..500).collect::<Vec<_>>());
    }
}
