//! Memory that the targets of a lane have a share of each, so that one whose disk does not keep up leaves the others theirs.

use std::rc::Rc;

use ring::sync::{Permit, Semaphore};

/// What one target may take: its own share, and of what is common to all as much as is there.
pub(crate) struct Memory {
    own: Rc<Semaphore>,
    common: Rc<Semaphore>,
}

/// What the targets of a lane have in common, and how much is each one's own.
pub(crate) struct Shares {
    /// Bytes.
    own: usize,
    common: Rc<Semaphore>,
}

impl Shares {
    /// Of `bytes` in all for `count` targets: half of it is common, the rest are equal shares; where there is one target, it
    /// has all.
    pub(crate) fn new(bytes: usize, count: usize) -> Self {
        let own = if count == 1 { bytes } else { bytes / 2 / count.max(1) };
        Self { own, common: Rc::new(Semaphore::new(bytes - own * count)) }
    }

    /// For one target. One that comes when all have theirs has as much, beside what there is.
    pub(crate) fn one(&self) -> Memory {
        Memory { own: Rc::new(Semaphore::new(self.own)), common: Rc::clone(&self.common) }
    }
}

impl Memory {
    /// Bytes that can be had at once.
    pub(crate) fn available(&self) -> usize {
        self.own.available().max(self.common.available())
    }

    /// `None` where they are not there now.
    pub(crate) fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        let from = |memory: &Rc<Semaphore>| (memory.available() >= bytes).then(|| memory.try_acquire(bytes)).flatten();
        from(&self.own).or_else(|| from(&self.common))
    }

    /// Waits until they are there. Who asks for more than a share waits for all of it, and then goes alone.
    pub(crate) async fn acquire(&self, bytes: usize) -> Permit {
        match self.try_acquire(bytes) {
            Some(permit) => permit,
            // Only what is its own comes back for certain, however slow the other targets are.
            None => self.own.acquire(bytes).await,
        }
    }

    /// All that is free.
    #[cfg(test)]
    pub(crate) fn take_all(&self) -> Vec<Permit> {
        [&self.own, &self.common].into_iter().filter_map(|memory| memory.try_acquire(memory.available())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_takes_all_it_can_leaves_the_others_their_shares() {
        let shares = Shares::new(1000, 2);
        let (greedy, other) = (shares.one(), shares.one());
        let taken: Vec<Permit> = std::iter::from_fn(|| greedy.try_acquire(50)).collect();
        assert_eq!(taken.len(), 15, "its own 250, and the 500 that are common");
        assert_eq!((greedy.available(), other.available()), (0, 250));
        let own = other.try_acquire(250).expect("its own");
        assert!(other.try_acquire(1).is_none());
        drop((own, taken));
        assert!(other.try_acquire(600).is_none(), "never more than is there");
        assert_eq!((greedy.available(), other.available()), (500, 500));
    }

    #[test]
    fn who_asks_for_more_than_a_share_goes_alone() {
        ring::Ring::new(&ring::Config::default()).expect("io_uring is there").run(async {
            let memory = Shares::new(1000, 4).one();
            let huge = memory.acquire(5000).await;
            assert!(memory.own.try_acquire(1).is_none());
            drop(huge);
            assert!(memory.own.try_acquire(1).is_some());
        });
    }
}
