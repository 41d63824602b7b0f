//! Keeping so many operations in flight on one ring.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use ring::sync::Semaphore;

/// Hands out the numbers below a bound, each once.
#[derive(Clone)]
pub(crate) struct Tickets(Rc<Range<Cell<u64>>>);

impl Tickets {
    pub(crate) fn next(&self) -> Option<u64> {
        let next = self.0.start.get();
        self.0.start.set(next + 1);
        (next < self.0.end.get()).then_some(next)
    }

    fn stop(&self) {
        self.0.end.set(0);
    }
}

/// Runs `depth` tasks of `pilot`, each of which does one operation per ticket until there are none left, and answers
/// the first error. (One future for each operation would have to be moved, which costs as much as a short operation.)
pub(crate) async fn fly<F>(count: u64, depth: usize, pilot: impl Fn(Tickets) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + 'static,
{
    let tickets = Tickets(Rc::new(Cell::new(0)..Cell::new(count)));
    let failure = Rc::new(Cell::new(None));
    let seats = Rc::new(Semaphore::new(depth));
    for _ in 0..depth {
        let seat = seats.acquire(1).await;
        let (flight, tickets, failure) = (pilot(tickets.clone()), tickets.clone(), Rc::clone(&failure));
        ring::spawn(async move {
            if let Err(error) = flight.await {
                tickets.stop();
                failure.set(Some(error));
            }
            drop(seat);
        });
    }
    // All seats are empty when all have landed.
    drop(seats.acquire(depth).await);
    failure.take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_flies_once_and_an_error_ends_it() {
        let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
        let (seen, most) = ring.run(async {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let (aloft, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let (seen2, most2) = (Rc::clone(&seen), Rc::clone(&most));
            let pilot = move |tickets: Tickets| {
                let (seen, aloft, most) = (Rc::clone(&seen2), Rc::clone(&aloft), Rc::clone(&most2));
                async move {
                    while let Some(index) = tickets.next() {
                        aloft.set(aloft.get() + 1);
                        most.set(most.get().max(aloft.get()));
                        ring::yield_now().await;
                        aloft.set(aloft.get() - 1);
                        seen.borrow_mut().push(index);
                    }
                    Ok(())
                }
            };
            fly(100, 8, pilot).await.expect("no error");
            (seen.take(), most.get())
        });
        let mut sorted = seen;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u64>>());
        assert_eq!(most, 8);
        let failed = ring.run(fly(100, 8, |tickets| async move {
            while let Some(index) = tickets.next() {
                anyhow::ensure!(index != 50, "fifty");
                ring::yield_now().await;
            }
            Ok(())
        }));
        assert_eq!(failed.expect_err("an error").to_string(), "fifty");
    }
}
