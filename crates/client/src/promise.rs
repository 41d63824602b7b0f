//! What one task brings, and others wait for, on any thread.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use crate::mutex::lock;

/// An outcome that comes once.
#[derive(Debug)]
pub(crate) struct Promise<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    Coming,
    Waited(Vec<Waker>),
    Come(T),
}

impl<T> Default for Promise<T> {
    fn default() -> Self {
        Self(Mutex::new(State::Coming))
    }
}

impl<T: Clone> Promise<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.0)
    }

    pub(crate) async fn outcome(&self) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            match &mut *state {
                State::Come(outcome) => return Poll::Ready(outcome.clone()),
                State::Waited(wakers) if wakers.iter().any(|waker| waker.will_wake(cx.waker())) => {}
                State::Waited(wakers) => wakers.push(cx.waker().clone()),
                State::Coming => *state = State::Waited(vec![cx.waker().clone()]),
            }
            Poll::Pending
        })
        .await
    }

    fn keep(&self, outcome: T) {
        if let State::Waited(wakers) = std::mem::replace(&mut *self.lock(), State::Come(outcome)) {
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// The task that brings it. Where that is given up, those who wait get the default.
pub(crate) struct Errand<T: Clone + Default>(Option<Arc<Promise<T>>>);

impl<T: Clone + Default> Errand<T> {
    pub(crate) fn new(promise: &Arc<Promise<T>>) -> Self {
        Self(Some(Arc::clone(promise)))
    }

    pub(crate) fn ends(mut self, outcome: T) {
        if let Some(promise) = self.0.take() {
            promise.keep(outcome);
        }
    }
}

impl<T: Clone + Default> Drop for Errand<T> {
    fn drop(&mut self) {
        if let Some(promise) = self.0.take() {
            promise.keep(T::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(future)
    }

    #[test]
    fn all_who_wait_on_any_thread_get_it() {
        let promise = Arc::new(Promise::<u32>::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let promise = Arc::clone(&promise);
                std::thread::spawn(move || run(async move { promise.outcome().await }))
            })
            .collect();
        while !matches!(&*promise.lock(), State::Waited(wakers) if wakers.len() == 3) {
            std::thread::yield_now();
        }
        Errand::new(&promise).ends(7);
        for waiter in waiting {
            assert_eq!(waiter.join().expect("it gets an outcome"), 7);
        }
        assert_eq!(run(async move { promise.outcome().await }), 7, "who comes late, too");
    }

    #[test]
    fn who_waits_for_what_is_given_up_is_told() {
        let promise = Arc::new(Promise::<Option<u32>>::default());
        drop(Errand::new(&promise));
        assert_eq!(run(async move { promise.outcome().await }), None);
    }
}
