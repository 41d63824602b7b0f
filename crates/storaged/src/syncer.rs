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
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;

    #[test]
    fn one_sync_serves_all_who_asked_before_it_began_and_none_who_asked_later() {
        let config = ring::Config { entries: 16, spin: Duration::ZERO, ..ring::Config::default() };
        ring::Ring::new(&config).expect("io_uring is there").run(async {
            let (syncer, count) = (Rc::new(Syncer::new()), Arc::new(AtomicU64::new(0)));
            let (begun, has_begun) = mpsc::channel();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let first = Rc::clone(&syncer);
            ring::spawn(async move {
                let sync = move || {
                    begun.send(()).expect("waited for");
                    may_go_on.recv().map_err(|_| Errno::EIO)
                };
                first.run(sync).await.expect("done");
            });
            while has_begun.try_recv().is_err() {
                ring::sleep(Duration::from_millis(1)).await;
            }
            let later = (0..5).map(|_| {
                let count = Arc::clone(&count);
                let sync = move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    Err(Errno::ENOSPC)
                };
                Box::pin(syncer.run(sync)) as Task<'_>
            });
            // By the time of its turn all of them have asked.
            let release: Task<'_> = Box::pin(async {
                go_on.send(()).expect("it waits");
                Err(Errno::ENOSPC)
            });
            let outcomes = ring::join_all(later.chain([release])).await;
            assert_eq!(outcomes, [Err(Errno::ENOSPC); 6]);
            assert_eq!(count.load(Ordering::Relaxed), 1);
        });
    }
}
