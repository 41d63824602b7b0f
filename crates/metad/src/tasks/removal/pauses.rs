//! Which groups are not asked for a while, since they have failed or are busy, and when that is worth a line in the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use telemetry::seldom::SeldomBy;
use types::id::GroupId;

/// First and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest pause of a group that is busy: it takes removals now and then, and its files are to go while it is used.
const PAUSE_BUSY_MAX: Duration = Duration::from_secs(1);
/// Between two lines about one group, whatever it does in between.
const COMPLAIN_EVERY: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Pauses {
    groups: BTreeMap<GroupId, Pause>,
    complaints: SeldomBy<GroupId>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    /// The log says that it fails.
    told: bool,
}

/// What the log is to say of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tell {
    /// Nothing: one of several that failed together.
    Nothing,
    /// No more than what is looked for: that is how a busy group does, or it has been said lately.
    Again,
    /// That the group fails; so many failures before were not told of.
    Begins { left_out: u64 },
}

impl Default for Pauses {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), complaints: SeldomBy::every(COMPLAIN_EVERY) }
    }
}

impl Pauses {
    pub(super) fn is_paused(&self, group: GroupId, now: Instant) -> bool {
        self.groups.get(&group).is_some_and(|pause| now < pause.until)
    }

    /// Until the first of them is asked again.
    pub(super) fn shortest(&self, now: Instant) -> Option<Duration> {
        self.groups.values().map(|pause| pause.until.saturating_duration_since(now)).min()
    }

    /// It has removed an object. Others that fail may be among those that it removes all the time: of that is told seldom.
    pub(super) fn succeeded(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    /// All may be asked again. Whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.groups).is_empty()
    }

    pub(super) fn busy(&mut self, group: GroupId, now: Instant) -> Tell {
        pause(&mut self.groups, group, now, PAUSE_BUSY_MAX).map_or(Tell::Nothing, |_| Tell::Again)
    }

    pub(super) fn failed(&mut self, group: GroupId, now: Instant) -> Tell {
        let Some(pause) = pause(&mut self.groups, group, now, PAUSE_MAX) else { return Tell::Nothing };
        if pause.told {
            return Tell::Again;
        }
        let due = self.complaints.is_due(group, now);
        pause.told = due.is_some();
        due.map_or(Tell::Again, |left_out| Tell::Begins { left_out })
    }
}

/// Begins a pause of twice the length of the one before. `None` where one is under way: several failed together.
fn pause(groups: &mut BTreeMap<GroupId, Pause>, group: GroupId, now: Instant, longest: Duration) -> Option<&mut Pause> {
    let pause = groups.entry(group).or_insert(Pause { until: now, length: Duration::ZERO, told: false });
    if now < pause.until {
        return None;
    }
    pause.length = (pause.length * 2).clamp(PAUSE_MIN, longest);
    pause.until = now + pause.length;
    Some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_group_that_stays_away_pauses_for_longer_each_time_and_is_told_of_once() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        let mut lengths = Vec::new();
        for round in 0..100 {
            let told = pauses.failed(GROUP, now);
            assert_eq!(told, if round == 0 { Tell::Begins { left_out: 0 } } else { Tell::Again });
            assert_eq!(pauses.failed(GROUP, now), Tell::Nothing, "it failed together with that");
            let pause = pauses.shortest(now).expect("it pauses");
            assert!(pauses.is_paused(GROUP, now) && !pauses.is_paused(GROUP, now + pause));
            lengths.push(pause);
            now += pause;
        }
        assert_eq!(lengths[..4], [250, 500, 1000, 2000].map(ms));
        assert_eq!(lengths[99], PAUSE_MAX);
        pauses.succeeded(GROUP);
        assert_eq!(pauses.shortest(now), None);
    }

    #[test]
    fn one_object_that_stays_among_others_that_go_is_told_of_seldom() {
        let (mut pauses, begun) = (Pauses::default(), Instant::now());
        let mut told = Vec::new();
        for round in 0..7000 {
            if let Tell::Begins { left_out } = pauses.failed(GROUP, begun + ms(100 * round)) {
                told.push((round, left_out));
            }
            pauses.succeeded(GROUP);
            assert!(!pauses.is_paused(GROUP, begun + ms(100 * round)));
            if round % 100 == 0 {
                assert!(!pauses.clear(), "none is left between two of them");
            }
        }
        assert_eq!(told, [(0, 0), (6000, 5999)]);
    }

    #[test]
    fn one_that_is_away_soon_after_it_was_told_of_is_told_of_later() {
        let (mut pauses, begun) = (Pauses::default(), Instant::now());
        assert_eq!(pauses.failed(GROUP, begun), Tell::Begins { left_out: 0 });
        pauses.succeeded(GROUP);
        assert_eq!(pauses.failed(GROUP, begun + COMPLAIN_EVERY / 2), Tell::Again);
        assert_eq!(pauses.failed(GROUP, begun + COMPLAIN_EVERY), Tell::Begins { left_out: 1 });
        assert_eq!(pauses.failed(GROUP, begun + COMPLAIN_EVERY * 3), Tell::Again, "the same failure goes on");
        assert_eq!(pauses.failed(GroupId(8), begun), Tell::Begins { left_out: 0 }, "another one");
    }

    #[test]
    fn one_that_is_busy_is_asked_again_soon_and_not_told_of() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(pauses.busy(GROUP, now), Tell::Again);
            assert!(pauses.is_paused(GROUP, now));
            now += pauses.shortest(now).expect("it pauses");
        }
        assert_eq!([(); 2].map(|()| pauses.busy(GROUP, now)), [Tell::Again, Tell::Nothing]);
        assert_eq!(pauses.shortest(now), Some(PAUSE_BUSY_MAX));
        now += PAUSE_BUSY_MAX;
        assert_eq!(pauses.failed(GROUP, now), Tell::Begins { left_out: 0 }, "that is another matter");
    }
}
