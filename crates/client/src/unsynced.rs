//! What of a file was acknowledged and is not known to be on the disks. Each object's changes have rising versions; so the
//! first and the last of them tell whether a service that has lost its memory had them. Pure.

use std::collections::BTreeMap;

use wire::v1::storage::WriteReply;

/// By stripe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(BTreeMap<u32, Span>);

/// Versions of the changes of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    first: u64,
    last: u64,
}

impl Unsynced {
    /// A change of the object was acknowledged with this version.
    pub(crate) fn changed(&mut self, stripe: u32, version: u64) {
        let span = self.0.entry(stripe).or_insert(Span { first: version, last: version });
        (span.first, span.last) = (span.first.min(version), span.last.max(version));
    }

    /// A write of the object was answered.
    pub(crate) fn written(&mut self, stripe: u32, answer: &WriteReply) {
        if !answer.durable {
            self.changed(stripe, answer.version);
        }
    }

    pub(crate) fn stripes(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// The first change of the object; 0: none.
    pub(crate) fn since(&self, stripe: u32) -> u64 {
        self.0.get(&stripe).map_or(0, |span| span.first)
    }

    /// What the object had when this was `then` is on its disk, or known to be lost.
    pub(crate) fn settled(&mut self, stripe: u32, then: &Self) {
        let Some(known) = then.0.get(&stripe) else { return };
        let Some(span) = self.0.get_mut(&stripe) else { return };
        if span.last <= known.last {
            self.0.remove(&stripe);
        } else {
            span.first = span.first.max(known.last + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_count_until_they_are_synced() {
        let mut unsynced = Unsynced::default();
        assert_eq!((unsynced.since(0), unsynced.stripes().count()), (0, 0));
        // Answers come in any order.
        for version in [6, 5, 7] {
            unsynced.changed(0, version);
        }
        unsynced.changed(3, 1);
        assert_eq!((unsynced.since(0), unsynced.since(3), unsynced.since(1)), (5, 1, 0));
        let then = unsynced.clone();
        unsynced.changed(0, 9);
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 8, "the later change is not known to be there");
        unsynced.settled(3, &then);
        unsynced.settled(1, &then);
        assert_eq!(unsynced.stripes().collect::<Vec<_>>(), [0]);
        // Two syncs of the same, one after the other.
        unsynced.settled(0, &then);
        assert_eq!(unsynced.since(0), 8);
        unsynced.settled(0, &unsynced.clone());
        assert_eq!(unsynced.since(0), 0);
    }
}
