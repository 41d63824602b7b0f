//! Which of a peer's rails to use: pure, time comes in. A rail is an interface of ours and an address of the peer
//! ([`crate::pairs`]).
//!
//! Order of choice for a new connection: health, then rank, then round robin among equals. For a request: rank, then the
//! fewest bytes under way, then round robin.

use std::time::{Duration, Instant};

/// First and longest pause after a failure of a rail.
pub const PAUSE_MIN: Duration = Duration::from_millis(10);
pub const PAUSE_MAX: Duration = Duration::from_secs(1);
/// First and longest rest of a rail that connects and does not carry.
pub const REST_MIN: Duration = Duration::from_millis(500);
pub const REST_MAX: Duration = Duration::from_secs(60);
/// First rest of a rail that is deaf: to find that out costs requests some two seconds each time.
pub const REST_DEAF_MIN: Duration = Duration::from_secs(8);
/// Rails that are lost within so long have one cause, and it is none of them.
const TOGETHER: Duration = Duration::from_secs(2);

/// What a connection was good for that ended through a fault of its rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lived {
    /// From when it was made until the other side was last heard.
    pub worked: Duration,
    /// Bytes, both ways.
    pub carried: u64,
    /// Those of them that came from the other side.
    pub received: u64,
    /// It ended because nothing came over it while answers did over another rail.
    pub was_deaf: bool,
}

impl Lived {
    /// Whatever it carried.
    const SHORT: Duration = Duration::from_secs(1);
    /// Whether it carried anything or not: there may have been nothing to carry.
    const LONG: Duration = Duration::from_secs(60);
    /// A rail that loses most packets, or all long ones, does not come so far.
    const MUCH: u64 = 1 << 20;
    /// A rail that loses long packets on the way here does not bring so much soon: replies to writes are short.
    const HEARD_MUCH: u64 = 64 << 20;

    /// The rail was as good as cut all the time, though it could be connected.
    fn was_too_short(&self) -> bool {
        self.worked < Self::SHORT || (self.worked < Self::LONG && self.carried < Self::MUCH)
    }
}

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
    /// For how long it rests where others carry on; longer each time that its connection lives too short.
    rest: Duration,
    /// The same where it is deaf, whatever it carries to the other side: it may carry writes perfectly, and pings. So this is
    /// forgotten only when much came over it.
    rest_if_deaf: Duration,
    /// Since when it does.
    rests: Option<Instant>,
    /// Its last connection ended because it is deaf.
    is_deaf: bool,
}

impl Rail {
    fn new(rank: u8) -> Self {
        let (rest, rest_if_deaf) = (Duration::ZERO, Duration::ZERO);
        Self { rank, is_lost: false, failures: 0, retry: None, rest, rest_if_deaf, rests: None, is_deaf: false }
    }

    fn rests_until(&self, now: Instant) -> Option<Instant> {
        let rest = if self.is_deaf { self.rest_if_deaf } else { self.rest };
        self.rests.map(|since| since + rest).filter(|&until| now < until)
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
    /// better rank is connected. None rests where none is connected.
    #[must_use]
    pub fn due(&self, now: Instant, is_connected: impl Fn(usize) -> bool) -> Vec<usize> {
        let best = (0..self.rails.len()).filter(|&at| is_connected(at)).map(|at| self.rails[at].rank).min();
        let wanted = |at: &usize| {
            let rail = &self.rails[*at];
            let worth = rail.rank == 0 || best.is_none_or(|best| rail.rank < best);
            let may_be_tried =
                rail.retry.is_none_or(|retry| retry <= now) && (best.is_none() || rail.rests_until(now).is_none());
            worth && !is_connected(*at) && may_be_tried
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
        let best =
            (0..count).map(|step| (self.next + step) % count).filter(|&at| usable(&self.rails[at])).min_by_key(|&at| {
                let rail = &self.rails[at];
                (rail.is_lost || rail.failures > 0, rail.rests_until(now), rail.is_deaf, rail.rank)
            });
        if let Some(at) = best {
            self.next = (at + 1) % count;
            return Choice::Rail(at);
        }
        self.rails.iter().filter_map(|rail| rail.retry).min().map_or(Choice::None, Choice::NotBefore)
    }

    /// Of the others beside this rail the best one for `nth` 0, then the next, and around again.
    #[must_use]
    pub fn beside(&self, rail: usize, nth: usize) -> Option<usize> {
        let mut others: Vec<usize> = (0..self.rails.len()).filter(|&at| at != rail).collect();
        others.sort_by_key(|&at| (self.rails[at].is_lost || self.rails[at].failures > 0, self.rails[at].rank));
        others.get(nth % others.len().max(1)).copied()
    }

    /// Whether the last attempt to connect was no failure.
    #[must_use]
    pub fn is_healthy(&self, rail: usize) -> bool {
        self.rails[rail].failures == 0
    }

    pub fn on_success(&mut self, rail: usize) {
        let rail = &mut self.rails[rail];
        // To be connected is not yet to carry.
        *rail = Rail { rest: rail.rest, rest_if_deaf: rail.rest_if_deaf, ..Rail::new(rail.rank) };
    }

    /// A connection over it was lost. It may be tried again at once.
    pub fn on_loss(&mut self, rail: usize) {
        self.rails[rail].is_lost = true;
    }

    /// The same through a fault of the rail: one on which the connection lived too short rests, each time for longer, and
    /// so does one that is deaf, however long it lived.
    pub fn on_fault(&mut self, rail: usize, lived: &Lived, now: Instant) {
        self.on_loss(rail);
        let rail = &mut self.rails[rail];
        if lived.received >= Lived::HEARD_MUCH {
            rail.rest_if_deaf = Duration::ZERO;
        }
        if lived.was_deaf {
            rail.rest_if_deaf = (rail.rest_if_deaf * 2).clamp(REST_DEAF_MIN, REST_MAX);
            (rail.is_deaf, rail.rests) = (true, Some(now));
            return;
        }
        (rail.rest, rail.rests) = match lived.was_too_short() {
            true => ((rail.rest * 2).clamp(REST_MIN, REST_MAX), Some(now)),
            false => (Duration::ZERO, None),
        };
    }

    /// Its connection was closed because nobody used it for long: so long it has lasted. That says nothing of what it would
    /// have brought.
    pub fn on_disuse(&mut self, rail: usize) {
        let rail = &mut self.rails[rail];
        (rail.rest, rail.rests) = (Duration::ZERO, None);
    }

    /// None is connected any more. Where that has come at once the other side is gone, or started again: none rests for
    /// that. But one is deaf because of itself: the other side was heard.
    pub fn on_loss_of_all(&mut self, now: Instant) {
        let lately = |since: Instant| now.saturating_duration_since(since) < TOGETHER;
        for rail in self.rails.iter_mut().filter(|rail| !rail.is_deaf && rail.rests.is_some_and(lately)) {
            rail.rests = None;
            rail.rest = if rail.rest > REST_MIN { rail.rest / 2 } else { Duration::ZERO };
        }
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

    fn lived(worked: u64, carried: u64) -> Lived {
        Lived { worked: ms(worked), carried, received: carried, was_deaf: false }
    }

    /// Of a connection that carried much to the other side.
    fn deaf(received: u64) -> Lived {
        Lived { worked: ms(120_000), carried: (1 << 30) + received, received, was_deaf: true }
    }

    /// For how long rail 1 is left out while rail 0 carries on.
    fn rest(rails: &Rails, now: Instant) -> Duration {
        let until = (0..).step_by(100).map(ms).find(|&after| !rails.due(now + after, |at| at == 0).is_empty());
        until.expect("it is tried in the end")
    }

    #[test]
    fn a_rail_that_connects_and_does_not_carry_rests_for_longer_each_time() {
        let (mut now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        for (round, rests) in [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000].into_iter().enumerate() {
            let worked = [lived(300, 5 << 20), lived(20_000, 900)][round % 2];
            rails.on_success(1);
            rails.on_fault(1, &worked, now);
            assert_eq!(rest(&rails, now), ms(rests));
            assert_eq!(rails.due(now, |_| false), [0, 1], "none rests where there is no other");
            now += ms(rests);
        }
        // Whole again: that is known when it has carried for a while.
        rails.on_success(1);
        rails.on_fault(1, &lived(1500, 2 << 20), now);
        assert_eq!(rest(&rails, now), ms(0));
        rails.on_success(1);
        rails.on_fault(1, &lived(0, 0), now);
        assert_eq!(rest(&rails, now), ms(500));
    }

    #[test]
    fn a_rail_that_is_cut_again_and_again_and_works_in_between_does_not_rest() {
        let (now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        for worked in [lived(2000, 30 << 20), lived(60_000, 1000), lived(1000, 1 << 20)] {
            rails.on_success(1);
            rails.on_fault(1, &worked, now);
            assert_eq!(rest(&rails, now), ms(0));
        }
        // Nor one whose connection was ended for something else.
        rails.on_success(1);
        rails.on_loss(1);
        assert_eq!(rest(&rails, now), ms(0));
        // What it did before it was not used for long is forgotten.
        for _ in 0..2 {
            rails.on_fault(1, &lived(0, 0), now);
            assert_eq!(rest(&rails, now), ms(500));
            rails.on_success(1);
            rails.on_disuse(1);
        }
    }

    #[test]
    fn none_rests_for_what_has_ended_all() {
        let (now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        for _ in 0..5 {
            (0..2).for_each(|rail| rails.on_success(rail));
            rails.on_fault(1, &lived(10, 0), now);
            rails.on_fault(0, &lived(10, 0), now);
            rails.on_loss_of_all(now + ms(1));
            assert_eq!(rest(&rails, now + ms(1)), ms(0));
        }
        // What one has done before stays known.
        for _ in 0..2 {
            rails.on_success(1);
            rails.on_fault(1, &lived(10, 0), now);
        }
        rails.on_fault(0, &lived(10, 0), now + TOGETHER);
        rails.on_loss_of_all(now + TOGETHER);
        assert_eq!(rails.choose(now), Choice::Rail(0), "the one that rests goes last");
        assert_eq!(rest(&rails, now), ms(1000));
    }

    #[test]
    fn a_rail_that_is_deaf_rests_whatever_it_carried() {
        let (mut now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        for rests in [8000, 16_000, 32_000, 60_000, 60_000] {
            rails.on_success(1);
            rails.on_fault(1, &deaf(900), now);
            assert_eq!(rest(&rails, now), ms(rests));
            now += ms(rests);
            // Neither a calm time nor writes show that it hears again, nor does another fault.
            rails.on_success(1);
            rails.on_disuse(1);
            rails.on_success(1);
            rails.on_fault(1, &Lived { was_deaf: false, ..deaf(1 << 20) }, now);
            assert_eq!(rest(&rails, now), ms(0));
        }
        for heard in [Lived { was_deaf: false, ..deaf(64 << 20) }, deaf(64 << 20)] {
            rails.on_success(1);
            rails.on_fault(1, &heard, now);
            rails.on_success(1);
            rails.on_fault(1, &deaf(0), now);
        }
        assert_eq!(rest(&rails, now), ms(16_000), "after the one that it began with again");
    }

    #[test]
    fn a_rail_that_is_deaf_rests_though_it_was_the_only_one_connected() {
        let (now, mut rails) = (Instant::now(), Rails::new([0, 1]));
        rails.on_success(0);
        rails.on_fault(0, &deaf(0), now);
        rails.on_loss_of_all(now);
        rails.on_success(1);
        assert_eq!(rails.due(now + ms(7900), |at| at == 1), [0; 0]);
        rails.on_fault(1, &lived(5000, 5 << 20), now + ms(5000));
        rails.on_loss_of_all(now + ms(5000));
        assert_eq!(rails.choose(now + ms(5000)), Choice::Rail(1));
        assert_eq!(rails.choose(now + ms(50_000)), Choice::Rail(1), "it was not tried since");
        rails.on_failure(1, now + ms(50_000));
        assert_eq!(rails.choose(now + ms(50_000)), Choice::Rail(0), "the other one cannot be connected");
    }

    #[test]
    fn where_all_rest_the_one_goes_first_whose_rest_ends_first() {
        let (now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        rails.on_fault(0, &deaf(0), now + ms(1000));
        rails.on_fault(1, &deaf(0), now);
        assert_eq!([0; 2].map(|_| rails.choose(now + ms(2000))), [Choice::Rail(1); 2]);
    }

    #[test]
    fn a_rail_that_rests_is_used_where_the_other_one_cannot_be_connected() {
        let (now, mut rails) = (Instant::now(), Rails::new([0, 0]));
        rails.on_fault(1, &lived(10, 0), now);
        rails.on_failure(0, now);
        assert_eq!(rails.choose(now), Choice::Rail(1));
    }

    #[test]
    fn what_is_asked_beside_a_rail_is_the_best_of_the_others() {
        let mut rails = Rails::new([0, 1, 0]);
        assert_eq!([rails.beside(0, 0), rails.beside(2, 0)], [Some(2), Some(0)]);
        assert_eq!([1, 2, 3].map(|nth| rails.beside(0, nth)), [Some(1), Some(2), Some(1)], "then the next ones");
        rails.on_loss(2);
        assert_eq!(rails.beside(0, 0), Some(1));
        assert_eq!([0, 1].map(|nth| Rails::new([0]).beside(0, nth)), [None; 2]);
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
