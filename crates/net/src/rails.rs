//! Which of a peer's rails to use: pure, time comes in. A rail is an interface of ours and an address of the peer
//! ([`crate::pairs`]).
//!
//! Order of choice for a new connection: health, then rank, then round robin among equals. For a request: rank, then the
//! fewest bytes under way, then round robin.

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
    /// Its last connection was lost: others go first until it works again.
    is_lost: bool,
    /// Attempts to connect, in a row.
    failures: u32,
    /// While failing: not before then.
    retry: Option<Instant>,
}

impl Rail {
    fn new(rank: u8) -> Self {
        Self { rank, is_lost: false, failures: 0, retry: None }
    }
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
        Self { rails: ranks.into_iter().map(Rail::new).collect(), next: 0 }
    }

    /// The round begins at another rail, so that many peers do not all begin at the first.
    #[must_use]
    pub fn starting_at(mut self, start: usize) -> Self {
        let first = self.rails.iter().filter(|rail| rail.rank == 0).count();
        self.next = start % first.max(1);
        self
    }

    /// The next round begins at this rail.
    pub fn begin_at(&mut self, rail: usize) {
        self.next = rail;
    }

    /// Other rails: each is new, with its rank, or one of those that there were.
    pub fn change(&mut self, rails: impl IntoIterator<Item = (u8, Option<usize>)>) {
        let kept = |(rank, old): (u8, Option<usize>)| match old {
            Some(old) => Rail { rank, ..self.rails[old].clone() },
            None => Rail::new(rank),
        };
        self.rails = rails.into_iter().map(kept).collect();
        self.next %= self.rails.len().max(1);
    }

    /// The rail for a request: `load` tells the bytes under way of those that are connected.
    pub fn pick(&mut self, load: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let count = self.rails.len();
        let best = (0..count)
            .map(|step| (self.next + step) % count)
            .filter_map(|at| load(at).map(|load| (self.rails[at].rank, load, at)))
            .min_by_key(|&(rank, load, _)| (rank, load))?;
        self.next = (best.2 + 1) % count;
        Some(best.2)
    }

    /// Rails to connect now, besides those that are: all of the best rank that may be tried, and spares where none of a
    /// better rank is connected.
    #[must_use]
    pub fn due(&self, now: Instant, is_connected: impl Fn(usize) -> bool) -> Vec<usize> {
        let best = (0..self.rails.len()).filter(|&at| is_connected(at)).map(|at| self.rails[at].rank).min();
        let wanted = |at: &usize| {
            let rail = &self.rails[*at];
            let worth = rail.rank == 0 || best.is_none_or(|best| rail.rank < best);
            worth && !is_connected(*at) && rail.retry.is_none_or(|retry| retry <= now)
        };
        (0..self.rails.len()).filter(wanted).collect()
    }

    #[must_use]
    pub fn rank(&self, rail: usize) -> u8 {
        self.rails[rail].rank
    }

    /// The rail for the next connection.
    pub fn choose(&mut self, now: Instant) -> Choice {
        let count = self.rails.len();
        let usable = |rail: &Rail| rail.retry.is_none_or(|retry| retry <= now);
        let best = (0..count)
            .map(|step| (self.next + step) % count)
            .filter(|&at| usable(&self.rails[at]))
            .min_by_key(|&at| (self.rails[at].is_lost || self.rails[at].failures > 0, self.rails[at].rank));
        if let Some(at) = best {
            self.next = (at + 1) % count;
            return Choice::Rail(at);
        }
        self.rails.iter().filter_map(|rail| rail.retry).min().map_or(Choice::None, Choice::NotBefore)
    }

    /// Whether the last attempt to connect was no failure.
    #[must_use]
    pub fn is_healthy(&self, rail: usize) -> bool {
        self.rails[rail].failures == 0
    }

    pub fn on_success(&mut self, rail: usize) {
        let rail = &mut self.rails[rail];
        *rail = Rail::new(rail.rank);
    }

    /// A connection over it was lost. It may be tried again at once.
    pub fn on_loss(&mut self, rail: usize) {
        self.rails[rail].is_lost = true;
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
    fn requests_go_where_the_least_is_under_way() {
        let mut rails = Rails::new([0, 0, 1]);
        assert_eq!(
            rails.pick(|at| [Some(10), Some(5), Some(0)][at]),
            Some(1),
            "a spare has its time when the others fail"
        );
        assert_eq!(rails.pick(|at| [None, None, Some(9)][at]), Some(2));
        assert_eq!(rails.pick(|_| None), None);
        let turns: Vec<_> = (0..4).map(|_| rails.pick(|at| (at < 2).then_some(0))).collect();
        assert_eq!(turns, [0, 1, 0, 1].map(Some));
    }

    #[test]
    fn what_is_not_connected_is_due_again_after_its_pause() {
        let now = Instant::now();
        let mut rails = Rails::new([0, 0, 1]);
        assert_eq!(rails.due(now, |_| false), [0, 1, 2]);
        assert_eq!(rails.due(now, |at| at == 0), [1]);
        rails.on_failure(1, now);
        assert!(rails.due(now, |at| at == 0).is_empty());
        assert_eq!(rails.due(now + PAUSE_MAX, |at| at == 0), [1]);
        assert_eq!(rails.due(now + PAUSE_MAX, |at| at == 2), [0, 1], "those that the spare stands in for");
    }

    #[test]
    fn after_a_loss_others_go_first() {
        let now = Instant::now();
        let mut rails = Rails::new([0, 1]);
        rails.on_loss(0);
        assert_eq!(rails.choose(now), Choice::Rail(1));
        assert_eq!(rails.due(now, |at| at == 1), [0], "without a pause");
        assert!(rails.is_healthy(0), "no attempt has failed");
        rails.on_success(0);
        assert_eq!(rails.choose(now), Choice::Rail(0));
    }

    #[test]
    fn a_change_keeps_what_is_known() {
        let now = Instant::now();
        let mut rails = Rails::new([0, 0]).starting_at(3);
        assert_eq!(rails.choose(now), Choice::Rail(1));
        rails.on_failure(1, now);
        rails.change([(0, None), (0, Some(1)), (1, Some(0))]);
        assert_eq!((rails.is_healthy(0), rails.is_healthy(1), rails.is_healthy(2)), (true, false, true));
        assert_eq!(rails.rank(2), 1);
        rails.change([]);
        assert_eq!((rails.choose(now), rails.pick(|_| Some(0))), (Choice::None, None));
    }

    mod properties {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            /// However requests come and end: with rails that work equally, none has more than one request more than
            /// another, and none that is cut is used.
            #[test]
            fn load_is_even(count in 2usize..6, cut in 0usize..6, ends in prop::collection::vec(any::<bool>(), 1..200)) {
                let mut rails = Rails::new(vec![0; count]);
                let mut load = vec![0usize; count];
                for end in ends {
                    let at = rails.pick(|at| (at != cut).then_some(load[at]));
                    let at = at.expect("one of them works");
                    prop_assert_ne!(at, cut);
                    load[at] += 1;
                    let live = || (0..count).filter(|&at| at != cut);
                    let (most, least) = (live().map(|at| load[at]).max(), live().map(|at| load[at]).min());
                    prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1);
                    if end {
                        let busiest = live().max_by_key(|&at| load[at]).expect("one works");
                        load[busiest] -= 1;
                    }
                }
            }

            /// A rail that fails and works again is due within the longest pause.
            #[test]
            fn what_recovers_is_used_again(failures in 1u32..40) {
                let mut now = Instant::now();
                let mut rails = Rails::new([0, 0]);
                for _ in 0..failures {
                    rails.on_failure(1, now);
                    now += Duration::from_millis(7);
                }
                prop_assert_eq!(rails.due(now + PAUSE_MAX, |at| at == 0), vec![1]);
                rails.on_success(1);
                prop_assert!(rails.is_healthy(1));
            }
        }
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
