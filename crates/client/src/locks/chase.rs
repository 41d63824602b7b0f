//! Cycles of processes that wait for each other's `fcntl` locks in several shards, each of which sees only its own part.
//!
//! Who waits asks all shards whom it waits for, whom these wait for, and so on: edge chasing after Chandy, Misra and Haas
//! ("Distributed deadlock detection", 1983), but that one asks for all. What it is told is of different moments, so a cycle
//! may be none: it is real if a second round, begun after the first was over, finds each of its waits again. A wait has a
//! number of its own and ends only once, so between the two rounds all of them were there at the same time.
//!
//! All in a cycle find it. To break it one is enough: the greatest is refused at once, others only if that has not helped.

use std::collections::BTreeMap;

use types::id::SessionId;
use wire::v1::lock::{LockWait, Process};

/// Processes that one round asks for at most: beyond that, no cycle is found.
const PROCESSES_MAX: usize = 1024;

/// A session, and its number of the owner.
type Key = (SessionId, u64);

fn key(process: &Process) -> Key {
    (process.session, process.owner)
}

/// One round of questions.
pub(super) struct Chase {
    own: Key,
    /// Those that were asked for, or will be, and what each waits for.
    waits: BTreeMap<Key, Vec<LockWait>>,
    ask: Vec<Key>,
}

impl Chase {
    /// A chase that begins at the process which waits.
    pub(super) fn new(own: &Process) -> Self {
        let own = key(own);
        Self { own, waits: BTreeMap::from([(own, Vec::new())]), ask: vec![own] }
    }

    /// Whom to ask all shards for; none at the end of the round.
    pub(super) fn ask(&mut self) -> Vec<Process> {
        let ask = std::mem::take(&mut self.ask);
        ask.into_iter().map(|(session, owner)| Process { session, owner }).collect()
    }

    /// What a shard answered.
    pub(super) fn told(&mut self, waits: Vec<LockWait>) {
        for wait in waits {
            let holder = key(&wait.holder);
            if !self.waits.contains_key(&holder) && self.waits.len() < PROCESSES_MAX {
                self.waits.insert(holder, Vec::new());
                self.ask.push(holder);
            }
            if let Some(of_it) = self.waits.get_mut(&key(&wait.waiter)) {
                of_it.push(wait);
            }
        }
    }

    /// The waits of a shortest cycle through the one that asks, from its own on.
    pub(super) fn cycle(&self) -> Option<Cycle> {
        // How each was reached first.
        let mut reached: BTreeMap<Key, &LockWait> = BTreeMap::new();
        let mut open = std::collections::VecDeque::from([self.own]);
        while let Some(waiter) = open.pop_front() {
            for wait in self.waits.get(&waiter).into_iter().flatten() {
                let holder = key(&wait.holder);
                if reached.contains_key(&holder) {
                    continue;
                }
                reached.insert(holder, wait);
                if holder == self.own {
                    return Some(Cycle(self.way_back(&reached)));
                }
                open.push_back(holder);
            }
        }
        None
    }

    fn way_back(&self, reached: &BTreeMap<Key, &LockWait>) -> Vec<LockWait> {
        let mut waits = Vec::new();
        let mut at = self.own;
        while let Some(&wait) = reached.get(&at) {
            waits.push(wait.clone());
            at = key(&wait.waiter);
            if at == self.own {
                break;
            }
        }
        waits.reverse();
        waits
    }
}

/// Waits of which each waits for the next.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Cycle(Vec<LockWait>);

impl Cycle {
    /// A later round found all of it again: it was there in between.
    pub(super) fn is_in(&self, later: &Chase) -> bool {
        self.0.iter().all(|wait| later.waits.get(&key(&wait.waiter)).is_some_and(|waits| waits.contains(wait)))
    }

    /// The one that breaks it.
    pub(super) fn is_broken_by(&self, process: &Process) -> bool {
        self.0.iter().all(|wait| key(&wait.waiter) <= key(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u64) -> Process {
        Process { session: SessionId(number / 10), owner: number % 10 }
    }

    fn wait(waiter: u64, number: u64, holder: u64) -> LockWait {
        LockWait { waiter: process(waiter), number, holder: process(holder) }
    }

    /// A round of `own` where these waits are to be found.
    fn round(own: u64, waits: &[LockWait]) -> Chase {
        let mut chase = Chase::new(&process(own));
        loop {
            let asked = chase.ask();
            if asked.is_empty() {
                return chase;
            }
            chase.told(waits.iter().filter(|wait| asked.contains(&wait.waiter)).cloned().collect());
        }
    }

    #[test]
    fn a_cycle_is_found_by_each_in_it_and_broken_by_one() {
        let waits = [wait(11, 1, 12), wait(11, 1, 20), wait(12, 7, 30), wait(20, 3, 31), wait(31, 2, 11)];
        for (own, breaks) in [(11, false), (20, false), (31, true)] {
            let chase = round(own, &waits);
            let cycle = chase.cycle().unwrap();
            assert_eq!((cycle.0.len(), &cycle.0[0].waiter), (3, &process(own)));
            assert!(cycle.0.windows(2).all(|pair| pair[0].holder == pair[1].waiter));
            assert!(cycle.is_in(&round(own, &waits)));
            assert_eq!(cycle.is_broken_by(&process(own)), breaks, "{own}");
        }
        for own in [12, 30] {
            assert_eq!(round(own, &waits).cycle(), None, "{own} waits for nobody, or for the cycle from outside");
        }
    }

    #[test]
    fn who_waits_for_a_cycle_is_in_none() {
        let waits = [wait(1, 1, 11), wait(11, 1, 12), wait(12, 1, 11)];
        assert_eq!(round(1, &waits).cycle(), None);
    }

    #[test]
    fn what_was_there_at_different_moments_alone_is_no_cycle() {
        let cycle = round(11, &[wait(11, 1, 12), wait(12, 5, 11)]).cycle().unwrap();
        assert!(!cycle.is_in(&round(11, &[wait(11, 1, 12)])), "it has its lock");
        assert!(!cycle.is_in(&round(11, &[wait(11, 1, 12), wait(12, 6, 11)])), "it waits again, for another lock");
        assert!(!cycle.is_in(&round(11, &[wait(11, 1, 13), wait(12, 5, 11)])));
    }

    #[test]
    fn a_round_has_an_end() {
        let waits: Vec<LockWait> = (0..5000).map(|number| wait(number, 1, number + 1)).collect();
        let chase = round(0, &waits);
        assert_eq!((chase.waits.len(), chase.cycle()), (PROCESSES_MAX, None));
    }
}
