//! The locks of all files of a shard: who holds what, who waits, and who may go on. Pure, and in memory only: sessions
//! reclaim what they held after a restart.
//!
//! How to drive it: `set_now`, then any number of requests; each is answered at once or later, and what is answered
//! later comes out of [`Locks::take_answers`] under the ticket that it was asked with. [`Locks::tick`] a few times a
//! second.
//!
//! - `file`: the holders of one file, and what stands in whose way (`index`: where they are many); `queue`: who waits for
//!   it, and whose turn it is.
//! - `forfeits`: what sessions held that have ended, and may come back.
//! - `ends`: what is special about the ends of files: their holders are asked for them, and lose them.
//! - `deadlock`: cycles of waiting owners. The locks of other shards are not seen: whose waits lead through several shards
//!   finds that itself, by [`Locks::waits_of`].
//!
//! **Fairness.** Who may wait queues behind who came before and could not stand beside it, so that a stream of readers
//! does not starve a writer. Two exceptions keep the queue from making deadlocks that Linux does not have: an owner that
//! holds a lock already passes those that only wait, and after [`PATIENCE_MS`] everybody does.

mod deadlock;
mod ends;
mod file;
mod forfeits;
mod index;
mod queue;

use std::collections::{BTreeMap, BTreeSet};

use types::error::Errno;
use types::id::{InodeId, SessionId};
pub use types::lock::Wait;
use types::lock::{Held, LockKind, LockMode, LockRange};

use crate::locks::ends::Ends;
use crate::locks::file::FileLocks;
use crate::locks::forfeits::Forfeits;
use crate::locks::queue::Waiter;

/// So long a request waits for others that only wait, too.
pub const PATIENCE_MS: u64 = 5000;

pub use crate::locks::ends::END_PATIENCE_MS;

/// Whoever locks exclude or admit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner {
    pub session: SessionId,
    pub kind: LockKind,
    /// The session's own number for it: a process, or an open file description.
    pub id: u64,
}

/// A request that may be answered later. The number is the session's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket {
    pub session: SessionId,
    pub number: u64,
}

/// To lock a range for an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    pub inode: InodeId,
    pub owner: LockOwner,
    pub wanted: Held,
    pub wait: Wait,
}

/// What would be in the way of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockQuery {
    pub inode: InodeId,
    /// Who would lock: what it holds itself is not in its way.
    pub owner: LockOwner,
    pub range: LockRange,
    pub mode: LockMode,
}

/// What a request came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockAnswer {
    Done,
    /// `EAGAIN`, `EDEADLK`, `ENOLCK` (a bound), `EINTR` (cancelled), `EBADF` (the session has closed
    /// the file), `ENOTCONN` (the session has ended).
    Refused(Errno),
    /// To [`Locks::get`]: who is in the way, if anybody.
    Holder(Option<Holder>),
}

/// Who holds what is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    pub owner: LockOwner,
    pub held: Held,
}

/// One request waits for one holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWait {
    pub waiter: LockOwner,
    pub ticket: Ticket,
    pub holder: LockOwner,
}

/// One lock as its session reclaims it after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    pub inode: InodeId,
    pub kind: LockKind,
    pub owner: u64,
    pub held: Held,
}

/// Bounds of memory; a session that would exceed one gets `ENOLCK`.
#[derive(Clone, Copy, Debug)]
pub struct LockLimits {
    /// Pieces that one session may hold, of all files together.
    pub pieces_per_session: usize,
    /// Requests of one session that may wait at once.
    pub waits_per_session: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { pieces_per_session: 1 << 16, waits_per_session: 4096 }
    }
}

type FileKey = (InodeId, LockKind);

/// All locks. See the module for how to drive it.
#[derive(Default)]
pub struct Locks {
    limits: LockLimits,
    /// Files that are locked, or that somebody waits for.
    files: BTreeMap<FileKey, FileLocks>,
    sessions: BTreeMap<SessionId, SessionLocks>,
    /// Pieces that each owner holds, of all files together.
    pieces: BTreeMap<LockOwner, usize>,
    waiting: BTreeMap<Ticket, Place>,
    /// Files with a queue.
    queued: BTreeSet<FileKey>,
    /// Which requests each owner waits with.
    waits: BTreeMap<LockOwner, BTreeSet<Ticket>>,
    /// Nothing new is given out: sessions are reclaiming what they held. In the order of arrival.
    grace: bool,
    deferred: Vec<(Ticket, Deferred)>,
    ends: Ends,
    forfeits: Forfeits,
    answers: Vec<(Ticket, LockAnswer)>,
    now_ms: u64,
}

#[derive(Default)]
struct SessionLocks {
    /// Where it holds something.
    files: BTreeSet<FileKey>,
    pieces: usize,
    /// Of its requests that are unanswered.
    tickets: BTreeSet<Ticket>,
}

/// Where an unanswered request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Queue(FileKey),
    /// Until the grace is over.
    Deferred(InodeId),
}

impl Place {
    fn inode(self) -> InodeId {
        match self {
            Self::Queue((inode, _)) | Self::Deferred(inode) => inode,
        }
    }
}

#[derive(Clone, Copy)]
enum Deferred {
    Lock(LockRequest),
    Get(LockQuery),
}

impl Deferred {
    fn kind(&self) -> LockKind {
        match self {
            Self::Lock(request) => request.owner.kind,
            Self::Get(query) => query.owner.kind,
        }
    }
}

impl Locks {
    /// `grace`: see [`Self::end_grace`].
    #[must_use]
    pub fn new(limits: LockLimits, grace: bool) -> Self {
        Self { limits, grace, ..Self::default() }
    }

    /// Milliseconds of any clock that never steps back.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.ends.live_from(now_ms);
    }

    /// Locks a range, also where the owner holds a part of it, in whatever mode. `None`: it waits, and its answer comes
    /// under `ticket`. Asked again under a ticket that waits, it keeps its place.
    ///
    /// A `flock` lock is converted as Linux does it: in one moment where nobody else holds what is in the way, whoever waits;
    /// else the old one is given up first, also where the new one is refused.
    pub fn lock(&mut self, ticket: Ticket, request: LockRequest) -> Option<LockAnswer> {
        if self.waiting.contains_key(&ticket) {
            return None;
        }
        let LockRequest { inode, owner, wanted, .. } = request;
        let key = (inode, owner.kind);
        if let Some(held) = self.files.get(&key).and_then(|file| file.of(owner)) {
            if held.is(wanted.range, wanted.mode) {
                return Some(LockAnswer::Done);
            }
            if self.grace && held.covers(wanted.range, wanted.mode) {
                return self.lock_now(ticket, request);
            }
        }
        if self.is_grace_for(owner.kind) {
            return self.defer(ticket, inode, Deferred::Lock(request));
        }
        if owner.kind == LockKind::Flock {
            if self.files.get(&key).is_some_and(|file| file.of(owner).is_some() && !file.is_held(owner, wanted)) {
                self.grant(key, owner, wanted);
                self.promote(key);
                return Some(LockAnswer::Done);
            }
            self.unlock(inode, owner, LockRange::ALL);
        }
        self.lock_now(ticket, request)
    }

    fn lock_now(&mut self, ticket: Ticket, request: LockRequest) -> Option<LockAnswer> {
        let LockRequest { inode, owner, wanted, wait } = request;
        let key = (inode, owner.kind);
        // A piece of another mode splits one into three. Ends are as few as write intents, which have a bound.
        if owner.kind != LockKind::End
            && self.sessions.get(&owner.session).is_some_and(|of| of.pieces + 2 > self.limits.pieces_per_session)
        {
            return Some(LockAnswer::Refused(Errno::ENOLCK));
        }
        let passes = wait == Wait::No || may_pass(&self.pieces, owner);
        let file = self.files.entry(key).or_default();
        let held = file.is_held(owner, wanted);
        if !held && (passes || !file.queue.is_before(owner, wanted)) {
            self.grant(key, owner, wanted);
            self.promote(key);
            return Some(LockAnswer::Done);
        }
        let refused = match wait {
            Wait::No => Some(Errno::EAGAIN),
            Wait::UnlessDeadlock if self.closes_a_cycle(key, owner, wanted) => Some(Errno::EDEADLK),
            Wait::Yes | Wait::UnlessDeadlock => (!self.may_wait(ticket)).then_some(Errno::ENOLCK),
        };
        if let Some(errno) = refused {
            self.tidy(key);
            return Some(LockAnswer::Refused(errno));
        }
        let waiter = Waiter::new(ticket, owner, wanted, wait == Wait::UnlessDeadlock, (!held).then_some(self.now_ms));
        self.files.entry(key).or_default().queue.push(waiter);
        self.waits.entry(owner).or_default().insert(ticket);
        self.queued.insert(key);
        self.remember(ticket, Place::Queue(key));
        self.want_end(key);
        None
    }

    /// Gives up what the owner holds of a range; nothing held is no error.
    pub fn unlock(&mut self, inode: InodeId, owner: LockOwner, range: LockRange) {
        let key = (inode, owner.kind);
        if self.clear(key, owner, range) {
            self.promote(key);
        }
    }

    /// False where nothing of the range was held. Nobody goes on yet.
    fn clear(&mut self, key: FileKey, owner: LockOwner, range: LockRange) -> bool {
        let Some(file) = self.files.get_mut(&key) else { return false };
        let before = file.pieces(owner);
        let cleared = file.clear(owner, range);
        if cleared {
            let after = file.pieces(owner);
            self.count(key, owner, before, after);
        }
        cleared
    }

    /// Who would be in the way of a lock. `None`: the answer comes later.
    pub fn get(&mut self, ticket: Ticket, query: LockQuery) -> Option<LockAnswer> {
        if self.waiting.contains_key(&ticket) {
            return None;
        }
        let LockQuery { inode, owner, range, mode } = query;
        let held = self.holder(inode, owner, range, mode);
        if self.grace && held.is_none() {
            return self.defer(ticket, inode, Deferred::Get(query));
        }
        Some(LockAnswer::Holder(held))
    }

    fn holder(&self, inode: InodeId, owner: LockOwner, range: LockRange, mode: LockMode) -> Option<Holder> {
        self.files.get(&(inode, owner.kind))?.holder(owner, range, mode)
    }

    /// Ends a wait: the request is answered with `EINTR`. One that is answered already stays answered.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.refuse(&[ticket], Errno::EINTR);
    }

    /// The session has no handle of the file any more: what it holds of it is free, and its requests are refused.
    pub fn release_file(&mut self, session: SessionId, inode: InodeId) {
        let Some(of) = self.sessions.get(&session) else { return };
        let waits = |ticket: &&Ticket| self.waiting.get(ticket).is_some_and(|place| place.inode() == inode);
        let tickets: Vec<Ticket> = of.tickets.iter().filter(waits).copied().collect();
        self.refuse(&tickets, Errno::EBADF);
        let of = self.sessions.get(&session);
        let held = |key: &FileKey| of.is_some_and(|of| of.files.contains(key));
        let kinds = [LockKind::Posix, LockKind::Flock, LockKind::End];
        let keys = kinds.map(|kind| (inode, kind)).into_iter().filter(held).collect();
        self.release_keys(session, &keys);
    }

    /// The session is over: what it holds is free, and its requests are refused.
    pub fn release_session(&mut self, session: SessionId) {
        let Some(of) = self.sessions.get(&session) else { return };
        let (tickets, files) = (of.tickets.iter().copied().collect::<Vec<_>>(), of.files.clone());
        for &key in files.iter().filter(|(_, kind)| *kind != LockKind::End) {
            let Some(file) = self.files.get(&key) else { continue };
            for owner in file.owners(session) {
                file.of(owner).into_iter().for_each(|held| self.forfeits.note(key, owner, held.clone()));
            }
        }
        self.refuse(&tickets, Errno::ENOTCONN);
        self.release_keys(session, &files);
        self.ends.forget(session);
        self.sessions.remove(&session);
    }

    /// All owners' locks go before anybody goes on: one that is about to go must make no circle of waits.
    fn release_keys(&mut self, session: SessionId, keys: &BTreeSet<FileKey>) {
        for &key in keys {
            let owners = self.files.get(&key).map_or_else(Vec::new, |file| file.owners(session).collect());
            for owner in owners {
                self.clear(key, owner, LockRange::ALL);
            }
        }
        for &key in keys {
            self.promote(key);
        }
    }

    /// A session says what it held. False where somebody else holds it by now, or may have had it since the session ended:
    /// only without a grace can that be. (Ends are given back to who comes back: the objects tell who wrote there.)
    pub fn reclaim(&mut self, session: SessionId, lock: &HeldLock) -> bool {
        let owner = LockOwner { session, kind: lock.kind, id: lock.owner };
        let Held { range, mode, .. } = lock.held;
        let left = self.forfeits.is_left((lock.inode, lock.kind), owner, lock.held);
        if !left.unwrap_or(self.grace || lock.kind == LockKind::End) {
            return false;
        }
        let full = self.sessions.get(&session).is_some_and(|of| of.pieces >= self.limits.pieces_per_session);
        if full || self.holder(lock.inode, owner, range, mode).is_some() {
            return false;
        }
        self.grant((lock.inode, lock.kind), owner, lock.held);
        true
    }

    /// The session has said all that it held.
    pub fn has_reclaimed(&mut self, session: SessionId) {
        self.forfeits.forget(session);
    }

    /// What of it the session does not hold.
    #[must_use]
    pub fn missing(&self, session: SessionId, lock: &HeldLock) -> Vec<HeldLock> {
        let owner = LockOwner { session, kind: lock.kind, id: lock.owner };
        let Held { range, mode, .. } = lock.held;
        let held = self.files.get(&(lock.inode, lock.kind)).and_then(|file| file.of(owner));
        let missing = held.map_or_else(|| vec![range], |held| held.missing(range, mode));
        let part = |range| HeldLock { held: Held { range, ..lock.held }, ..*lock };
        missing.into_iter().map(part).collect()
    }

    /// Everybody has reclaimed what they held, or lost the right to: requests that came meanwhile are taken in turn.
    pub fn end_grace(&mut self) {
        self.grace = false;
        let deferred = std::mem::take(&mut self.deferred);
        self.go_on(deferred);
    }

    /// Takes these requests in turn.
    fn go_on(&mut self, deferred: Vec<(Ticket, Deferred)>) {
        for (ticket, deferred) in deferred {
            self.forget_ticket(ticket);
            let answer = match deferred {
                Deferred::Lock(request) => self.lock(ticket, request),
                Deferred::Get(query) => self.get(ticket, query),
            };
            self.answers.extend(answer.map(|answer| (ticket, answer)));
        }
    }

    /// Lets those go on who have only waited for others that wait, and that for too long; and those who wait for the end
    /// of a file that is not given back.
    pub fn tick(&mut self) {
        self.take_overdue_ends();
        for key in self.queued.clone() {
            self.promote(key);
        }
    }

    /// Answers to requests that waited, in the order in which they were decided.
    pub fn take_answers(&mut self) -> Vec<(Ticket, LockAnswer)> {
        std::mem::take(&mut self.answers)
    }

    /// How many requests wait. For tests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All locks that are held, each with the inode that it is on. For tests.
    pub fn held(&self) -> impl Iterator<Item = (InodeId, Holder)> {
        self.files.iter().flat_map(|(key, file)| file.all().map(|holder| (key.0, holder)))
    }

    fn defer(&mut self, ticket: Ticket, inode: InodeId, deferred: Deferred) -> Option<LockAnswer> {
        if !self.may_wait(ticket) {
            return Some(LockAnswer::Refused(Errno::ENOLCK));
        }
        self.deferred.push((ticket, deferred));
        self.remember(ticket, Place::Deferred(inode));
        None
    }

    fn may_wait(&self, ticket: Ticket) -> bool {
        self.sessions.get(&ticket.session).is_none_or(|of| of.tickets.len() < self.limits.waits_per_session)
    }

    fn grant(&mut self, key: FileKey, owner: LockOwner, wanted: Held) {
        self.forfeits.give(key, owner, wanted);
        let file = self.files.entry(key).or_default();
        let before = file.pieces(owner);
        file.set(owner, wanted);
        let after = file.pieces(owner);
        self.count(key, owner, before, after);
        self.refuse_new_cycles(key, owner);
    }

    /// Keeps account of an owner whose pieces of a file changed in number.
    fn count(&mut self, key: FileKey, owner: LockOwner, before: usize, after: usize) {
        let of = self.sessions.entry(owner.session).or_default();
        if owner.kind != LockKind::End {
            of.pieces = of.pieces + after - before;
        }
        let pieces = self.pieces.entry(owner).or_default();
        *pieces = *pieces + after - before;
        if *pieces == 0 {
            self.pieces.remove(&owner);
        }
        let file_is_held = self.files.get(&key).is_some_and(|file| file.owners(owner.session).next().is_some());
        if file_is_held {
            of.files.insert(key);
        } else {
            of.files.remove(&key);
        }
    }

    /// Grants what has become free, in the order of the queue, until nothing more can be.
    fn promote(&mut self, key: FileKey) {
        while let Some(file) = self.files.get_mut(&key) {
            let (now_ms, pieces) = (self.now_ms, &self.pieces);
            let Some(waiter) = file.next(now_ms, |owner| may_pass(pieces, owner)) else { break };
            let had_it = file.of(waiter.owner).is_some();
            self.forget(&waiter);
            if !had_it {
                self.ends.changes_hands(key);
            }
            self.answers.push((waiter.ticket, LockAnswer::Done));
            self.grant(key, waiter.owner, waiter.wanted);
        }
        self.want_end(key);
        self.tidy(key);
    }

    /// Takes requests out of where they wait, and answers them; only then others may go on, and none of these.
    fn refuse(&mut self, tickets: &[Ticket], errno: Errno) {
        let mut keys = BTreeSet::new();
        for &ticket in tickets {
            match self.waiting.get(&ticket) {
                None => continue,
                Some(Place::Deferred(_)) => {
                    self.deferred.retain(|(other, _)| *other != ticket);
                    self.forget_ticket(ticket);
                }
                Some(&Place::Queue(key)) => {
                    let waiter = self.files.get_mut(&key).and_then(|file| file.queue.remove(ticket));
                    if let Some(waiter) = waiter {
                        self.forget(&waiter);
                    }
                    keys.insert(key);
                }
            }
            self.answers.push((ticket, LockAnswer::Refused(errno)));
        }
        for key in keys {
            self.promote(key);
        }
    }

    fn remember(&mut self, ticket: Ticket, place: Place) {
        self.waiting.insert(ticket, place);
        self.sessions.entry(ticket.session).or_default().tickets.insert(ticket);
    }

    /// The waiter is out of its queue.
    fn forget(&mut self, waiter: &Waiter) {
        if let Some(tickets) = self.waits.get_mut(&waiter.owner) {
            tickets.remove(&waiter.ticket);
            if tickets.is_empty() {
                self.waits.remove(&waiter.owner);
            }
        }
        self.forget_ticket(waiter.ticket);
    }

    fn forget_ticket(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        if let Some(of) = self.sessions.get_mut(&ticket.session) {
            of.tickets.remove(&ticket);
        }
    }

    /// Forgets a file that nobody holds or waits for.
    fn tidy(&mut self, key: FileKey) {
        let Some(file) = self.files.get(&key) else { return };
        if file.queue.is_empty() {
            self.queued.remove(&key);
            if file.is_free() {
                self.files.remove(&key);
            }
        }
    }
}

/// It holds something already, so that others wait for it. The end of one file is nothing that the end of another has to
/// wait for.
fn may_pass(pieces: &BTreeMap<LockOwner, usize>, owner: LockOwner) -> bool {
    owner.kind != LockKind::End && pieces.contains_key(&owner)
}
