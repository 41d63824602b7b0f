//! Those who wait for the locks of one file, in the order in which they came.

use types::lock::{Held, LockMode, LockRange};

use crate::locks::{LockOwner, PATIENCE_MS, Ticket};

/// One request that waits.
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) owner: LockOwner,
    pub(super) wanted: Held,
    /// It would rather be refused than wait for ever.
    pub(super) detect: bool,
    /// Since when nobody who holds a lock is in its way, but only others that wait. In milliseconds.
    behind_since_ms: Option<u64>,
}

impl Waiter {
    pub(super) fn new(
        ticket: Ticket,
        owner: LockOwner,
        wanted: Held,
        detect: bool,
        behind_since_ms: Option<u64>,
    ) -> Self {
        Self { ticket, owner, wanted, detect, behind_since_ms }
    }

    /// What it wants, where it would rather be refused than wait for ever.
    pub(super) fn detecting(&self) -> Option<Held> {
        self.detect.then_some(self.wanted)
    }

    /// If this one had its lock, the other could not have its own.
    fn is_in_the_way_of(&self, owner: LockOwner, range: LockRange, mode: LockMode) -> bool {
        self.owner != owner && self.wanted.range.overlaps(range) && self.wanted.mode.conflicts(mode)
    }
}

#[derive(Default)]
pub(super) struct Queue(Vec<Waiter>);

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    pub(super) fn find(&self, ticket: Ticket) -> Option<&Waiter> {
        self.0.iter().find(|waiter| waiter.ticket == ticket)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let at = self.0.iter().position(|waiter| waiter.ticket == ticket)?;
        Some(self.0.remove(at))
    }

    /// Somebody waits for what could not stand beside `wanted`.
    pub(super) fn is_before(&self, owner: LockOwner, wanted: Held) -> bool {
        self.0.iter().any(|waiter| waiter.is_in_the_way_of(owner, wanted.range, wanted.mode))
    }

    /// Waiters that cannot go on while `owner` holds `held`.
    pub(super) fn blocked_by(&self, owner: LockOwner, held: Held) -> impl Iterator<Item = &Waiter> {
        self.0.iter().filter(move |waiter| {
            let Held { range, mode, .. } = waiter.wanted;
            waiter.owner != owner && range.overlaps(held.range) && mode.conflicts(held.mode)
        })
    }

    /// Takes out the first whose turn it is. `is_held`: a holder is in the way. `passes`: this owner need not wait for
    /// others that wait.
    pub(super) fn next(
        &mut self,
        now_ms: u64,
        is_held: impl Fn(&Waiter) -> bool,
        passes: impl Fn(LockOwner) -> bool,
    ) -> Option<Waiter> {
        for at in 0..self.0.len() {
            let (before, rest) = self.0.split_at_mut(at);
            let waiter = &mut rest[0];
            if is_held(waiter) {
                waiter.behind_since_ms = None;
                continue;
            }
            let Held { range, mode, .. } = waiter.wanted;
            let behind = before.iter().any(|other| other.is_in_the_way_of(waiter.owner, range, mode));
            if behind && !passes(waiter.owner) {
                let since_ms = *waiter.behind_since_ms.get_or_insert(now_ms);
                if now_ms < since_ms.saturating_add(PATIENCE_MS) {
                    continue;
                }
            }
            return Some(self.0.remove(at));
        }
        None
    }
}
