//! Which session has which inode open, and who intends to write it. In memory only: after a restart it is built anew from
//! orphan records and from what sessions reclaim.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use types::id::{InodeId, SessionId};
use types::time::Timestamp;

/// All holds of a shard. Changes of a turn can be taken back until its commit.
pub(crate) struct Holds {
    held: FxHashMap<InodeId, Held>,
    by_session: BTreeMap<SessionId, BTreeSet<InodeId>>,
    /// What was before each change of this turn.
    undo: Vec<(InodeId, Option<Held>)>,
    /// The latest epoch of intents given out; never goes back.
    epoch: u64,
    /// The epoch of inodes that nobody holds: the greatest of any that was forgotten.
    forgotten_epoch: u64,
    /// `written_after` of those that nobody intends to write any more, and nobody has settled yet. No part of a turn: after a
    /// commit that fails, some may be missing or later than right.
    left: FxHashMap<InodeId, Timestamp>,
}

/// Clients that die leave such inodes behind.
const LEFT_MAX: usize = 1 << 16;

/// One inode that somebody holds.
#[derive(Clone)]
struct Held {
    holders: Vec<Holder>,
    /// Changes whenever a session gets or ends an intent, so that a size asked of the objects meanwhile is refused.
    epoch: u64,
    /// When somebody last began to truncate it: the epoch of that.
    cuts: u64,
    /// This session's knowledge of the size is exact: it holds the intent alone since the inode was settled.
    exclusive: Option<SessionId>,
    /// It has no name any more; each session that has it open has an orphan record.
    orphan: bool,
    /// This session may have kept back what was done to it since it was made.
    draft: Option<SessionId>,
    /// What the objects say of the last write counts if it is later: the inode's change time when the first of the intents was
    /// given, or when its modification time was set since. Other changes of the inode leave that as it is.
    written_after: Timestamp,
}

#[derive(Clone, Copy)]
struct Holder {
    session: SessionId,
    open: bool,
    intent: bool,
    /// It is truncating the objects, under its intent.
    cuts: bool,
}

/// See `InodeReply` of the protocol for the meaning of each field.
pub(crate) struct Told {
    pub(crate) exclusive: bool,
    pub(crate) alone: bool,
    pub(crate) draft: bool,
    pub(crate) intents: u64,
    pub(crate) cutting: bool,
    pub(crate) cuts: u64,
    pub(crate) written_after: Option<Timestamp>,
}

impl Holds {
    /// `epoch`: greater than any of an earlier incarnation.
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            held: FxHashMap::default(),
            by_session: BTreeMap::new(),
            undo: Vec::new(),
            epoch,
            forgotten_epoch: epoch,
            left: FxHashMap::default(),
        }
    }

    pub(crate) fn open(&mut self, session: SessionId, inode: InodeId) {
        self.change(session, inode, |holder| holder.open = true);
    }

    /// Ends the open, and the intent with it.
    pub(crate) fn close(&mut self, session: SessionId, inode: InodeId) {
        self.end_intent(session, inode);
        if self.drafter(inode) == Some(session) {
            self.end_draft(inode);
        }
        if self.holder(session, inode).is_some() {
            self.change(session, inode, |holder| holder.open = false);
        }
    }

    /// The session alone has it open, and may keep back from now on what is done to it.
    pub(crate) fn draft(&mut self, session: SessionId, inode: InodeId) {
        self.save(inode);
        if let Some(held) = self.held.get_mut(&inode) {
            held.draft = Some(session);
        }
    }

    pub(crate) fn end_draft(&mut self, inode: InodeId) {
        if self.drafter(inode).is_some() {
            self.save(inode);
            self.held.entry(inode).and_modify(|held| held.draft = None);
        }
    }

    /// Whose draft it is.
    pub(crate) fn drafter(&self, inode: InodeId) -> Option<SessionId> {
        self.held.get(&inode)?.draft
    }

    /// `settled`: the inode is exact at this moment; `ctime`: its change time.
    pub(crate) fn intend(&mut self, session: SessionId, inode: InodeId, settled: bool, ctime: Timestamp) {
        if self.intends(session, inode) {
            return;
        }
        let is_first = !self.others_intend(session, inode);
        let alone = settled && is_first;
        self.epoch += 1;
        let epoch = self.epoch;
        let written_after = self.left.remove(&inode).unwrap_or(ctime);
        let held = self.change(session, inode, |holder| holder.intent = true);
        if let Some(held) = held {
            held.epoch = epoch;
            held.exclusive = alone.then_some(session);
            if is_first {
                held.written_after = written_after;
            }
        }
    }

    /// The modification time was set: it goes over writes before.
    pub(crate) fn mtime_set(&mut self, inode: InodeId, at: Timestamp) {
        self.left.entry(inode).and_modify(|after| *after = (*after).max(at));
        if self.held.contains_key(&inode) {
            self.save(inode);
            self.held.entry(inode).and_modify(|held| held.written_after = held.written_after.max(at));
        }
    }

    /// The inode is exact, and nobody intends to write it.
    pub(crate) fn settled(&mut self, inode: InodeId) {
        self.left.remove(&inode);
    }

    /// Nobody else was ever told of the file: who intends to write it knows its size. False where others intend to.
    pub(crate) fn intends_alone(&mut self, session: SessionId, inode: InodeId) -> bool {
        let alone = self.intends(session, inode) && !self.others_intend(session, inode);
        if alone {
            self.save(inode);
            self.held.entry(inode).and_modify(|held| held.exclusive = Some(session));
        }
        alone
    }

    pub(crate) fn end_intent(&mut self, session: SessionId, inode: InodeId) {
        if !self.intends(session, inode) {
            return;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        if !self.others_intend(session, inode)
            && let Some(held) = self.held.get(&inode)
        {
            if self.left.len() >= LEFT_MAX {
                self.left.clear();
            }
            self.left.insert(inode, held.written_after);
        }
        if let Some(held) = self.held.get_mut(&inode) {
            // Before `change`, which forgets an inode that nobody holds any more, but not its epoch.
            self.undo.push((inode, Some(held.clone())));
            held.epoch = epoch;
            if held.exclusive == Some(session) {
                held.exclusive = None;
            }
        }
        self.change(session, inode, |holder| (holder.intent, holder.cuts) = (false, false));
    }

    /// The session intends to write something.
    pub(crate) fn has_intents(&self, session: SessionId) -> bool {
        self.by_session.get(&session).is_some_and(|held| held.iter().any(|&inode| self.intends(session, inode)))
    }

    /// Under its intent the session begins or ends to truncate the objects. A size that was asked of them before is refused.
    pub(crate) fn cut(&mut self, session: SessionId, inode: InodeId, cuts: bool) {
        if self.holder(session, inode).is_none_or(|holder| !holder.intent || holder.cuts == cuts) {
            return;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let held = self.change(session, inode, |holder| holder.cuts = cuts);
        if let Some(held) = held.filter(|_| cuts) {
            (held.epoch, held.cuts) = (epoch, epoch);
        }
    }

    /// The session has gone silent: nobody waits for what it may yet truncate. No part of a turn.
    pub(crate) fn end_cuts(&mut self, session: SessionId) {
        for inode in self.of(session) {
            let Some(held) = self.held.get_mut(&inode) else { continue };
            held.holders.iter_mut().filter(|holder| holder.session == session).for_each(|holder| holder.cuts = false);
        }
    }

    /// What a session is told of the holds on an inode.
    pub(crate) fn told(&self, session: SessionId, inode: InodeId) -> Told {
        let (epoch, left) = (self.forgotten_epoch, self.left.get(&inode).copied());
        let Some(held) = self.held.get(&inode) else {
            let (exclusive, alone, draft, cutting) = (false, false, false, false);
            return Told { exclusive, alone, draft, intents: epoch, cutting, cuts: epoch, written_after: left };
        };
        let exclusive = held.exclusive == Some(session);
        Told {
            exclusive,
            alone: exclusive && held.holders.iter().all(|holder| holder.session == session),
            draft: held.draft == Some(session),
            intents: held.epoch,
            cutting: held.holders.iter().any(|holder| holder.cuts),
            cuts: held.cuts,
            written_after: if held.holders.iter().any(|holder| holder.intent) {
                Some(held.written_after)
            } else {
                left
            },
        }
    }

    /// The inode lost its last name while somebody had it open.
    pub(crate) fn orphan(&mut self, inode: InodeId) {
        self.save(inode);
        if let Some(held) = self.held.get_mut(&inode) {
            held.orphan = true;
        }
    }

    /// It got a name.
    pub(crate) fn adopt(&mut self, inode: InodeId) {
        self.save(inode);
        if let Some(held) = self.held.get_mut(&inode) {
            held.orphan = false;
        }
    }

    /// The inode is gone.
    pub(crate) fn forget(&mut self, inode: InodeId) {
        self.left.remove(&inode);
        if !self.held.contains_key(&inode) {
            return;
        }
        self.save(inode);
        if let Some(held) = self.held.remove(&inode) {
            self.forgotten_epoch = self.forgotten_epoch.max(held.epoch);
            for holder in held.holders {
                self.drop_from_session(holder.session, inode);
            }
        }
    }

    pub(crate) fn is_orphan(&self, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.orphan)
    }

    pub(crate) fn is_open(&self, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.holders.iter().any(|holder| holder.open))
    }

    pub(crate) fn has_open(&self, session: SessionId, inode: InodeId) -> bool {
        self.holder(session, inode).is_some_and(|holder| holder.open)
    }

    pub(crate) fn openers(&self, inode: InodeId) -> Vec<SessionId> {
        let holders = self.held.get(&inode).map_or(&[][..], |held| &held.holders);
        holders.iter().filter(|holder| holder.open).map(|holder| holder.session).collect()
    }

    pub(crate) fn intends(&self, session: SessionId, inode: InodeId) -> bool {
        self.holder(session, inode).is_some_and(|holder| holder.intent)
    }

    pub(crate) fn others_intend(&self, session: SessionId, inode: InodeId) -> bool {
        let other = |holder: &Holder| holder.session != session && holder.intent;
        self.held.get(&inode).is_some_and(|held| held.holders.iter().any(other))
    }

    pub(crate) fn is_exclusive(&self, session: SessionId, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.exclusive == Some(session))
    }

    /// Another session alone writes it.
    pub(crate) fn is_others_alone(&self, session: SessionId, inode: InodeId) -> bool {
        self.held.get(&inode).and_then(|held| held.exclusive).is_some_and(|writer| writer != session)
    }

    /// The epoch of the inode's intents.
    pub(crate) fn intents(&self, inode: InodeId) -> u64 {
        self.held.get(&inode).map_or(self.forgotten_epoch, |held| held.epoch)
    }

    pub(crate) fn of(&self, session: SessionId) -> Vec<InodeId> {
        self.by_session.get(&session).map_or_else(Vec::new, |inodes| inodes.iter().copied().collect())
    }

    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// Those that anybody holds.
    pub(crate) fn inodes(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.undo.is_empty()
    }

    pub(crate) fn committed(&mut self) {
        self.undo.clear();
    }

    /// Takes the turn's changes back. Epochs stay raised: nobody was told of them.
    pub(crate) fn rolled_back(&mut self) {
        while let Some((inode, before)) = self.undo.pop() {
            if let Some(held) = self.held.remove(&inode) {
                self.forgotten_epoch = self.forgotten_epoch.max(held.epoch);
                for holder in held.holders {
                    self.drop_from_session(holder.session, inode);
                }
            }
            if let Some(before) = before {
                for holder in &before.holders {
                    self.by_session.entry(holder.session).or_default().insert(inode);
                }
                self.held.insert(inode, before);
            }
        }
    }

    fn holder(&self, session: SessionId, inode: InodeId) -> Option<&Holder> {
        self.held.get(&inode)?.holders.iter().find(|holder| holder.session == session)
    }

    fn save(&mut self, inode: InodeId) {
        self.undo.push((inode, self.held.get(&inode).cloned()));
    }

    /// Changes one holder, who appears and disappears as needed.
    fn change(&mut self, session: SessionId, inode: InodeId, change: impl FnOnce(&mut Holder)) -> Option<&mut Held> {
        self.save(inode);
        let epoch = self.forgotten_epoch;
        let held = self.held.entry(inode).or_insert_with(|| Held {
            holders: Vec::new(),
            epoch,
            cuts: epoch,
            exclusive: None,
            orphan: false,
            draft: None,
            written_after: Timestamp(0),
        });
        let at = held.holders.iter().position(|holder| holder.session == session).unwrap_or_else(|| {
            held.holders.push(Holder { session, open: false, intent: false, cuts: false });
            self.by_session.entry(session).or_default().insert(inode);
            held.holders.len() - 1
        });
        let holder = &mut held.holders[at];
        change(holder);
        if !holder.open && !holder.intent {
            held.holders.remove(at);
            let empty = held.holders.is_empty();
            self.drop_from_session(session, inode);
            if empty {
                let epoch = self.held.remove(&inode).map_or(0, |held| held.epoch);
                self.forgotten_epoch = self.forgotten_epoch.max(epoch);
            }
        }
        self.held.get_mut(&inode)
    }

    fn drop_from_session(&mut self, session: SessionId, inode: InodeId) {
        if let Some(inodes) = self.by_session.get_mut(&session) {
            inodes.remove(&inode);
            if inodes.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const FILE: InodeId = InodeId(20);
    const OTHER: InodeId = InodeId(21);

    #[test]
    fn exclusive_is_who_was_alone_all_the_time() {
        let mut holds = Holds::new(100);
        holds.intend(A, FILE, true, Timestamp(0));
        assert!(holds.is_exclusive(A, FILE));
        holds.intend(B, FILE, false, Timestamp(0));
        assert!(!holds.is_exclusive(A, FILE) && !holds.is_exclusive(B, FILE));
        holds.end_intent(B, FILE);
        assert!(!holds.is_exclusive(A, FILE));
        holds.end_intent(A, FILE);
        holds.intend(A, FILE, false, Timestamp(0));
        assert!(!holds.is_exclusive(A, FILE), "the inode was not settled");
    }

    #[test]
    fn the_epoch_changes_with_every_intent_and_never_comes_back() {
        let mut holds = Holds::new(100);
        let mut seen = vec![holds.intents(FILE)];
        let step = |holds: &Holds, seen: &mut Vec<u64>| {
            assert!(!seen.contains(&holds.intents(FILE)), "{seen:?}");
            seen.push(holds.intents(FILE));
        };
        holds.intend(A, FILE, true, Timestamp(0));
        step(&holds, &mut seen);
        holds.intend(B, FILE, false, Timestamp(0));
        step(&holds, &mut seen);
        holds.intend(B, FILE, false, Timestamp(0));
        assert_eq!(holds.intents(FILE), seen[2], "it had it");
        holds.close(A, FILE);
        step(&holds, &mut seen);
        holds.close(B, FILE);
        step(&holds, &mut seen);
        assert_eq!(holds.count(A) + holds.count(B), 0);
        holds.open(A, FILE);
        assert_eq!(holds.intents(FILE), seen[4], "an open is no intent");
        holds.intend(B, OTHER, true, Timestamp(0));
        holds.close(B, OTHER);
        assert_eq!(holds.intents(FILE), seen[4], "what is held keeps its epoch");
    }

    #[test]
    fn rolls_back() {
        let mut holds = Holds::new(0);
        holds.open(A, FILE);
        holds.intend(A, FILE, true, Timestamp(0));
        holds.committed();
        holds.open(B, FILE);
        holds.intend(B, FILE, false, Timestamp(0));
        holds.close(A, FILE);
        holds.open(B, OTHER);
        holds.orphan(FILE);
        holds.forget(FILE);
        holds.rolled_back();
        assert!(holds.is_clean());
        assert_eq!((holds.of(A), holds.of(B)), (vec![FILE], vec![]));
        assert!(holds.has_open(A, FILE) && holds.is_exclusive(A, FILE) && !holds.is_orphan(FILE));
    }
}
