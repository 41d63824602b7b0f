//! Log lines that would come again and again, for each of many files.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one of many messages of a kind through in a while, so that a log of bounded length keeps what came before them.
#[derive(Debug)]
pub struct Seldom {
    pause: Duration,
    state: Mutex<State>,
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < self.pause) {
            state.left_out += 1;
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.left_out))
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
}
