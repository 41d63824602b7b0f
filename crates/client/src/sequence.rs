//! Which changes of a session are under way: pure.

use std::collections::BTreeMap;

use wire::v1::meta::Exactly;
use wire::v1::session::{Answered, UNDER_WAY_MAX};

/// So many answers, kept by a shard because an earlier change is not answered yet, are worth a message.
const KEPT_MAX: usize = 1024;

/// Hands out the sequence numbers of one session at one shard.
#[derive(Debug)]
pub(crate) struct Window {
    next: u64,
    /// By how many each is waited for.
    under_way: BTreeMap<u64, u32>,
}

impl Default for Window {
    fn default() -> Self {
        Self { next: 1, under_way: BTreeMap::new() }
    }
}

impl Window {
    pub(crate) fn begin(&mut self) -> Exactly {
        let sequence = self.next;
        self.next += 1;
        self.under_way.insert(sequence, 1);
        Exactly { sequence, answered_below: self.answered_below() }
    }

    /// Somebody else will also ask for the answer to this change, which has not ended.
    pub(crate) fn again(&mut self, sequence: u64) {
        *self.under_way.entry(sequence).or_default() += 1;
    }

    /// The change was answered, or one who asked for its answer will not do so again.
    pub(crate) fn end(&mut self, sequence: u64) {
        let left = self.under_way.get_mut(&sequence).map(|count| {
            *count -= 1;
            *count
        });
        assert!(left.is_some(), "a change ends once for each who asks");
        if left == Some(0) {
            self.under_way.remove(&sequence);
        }
    }

    fn answered_below(&self) -> u64 {
        self.under_way.first_key_value().map_or(self.next, |(&first, _)| first)
    }

    /// What to tell the shard, where changes that are not answered for long keep many answers there that nobody needs.
    pub(crate) fn answered(&self) -> Option<Answered> {
        let mut all = self.under_way.keys().copied();
        let under_way: Vec<u64> = all.by_ref().take(UNDER_WAY_MAX).collect();
        let below = all.next().unwrap_or(self.next);
        let kept = (below - self.answered_below()) as usize - under_way.len();
        (kept >= KEPT_MAX).then_some(Answered { below, under_way })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unanswered_change_holds_the_line() {
        let mut window = Window::default();
        let (a, b) = (window.begin(), window.begin());
        assert_eq!((a.sequence, b.sequence), (1, 2));
        assert_eq!(b.answered_below, 1);
        window.end(b.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 3, answered_below: 1 });
        window.end(a.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 4, answered_below: 3 });
    }

    #[test]
    fn what_is_answered_beside_one_that_is_not_is_told_apart() {
        let mut window = Window::default();
        let slow = [window.begin(), window.begin()];
        for n in 0..KEPT_MAX {
            assert_eq!(window.answered(), None, "{n}");
            let sequence = window.begin().sequence;
            window.end(sequence);
        }
        let under_way = vec![1, 2];
        assert_eq!(window.answered(), Some(Answered { below: KEPT_MAX as u64 + 3, under_way }));
        window.end(slow[0].sequence);
        assert!(window.answered().is_some());
        window.end(slow[1].sequence);
        assert_eq!(window.answered(), None, "the next change tells it");
        for _ in 0..KEPT_MAX + UNDER_WAY_MAX {
            window.begin();
        }
        assert_eq!(window.answered(), None, "none of these is answered");
        (5_000..5_000 + KEPT_MAX as u64).for_each(|sequence| window.end(sequence));
        let Some(Answered { below, under_way }) = window.answered() else { panic!("many are") };
        assert_eq!(under_way.len(), UNDER_WAY_MAX);
        assert!(window.under_way.range(below..).next().is_none_or(|(&first, _)| first == below));
    }

    #[test]
    fn a_change_is_under_way_for_as_long_as_anybody_asks_for_its_answer() {
        let mut window = Window::default();
        let given_up = window.begin();
        window.again(given_up.sequence);
        window.end(given_up.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 2, answered_below: 1 });
        window.end(given_up.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 3, answered_below: 2 });
    }
}
