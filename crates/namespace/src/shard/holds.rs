//! Which session has which inode open, and who intends to write it. In memory only: after a restart it is built anew from
//! orphan records and from what sessions reclaim.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use rustc_hash::FxHashMap;
use types::id::{InodeId, SessionId};
use types::time::Timestamp;

use crate::shard::holds::holders::{Holder, Holders};

mod holders;

/// All holds of a shard. Changes of a turn can be taken back until its commit.
pub(crate) struct Holds {
    held: FxHashMap<InodeId, Held>,
    by_session: BTreeMap<SessionId, BTreeSet<InodeId>>,
    /// What was before each change of this turn.
    undo: Vec<(InodeId, Before)>,
    /// The latest epoch of intents given out; never goes back.
    epoch: u64,
    /// What inodes have that nobody holds, and that are not among `left`: the greatest of any that were forgotten.
    forgotten: Epochs,
    /// Those that nobody intends to write any more, and nobody has settled yet. No part of a turn: after a commit that fails,
    /// some may be missing, or have what is later than right.
    left: FxHashMap<InodeId, Left>,
}

/// What tells of an inode whether anything has happened to its objects. Where it is not remembered, a greater one will do: then
/// it looks as if something had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Epochs {
    /// Changes whenever a session gets or ends an intent, so that a size asked of the objects meanwhile is refused.
    intents: u64,
    /// When somebody last began to truncate it: the epoch of that.
    cuts: u64,
}

impl Epochs {
    fn or_later(self, other: Self) -> Self {
        Self { intents: self.intents.max(other.intents), cuts: self.cuts.max(other.cuts) }
    }
}

/// What is remembered of an inode that is not settled and that nobody intends to write.
#[derive(Clone, Copy)]
struct Left {
    written_after: Timestamp,
    /// Its own: else whoever asks its objects would be refused whenever somebody closes another file.
    epochs: Epochs,
}

/// Clients that die leave such inodes behind.
const LEFT_MAX: usize = 1 << 16;

/// One inode that somebody holds.
#[cfg_attr(test, derive(Clone, PartialEq, Debug))]
struct Held {
    holders: Holders,
    state: State,
}

/// What is so whoever holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    epochs: Epochs,
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

/// What was before a change: no more than it concerns, since thousands may hold one inode, and each of them change that in one
/// turn.
enum Before {
    State(State),
    /// What this session held; and nobody held the inode where there was no state.
    Holder(SessionId, Option<Holder>, Option<State>),
    /// It is gone.
    Held(Held),
}

/// See `InodeReply` of the protocol for the meaning of each field.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) exclusive: bool,
    pub(crate) alone: bool,
    pub(crate) draft: bool,
    pub(crate) intents: u64,
    pub(crate) cutting: bool,
    pub(crate) cuts: u64,
    pub(crate) written_after: Option<Timestamp>,
    /// Of its writes those count that came after that.
    pub(crate) overruled: bool,
}

impl Holds {
    /// `epoch`: greater than any of an earlier incarnation.
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            held: FxHashMap::default(),
            by_session: BTreeMap::new(),
            undo: Vec::new(),
            epoch,
            forgotten: Epochs { intents: epoch, cuts: epoch },
            left: FxHashMap::default(),
        }
    }

    pub(crate) fn open(&mut self, session: SessionId, inode: InodeId) {
        self.change(session, inode, |holder, _| holder.open = true);
    }

    /// Ends the open, and the intent with it.
    pub(crate) fn close(&mut self, session: SessionId, inode: InodeId) {
        self.end_intent(session, inode);
        if self.drafter(inode) == Some(session) {
            self.end_draft(inode);
        }
        if self.holder(session, inode).is_some() {
            self.change(session, inode, |holder, _| holder.open = false);
        }
    }

    /// The session alone has it open, and may keep back from now on what is done to it.
    pub(crate) fn draft(&mut self, session: SessionId, inode: InodeId) {
        self.change_state(inode, |state| state.draft = Some(session));
    }

    pub(crate) fn end_draft(&mut self, inode: InodeId) {
        if self.drafter(inode).is_some() {
            self.change_state(inode, |state| state.draft = None);
        }
    }

    /// Whose draft it is.
    pub(crate) fn drafter(&self, inode: InodeId) -> Option<SessionId> {
        self.held.get(&inode)?.state.draft
    }

    /// `settled`: the inode is exact at this moment; `ctime`: its change time, and no later than now.
    pub(crate) fn intend(&mut self, session: SessionId, inode: InodeId, settled: bool, ctime: Timestamp) {
        if self.intends(session, inode) {
            return;
        }
        let is_first = !self.others_intend(session, inode);
        let alone = settled && is_first;
        self.epoch += 1;
        let epoch = self.epoch;
        let written_after = self.left.get(&inode).map_or(ctime, |left| left.written_after);
        self.change(session, inode, |holder, state| {
            holder.intent = true;
            state.epochs.intents = epoch;
            state.exclusive = alone.then_some(session);
            if is_first {
                state.written_after = written_after;
            }
        });
        self.left.remove(&inode);
    }

    /// The modification time was set, by this session: it goes over writes before.
    pub(crate) fn mtime_set(&mut self, session: SessionId, inode: InodeId, at: Timestamp) {
        self.left.entry(inode).and_modify(|left| left.written_after = left.written_after.max(at));
        self.change_state(inode, |state| state.written_after = state.written_after.max(at));
        // Who sets it knows of all that it writes later that it is later.
        let is_overruled = |holder: &Holder| holder.session != session;
        let holders = self.held.get(&inode).into_iter().flat_map(|held| held.holders.iter());
        let changed = holders.filter(|holder| holder.intent && holder.overruled != is_overruled(holder));
        let changed: Vec<SessionId> = changed.map(|holder| holder.session).collect();
        for writer in changed {
            self.change(writer, inode, |holder, _| holder.overruled = is_overruled(holder));
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
            self.change_state(inode, |state| state.exclusive = Some(session));
        }
        alone
    }

    pub(crate) fn end_intent(&mut self, session: SessionId, inode: InodeId) {
        if !self.intends(session, inode) {
            return;
        }
        self.epoch += 1;
        let intents = self.epoch;
        if !self.others_intend(session, inode)
            && let Some(held) = self.held.get(&inode)
        {
            if self.left.len() >= LEFT_MAX {
                self.left.clear();
            }
            let epochs = Epochs { intents, ..held.state.epochs };
            self.left.insert(inode, Left { written_after: held.state.written_after, epochs });
        }
        self.change(session, inode, |holder, state| {
            (holder.intent, holder.cuts, holder.overruled) = (false, false, false);
            state.epochs.intents = intents;
            state.exclusive = state.exclusive.filter(|exclusive| *exclusive != session);
        });
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
        self.change(session, inode, |holder, state| {
            holder.cuts = cuts;
            if cuts {
                state.epochs = Epochs { intents: epoch, cuts: epoch };
            }
        });
    }

    /// The session has gone silent: nobody waits for what it may yet truncate. No part of a turn.
    pub(crate) fn end_cuts(&mut self, session: SessionId) {
        for inode in self.of(session) {
            let Some(held) = self.held.get_mut(&inode) else { continue };
            let holder = held.holders.get(session).map(|holder| Holder { cuts: false, ..*holder });
            held.holders.set(session, holder);
        }
    }

    /// What a session is told of the holds on an inode.
    pub(crate) fn told(&self, session: SessionId, inode: InodeId) -> Told {
        let Epochs { intents, cuts } = self.epochs(inode);
        let left = self.left.get(&inode).map(|left| left.written_after);
        let Some(held) = self.held.get(&inode) else {
            return Told { intents, cuts, written_after: left, ..Told::default() };
        };
        let state = &held.state;
        let exclusive = state.exclusive == Some(session);
        Told {
            exclusive,
            alone: exclusive && held.holders.iter().all(|holder| holder.session == session),
            draft: state.draft == Some(session),
            intents,
            cutting: held.holders.any_cuts(),
            cuts,
            written_after: if held.holders.any_intends() { Some(state.written_after) } else { left },
            overruled: held.holders.get(session).is_some_and(|holder| holder.overruled),
        }
    }

    /// The inode lost its last name while somebody had it open.
    pub(crate) fn orphan(&mut self, inode: InodeId) {
        self.change_state(inode, |state| state.orphan = true);
    }

    /// It got a name.
    pub(crate) fn adopt(&mut self, inode: InodeId) {
        self.change_state(inode, |state| state.orphan = false);
    }

    /// The inode is gone.
    pub(crate) fn forget(&mut self, inode: InodeId) {
        self.left.remove(&inode);
        if let Some(held) = self.remove(inode) {
            self.undo.push((inode, Before::Held(held)));
        }
    }

    pub(crate) fn is_orphan(&self, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.state.orphan)
    }

    pub(crate) fn is_open(&self, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.holders.iter().any(|holder| holder.open))
    }

    pub(crate) fn has_open(&self, session: SessionId, inode: InodeId) -> bool {
        self.holder(session, inode).is_some_and(|holder| holder.open)
    }

    pub(crate) fn openers(&self, inode: InodeId) -> Vec<SessionId> {
        let holders = self.held.get(&inode).into_iter().flat_map(|held| held.holders.iter());
        holders.filter(|holder| holder.open).map(|holder| holder.session).collect()
    }

    pub(crate) fn intends(&self, session: SessionId, inode: InodeId) -> bool {
        self.holder(session, inode).is_some_and(|holder| holder.intent)
    }

    pub(crate) fn others_intend(&self, session: SessionId, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.holders.others_intend(session))
    }

    pub(crate) fn is_exclusive(&self, session: SessionId, inode: InodeId) -> bool {
        self.held.get(&inode).is_some_and(|held| held.state.exclusive == Some(session))
    }

    /// Another session alone writes it.
    pub(crate) fn is_others_alone(&self, session: SessionId, inode: InodeId) -> bool {
        self.held.get(&inode).and_then(|held| held.state.exclusive).is_some_and(|writer| writer != session)
    }

    /// The epoch of the inode's intents.
    pub(crate) fn intents(&self, inode: InodeId) -> u64 {
        self.epochs(inode).intents
    }

    fn epochs(&self, inode: InodeId) -> Epochs {
        match (self.held.get(&inode), self.left.get(&inode)) {
            (Some(held), _) => held.state.epochs,
            (None, Some(left)) => left.epochs,
            (None, None) => self.forgotten,
        }
    }

    pub(crate) fn of(&self, session: SessionId) -> Vec<InodeId> {
        self.by_session.get(&session).map_or_else(Vec::new, |inodes| inodes.iter().copied().collect())
    }

    /// The next ones after this, at most so many.
    pub(crate) fn after(&self, session: SessionId, inode: Option<InodeId>, count: usize) -> Vec<InodeId> {
        let from = inode.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.by_session.get(&session).into_iter().flat_map(|inodes| inodes.range((from, Bound::Unbounded)));
        next.take(count).copied().collect()
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
            if let Some(held) = self.held.get(&inode) {
                self.forgotten = self.forgotten.or_later(held.state.epochs);
            }
            match before {
                Before::State(state) => drop(self.held.entry(inode).and_modify(|held| held.state = state)),
                Before::Holder(session, holder, state) => self.put_back(inode, session, holder, state),
                Before::Held(held) => {
                    for holder in held.holders.iter() {
                        self.by_session.entry(holder.session).or_default().insert(inode);
                    }
                    self.held.insert(inode, held);
                }
            }
        }
    }

    fn put_back(&mut self, inode: InodeId, session: SessionId, holder: Option<Holder>, state: Option<State>) {
        let Some(state) = state else {
            self.remove(inode);
            return;
        };
        let held = self.held.entry(inode).or_insert_with(|| Held { holders: Holders::default(), state });
        held.state = state;
        held.holders.set(session, holder);
        if holder.is_some() {
            self.by_session.entry(session).or_default().insert(inode);
        } else {
            self.drop_from_session(session, inode);
        }
    }

    fn holder(&self, session: SessionId, inode: InodeId) -> Option<&Holder> {
        self.held.get(&inode)?.holders.get(session)
    }

    /// Does nothing where nobody holds it.
    fn change_state(&mut self, inode: InodeId, change: impl FnOnce(&mut State)) {
        if let Some(held) = self.held.get_mut(&inode) {
            self.undo.push((inode, Before::State(held.state)));
            change(&mut held.state);
        }
    }

    /// Changes one holder, who appears and disappears as needed, and what else is so then.
    fn change(&mut self, session: SessionId, inode: InodeId, change: impl FnOnce(&mut Holder, &mut State)) {
        let state_before = self.held.get(&inode).map(|held| held.state);
        let state = state_before.unwrap_or_else(|| State {
            epochs: self.epochs(inode),
            exclusive: None,
            orphan: false,
            draft: None,
            written_after: Timestamp(0),
        });
        let held = self.held.entry(inode).or_insert_with(|| Held { holders: Holders::default(), state });
        let before = held.holders.get(session).copied();
        self.undo.push((inode, Before::Holder(session, before, state_before)));
        let mut holder = before.unwrap_or(Holder::new(session));
        change(&mut holder, &mut held.state);
        let stays = holder.open || holder.intent;
        held.holders.set(session, stays.then_some(holder));
        let is_empty = held.holders.is_empty();
        match (before.is_some(), stays) {
            (false, true) => drop(self.by_session.entry(session).or_default().insert(inode)),
            (true, false) => self.drop_from_session(session, inode),
            (true, true) | (false, false) => {}
        }
        if is_empty {
            self.remove(inode);
        }
    }

    /// Nobody holds it any more.
    fn remove(&mut self, inode: InodeId) -> Option<Held> {
        let held = self.held.remove(&inode)?;
        self.forgotten = self.forgotten.or_later(held.state.epochs);
        for holder in held.holders.iter() {
            self.drop_from_session(holder.session, inode);
        }
        Some(held)
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
    use proptest::prelude::*;

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
    fn what_nobody_holds_keeps_its_epochs_while_other_files_come_and_go() {
        let mut holds = Holds::new(100);
        holds.intend(A, FILE, true, Timestamp(0));
        holds.close(A, FILE);
        let epochs = |holds: &Holds| {
            let Told { intents, cuts, .. } = holds.told(B, FILE);
            (intents, cuts)
        };
        let before = epochs(&holds);
        holds.intend(B, OTHER, true, Timestamp(0));
        holds.cut(B, OTHER, true);
        holds.close(B, OTHER);
        assert_eq!(epochs(&holds), before);
        holds.open(B, FILE);
        assert_eq!((epochs(&holds), holds.intents(FILE)), (before, before.0), "an open is no intent");
        holds.close(B, FILE);
        assert_eq!(epochs(&holds), before);
        // As with too many that were left behind.
        holds.left.clear();
        let (intents, cuts) = epochs(&holds);
        assert!(intents > before.0 && cuts > before.1, "it is not known whether somebody was there");
        holds.intend(B, OTHER, false, Timestamp(0));
        holds.close(B, OTHER);
        assert_eq!(epochs(&holds).1, cuts, "nobody has cut anything");
    }

    /// What happened to a file by now that a session may be told of: intents that came or went, and truncates that began.
    type Happened = BTreeMap<InodeId, (u64, u64)>;

    /// Does one of the things that happen to holds.
    fn step(holds: &mut Holds, happened: &mut Happened, (what, inode, session): (u8, InodeId, SessionId)) {
        let counts = happened.entry(inode).or_default();
        let intends = holds.intends(session, inode);
        match what {
            0 => holds.open(session, inode),
            1 | 2 => {
                counts.0 += u64::from(!intends);
                holds.intend(session, inode, what == 1, Timestamp(0));
            }
            3 | 4 => {
                counts.0 += u64::from(intends);
                if what == 3 { holds.end_intent(session, inode) } else { holds.close(session, inode) }
            }
            5 | 6 => {
                let begins =
                    what == 5 && holds.holder(session, inode).is_some_and(|holder| holder.intent && !holder.cuts);
                counts.1 += u64::from(begins);
                holds.cut(session, inode, what == 5);
            }
            7 => holds.settled(inode),
            _ => holds.left.clear(),
        }
    }

    proptest! {
        /// Whoever is told the same twice may rely on it that nothing has happened in between.
        #[test]
        fn the_same_epochs_mean_that_nothing_has_happened(
            turns in prop::collection::vec((prop::collection::vec((0u8..9, 0..3u64, 0..2u64), 0..6), any::<bool>()), 0..40),
        ) {
            let mut holds = Holds::new(100);
            let mut happened = Happened::new();
            let mut seen: BTreeMap<(InodeId, bool, u64), u64> = BTreeMap::new();
            for (steps, commits) in turns {
                let before = happened.clone();
                for (what, inode, session) in steps {
                    step(&mut holds, &mut happened, (what, InodeId(20 + inode), SessionId(1 + session)));
                }
                if commits {
                    holds.committed();
                } else {
                    holds.rolled_back();
                    happened = before;
                }
                for inode in (20..23).map(InodeId) {
                    let (intents, cuts) = happened.get(&inode).copied().unwrap_or_default();
                    let told = holds.told(A, inode);
                    prop_assert_eq!(told.intents, holds.intents(inode));
                    prop_assert_eq!(*seen.entry((inode, false, told.intents)).or_insert(intents), intents);
                    prop_assert_eq!(*seen.entry((inode, true, told.cuts)).or_insert(cuts), cuts);
                }
            }
        }
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

    /// Does one of the things that change holds in a turn.
    fn change(holds: &mut Holds, (what, inode, session): (u8, InodeId, SessionId), time: i64) {
        match what {
            0 => holds.open(session, inode),
            1 => holds.intend(session, inode, true, Timestamp(time)),
            2 => holds.end_intent(session, inode),
            3 | 4 => holds.close(session, inode),
            5 | 6 => holds.cut(session, inode, what == 5),
            7 | 8 => holds.mtime_set(session, inode, Timestamp(time)),
            9 => holds.draft(session, inode),
            10 => holds.end_draft(inode),
            11 => drop(holds.intends_alone(session, inode)),
            12 => holds.orphan(inode),
            13 => holds.adopt(inode),
            _ => holds.forget(inode),
        }
    }

    fn check(holds: &Holds) {
        let mut by_session: BTreeMap<SessionId, BTreeSet<InodeId>> = BTreeMap::new();
        for (&inode, held) in &holds.held {
            let holders: Vec<&Holder> = held.holders.iter().collect();
            assert!(!holders.is_empty() && holders.windows(2).all(|pair| pair[0].session < pair[1].session));
            assert!(holders.iter().all(|holder| holder.open || holder.intent));
            for session in (1..=4).map(SessionId) {
                let others = holders.iter().any(|holder| holder.intent && holder.session != session);
                assert_eq!(holds.others_intend(session, inode), others);
            }
            assert_eq!(held.holders.any_intends(), holders.iter().any(|holder| holder.intent));
            assert_eq!(held.holders.any_cuts(), holders.iter().any(|holder| holder.cuts));
            for holder in holders {
                by_session.entry(holder.session).or_default().insert(inode);
            }
        }
        assert_eq!(holds.by_session, by_session);
    }

    proptest! {
        #[test]
        fn a_turn_that_is_taken_back_leaves_no_trace(
            turns in prop::collection::vec((prop::collection::vec((0u8..15, 0..2u64, 0..4u64), 0..12), any::<bool>()), 0..12),
        ) {
            let (mut holds, mut time) = (Holds::new(100), 0);
            for (steps, commits) in turns {
                let before = (holds.held.clone(), holds.by_session.clone());
                for (what, inode, session) in steps {
                    time += 1;
                    change(&mut holds, (what, InodeId(20 + inode), SessionId(1 + session)), time);
                    check(&holds);
                }
                if commits {
                    holds.committed();
                } else {
                    holds.rolled_back();
                    prop_assert_eq!((&holds.held, &holds.by_session), (&before.0, &before.1));
                }
                check(&holds);
            }
        }
    }

    #[test]
    fn what_each_of_a_thousand_holders_of_a_file_does_is_remembered_without_the_others() {
        let mut holds = Holds::new(100);
        let all = (1..=1000).map(SessionId);
        all.clone().for_each(|session| holds.open(session, FILE));
        all.clone().for_each(|session| holds.intend(session, FILE, true, Timestamp(0)));
        holds.mtime_set(A, FILE, Timestamp(1));
        all.for_each(|session| holds.close(session, FILE));
        let is_of_one = |before: &Before| !matches!(before, Before::Held(_));
        assert!(holds.undo.iter().all(|(_, before)| is_of_one(before)));
        assert!(holds.undo.len() * size_of::<(InodeId, Before)>() < 1000 * 1000, "{}", holds.undo.len());
    }
}
