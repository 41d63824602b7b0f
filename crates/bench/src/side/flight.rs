//! Keeping so many operations in flight on one ring.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use anyhow::Result;
use ring::sync::Semaphore;

/// Runs `one(index)` for each index below `count`, `depth` at a time, and answers the first error.
pub(crate) async fn fly<F, G>(count: u64, depth: usize, one: G) -> Result<()>
where
    F: Future<Output = Result<()>> + 'static,
    G: Fn(u64) -> F + 'static,
{
    let one = Rc::new(one);
    let next = Rc::new(Cell::new(0));
    let failure = Rc::new(Cell::new(None));
    let seats = Rc::new(Semaphore::new(depth));
    for _ in 0..depth {
        let seat = seats.acquire(1).await;
        let (one, next, failure) = (Rc::clone(&one), Rc::clone(&next), Rc::clone(&failure));
        ring::spawn(async move {
            while next.get() < count {
                let index = next.replace(next.get() + 1);
                if let Err(error) = one(index).await {
                    failure.set(Some(error));
                    next.set(count);
                }
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
            let one = move |index| {
                let (seen, aloft, most) = (Rc::clone(&seen2), Rc::clone(&aloft), Rc::clone(&most2));
                async move {
                    aloft.set(aloft.get() + 1);
                    most.set(most.get().max(aloft.get()));
                    ring::yield_now().await;
                    aloft.set(aloft.get() - 1);
                    seen.borrow_mut().push(index);
                    Ok(())
                }
            };
            fly(100, 8, one).await.expect("no error");
            (seen.take(), most.get())
        });
        let mut sorted = seen;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u64>>());
        assert_eq!(most, 8);
        let failed = ring.run(fly(100, 8, |index| async move {
            anyhow::ensure!(index != 50, "fifty");
            Ok(())
        }));
        assert_eq!(failed.expect_err("an error").to_string(), "fifty");
    }
}
