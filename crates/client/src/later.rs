//! What nobody waits for goes out with the next request that somebody does wait for: both sides then wake up once for two
//! requests, and the shard commits both in one batch.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ring::sync::Notify;

/// After so long without such a request, it goes out alone.
const MOMENT: Duration = Duration::from_millis(2);

/// One thread's requests that can wait.
#[derive(Default)]
pub(crate) struct Later {
    waiting: Cell<usize>,
    now: Notify,
    /// Somebody looks at the clock for all that wait.
    timed: Cell<bool>,
    under_way: Cell<usize>,
    ended: Notify,
}

/// From before the wait until the answer.
pub(crate) struct UnderWay(Rc<Later>);

impl Later {
    pub(crate) fn begin(self: &Rc<Self>) -> UnderWay {
        self.under_way.set(self.under_way.get() + 1);
        UnderWay(Rc::clone(self))
    }

    /// Waits for the next request, or a moment.
    pub(crate) async fn moment(self: &Rc<Self>) {
        if !self.timed.replace(true) {
            let later = Rc::clone(self);
            ring::spawn(async move {
                ring::sleep(MOMENT).await;
                later.timed.set(false);
                later.hurry();
            });
        }
        self.waiting.set(self.waiting.get() + 1);
        self.now.notified().await;
    }

    /// Wakes what waits. True where there is anything: it goes first if the caller gives way.
    pub(crate) fn hurry(&self) -> bool {
        let any = self.waiting.replace(0) > 0;
        if any {
            self.now.notify_all();
        }
        any
    }

    /// Waits until everything has been answered.
    pub(crate) async fn finish(&self) {
        while self.under_way.get() > 0 {
            self.hurry();
            self.ended.notified().await;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Instant;

    use super::*;

    fn run<F: Future>(future: F) -> F::Output {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(future)
    }

    /// Tells `log` its name after a moment.
    fn start(later: &Rc<Later>, name: &'static str, log: &Rc<RefCell<Vec<&'static str>>>) {
        let (later, log) = (Rc::clone(later), Rc::clone(log));
        let under_way = later.begin();
        ring::spawn(async move {
            later.moment().await;
            log.borrow_mut().push(name);
            drop(under_way);
        });
    }

    #[test]
    fn what_waits_goes_before_the_next_request() {
        run(async {
            let (later, log) = (Rc::new(Later::default()), Rc::new(RefCell::default()));
            assert!(!later.hurry(), "nothing waits");
            start(&later, "first", &log);
            start(&later, "second", &log);
            ring::turn_end().await;
            assert!(log.borrow().is_empty());
            assert!(later.hurry());
            ring::yield_now().await;
            assert_eq!(*log.borrow(), ["first", "second"]);
        });
    }

    #[test]
    fn without_another_request_it_goes_after_a_moment() {
        run(async {
            let (later, log) = (Rc::new(Later::default()), Rc::new(RefCell::default()));
            for round in 1..=2 {
                let begin = Instant::now();
                start(&later, "alone", &log);
                while log.borrow().len() < round {
                    ring::sleep(MOMENT / 4).await;
                }
                assert!(begin.elapsed() >= MOMENT);
            }
        });
    }

    #[test]
    fn the_end_waits_for_all() {
        run(async {
            let (later, log) = (Rc::new(Later::default()), Rc::new(RefCell::default()));
            later.finish().await;
            start(&later, "first", &log);
            start(&later, "second", &log);
            later.finish().await;
            assert_eq!(log.borrow().len(), 2);
        });
    }
}
