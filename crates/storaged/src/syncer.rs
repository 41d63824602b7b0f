//! Syncs the file system under a target, once for all lanes that ask meanwhile, and on a thread of its own: it takes as long
//! as the disk has to write, and the target's helper threads have requests to serve.

use std::sync::{Arc, Mutex, PoisonError};

use ring::Helpers;
use types::error::Errno;

pub(crate) struct Syncer {
    /// One thread, so that a call begins after the one before has ended.
    helpers: Helpers,
    last: Arc<Mutex<Last>>,
}

/// The sync that was begun last.
struct Last {
    number: u64,
    outcome: Result<(), Errno>,
}

impl Syncer {
    pub(crate) fn new() -> Self {
        let last = Last { number: 0, outcome: Ok(()) };
        Self { helpers: Helpers::new("syncer", 1), last: Arc::new(Mutex::new(last)) }
    }

    /// What a sync has to say that began after this was called: `sync` makes one, unless somebody else's does.
    pub(crate) async fn run(&self, sync: impl FnOnce() -> Result<(), Errno> + Send + 'static) -> Result<(), Errno> {
        let last = Arc::clone(&self.last);
        let known = lock(&last).number;
        self.helpers
            .run(move || {
                {
                    let mut last = lock(&last);
                    if last.number > known {
                        return last.outcome;
                    }
                    last.number += 1;
                }
                // Who asks from here on is not served by this one.
                let outcome = sync();
                lock(&last).outcome = outcome;
                outcome
            })
            .await
    }
}

fn lock(last: &Mutex<Last>) -> std::sync::MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_sync_serves_all_who_asked_before_it_began_and_none_who_asked_later() {
        let config = ring::Config { entries: 16, spin: Duration::ZERO, ..ring::Config::default() };
        ring::Ring::new(&config).expect("io_uring is there").run(async {
            let (syncer, outcomes) = (Rc::new(Syncer::new()), Rc::new(Cell::new(Vec::new())));
            let (begun, has_begun) = mpsc::channel();
            let ask = |outcome: Result<(), Errno>| {
                let (syncer, outcomes, begun) = (Rc::clone(&syncer), Rc::clone(&outcomes), begun.clone());
                let (go, may_go) = mpsc::channel::<()>();
                ring::spawn(async move {
                    let sync = move || {
                        begun.send(outcome).expect("waited for");
                        may_go.recv().expect("told to go on");
                        outcome
                    };
                    let told = syncer.run(sync).await;
                    let mut all = outcomes.take();
                    all.push(told);
                    outcomes.set(all);
                });
                go
            };
            let next_begun = async || {
                loop {
                    match has_begun.try_recv() {
                        Ok(which) => return which,
                        Err(_) => ring::sleep(Duration::from_millis(1)).await,
                    }
                }
            };
            let first = ask(Ok(()));
            assert_eq!(next_begun().await, Ok(()));
            let later: Vec<_> = (0..5).map(|_| ask(Err(Errno::ENOSPC))).collect();
            ring::yield_now().await;
            first.send(()).expect("it waits");
            assert_eq!(next_begun().await, Err(Errno::ENOSPC));
            later[0].send(()).expect("it waits");
            let mut told = Vec::new();
            while told.len() < 6 {
                ring::sleep(Duration::from_millis(1)).await;
                told.append(&mut outcomes.take());
            }
            assert_eq!(
                told,
                [
                    Ok(()),
                    Err(Errno::ENOSPC),
                    Err(Errno::ENOSPC),
                    Err(Errno::ENOSPC),
                    Err(Errno::ENOSPC),
                    Err(Errno::ENOSPC)
                ]
            );
            assert!(has_begun.try_recv().is_err(), "one for all of them");
        });
    }
}
