//! Which changes of a session are under way: pure.

use std::collections::BTreeSet;

use wire::v1::meta::Exactly;

/// Hands out the sequence numbers of one session at one shard.
#[derive(Debug)]
pub(crate) struct Window {
    next: u64,
    under_way: BTreeSet<u64>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { next: 1, under_way: BTreeSet::new() }
    }

    pub(crate) fn begin(&mut self) -> Exactly {
        let sequence = self.next;
        self.next += 1;
        self.under_way.insert(sequence);
        Exactly { sequence, answered_below: self.answered_below() }
    }

    /// The change was answered, or nobody will ask for its answer again.
    pub(crate) fn end(&mut self, sequence: u64) {
        let was_there = self.under_way.remove(&sequence);
        assert!(was_there, "a change ends once");
    }

    fn answered_below(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next)
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
}
