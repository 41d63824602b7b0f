//! Whether all has come that the kernel has sent so far.
//!
//! Requests come to several loops, so of two that the kernel sent one after the other the second may be served first. Mostly
//! nobody can tell, for programs wait for their answers. But nobody waits for `RELEASE`: the kernel sends it before the last
//! `close` of an open file returns, and what a program asks after that may come first.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use ring::mailbox;

use crate::team::Team;

/// So often it is looked in the next turn whether another loop has begun with what it has in hand, before it is slept between.
const TURNS: u32 = 8;
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// To wait for what is on its way to the loops of a mount; from any ring.
#[derive(Clone)]
pub struct Arrivals {
    team: Arc<Team>,
}

/// One loop's part in a wait, which is over when all of them are dropped.
pub(crate) type Awaited = mailbox::Sender<()>;

/// The rounds of one loop in which it begins with all that it was sent: one at a time, for all who wait by its beginning.
#[derive(Default)]
pub(crate) struct Rounds {
    /// By the next one.
    awaited: RefCell<Vec<Awaited>>,
    under_way: Cell<bool>,
}

impl Rounds {
    /// False where rounds are under way, of which the next one will be for this as well. Else they are to be [run](Self::run).
    pub(crate) fn join(&self, awaited: Awaited) -> bool {
        self.awaited.borrow_mut().push(awaited);
        !self.under_way.replace(true)
    }

    pub(crate) async fn run(&self, round: impl AsyncFn()) {
        loop {
            // Who comes later may ask for what this round has looked for already.
            let awaited = self.awaited.take();
            if awaited.is_empty() {
                return self.under_way.set(false);
            }
            round().await;
        }
    }
}

impl Arrivals {
    pub(crate) fn new(team: Arc<Team>) -> Self {
        Self { team }
    }

    /// Waits until the file system was given all operations that the kernel had handed to some loop before this was called:
    /// they were polled once. False where that took longer than `limit`.
    ///
    /// Not among them is what the kernel keeps back: requests beyond those that it may have in flight.
    pub async fn settle(&self, limit: Duration) -> bool {
        let (awaited, mut all) = mailbox::mailbox();
        self.team.catch_up(&awaited);
        drop(awaited);
        ring::timeout(limit, all.recv()).await.is_ok()
    }

    /// Waits until the file system was given all writes that the kernel had handed to others than loop `own` before that one's
    /// present request: they were polled once. False where that took longer than `limit`. Where nobody else is just taking a
    /// request, as mostly, it costs nothing.
    ///
    /// Over io_uring it waits for nothing: the kernel has a queue for each CPU, so that what one thread sends comes in order
    /// as long as it stays there.
    pub async fn settle_writes(&self, own: usize, limit: Duration) -> bool {
        let mut others = self.team.in_hand(own);
        if others.is_empty() {
            return true;
        }
        let wait = async {
            let mut looked = 0;
            while !others.is_empty() {
                if looked < TURNS {
                    looked += 1;
                    ring::next_turn().await;
                } else {
                    ring::sleep(LOOK_AGAIN).await;
                }
                self.team.look_again(&mut others);
            }
        };
        ring::timeout(limit, wait).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Control;

    const LONG: Duration = Duration::from_secs(20);

    fn run<R>(future: impl Future<Output = R>) -> R {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(future)
    }

    fn loops(count: usize) -> (Arrivals, Vec<mailbox::Receiver<Control>>) {
        let (senders, receivers) = (0..count).map(|_| mailbox::mailbox()).unzip();
        (Arrivals::new(Arc::new(Team::new(senders))), receivers)
    }

    #[test]
    fn every_loop_is_waited_for() {
        let (arrivals, mut receivers) = loops(3);
        run(async move {
            let (began, mut begun) = mailbox::mailbox();
            ring::spawn(async move {
                assert!(arrivals.settle(LONG).await);
                began.send(());
            });
            let mut awaited = Vec::new();
            for receiver in &mut receivers {
                let Some(Control::CatchUp(part)) = receiver.recv().await else { panic!("it is asked of each") };
                awaited.push(part);
            }
            while let Some(part) = awaited.pop() {
                ring::next_turn().await;
                assert!(begun.try_recv().is_none(), "{} loops have not caught up", awaited.len() + 1);
                drop(part);
            }
            assert_eq!(begun.recv().await, Some(()));
        });
    }

    #[test]
    fn who_waits_at_the_same_time_waits_for_one_round() {
        run(async {
            let (rounds, begun) = (Rounds::default(), Cell::new(0));
            let waits = || {
                let (awaited, all) = mailbox::mailbox();
                (rounds.join(awaited), all)
            };
            let (first, mut first_end) = waits();
            let (second, mut second_end) = waits();
            assert!(first && !second);
            let late = RefCell::new(Vec::new());
            let round = async || {
                begun.set(begun.get() + 1);
                if begun.get() == 1 {
                    late.borrow_mut().extend([waits(), waits()]);
                }
                ring::next_turn().await;
                assert!(late.borrow_mut().iter_mut().all(|(begins, _)| !*begins), "rounds are under way");
            };
            rounds.run(round).await;
            assert_eq!(begun.get(), 2, "one for those who came before it, and one for the others");
            assert_eq!((first_end.recv().await, second_end.recv().await), (None, None));
            for (_, mut end) in late.take() {
                assert_eq!(end.recv().await, None);
            }
            assert!(waits().0, "none is under way");
        });
    }

    #[test]
    fn a_write_waits_for_what_others_have_taken_before_it() {
        let (arrivals, _receivers) = loops(2);
        let team = Arc::clone(&arrivals.team);
        team.takes(0);
        run(async move {
            assert!(arrivals.settle_writes(0, Duration::ZERO).await, "nobody else takes any");
            team.takes(1);
            assert!(!arrivals.settle_writes(0, Duration::from_millis(1)).await);
            ring::spawn(async move {
                ring::sleep(Duration::from_millis(1)).await;
                team.has_begun(1);
            });
            assert!(arrivals.settle_writes(0, LONG).await);
        });
    }

    #[test]
    fn a_loop_that_is_gone_or_ends_has_caught_up() {
        let (arrivals, mut receivers) = loops(2);
        drop(receivers.pop());
        let ending = receivers.pop();
        run(async move {
            ring::spawn(async move {
                ring::next_turn().await;
                drop(ending);
            });
            assert!(arrivals.settle(LONG).await);
        });
    }

    #[test]
    fn a_loop_that_hangs_is_not_waited_for_without_end() {
        let (arrivals, receivers) = loops(1);
        assert!(!run(arrivals.settle(Duration::from_millis(1))));
        drop(receivers);
    }
}
