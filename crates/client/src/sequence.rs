//! Which changes of a session are under way: pure.

use std::collections::BTreeMap;

use wire::v1::meta::Exactly;

/// Hands out the sequence numbers of one session at one shard.
#[derive(Debug)]
pub(crate) struct Window {
    next: u64,
    /// By how many each is waited for.
    under_way: BTreeMap<u64, u32>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { next: 1, under_way: BTreeMap::new() }
    }

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unanswered_change_holds_the_line() {
        let mut window = Window::new();
        let (a, b) = (window.begin(), window.begin());
        assert_eq!((a.sequence, b.sequence), (1, 2));
        assert_eq!(b.answered_below, 1);
        window.end(b.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 3, answered_below: 1 });
        window.end(a.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 4, answered_below: 3 });
    }

    #[test]
    fn a_change_is_under_way_for_as_long_as_anybody_asks_for_its_answer() {
        let mut window = Window::new();
        let given_up = window.begin();
        window.again(given_up.sequence);
        window.end(given_up.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 2, answered_below: 1 });
        window.end(given_up.sequence);
        assert_eq!(window.begin(), Exactly { sequence: 3, answered_below: 2 });
    }
}
