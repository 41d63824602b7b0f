//! Which of a peer's rails to use: pure, time comes in. A rail is one address of the peer that one of our networks
//! reaches.
//!
//! Order of choice: health, then the policy's rank, then round robin among equals.

use std::time::{Duration, Instant};

/// First and longest pause after a failure of a rail.
pub const PAUSE_MIN: Duration = Duration::from_millis(10);
pub const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Use this rail.
    Rail(usize),
    /// All of them failed lately; the first may be tried again then.
    NotBefore(Instant),
    /// The peer has no rail.
    None,
}

#[derive(Clone, Debug)]
struct Rail {
    /// Lower goes first.
    rank: u8,
    /// In a row.
    failures: u32,
    /// While failing: not before then.
    retry: Option<Instant>,
}

/// Health and order of one peer's rails.
#[derive(Clone, Debug)]
pub struct Rails {
    rails: Vec<Rail>,
    /// Where the round goes on.
    next: usize,
}

impl Rails {
    /// One rail per rank given; lower ranks are preferred.
    #[must_use]
    pub fn new(ranks: impl IntoIterator<Item = u8>) -> Self {
        Self { rails: ranks.into_iter().map(|rank| Rail { rank, failures: 0, retry: None }).collect(), next: 0 }
    }

    /// The rail for the next connection.
    pub fn choose(&mut self, now: Instant) -> Choice {
        let count = self.rails.len();
        let usable = |rail: &Rail| rail.retry.is_none_or(|retry| retry <= now);
        let best = (0..count)
            .map(|step| (self.next + step) % count)
            .filter(|&at| usable(&self.rails[at]))
            .min_by_key(|&at| (self.rails[at].failures > 0, self.rails[at].rank));
        if let Some(at) = best {
            self.next = (at + 1) % count;
            return Choice::Rail(at);
        }
        self.rails.iter().filter_map(|rail| rail.retry).min().map_or(Choice::None, Choice::NotBefore)
    }

    /// Whether the rail's last use was no failure.
    #[must_use]
    pub fn is_healthy(&self, rail: usize) -> bool {
        self.rails[rail].failures == 0
    }

    pub fn on_success(&mut self, rail: usize) {
        let rail = &mut self.rails[rail];
        rail.failures = 0;
        rail.retry = None;
    }

    /// The rail pauses, each time for longer.
    pub fn on_failure(&mut self, rail: usize, now: Instant) {
        let rail = &mut self.rails[rail];
        let pause = PAUSE_MIN.saturating_mul(1 << rail.failures.min(16)).min(PAUSE_MAX);
        rail.failures = rail.failures.saturating_add(1);
        rail.retry = Some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn equals_take_turns() {
        let now = Instant::now();
        let mut rails = Rails::new([0, 0, 0]);
        let chosen: Vec<_> = (0..4).map(|_| rails.choose(now)).collect();
        assert_eq!(chosen, [0, 1, 2, 0].map(Choice::Rail));
    }

    #[test]
    fn rank_goes_before_turns_and_health_before_rank() {
        let now = Instant::now();
        let mut rails = Rails::new([1, 0, 1]);
        assert_eq!([rails.choose(now), rails.choose(now)], [Choice::Rail(1); 2]);
        rails.on_failure(1, now);
        let chosen: Vec<_> = (0..3).map(|_| rails.choose(now)).collect();
        assert_eq!(chosen, [2, 0, 2].map(Choice::Rail));
        // Its pause is over, yet it goes last until it worked again.
        assert_ne!(rails.choose(now + ms(20)), Choice::Rail(1));
        rails.on_success(1);
        assert_eq!(rails.choose(now), Choice::Rail(1));
    }

    #[test]
    fn pauses_double_up_to_a_second_and_end_with_a_success() {
        let now = Instant::now();
        let mut rails = Rails::new([0]);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            rails.on_failure(0, now);
            let Choice::NotBefore(until) = rails.choose(now) else { panic!("a failing rail pauses") };
            pauses.push((until - now).as_millis());
            assert_eq!(rails.choose(until), Choice::Rail(0));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        rails.on_success(0);
        assert!(rails.is_healthy(0));
        rails.on_failure(0, now);
        assert_eq!(rails.choose(now), Choice::NotBefore(now + ms(10)));
    }

    #[test]
    fn all_paused_means_the_first_to_end_and_no_rail_none() {
        let now = Instant::now();
        let mut rails = Rails::new([0, 0]);
        rails.on_failure(0, now);
        rails.on_failure(0, now);
        rails.on_failure(1, now);
        assert_eq!(rails.choose(now), Choice::NotBefore(now + ms(10)));
        assert_eq!(Rails::new([]).choose(now), Choice::None);
    }
}
