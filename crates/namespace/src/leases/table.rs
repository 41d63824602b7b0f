//! Who holds what, until when.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use types::id::SessionId;

use crate::leases::{Room, Subject};

/// Leases by subject, in two generations: one takes the new ones, and after a term it becomes the old one and what was
/// old is dropped whole. So a lease that nobody renews costs nothing to forget.
#[derive(Debug)]
pub(super) struct Table {
    term_ms: u64,
    /// Subjects of one generation; above it, no lease is given.
    capacity: usize,
    /// Above it, none is given with a listing.
    listed_max: usize,
    new: FxHashMap<Subject, Entry>,
    old: FxHashMap<Subject, Entry>,
    turn_at_ms: u64,
}

#[derive(Debug, Default)]
struct Entry {
    holders: Holders,
    /// Until then nobody gets a lease.
    cool_until_ms: u64,
}

#[derive(Debug, Default)]
enum Holders {
    #[default]
    None,
    One(Lease),
    Several(Vec<Lease>),
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    session: SessionId,
    until_ms: u64,
}

impl Holders {
    fn leases(&self) -> &[Lease] {
        match self {
            Self::None => &[],
            Self::One(lease) => std::slice::from_ref(lease),
            Self::Several(leases) => leases,
        }
    }

    fn add(&mut self, lease: Lease) {
        match self {
            Self::None => *self = Self::One(lease),
            Self::One(one) if one.session == lease.session => *one = lease,
            Self::One(one) => *self = Self::Several(vec![*one, lease]),
            Self::Several(leases) => match leases.iter_mut().find(|known| known.session == lease.session) {
                Some(known) => *known = lease,
                None => leases.push(lease),
            },
        }
    }

    fn remove(&mut self, session: SessionId) {
        match self {
            Self::None => {}
            Self::One(lease) if lease.session == session => *self = Self::None,
            Self::One(_) => {}
            Self::Several(leases) => leases.retain(|lease| lease.session != session),
        }
    }
}

impl Table {
    pub(super) fn new(term_ms: u64, capacity: usize, now_ms: u64) -> Self {
        let turn_at_ms = now_ms.saturating_add(term_ms);
        // A few long listings take all the room that they are let have: who asks for one name is to find some.
        let listed_max = capacity - capacity / 4;
        Self { term_ms, capacity, listed_max, new: FxHashMap::default(), old: FxHashMap::default(), turn_at_ms }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.old.is_empty()
    }

    pub(super) fn advance(&mut self, now_ms: u64) {
        if now_ms < self.turn_at_ms {
            return;
        }
        if now_ms >= self.turn_at_ms.saturating_add(self.term_ms) {
            self.new.clear();
        }
        // A term ago the old ones were already the old ones, so theirs is over.
        self.old = std::mem::take(&mut self.new);
        self.turn_at_ms = now_ms.saturating_add(self.term_ms);
    }

    /// False where there is no room, or it is too soon after a recall.
    pub(super) fn grant(&mut self, subject: Subject, session: SessionId, room: Room, now_ms: u64) -> bool {
        if self.old.get(&subject).is_some_and(|entry| now_ms < entry.cool_until_ms) {
            return false;
        }
        let lease = Lease { session, until_ms: now_ms.saturating_add(self.term_ms) };
        if let Some(entry) = self.new.get_mut(&subject) {
            let may = now_ms >= entry.cool_until_ms;
            if may {
                entry.holders.add(lease);
            }
            return may;
        }
        let most = match room {
            Room::Whole => self.capacity,
            Room::ForListings => self.listed_max,
        };
        let fits = self.new.len() < most;
        if fits {
            self.new.insert(subject, Entry { holders: Holders::One(lease), cool_until_ms: 0 });
        }
        fits
    }

    /// Until when `session` holds it, if it does.
    pub(super) fn held_until(&self, subject: Subject, session: SessionId, now_ms: u64) -> Option<u64> {
        let entries = [&self.old, &self.new].into_iter().filter_map(|generation| generation.get(&subject));
        let leases = entries.flat_map(|entry| entry.holders.leases());
        leases
            .filter(|lease| lease.session == session)
            .map(|lease| lease.until_ms)
            .filter(|&until| until > now_ms)
            .max()
    }

    /// Notes what is so already: `session` believes it until `until_ms`, whatever room there is.
    pub(super) fn note(&mut self, subject: Subject, session: SessionId, until_ms: u64) {
        self.new.entry(subject).or_default().holders.add(Lease { session, until_ms });
    }

    /// Sessions other than `session` that hold it, each with the end of its term.
    pub(super) fn holders(&self, subject: Subject, session: SessionId, now_ms: u64) -> BTreeMap<SessionId, u64> {
        let mut holders = BTreeMap::new();
        for generation in [&self.old, &self.new] {
            let leases = generation.get(&subject).map_or(&[][..], |entry| entry.holders.leases());
            for lease in leases.iter().filter(|lease| lease.session != session && lease.until_ms > now_ms) {
                let until_ms = holders.entry(lease.session).or_insert(0);
                *until_ms = lease.until_ms.max(*until_ms);
            }
        }
        holders
    }

    pub(super) fn release(&mut self, subject: Subject, session: SessionId) {
        for generation in [&mut self.old, &mut self.new] {
            if let Some(entry) = generation.get_mut(&subject) {
                entry.holders.remove(session);
            }
        }
    }

    /// From now on until `until_ms` nobody gets a lease on it. Who holds one keeps it.
    pub(super) fn cool(&mut self, subject: Subject, until_ms: u64) {
        if self.new.len() < self.capacity || self.new.contains_key(&subject) {
            self.new.entry(subject).or_default().cool_until_ms = until_ms;
        }
    }
}
