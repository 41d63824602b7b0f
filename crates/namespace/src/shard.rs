//! A shard: the namespace, and the sessions that use it.
//!
//! How to drive it: `begin_turn(now)`, then `touch` and operations in the order of their arrival, now and then `tick`,
//! then `commit`; send the answers (the refusals too: they may rest on changes of the same turn) only when it returned
//! `Ok`. Where `commit` fails, the turn is forgotten: each of its requests that has changed something is answered with
//! `store_errno`, and all others, whatever they returned, ask again. Nothing else is lost then, and the shard goes on. After
//! each turn `take_outgoing` has messages for other shards, and `take_ended` says which requests that were `Blocked` are to be
//! asked again: see `transaction`.

use std::collections::BTreeMap;

use kv::{Kv, KvError};
use types::attr::FileType;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::layout::Layout;
use types::name::Name;
use types::time::Timestamp;

use crate::error::{Error, Result};
use crate::leases::{Leases, Room};
use crate::locks::Locks;
use crate::namespace::{CountsRecord, Namespace};
use crate::ops::remove::Fate;
use crate::schema::inode::{HAS_CAPABILITY, HAS_OBJECTS, HAS_XATTRS, Inode, Role, UNSETTLED};
use crate::schema::session::Outcome;
use crate::schema::{orphan, session};
use crate::shard::ending::{AT_ONCE, Ending};
use crate::shard::foresight::Foresight;
use crate::shard::holds::{Holds, Told};
use crate::shard::inline::Growing;
use crate::shard::replies::Replies;
use crate::shard::splitting::Splitting;
use crate::shard::unwritten::Unwritten;
use crate::transaction::Transactions;
use crate::view::{DirectoryView, Exactly, InodeView, PoolSpace, Standing};

pub use crate::config::{Config, Limits};

pub(crate) mod changes;
mod drafts;
mod ending;
mod foresight;
mod given;
pub(crate) mod holds;
pub mod inline;
mod load;
mod locking;
mod parts;
mod presence;
mod reads;
mod replies;
mod splitting;
mod terms;
mod unnamed;
mod unwritten;
mod walk;
mod yielding;

/// What `tick` did, for the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticked {
    /// Sessions that were not heard of for too long and ended.
    pub expired: Vec<SessionId>,
    /// Those that are to end as well, or to lose what they have not told of, but may yet write objects: what they have
    /// asked for there is to be ended first, then [`Shard::session_fenced`] called.
    pub to_fence: Vec<SessionId>,
    /// The time after a restart in which sessions reclaim what they held is over.
    pub grace_ended: bool,
    /// Why something that was due could not be done.
    pub failed: Vec<Error>,
}

/// Stands for the sessions that have not yet said, after a restart, what they hold; and for transactions that have promised
/// a name to a file without one.
const ABSENT: SessionId = SessionId(0);

/// One metadata shard. See the module for how to drive it.
pub struct Shard<K: Kv> {
    pub(crate) namespace: Namespace<K>,
    pub(crate) config: Config,
    /// All that are known; of these, the store has a record, or will have with this turn.
    sessions: BTreeMap<SessionId, Session>,
    pub(crate) holds: Holds,
    growing: Growing,
    ending: Ending,
    unwritten: Unwritten,
    leases: Leases,
    locks: Locks,
    pub(crate) transactions: Transactions,
    pub(crate) splitting: Splitting,
    /// Of the latest session; above that of all earlier incarnations.
    birth: u64,
    /// Of earlier births something may be lost that they were answered and no sync had covered.
    kept_since: u64,
    /// Standings told, above those of all earlier incarnations.
    told: u64,
    pub(crate) mono_ms: u64,
    /// After a restart: until then sessions may reclaim what they hold, and a last unlink makes an orphan of `ABSENT`.
    pub(crate) grace_until_ms: Option<u64>,
    /// Some session had not come back, or not told what it holds, when that was over.
    has_late: bool,
    /// From when on nothing is left of longer terms that earlier incarnations have told: see `terms`.
    terms_over_ms: Option<u64>,
    turn: Turn,
    foresight: Foresight,
    /// For one record at a time.
    pub(crate) key: Vec<u8>,
    value: Vec<u8>,
}

/// One client.
struct Session {
    last_seen_ms: u64,
    /// So long it may count on what an earlier incarnation has told it of its expiry.
    assured_until_ms: u64,
    /// Told the client as the shard's incarnation: another one says that the shard does not know what it held.
    birth: u64,
    stage: Stage,
    /// It has said which locks it held before this birth: no second telling counts, which may be older. Apart from
    /// [`Stage::Told`], since locks stay as they are where a commit fails.
    has_told_locks: bool,
    /// It was there before a restart of the shard, and has not ended since: what it says it held is its own.
    reclaims: bool,
    /// Its client has left, and something that it had asked of objects may still be on its way: it ends as if it were overdue.
    closing: bool,
    /// It is overdue, or late with what it holds, and what it may yet do to objects is being ended.
    fencing: bool,
    /// That was done since the grace was due to end. It asks nothing more of objects before it has told: no shard assures it
    /// of its session until then.
    fenced: bool,
    replies: Replies,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Known from the store, but not heard of since the restart.
    Known,
    /// Heard of since the restart, but it has not told all that it holds: it may still do so.
    Back,
    /// Born since.
    Open,
    /// It has told all that it held before this birth.
    Told,
    /// Over, but for some of what it held: see `ending`.
    Ending,
    /// Over with this turn's commit.
    Ended,
}

/// What this turn did to sessions.
#[derive(Default)]
struct Turn {
    replied: Vec<SessionId>,
    created: Vec<SessionId>,
    ended: Vec<SessionId>,
    /// What changed, and from what.
    stages: Vec<(SessionId, Stage)>,
}

impl Session {
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Back | Stage::Open | Stage::Told)
    }

    fn has_yet_to_tell(&self) -> bool {
        matches!(self.stage, Stage::Known | Stage::Back)
    }

    /// It has begun to end.
    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Ended)
    }

    fn is_overdue(&self, mono_ms: u64, expiry_ms: u64) -> bool {
        let until_ms = self.last_seen_ms.saturating_add(expiry_ms).max(self.assured_until_ms);
        !self.is_over() && (self.closing || mono_ms >= until_ms)
    }
}

impl<K: Kv> Shard<K> {
    /// Opens the shard in `store`; an empty store is formatted (and shard 0 gets the root directory). Commits and syncs
    /// by itself.
    /// `mono_ms` is any clock that never steps back.
    ///
    /// # Errors
    /// `Damaged` where the store has a format that this release does not know, belongs to another shard, or is damaged;
    /// `Store` where it fails.
    pub fn open(store: K, config: Config, now: Timestamp, mono_ms: u64) -> Result<Self> {
        load::load(Namespace::open(store, &config, now)?, config, mono_ms)
    }

    /// The time for all that follows until the next call: the wall clock's, and one that never steps back.
    pub fn begin_turn(&mut self, now: Timestamp, mono_ms: u64) {
        self.namespace.set_now(now);
        self.mono_ms = mono_ms;
        self.leases.advance(mono_ms);
        self.locks.set_now(mono_ms);
        self.split_what_is_busy();
        self.write_sessions();
    }

    /// What placement may choose from, whole; at each change of the map.
    pub fn set_pools(&mut self, pools: Vec<PoolSpace>) {
        self.namespace.set_pools(pools);
    }

    /// The store, for its syncer and its metrics.
    #[must_use]
    pub fn store(&self) -> &K {
        &self.namespace.kv
    }

    /// Memory that is looked at here and there all over, and that never moves: for who can ask for large pages under it.
    #[must_use]
    pub fn scattered_memory(&self) -> Vec<std::ops::Range<*const u8>> {
        let Namespace { inodes, edges, .. } = &self.namespace;
        inodes.memory().into_iter().chain(edges.memory()).collect()
    }

    /// For `millis` the shard was not run, as after a disk that hung: nobody can have been heard. To be told before the next
    /// [`Self::tick`].
    pub fn stood_still(&mut self, millis: u64) {
        if let Some(until_ms) = &mut self.grace_until_ms {
            *until_ms = until_ms.saturating_add(millis);
        }
        for session in self.sessions.values_mut() {
            session.last_seen_ms = session.last_seen_ms.saturating_add(millis).min(self.mono_ms);
            session.assured_until_ms = session.assured_until_ms.saturating_add(millis);
        }
    }

    /// Ends sessions not heard of and the grace after a restart, as the time has come. Call it a few times a second;
    /// its changes belong to the turn and need a `commit`. What cannot be done is done at the next call, and keeps nothing
    /// else from it. Of much, it does a part: see [`Self::is_ending`].
    pub fn tick(&mut self) -> Ticked {
        let mut ticked = Ticked::default();
        let mut at_once = AT_ONCE;
        let overdue = if self.takes_changes() { self.overdue() } else { Vec::new() };
        for session in overdue {
            if self.may_write_objects(session) {
                ticked.to_fence.extend(self.begin_fencing(session));
            } else {
                let count = self.holds.count(session);
                match self.end_session(session, at_once) {
                    Ok(()) if count <= at_once => {
                        at_once -= count;
                        ticked.expired.push(session);
                    }
                    Ok(()) => ticked.expired.push(session),
                    Err(error) => ticked.failed.push(error),
                }
            }
        }
        if let Some(until_ms) = self.grace_until_ms {
            if self.mono_ms >= until_ms {
                ticked.to_fence.extend(self.fence_late());
            }
            let all_back = !self.sessions.values().any(Session::has_yet_to_tell);
            let is_fencing = self.sessions.values().any(|session| session.fencing);
            if all_back || (self.mono_ms >= until_ms && !is_fencing) {
                self.grace_until_ms = None;
                ticked.grace_ended = true;
            }
        }
        if ticked.grace_ended {
            self.locks.end_grace();
            self.end_grace_of_contents();
            // Who tells only now does so too late: from here on others are told that nobody writes.
            for session in self.sessions.values_mut().filter(|session| session.has_yet_to_tell()) {
                session.reclaims = false;
                self.has_late = true;
            }
        }
        self.locks.tick();
        self.tell_participants();
        self.ask_coordinators();
        if self.takes_changes() {
            self.note_terms();
            self.resume_ending();
            ticked.failed.extend(self.go_on_ending());
        }
        ticked
    }

    /// Nothing waits for `commit`.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Turn { replied, created, ended, stages } = &self.turn;
        let turn = replied.is_empty() && created.is_empty() && ended.is_empty() && stages.is_empty();
        let parts = self.holds.is_clean() && self.growing.is_clean() && self.transactions.is_clean();
        turn && parts && self.namespace.is_clean()
    }

    /// Writes the turn's changes in one batch.
    ///
    /// # Errors
    /// Where the store refuses: none of the turn's changes happened, and no answer of it may leave. See the module.
    pub fn commit(&mut self) -> std::result::Result<(), KvError> {
        let counts = self.namespace.counts_to_store();
        let mut record = if self.turn.ended.is_empty() { CountsRecord::IfChanged } else { CountsRecord::Always };
        for id in &self.turn.replied {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            // Its records go with this turn.
            if session.stage == Stage::Ended {
                continue;
            }
            if let Some(slot) = session.replies.write(counts, &mut self.value) {
                session::ser_key(&mut self.key, *id, slot);
                self.namespace.put_blind(&self.key, &self.value);
                record = CountsRecord::Elsewhere;
            }
        }
        let committed = self.namespace.commit(record);
        match committed {
            Ok(()) => self.committed(),
            Err(_) => self.rolled_back(),
        }
        committed
    }

    fn committed(&mut self) {
        let Turn { replied, created, ended, stages } = &mut self.turn;
        for id in replied.drain(..) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.replies.committed();
            }
        }
        // What others get that a session had, here and below, cannot be taken back where a commit fails.
        for (id, _) in stages.drain(..) {
            if self.sessions.get(&id).is_some_and(Session::is_over) {
                self.leases.forget(id);
            }
        }
        for id in ended.drain(..) {
            self.sessions.remove(&id);
            self.transactions.forget_session(id);
            self.locks.release_session(id);
        }
        created.clear();
        self.unwritten.committed();
        self.holds.committed();
        self.growing.committed();
        self.transactions_committed();
    }

    fn rolled_back(&mut self) {
        let Turn { replied, created, ended, stages } = &mut self.turn;
        self.holds.rolled_back();
        self.growing.rolled_back();
        for id in replied.drain(..) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.replies.rolled_back();
            }
        }
        ended.clear();
        for (id, before) in stages.drain(..).rev() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.stage = before;
            }
        }
        for id in created.drain(..) {
            self.sessions.remove(&id);
            self.unwritten.forget(id);
            self.locks.release_session(id);
        }
        self.unwritten.rolled_back();
        self.transactions_rolled_back();
        self.begin_ending_anew();
    }

    /// The first answer where this change happened already.
    fn begin(&mut self, exactly: Exactly) -> Result<Option<Outcome>> {
        let stored_max = self.config.limits.replies_per_session;
        let session = self.sessions.get_mut(&exactly.session).filter(|session| session.is_open());
        let session = session.ok_or(Errno::ENOTCONN)?;
        let outcome = session.replies.begin(exactly.sequence, exactly.answered_below, stored_max)?;
        if !self.transactions.is_idle() {
            self.transactions.answered(exactly.session, session.replies.answered_below());
            if outcome.is_none() {
                self.under_way(exactly)?;
            }
        }
        Ok(outcome)
    }

    /// This change of the session has happened, or a transaction is about it: asked for again, it brings nothing new.
    #[must_use]
    pub fn has_begun(&self, session: SessionId, sequence: u64) -> bool {
        let happened = self.sessions.get(&session).is_some_and(|known| known.replies.has(sequence));
        happened || self.transactions.knows((session, sequence))
    }

    /// The change happened: keep its outcome with it.
    pub(crate) fn record(&mut self, exactly: Exactly, outcome: Outcome) {
        if let Some(session) = self.sessions.get_mut(&exactly.session)
            && session.replies.record(exactly.sequence, outcome)
        {
            self.turn.replied.push(exactly.session);
        }
    }

    /// What `session` is told of an inode.
    pub(crate) fn view(&self, session: SessionId, id: InodeId, inode: &Inode, layout: Option<Layout>) -> InodeView {
        let Told { exclusive, alone, draft, intents, cutting, cuts, written_after, .. } = self.holds.told(session, id);
        InodeView {
            attr: inode.attr(id),
            // Of a directory, its parts know better.
            unsettled: inode.has(UNSETTLED) || inode.is_split(),
            written_after: written_after.filter(|_| inode.has(UNSETTLED)),
            cutting,
            cuts,
            exclusive,
            // Sessions that are still to come back may have it open.
            alone: alone && self.grace_until_ms.is_none(),
            draft,
            has_objects: inode.has(HAS_OBJECTS),
            intents,
            bare: !inode.has(HAS_XATTRS),
            layout,
            elsewhere: false,
            lease_ms: 0,
            name_lease_ms: 0,
            standing: None,
            parent: None,
            inline_limit: inode.inline_limit().unwrap_or(0),
            contents: None,
            flags: inode.file_flags,
            capability: inode.has(HAS_CAPABILITY),
        }
    }

    /// As `view`, with a lease on it for the session.
    fn leased_view(&mut self, session: SessionId, id: InodeId, inode: &Inode, layout: Option<Layout>) -> InodeView {
        let mut view = self.view(session, id, inode, layout);
        self.lease_view(session, &mut view, Room::Whole);
        view
    }

    /// Leases what `session` is about to be told of an inode of this shard. While the objects know better than the inode,
    /// nobody gets one but who alone writes them: others have to ask before they write, and that takes the lease back. Of a
    /// split directory it is one on what its own record says.
    pub(crate) fn lease_view(&mut self, session: SessionId, view: &mut InodeView, room: Room) {
        let is_split = view.unsettled && view.attr.kind == FileType::Directory;
        if !view.unsettled || view.exclusive || is_split {
            view.lease_ms = self.lease_inode(session, view.attr.inode, room);
        }
    }

    /// `leased_view` of an inode that was asked for by its id, or was made.
    fn whole_view(&mut self, session: SessionId, id: InodeId, inode: &Inode, layout: Option<Layout>) -> InodeView {
        let mut view = self.leased_view(session, id, inode, layout);
        if view.lease_ms > 0 && inode.is_dir() {
            view.standing = Some(self.standing(inode));
        }
        view
    }

    /// What `session` has just made of a directory by a change in it; `None` where it gets no lease, where it is at home
    /// elsewhere, or where it cannot be read: the change has happened, whatever can be told of it.
    fn directory_view(&mut self, session: SessionId, id: InodeId) -> Option<Box<DirectoryView>> {
        // Of one that is being split, its record is not the whole truth.
        if self.is_elsewhere(id) || self.splitting.has(id) {
            return None;
        }
        let lease_ms = self.lease_inode(session, id, Room::Whole);
        if lease_ms == 0 {
            return None;
        }
        let inode = self.namespace.existing(id).ok()?;
        let (attr, standing) = (inode.attr(id), self.standing(&inode));
        Some(Box::new(DirectoryView { attr, standing, lease_ms }))
    }

    /// As of now: what is told later of the same directory has a higher order.
    fn standing(&mut self, inode: &Inode) -> Standing {
        self.told += 1;
        let has_all = matches!(inode.role(), Role::Whole | Role::Part(_));
        Standing { order: self.told, empty: inode.entries() == 0 && has_all }
    }

    /// `leased_view`, with a lease on the name that the session asked with.
    fn named_view(
        &mut self,
        session: SessionId,
        (parent, name): (InodeId, &Name),
        id: InodeId,
        inode: &Inode,
        layout: Option<Layout>,
    ) -> InodeView {
        let mut view = self.leased_view(session, id, inode, layout);
        view.name_lease_ms = self.lease_name(session, parent, name, Room::Whole);
        view
    }

    /// The layout, where every view of this inode must have it.
    fn layout_if_unsettled(&mut self, id: InodeId, inode: &Inode) -> Result<Option<Layout>> {
        if inode.has(UNSETTLED) { self.namespace.layout(id, inode) } else { Ok(None) }
    }

    /// A hold more fits into the session's bound.
    fn may_hold(&self, session: SessionId, inode: Option<InodeId>) -> Result<()> {
        let has = inode.is_some_and(|id| self.holds.has_open(session, id) || self.holds.intends(session, id));
        let full = self.holds.count(session) >= self.config.limits.opens_per_session;
        if full && !has { Err(Errno::EBUSY.into()) } else { Ok(()) }
    }

    fn hold_open(&mut self, session: SessionId, id: InodeId, inode: &Inode) {
        if self.holds.has_open(session, id) {
            return;
        }
        self.holds.open(session, id);
        if inode.nlink == 0 {
            self.holds.orphan(id);
            orphan::ser_key(&mut self.key, id, session);
            self.namespace.cold.put(&self.key, &orphan::VALUE);
        }
    }

    /// Keeps account of an inode that lost a name.
    pub(crate) fn account(&mut self, fate: Fate) {
        match fate {
            Fate::Lives => {}
            Fate::Gone(id) => self.holds.forget(id),
            Fate::Orphaned(id) => {
                if self.grace_until_ms.is_some() {
                    self.holds.open(ABSENT, id);
                }
                self.holds.orphan(id);
                for session in self.holds.openers(id) {
                    orphan::ser_key(&mut self.key, id, session);
                    self.namespace.cold.put(&self.key, &orphan::VALUE);
                }
            }
        }
    }

    /// Ends what `session` holds of an inode; the last holder of an orphan takes it along, unless a name is promised to it.
    fn release(&mut self, session: SessionId, id: InodeId) -> Result<()> {
        if self.holds.is_orphan(id) && self.holds.has_open(session, id) {
            let mut last = self.holds.openers(id).len() == 1;
            if last && self.transactions.locks.covers_inode(id) {
                if session == ABSENT {
                    return Ok(());
                }
                // `tick` releases it when the transaction has ended.
                self.holds.open(ABSENT, id);
                orphan::ser_key(&mut self.key, id, ABSENT);
                self.namespace.cold.put(&self.key, &orphan::VALUE);
                last = false;
            }
            if last {
                self.namespace.reap(id)?;
            }
            orphan::ser_key(&mut self.key, id, session);
            self.namespace.cold.delete(&self.key);
            if last {
                self.holds.forget(id);
            }
        }
        self.holds.close(session, id);
        Ok(())
    }

    /// Releases all and removes the records of a session; it is gone with the commit.
    fn end_at_once(&mut self, id: SessionId) -> Result<()> {
        for inode in self.holds.of(id) {
            match self.release_or_leave(id, inode) {
                // It is told of where it is left to.
                Ok(()) => {}
                Err(error) if error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            for slot in session::SELF..=session.replies.slots() {
                session::ser_key(&mut self.key, id, slot);
                self.namespace.cold.delete(&self.key);
            }
            self.turn.ended.push(id);
            self.enter(id, Stage::Ended);
        }
        Ok(())
    }
}
