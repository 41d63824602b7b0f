//! Log lines that would come again and again, for each of many files.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one of many messages of a kind through in a while, so that a log of bounded length keeps what came before them.
#[derive(Debug)]
pub struct Seldom {
    pause: Duration,
    state: Mutex<State>,
}

/// As [`Seldom`], for each key on its own, so that what one does all the time hides nothing of another: of so many keys, and
/// then for all others together.
#[derive(Debug)]
pub struct SeldomBy<K> {
    pause: Duration,
    states: Mutex<States<K>>,
}

/// What a map of all hosts that come to a service may take.
const KEYS_MAX: usize = 256;

#[derive(Debug)]
struct States<K> {
    each: BTreeMap<K, State>,
    others: State,
}

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// At most one message in each `pause`.
    #[must_use]
    pub fn every(pause: Duration) -> Self {
        Self { pause, state: Mutex::default() }
    }

    /// Whether a message is to be logged now, and how many were left out since the last one.
    pub fn is_due(&self, now: Instant) -> Option<u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_due(now, self.pause)
    }
}

impl<K: Ord> SeldomBy<K> {
    /// At most one message of a key in each `pause`.
    #[must_use]
    pub fn every(pause: Duration) -> Self {
        let states = States { each: BTreeMap::new(), others: State::default() };
        Self { pause, states: Mutex::new(states) }
    }

    /// Whether a message of `key` is to be logged now, and how many of its were left out since the last one.
    pub fn is_due(&self, key: K, now: Instant) -> Option<u64> {
        let States { each, others } = &mut *self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if each.len() >= KEYS_MAX && !each.contains_key(&key) {
            each.retain(|_, state| state.is_within(self.pause, now));
        }
        let has_place = each.len() < KEYS_MAX || each.contains_key(&key);
        let state = if has_place { each.entry(key).or_default() } else { others };
        state.is_due(now, self.pause)
    }
}

impl State {
    fn is_within(&self, pause: Duration, now: Instant) -> bool {
        self.told.is_some_and(|told| now.saturating_duration_since(told) < pause)
    }

    fn is_due(&mut self, now: Instant, pause: Duration) -> Option<u64> {
        if self.is_within(pause, now) {
            self.left_out += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_is_told_with_how_many_were_not() {
        let (seldom, begun) = (Seldom::every(Duration::from_secs(60)), Instant::now());
        let told = [0, 1, 59, 60, 61, 120].map(|seconds| seldom.is_due(begun + Duration::from_secs(seconds)));
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn each_key_is_told_of_by_itself_as_long_as_there_are_few() {
        let (seldom, begun) = (SeldomBy::every(Duration::from_secs(60)), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!([1, 2, 1, 2].map(|key| seldom.is_due(key, at(0))), [Some(0), Some(0), None, None]);
        assert_eq!([1, 1, 2].map(|key| seldom.is_due(key, at(60))), [Some(1), None, Some(1)]);
        let told = (100..10_000).filter(|&key| seldom.is_due(key, at(61)).is_some()).count();
        assert_eq!(told, KEYS_MAX - 2 + 1, "one for all that have no place of their own");
        assert_eq!(seldom.is_due(1, at(61)), None, "they take nobody's place");
        assert_eq!(seldom.is_due(9999, at(121)), Some(0), "whose time is over makes room");
        assert_eq!(seldom.states.lock().expect("no panic").each.len(), 1);
    }
}
