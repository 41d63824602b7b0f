//! Whether all has come that the kernel has sent so far.
//!
//! Requests come to several loops, so of two that the kernel sent one after the other the second may be served first. Mostly
//! nobody can tell, for programs wait for their answers. But nobody waits for `RELEASE`: the kernel sends it before the last
//! `close` of an open file returns, and what a program asks after that may come first.

use std::time::Duration;

use ring::mailbox;

use crate::worker::Control;

/// To wait for what is on its way to the loops of a mount; from any ring.
#[derive(Clone)]
pub struct Arrivals {
    loops: Vec<mailbox::Sender<Control>>,
}

/// One loop's part in a wait, which is over when all of them are dropped.
pub(crate) type Awaited = mailbox::Sender<()>;

impl Arrivals {
    pub(crate) fn new(loops: Vec<mailbox::Sender<Control>>) -> Self {
        Self { loops }
    }

    /// Waits until the file system was given all operations that the kernel had handed to some loop before this was called:
    /// they were polled once. False where that took longer than `limit`.
    ///
    /// Not among them is what the kernel keeps back: requests beyond those that it may have in flight.
    pub async fn settle(&self, limit: Duration) -> bool {
        let (awaited, mut all) = mailbox::mailbox();
        for one in &self.loops {
            one.send(Control::CatchUp(awaited.clone()));
        }
        drop(awaited);
        ring::timeout(limit, all.recv()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn run<R>(future: impl Future<Output = R>) -> R {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(future)
    }

    fn loops(count: usize) -> (Arrivals, Vec<mailbox::Receiver<Control>>) {
        let (senders, receivers) = (0..count).map(|_| mailbox::mailbox()).unzip();
        (Arrivals::new(senders), receivers)
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
