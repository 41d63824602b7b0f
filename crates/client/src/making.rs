//! One task at a time makes a connection ready, for all that need it. Where that fails, it fails for all: each of them
//! looks anew where to go, instead of trying the same again one after the other.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use ring::sync::Semaphore;

use crate::retry::Failure;

pub(crate) struct Making {
    turn: Rc<Semaphore>,
    /// How many attempts have failed, and why the last one did.
    failed: RefCell<(u64, Option<Failure>)>,
}

impl Making {
    pub(crate) fn new() -> Self {
        Self { turn: Rc::new(Semaphore::new(1)), failed: RefCell::default() }
    }

    /// What is `ready` when it is this task's turn, or what `make` makes.
    pub(crate) async fn make<T>(
        &self,
        ready: impl Fn() -> Option<T>,
        make: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let seen = self.failed.borrow().0;
        let _turn = self.turn.acquire(1).await;
        if let Some(ready) = ready() {
            return Ok(ready);
        }
        if let (failed, Some(failure)) = &*self.failed.borrow()
            && *failed > seen
        {
            return Err(failure.clone());
        }
        let made = make.await;
        if let Err(failure) = &made {
            *self.failed.borrow_mut() = (seen + 1, Some(failure.clone()));
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    fn run<F: Future>(main: F) -> F::Output {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(main)
    }

    #[test]
    fn one_attempt_is_made_for_all_who_wait() {
        run(async {
            let (making, attempts, ready) = (Making::new(), Cell::new(0), Cell::new(None));
            let attempt = |outcome: Result<u8, Failure>| {
                let (making, attempts, ready) = (&making, &attempts, &ready);
                making.make(|| ready.get(), async move {
                    attempts.set(attempts.get() + 1);
                    ring::sleep(Duration::from_millis(5)).await;
                    ready.set(outcome.clone().ok());
                    outcome
                })
            };
            for round in 1..3 {
                let all = ring::join_all((0..20).map(|_| attempt(Err(Failure::Busy)))).await;
                assert!(all.iter().all(|one| *one == Err(Failure::Busy)));
                assert_eq!(attempts.get(), round, "those who ask later try anew");
            }
            // One that goes away in the middle leaves its turn to the next.
            let mut gone = Box::pin(attempt(Ok(1)));
            assert!(poll_fn(|context| Poll::Ready(gone.as_mut().poll(context).is_pending())).await);
            drop(gone);
            let all = ring::join_all((0..20).map(|_| attempt(Ok(7)))).await;
            assert!(all.iter().all(|one| *one == Ok(7)));
            assert_eq!(attempts.get(), 4);
        });
    }
}
