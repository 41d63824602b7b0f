//! Leases: which session may keep what it was told, and taking that back before it changes.
//!
//! A lease covers one *name* in a directory (what it stands for, or that it is absent) or one *inode* (its attributes
//! and data). It is given with an answer, for a term; its holder may believe the answer until the term is over or the
//! lease is recalled. Whoever changes something first takes back what others hold of it: the change waits until each
//! of them has acknowledged its recall, or its term is over. Holders are told apart by session; nobody's own lease is
//! in its own way.
//!
//! Terms make a silent holder harmless without anybody's word for it, and bound the memory: a lease that nobody renews
//! is forgotten. After a change, nobody gets a lease on the same thing for a while (`COOLING_MS`), so that what several
//! clients change again and again costs no recalls.
//!
//! Gray and Cheriton, "Leases" (1989), with recalls as in `AFS`.

use std::collections::{BTreeMap, BTreeSet};

use types::id::{InodeId, SessionId};
use types::name::Name;

use crate::leases::table::Table;
use types::name_hash::name_hash;

mod table;

/// After a recall, nobody gets a lease on the same thing for so long.
const COOLING_MS: u64 = 1000;

/// Leases on names of a directory are not given for so long after all of them are over, and who waited for that was told: it
/// comes back soon.
const SILENCE_MS: u64 = 10_000;

/// Recalls that a session is told of at once: with the longest names they still fit a reply. It asks again when it has obeyed.
const TOLD_AT_ONCE: usize = 2048;

/// While so many recalls are out, no more names and directories are recalled from those who may hold them since before a
/// restart: with many sessions that is one of each, for each name that is changed. Their term is waited for instead.
const RECALLS_MAX: usize = 1 << 18;

/// Where so many sessions or fewer have not given something back, it is looked each time one does how long the terms of those
/// that are left go on.
const FEW: usize = 16;

/// What a lease covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Subject {
    inode: InodeId,
    /// The hash of a name in the directory `inode`; 0 is the inode itself. Names of one hash share their leases.
    name: u64,
}

impl Subject {
    pub(crate) fn inode(inode: InodeId) -> Self {
        Self { inode, name: 0 }
    }

    pub(crate) fn name(parent: InodeId, name: &Name) -> Self {
        Self { inode: parent, name: name_hash(name) }
    }
}

/// Something that an operation is about to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touched<'a> {
    pub(crate) inode: InodeId,
    /// The name in the directory `inode`, or the inode itself.
    pub(crate) name: Option<&'a Name>,
    /// Who holds a lease on it may keep back what was done to it, and tells that when it is recalled.
    may_be_kept_back: bool,
}

impl<'a> Touched<'a> {
    pub(crate) fn inode(inode: InodeId) -> Self {
        Self { inode, name: None, may_be_kept_back: true }
    }

    /// As [`Self::inode`], of one that is known to be a directory.
    pub(crate) fn directory(inode: InodeId) -> Self {
        Self { inode, name: None, may_be_kept_back: false }
    }

    pub(crate) fn name(parent: InodeId, name: &'a Name) -> Self {
        Self { inode: parent, name: Some(name), may_be_kept_back: false }
    }

    fn subject(&self) -> Subject {
        match self.name {
            None => Subject::inode(self.inode),
            Some(name) => Subject::name(self.inode, name),
        }
    }
}

/// A lease that its holder has to give back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recall {
    /// To acknowledge it by.
    pub id: u64,
    pub inode: InodeId,
    /// The name in the directory `inode`; `None`: the inode's own attributes and data.
    pub name: Option<Name>,
}

impl Recall {
    fn subject(&self) -> Subject {
        self.name.as_ref().map_or(Subject::inode(self.inode), |name| Subject::name(self.inode, name))
    }
}

/// How much of the room for leases one may be given out of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Whole,
    /// For what lies in a directory that is listed, and nobody has asked for: the last quarter is for others.
    ForListings,
}

/// What a change waits for that was refused; by default what is no lease: contents to be moved, or names that are told no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Awaited(Option<Subject>);

/// What earlier incarnations have left.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// Sessions that may hold anything: nobody remembers what.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// The longest term for which any of it was given.
    pub(crate) term_ms: u64,
}

/// All leases of a shard.
#[derive(Debug)]
pub(crate) struct Leases {
    table: Table,
    /// Zero: there are no leases.
    term_ms: u64,
    now_ms: u64,
    /// Sessions that hear recalls: only these get leases.
    listening: BTreeSet<SessionId>,
    /// Those that have ceased to, or may have before a restart: they are given nothing, but other shards may still know that
    /// they hold something.
    quiet: BTreeSet<SessionId>,
    /// Sessions that have ended, until the terms of all that they held are over.
    gone: BTreeMap<SessionId, u64>,
    next_id: u64,
    /// What is being taken back, until when at most, and from whom it is still out.
    recalled: BTreeMap<Subject, Pending>,
    /// Each session's recalls that it has not acknowledged.
    out: BTreeMap<SessionId, BTreeMap<u64, Recall>>,
    /// Sessions with new recalls.
    alerts: BTreeSet<SessionId>,
    presumed: Option<Presumed>,
    /// Directories on whose names no leases are given.
    silent: BTreeMap<InodeId, Silence>,
    /// Of the last change that was refused.
    awaited: Awaited,
    /// What changes may wait for, and that has ended.
    ended: Vec<Awaited>,
}

#[derive(Debug)]
struct Silence {
    /// From then on nobody holds anything.
    free_ms: u64,
    /// When who waits for that was told.
    told_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The end of the longest term; where many hold it, perhaps of one that has given it back.
    until_ms: u64,
    holders: BTreeMap<SessionId, Out>,
    /// The end of the shortest term of a holder, or before that.
    first_ms: Option<u64>,
    /// Others may hold it who are not asked: it ends with their term.
    waits_for_term: bool,
    asked: Asked,
}

/// A recall that is out.
#[derive(Debug)]
struct Out {
    id: u64,
    /// The end of the holder's term.
    until_ms: u64,
}

/// Who is asked to give something back, of those who may hold it.
#[derive(Clone, Copy, Default, Debug)]
enum Asked {
    #[default]
    Nobody,
    /// Who wants to change it need not be.
    AllBut(SessionId),
    All,
}

impl Pending {
    /// All others were asked for the sake of `session`, and some have not given it back.
    fn keeps_waiting(&self, session: SessionId) -> bool {
        let are_asked = match self.asked {
            Asked::Nobody => false,
            Asked::AllBut(one) => one == session,
            Asked::All => true,
        };
        are_asked && (self.waits_for_term || self.holders.keys().any(|holder| *holder != session))
    }

    /// Who has given it back is not waited for. `presumed_ms`: the term of those who are not asked.
    fn shorten(&mut self, presumed_ms: u64) {
        if self.holders.len() <= FEW {
            let presumed_ms = if self.waits_for_term { presumed_ms } else { 0 };
            self.until_ms = self.holders.values().map(|out| out.until_ms).fold(presumed_ms, u64::max);
        }
    }

    fn are_asked_for(&mut self, session: SessionId) {
        self.asked = match self.asked {
            Asked::Nobody => Asked::AllBut(session),
            Asked::AllBut(one) if one == session => self.asked,
            Asked::AllBut(_) | Asked::All => Asked::All,
        };
    }
}

/// After a restart: sessions that may hold anything.
#[derive(Debug)]
struct Presumed {
    until_ms: u64,
    sessions: BTreeSet<SessionId>,
    /// What they have given back since.
    given_back: BTreeSet<(Subject, SessionId)>,
}

impl Leases {
    /// `first_id`: above those of all recalls of earlier incarnations, which may still be acknowledged.
    pub(crate) fn new(term_ms: u64, capacity: usize, before: Before, first_id: u64, now_ms: u64) -> Self {
        let until_ms = now_ms.saturating_add(before.term_ms);
        let known = before.term_ms > 0 && !before.sessions.is_empty();
        let quiet = before.sessions.clone();
        Self {
            table: Table::new(term_ms, capacity, now_ms),
            term_ms,
            now_ms,
            listening: BTreeSet::new(),
            quiet,
            gone: BTreeMap::new(),
            next_id: first_id,
            recalled: BTreeMap::new(),
            out: BTreeMap::new(),
            alerts: BTreeSet::new(),
            presumed: known.then(|| Presumed { until_ms, sessions: before.sessions, given_back: BTreeSet::new() }),
            silent: BTreeMap::new(),
            awaited: Awaited::default(),
            ended: Vec::new(),
        }
    }

    /// The time for all that follows. It never steps back.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.table.advance(now_ms);
        if self.presumed.as_ref().is_some_and(|presumed| now_ms >= presumed.until_ms) {
            self.presumed = None;
            self.end_waits_for_term();
        }
        self.gone.retain(|_, until_ms| now_ms < *until_ms);
        // From when they were told, who may be late where the shard stood still: without a silence they would wait for another.
        self.silent.retain(|_, silence| silence.told_ms.is_none_or(|told| now_ms < told.saturating_add(SILENCE_MS)));
        for silence in self.silent.values_mut().filter(|silence| now_ms >= silence.free_ms && silence.told_ms.is_none())
        {
            silence.told_ms = Some(now_ms);
            self.ended.push(Awaited::default());
        }
        if self.recalled.values().any(|pending| now_ms >= pending.until_ms) {
            let overdue: Vec<_> =
                self.recalled.iter().filter(|(_, pending)| now_ms >= pending.until_ms).map(|(s, _)| *s).collect();
            for subject in overdue {
                self.end_recall(subject);
            }
        }
        let is_over =
            |pending: &Pending| pending.holders.len() <= FEW && pending.first_ms.is_some_and(|ms| now_ms >= ms);
        let partly: Vec<_> = self.recalled.iter().filter(|(_, pending)| is_over(pending)).map(|(s, _)| *s).collect();
        for subject in partly {
            self.forget_overdue(subject);
        }
    }

    /// Holders whose terms are over are not waited for, and who waits for nobody else hears of it.
    fn forget_overdue(&mut self, subject: Subject) {
        let Some(pending) = self.recalled.get_mut(&subject) else { return };
        let over: Vec<_> = pending.holders.extract_if(.., |_, out| out.until_ms <= self.now_ms).collect();
        pending.first_ms = pending.holders.values().map(|out| out.until_ms).min();
        let is_any = !over.is_empty();
        for (holder, out) in over {
            self.withdraw(subject, holder, &out);
        }
        if is_any {
            self.fewer_hold(subject);
        }
    }

    /// Who may hold what since before a restart, and was not asked, holds nothing any more.
    fn end_waits_for_term(&mut self) {
        for (subject, pending) in self.recalled.iter_mut().filter(|(_, pending)| pending.waits_for_term) {
            pending.waits_for_term = false;
            pending.shorten(0);
            // As in `gave_back`, of those who hold it still. Where nobody does it is over.
            if !pending.holders.is_empty() {
                self.ended.push(Awaited(Some(*subject)));
            }
        }
    }

    /// The session hears recalls from now on, or not any more. What it holds it keeps for its term.
    pub(crate) fn listen(&mut self, session: SessionId, listens: bool) {
        if listens {
            self.gone.remove(&session);
            self.quiet.remove(&session);
            self.listening.insert(session);
        } else if self.listening.remove(&session) {
            self.quiet.insert(session);
        }
    }

    /// Who never listens is given nothing, here or by another shard.
    fn may_hold(&self, session: SessionId) -> bool {
        self.listening.contains(&session) || self.quiet.contains(&session)
    }

    /// The session has ended, and caches nothing any more.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.listening.remove(&session);
        self.quiet.remove(&session);
        self.out.remove(&session);
        self.alerts.remove(&session);
        if let Some(presumed) = &mut self.presumed {
            presumed.sessions.remove(&session);
        }
        let waiting: Vec<_> = self
            .recalled
            .iter()
            .filter(|(_, pending)| pending.holders.contains_key(&session))
            .map(|(subject, _)| *subject)
            .collect();
        for subject in waiting {
            self.gave_back(subject, session);
        }
        self.gone.insert(session, self.latest_ms());
    }

    /// What anybody holds now is over by then.
    fn latest_ms(&self) -> u64 {
        self.now_ms.saturating_add(self.term_ms).max(self.presumed_ms())
    }

    /// What is presumed is over by then.
    fn presumed_ms(&self) -> u64 {
        self.presumed.as_ref().map_or(0, |presumed| presumed.until_ms)
    }

    /// Leases are given, or an earlier incarnation has given some.
    fn may_be_any(&self) -> bool {
        self.term_ms > 0 || self.presumed.is_some()
    }

    /// Gives `session` a lease with the answer at hand: its term in milliseconds, or 0 where it gets none.
    pub(crate) fn grant(&mut self, session: SessionId, subject: Subject) -> u32 {
        self.grant_of(session, subject, Room::Whole)
    }

    /// As [`Self::grant`], out of a part of the room.
    pub(crate) fn grant_of(&mut self, session: SessionId, subject: Subject, room: Room) -> u32 {
        let is_silent = subject.name != 0 && !self.silent.is_empty() && self.silent.contains_key(&subject.inode);
        let refused = is_silent
            || self.term_ms == 0
            || !self.listening.contains(&session)
            || self.recalled.contains_key(&subject);
        if refused || !self.table.grant(subject, session, room, self.now_ms) {
            return 0;
        }
        u32::try_from(self.term_ms).unwrap_or(u32::MAX)
    }

    /// A lease that `session` still holds goes on for another term: its milliseconds, or 0 where it holds none, or is to give
    /// it back.
    pub(crate) fn renew(&mut self, session: SessionId, subject: Subject) -> u32 {
        match self.table.held_until(subject, session, self.now_ms) {
            Some(_) => self.grant(session, subject),
            None => 0,
        }
    }

    /// Whether nobody holds a lease on any name of this directory, also on those that are not there. Where that is not known,
    /// none is given from now on, and it is known when those that there may be are over: [`Leases::take_ended`] says so.
    pub(crate) fn are_names_free(&mut self, directory: InodeId) -> bool {
        if self.are_none() {
            return true;
        }
        let free_ms = self.latest_ms();
        let silence = self.silent.entry(directory).or_insert(Silence { free_ms, told_ms: None });
        self.awaited = Awaited::default();
        self.now_ms >= silence.free_ms
    }

    /// Nobody holds anything.
    pub(crate) fn are_none(&self) -> bool {
        self.table.is_empty() && self.presumed.is_none()
    }

    /// After a restart: somebody may hold what nobody remembers.
    pub(crate) fn presume(&self) -> bool {
        self.presumed.is_some()
    }

    /// Whether `session` may change all of `touched` now. False: others hold leases on some of it, which are now being
    /// recalled; try again when [`Leases::take_ended`] says that [`Leases::awaited`] has ended.
    pub(crate) fn may_change<'a>(
        &mut self,
        session: SessionId,
        touched: impl IntoIterator<Item = &'a Touched<'a>>,
    ) -> bool {
        if self.are_none() {
            return true;
        }
        let mut may = true;
        for one in touched {
            if !self.take_back(session, one) {
                self.awaited = Awaited(Some(one.subject()));
                may = false;
            }
        }
        may
    }

    fn take_back(&mut self, session: SessionId, touched: &Touched<'_>) -> bool {
        let subject = touched.subject();
        // They may be all sessions that there are, and as many may want to change it: not to be gone through at each attempt.
        if self.recalled.get(&subject).is_some_and(|pending| pending.keeps_waiting(session)) {
            return false;
        }
        let mut holders = self.table.holders(subject, session, self.now_ms);
        holders.retain(|holder, _| !self.gone.contains_key(holder));
        let waits_for_term = self.add_presumed(session, touched, &mut holders);
        if holders.is_empty() && waits_for_term.is_none() {
            return true;
        }
        let pending = self.recalled.entry(subject).or_default();
        pending.are_asked_for(session);
        pending.waits_for_term |= waits_for_term.is_some();
        pending.until_ms = pending.until_ms.max(waits_for_term.unwrap_or(0));
        for (holder, until_ms) in holders {
            pending.until_ms = pending.until_ms.max(until_ms);
            pending.first_ms = Some(pending.first_ms.map_or(until_ms, |first_ms| first_ms.min(until_ms)));
            if let Some(out) = pending.holders.get_mut(&holder) {
                out.until_ms = out.until_ms.max(until_ms);
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            pending.holders.insert(holder, Out { id, until_ms });
            let recall = Recall { id, inode: touched.inode, name: touched.name.cloned() };
            self.out.entry(holder).or_default().insert(id, recall);
            self.alerts.insert(holder);
        }
        false
    }

    /// Others than `session` who may hold it since before a restart. Where there are too many recalls already, nobody is added,
    /// but when their term is over. What is kept back of files is told when an inode is recalled: never so of these.
    fn add_presumed(
        &self,
        session: SessionId,
        touched: &Touched<'_>,
        holders: &mut BTreeMap<SessionId, u64>,
    ) -> Option<u64> {
        let presumed = self.presumed.as_ref()?;
        let subject = touched.subject();
        let others = presumed.sessions.iter().filter(|&&other| other != session);
        let mut others = others.filter(|&&other| !presumed.given_back.contains(&(subject, other)));
        if !touched.may_be_kept_back && self.out.values().map(BTreeMap::len).sum::<usize>() >= RECALLS_MAX {
            return others.next().map(|_| presumed.until_ms);
        }
        for &other in others {
            // It may have got another one since.
            let until_ms = holders.entry(other).or_insert(0);
            *until_ms = presumed.until_ms.max(*until_ms);
        }
        None
    }

    /// `session` has moved what `from` stands for to the name `to`. Its kernel moves what it keeps of the old name along
    /// with the term of that, without asking again.
    pub(crate) fn carry(&mut self, session: SessionId, from: Subject, to: Subject) {
        let presumed = self.presumed.as_ref().filter(|presumed| presumed.sessions.contains(&session));
        let unknown = presumed.map(|presumed| presumed.until_ms);
        let known = self.table.held_until(from, session, self.now_ms);
        if let Some(until_ms) = known.max(unknown) {
            self.holds(session, to, until_ms);
        }
    }

    /// `session` has moved something to the name `to`, under whose old name another shard knows what leases there were.
    /// None of those ends later than one that is given now; and who obeys recalls listens to all shards.
    pub(crate) fn arrived(&mut self, session: SessionId, to: Subject) {
        if self.may_be_any() && self.may_hold(session) {
            self.holds(session, to, self.latest_ms());
        }
    }

    /// The session has to hear that it may believe nothing of this any more, whatever it has been granted.
    pub(crate) fn presume_of(&mut self, session: SessionId, subject: Subject) {
        if self.may_be_any() && self.listening.contains(&session) {
            self.holds(session, subject, self.latest_ms());
        }
    }

    /// What is so already, without having been granted.
    fn holds(&mut self, session: SessionId, to: Subject, until_ms: u64) {
        let until_ms = self.table.held_until(to, session, self.now_ms).map_or(until_ms, |held| held.max(until_ms));
        self.table.note(to, session, until_ms);
        // Where terms were longer before, the table forgets it sooner than that: what is presumed is not forgotten.
        if let Some(presumed) = &mut self.presumed {
            presumed.given_back.remove(&(to, session));
        }
        let Some(pending) = self.recalled.get_mut(&to) else { return };
        let (Some(held), Some(out)) = (pending.holders.get_mut(&session), self.out.get_mut(&session)) else {
            // It has not been asked: whoever tries next finds it. Those who wait try as well: who is not known to wait is not
            // told when it alone is left.
            if !matches!(std::mem::take(&mut pending.asked), Asked::Nobody) {
                self.ended.push(Awaited(Some(to)));
            }
            return;
        };
        // A recall of the name on its way may be obeyed before the kernel moves: it goes out once more.
        if let Some(recall) = out.remove(&held.id) {
            *held = Out { id: self.next_id, until_ms: held.until_ms.max(until_ms) };
            self.next_id += 1;
            out.insert(held.id, Recall { id: held.id, ..recall });
            pending.until_ms = pending.until_ms.max(until_ms);
            self.alerts.insert(session);
        }
    }

    /// The session caches nothing any more of what these recalls named. Unknown ones are passed over.
    pub(crate) fn acknowledge(&mut self, session: SessionId, ids: &[u64]) {
        for id in ids {
            let Some(recall) = self.out.get_mut(&session).and_then(|out| out.remove(id)) else { continue };
            let subject = recall.subject();
            self.table.release(subject, session);
            if let Some(presumed) = &mut self.presumed
                && presumed.sessions.contains(&session)
            {
                presumed.given_back.insert((subject, session));
            }
            self.gave_back(subject, session);
        }
        if self.out.get(&session).is_some_and(BTreeMap::is_empty) {
            self.out.remove(&session);
        }
    }

    /// The recalls that the session has not acknowledged, oldest first, or as many of them as it is told of at once.
    pub(crate) fn unacknowledged(&mut self, session: SessionId) -> Vec<Recall> {
        self.alerts.remove(&session);
        self.out.get(&session).map_or_else(Vec::new, |out| out.values().take(TOLD_AT_ONCE).cloned().collect())
    }

    /// A session with recalls that it has not been told of.
    pub(crate) fn next_alert(&mut self) -> Option<SessionId> {
        self.alerts.pop_first()
    }

    /// What the change waits for that was just refused.
    pub(crate) fn awaited(&self) -> Awaited {
        self.awaited
    }

    /// What has ended since the last call: what waited for it may try again.
    pub(crate) fn take_ended(&mut self) -> Vec<Awaited> {
        std::mem::take(&mut self.ended)
    }

    fn gave_back(&mut self, subject: Subject, session: SessionId) {
        if let Some(pending) = self.recalled.get_mut(&subject) {
            pending.holders.remove(&session);
            self.fewer_hold(subject);
        }
    }

    fn fewer_hold(&mut self, subject: Subject) {
        let presumed_ms = self.presumed_ms();
        let Some(pending) = self.recalled.get_mut(&subject) else { return };
        pending.shorten(presumed_ms);
        match (pending.holders.len(), pending.asked) {
            _ if pending.waits_for_term => {}
            // Nobody is left, or nobody whose term is not over.
            _ if pending.until_ms <= self.now_ms => self.end_recall(subject),
            // It may want to change it itself, and then has nothing to wait for any more.
            (1, Asked::All) => self.ended.push(Awaited(Some(subject))),
            _ => {}
        }
    }

    /// Everybody has given it back, or their terms are over.
    fn end_recall(&mut self, subject: Subject) {
        let Some(pending) = self.recalled.remove(&subject) else { return };
        for (holder, out) in pending.holders {
            self.withdraw(subject, holder, &out);
        }
        self.table.cool(subject, self.now_ms.saturating_add(COOLING_MS));
        self.ended.push(Awaited(Some(subject)));
    }

    /// The holder need not give it back any more.
    fn withdraw(&mut self, subject: Subject, holder: SessionId, recall: &Out) {
        self.table.release(subject, holder);
        if let Some(out) = self.out.get_mut(&holder) {
            out.remove(&recall.id);
            if out.is_empty() {
                self.out.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests;
