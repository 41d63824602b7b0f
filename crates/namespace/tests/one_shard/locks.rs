//! The lock manager against a model that keeps an owner per byte, and by example.

use std::collections::{BTreeMap, BTreeSet};

use namespace::locks::{
    END_PATIENCE_MS, HeldLock, LockAnswer, LockLimits, LockOwner, LockQuery, LockRequest, Locks, PATIENCE_MS, Ticket,
    Wait,
};
use proptest::prelude::*;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::{Held, LockKind, LockMode, LockRange, OFFSET_MAX};

/// Bytes that the model keeps one by one; the last stands for all that follow.
const BYTES: usize = 12;

type File = (InodeId, LockKind);

/// What a range is in the model.
fn bytes(range: LockRange) -> std::ops::RangeInclusive<usize> {
    (range.start() as usize).min(BYTES - 1)..=(range.end() as usize).min(BYTES - 1)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(usize, Owner, Range, bool, u8),
    Unlock(usize, Owner, Range),
    Get(usize, Owner, Range, bool),
    Cancel(usize),
    Again(usize),
    EndSession(u8),
    CloseFile(u8, usize),
    Sleep(u64),
}

/// Session, kind, and number.
type Owner = (u8, u8, u8);
type Range = (u64, u64, bool);

fn owner((session, kind, id): Owner) -> LockOwner {
    let kind = LockKind::from_u8(kind).unwrap();
    // All ends of a session have one owner.
    let id = if kind == LockKind::End { 0 } else { u64::from(id) };
    LockOwner { session: SessionId(u64::from(session) + 1), kind, id }
}

fn range(owner: LockOwner, (start, len, to_end): Range) -> LockRange {
    if owner.kind != LockKind::Posix {
        return LockRange::ALL;
    }
    let end = if to_end { OFFSET_MAX } else { (start + len).min(BYTES as u64 - 2) };
    LockRange::new(start, end).unwrap()
}

fn mode(owner: LockOwner, exclusive: bool) -> LockMode {
    if exclusive || owner.kind == LockKind::End { LockMode::Exclusive } else { LockMode::Shared }
}

fn inode(number: usize) -> InodeId {
    InodeId(100 + number as u64)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || prop_oneof![3 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8)];
    let owner = move || (0..3u8, kind(), 0..2u8);
    let range = || (0..BYTES as u64 - 1, 0..6u64, prop::bool::weighted(0.2));
    let step = prop_oneof![
        10 => (0..2usize, owner(), range(), any::<bool>(), 0..3u8).prop_map(|(f, o, r, x, w)| Step::Lock(f, o, r, x, w)),
        5 => (0..2usize, owner(), range()).prop_map(|(f, o, r)| Step::Unlock(f, o, r)),
        2 => (0..2usize, owner(), range(), any::<bool>()).prop_map(|(f, o, r, x)| Step::Get(f, o, r, x)),
        1 => (0..8usize).prop_map(Step::Cancel),
        1 => (0..8usize).prop_map(Step::Again),
        1 => (0..3u8, 0..2usize).prop_map(|(s, f)| Step::CloseFile(s, f)),
        1 => (0..30u8).prop_map(|s| if s < 3 { Step::EndSession(s) } else { Step::Sleep(u64::from(s) * 100) }),
    ];
    prop::collection::vec(step, 1..160)
}

#[derive(Default)]
struct Model {
    files: BTreeMap<File, Vec<BTreeMap<LockOwner, LockMode>>>,
    /// In the order of their arrival.
    waiting: Vec<(Ticket, LockRequest)>,
    /// Ends that somebody waits for: their holder, and since when.
    wanted: BTreeMap<InodeId, (LockOwner, u64)>,
    /// What the holders were told.
    told: BTreeSet<(SessionId, InodeId)>,
}

impl Model {
    fn file(&mut self, request: &LockRequest) -> &mut Vec<BTreeMap<LockOwner, LockMode>> {
        let key = (request.inode, request.owner.kind);
        self.files.entry(key).or_insert_with(|| vec![BTreeMap::new(); BYTES])
    }

    fn set(&mut self, request: &LockRequest) {
        let LockRequest { owner, wanted, .. } = *request;
        for byte in &mut self.file(request)[bytes(wanted.range)] {
            let conflict = byte.iter().find(|(other, mode)| **other != owner && mode.conflicts(wanted.mode));
            assert!(conflict.is_none(), "{request:?} was given although {conflict:?}");
            byte.insert(owner, wanted.mode);
        }
    }

    fn clear(&mut self, inode: InodeId, owner: LockOwner, range: LockRange) {
        if let Some(file) = self.files.get_mut(&(inode, owner.kind)) {
            for byte in &mut file[bytes(range)] {
                byte.remove(&owner);
            }
        }
    }

    fn blockers(&self, inode: InodeId, owner: LockOwner, wanted: Held) -> BTreeSet<LockOwner> {
        let file = self.files.get(&(inode, owner.kind));
        let held = file.into_iter().flat_map(|file| file[bytes(wanted.range)].iter().flatten());
        held.filter(|(other, mode)| **other != owner && mode.conflicts(wanted.mode)).map(|(other, _)| *other).collect()
    }

    /// Reached from `from` by waiting.
    fn reaches(&self, from: BTreeSet<LockOwner>, target: LockOwner) -> bool {
        let mut reached = from;
        loop {
            let more: BTreeSet<_> = self
                .waiting
                .iter()
                .filter(|(_, request)| request.wait == Wait::UnlessDeadlock && reached.contains(&request.owner))
                .flat_map(|(_, request)| self.blockers(request.inode, request.owner, request.wanted))
                .collect();
            let before = reached.len();
            reached.extend(more);
            if reached.contains(&target) || reached.len() == before {
                return reached.contains(&target);
            }
        }
    }

    fn end_holder(&self, inode: InodeId) -> Option<LockOwner> {
        let file = self.files.get(&(inode, LockKind::End))?;
        file[0].keys().next().copied()
    }

    /// Holders that others wait for are told of it once, and have so long to give the end back.
    fn note_wanted(&mut self, now_ms: u64) {
        for inode in [inode(0), inode(1)] {
            let is_wanted =
                self.waiting.iter().any(|(_, request)| (request.inode, request.owner.kind) == (inode, LockKind::End));
            match self.end_holder(inode).filter(|_| is_wanted) {
                Some(holder) => {
                    let noted = self.wanted.entry(inode).or_insert((holder, now_ms));
                    if noted.0 != holder {
                        *noted = (holder, now_ms);
                    }
                }
                None => drop(self.wanted.remove(&inode)),
            }
        }
    }

    fn take_overdue_ends(&mut self, now_ms: u64) {
        for (inode, (holder, since_ms)) in self.wanted.clone() {
            if now_ms >= since_ms + END_PATIENCE_MS {
                self.clear(inode, holder, LockRange::ALL);
            }
        }
    }

    fn take(&mut self, ticket: Ticket) -> Option<LockRequest> {
        let at = self.waiting.iter().position(|(other, _)| *other == ticket)?;
        Some(self.waiting.remove(at).1)
    }
}

/// Both side by side.
struct Pair {
    locks: Locks,
    model: Model,
    now_ms: u64,
    tickets: u64,
}

impl Pair {
    fn new() -> Self {
        Self { locks: Locks::new(LockLimits::default(), false), model: Model::default(), now_ms: 0, tickets: 0 }
    }

    fn ticket(&mut self, session: SessionId) -> Ticket {
        self.tickets += 1;
        Ticket { session, number: self.tickets }
    }

    fn lock(&mut self, request: LockRequest) {
        let LockRequest { inode, owner, wanted, wait } = request;
        let ticket = self.ticket(owner.session);
        let already =
            self.model.file(&request)[bytes(wanted.range)].iter().all(|byte| byte.get(&owner) == Some(&wanted.mode));
        if owner.kind == LockKind::Flock && !already {
            self.model.clear(inode, owner, LockRange::ALL);
        }
        let answer = self.locks.lock(ticket, request);
        // What its own giving up made possible comes first; what its downgrade did, after it.
        if answer != Some(LockAnswer::Done) || owner.kind == LockKind::Flock {
            self.take_answers();
        }
        let blockers = self.model.blockers(inode, owner, wanted);
        match answer {
            Some(LockAnswer::Done) => self.model.set(&request),
            Some(LockAnswer::Refused(Errno::EAGAIN)) => {
                assert!(wait == Wait::No && !blockers.is_empty(), "{request:?}")
            }
            Some(LockAnswer::Refused(Errno::EDEADLK)) => {
                assert!(wait == Wait::UnlessDeadlock && self.model.reaches(blockers, owner), "{request:?}");
            }
            None => {
                assert!(wait != Wait::No, "{request:?}");
                self.model.waiting.push((ticket, request));
            }
            other => panic!("{other:?} to {request:?}"),
        }
    }

    fn take_answers(&mut self) {
        for (ticket, answer) in self.locks.take_answers() {
            let request = self.model.take(ticket).unwrap();
            match answer {
                LockAnswer::Done => self.model.set(&request),
                LockAnswer::Refused(Errno::EDEADLK) => self.must_be_cycle(&request),
                other => panic!("{other:?} to {request:?}"),
            }
        }
    }

    fn must_be_cycle(&self, request: &LockRequest) {
        let blockers = self.model.blockers(request.inode, request.owner, request.wanted);
        assert!(self.model.reaches(blockers, request.owner), "{request:?}");
    }

    fn get(&mut self, inode: InodeId, owner: LockOwner, range: LockRange, mode: LockMode) {
        let ticket = self.ticket(owner.session);
        let Some(LockAnswer::Holder(answer)) = self.locks.get(ticket, LockQuery { inode, owner, range, mode }) else {
            panic!()
        };
        let wanted = Held { range, mode, pid: 0 };
        let blockers = self.model.blockers(inode, owner, wanted);
        let Some(holder) = answer else { return assert!(blockers.is_empty(), "{blockers:?}") };
        assert!(blockers.contains(&holder.owner) && holder.held.mode.conflicts(mode));
        let file = &self.model.files[&(inode, owner.kind)];
        let common = bytes(holder.held.range.overlap(range).unwrap());
        assert!(file[common].iter().all(|byte| byte.get(&holder.owner) == Some(&holder.held.mode)));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Lock(file, who, place, exclusive, wait) => {
                let owner = owner(who);
                let wanted = Held { range: range(owner, place), mode: mode(owner, exclusive), pid: 7 };
                let wait = match (wait, owner.kind) {
                    (0, _) => Wait::No,
                    (1, _) | (_, LockKind::Flock | LockKind::End) => Wait::Yes,
                    (_, LockKind::Posix) => Wait::UnlessDeadlock,
                };
                self.lock(LockRequest { inode: inode(file), owner, wanted, wait });
            }
            Step::Unlock(file, who, place) => {
                let owner = owner(who);
                self.model.clear(inode(file), owner, range(owner, place));
                self.locks.unlock(inode(file), owner, range(owner, place));
            }
            Step::Get(file, who, place, exclusive) => {
                let owner = owner(who);
                self.get(inode(file), owner, range(owner, place), mode(owner, exclusive));
            }
            Step::Cancel(index) => {
                let Some(&(ticket, _)) = self.model.waiting.get(index) else { return };
                self.locks.cancel(ticket);
                self.refused(BTreeSet::from([ticket]), Errno::EINTR);
            }
            Step::Again(index) => {
                let Some(&(ticket, request)) = self.model.waiting.get(index) else { return };
                assert_eq!(self.locks.lock(ticket, request), None);
            }
            Step::EndSession(session) => {
                let session = SessionId(u64::from(session) + 1);
                let of_it = |owner: &LockOwner| owner.session == session;
                self.model.files.values_mut().flatten().for_each(|byte| byte.retain(|owner, _| !of_it(owner)));
                let tickets = self.model.waiting.iter().map(|(ticket, _)| *ticket);
                let tickets = tickets.filter(|ticket| ticket.session == session).collect();
                self.locks.release_session(session);
                self.refused(tickets, Errno::ENOTCONN);
            }
            Step::CloseFile(session, file) => {
                let session = SessionId(u64::from(session) + 1);
                for (_, bytes) in self.model.files.iter_mut().filter(|((of, _), _)| *of == inode(file)) {
                    bytes.iter_mut().for_each(|byte| byte.retain(|owner, _| owner.session != session));
                }
                let waits = self.model.waiting.iter().filter(|(_, request)| request.inode == inode(file));
                let tickets = waits.map(|(ticket, _)| *ticket).filter(|ticket| ticket.session == session).collect();
                self.locks.release_file(session, inode(file));
                self.refused(tickets, Errno::EBADF);
            }
            Step::Sleep(ms) => {
                self.now_ms += ms;
                self.locks.set_now(self.now_ms);
                self.model.take_overdue_ends(self.now_ms);
                self.locks.tick();
            }
        }
        self.take_answers();
        self.model.note_wanted(self.now_ms);
        self.tell();
        self.check();
    }

    /// Who holds an end that others wait for hears of it, and nobody else but who has just given it back.
    fn tell(&mut self) {
        for session in self.locks.sessions_to_tell() {
            let wanted = self.locks.tell_wanted(session);
            assert!(!wanted.is_empty());
            self.model.told.extend(wanted.into_iter().map(|inode| (session, inode)));
        }
        let wanted: BTreeSet<_> =
            self.model.wanted.iter().map(|(inode, (holder, _))| (holder.session, *inode)).collect();
        assert!(wanted.is_subset(&self.model.told), "{wanted:?} were not told");
        self.model.told = wanted;
    }

    /// These were answered with `errno`, whatever else was.
    fn refused(&mut self, mut tickets: BTreeSet<Ticket>, errno: Errno) {
        for (ticket, answer) in self.locks.take_answers() {
            let request = self.model.take(ticket).unwrap();
            match answer {
                LockAnswer::Done => self.model.set(&request),
                LockAnswer::Refused(Errno::EDEADLK) if !tickets.contains(&ticket) => self.must_be_cycle(&request),
                LockAnswer::Refused(got) => {
                    assert_eq!(got, errno);
                    assert!(tickets.remove(&ticket));
                }
                LockAnswer::Holder(_) => panic!(),
            }
        }
        assert!(tickets.is_empty(), "{tickets:?} were not answered");
    }

    fn check(&self) {
        let mut held: BTreeMap<File, Vec<BTreeMap<LockOwner, LockMode>>> = BTreeMap::new();
        for (inode, holder) in self.locks.held() {
            let file = held.entry((inode, holder.owner.kind)).or_insert_with(|| vec![BTreeMap::new(); BYTES]);
            for byte in &mut file[bytes(holder.held.range)] {
                assert_eq!(byte.insert(holder.owner, holder.held.mode), None, "pieces overlap");
            }
        }
        let full = |files: &BTreeMap<File, Vec<BTreeMap<LockOwner, LockMode>>>| {
            let full = files.iter().filter(|(_, bytes)| bytes.iter().any(|byte| !byte.is_empty()));
            full.map(|(key, bytes)| (*key, bytes.clone())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(full(&held), full(&self.model.files));
        assert_eq!(self.locks.waiting(), self.model.waiting.len());
        for (at, (_, request)) in self.model.waiting.iter().enumerate() {
            let LockRequest { inode, owner, wanted, wait } = *request;
            let blockers = self.model.blockers(inode, owner, wanted);
            if wait == Wait::UnlessDeadlock {
                assert!(!self.model.reaches(blockers.clone(), owner), "{request:?} waits for itself");
            }
            if !blockers.is_empty() {
                continue;
            }
            let behind = self.model.waiting[..at].iter().any(|(_, earlier)| {
                (earlier.inode, earlier.owner.kind) == (inode, owner.kind)
                    && earlier.owner != owner
                    && earlier.wanted.range.overlaps(wanted.range)
                    && earlier.wanted.mode.conflicts(wanted.mode)
            });
            assert!(behind, "{request:?} waits for nobody");
        }
    }
}

/// Found by `behaves_as_one_owner_per_byte`: of two owners whose locks went together, the second's were still there when
/// the first's made way for others, and one of those was told of a deadlock with it.
#[test]
fn locks_that_go_together_make_no_deadlock_with_each_other() {
    let (first, second, other, writer) = ((0, 0, 0), (0, 0, 1), (1, 0, 0), (2, 0, 1));
    let mut pair = Pair::new();
    for step in [
        Step::Lock(0, first, (2, 3, false), true, 0),
        Step::Lock(0, second, (0, 1, false), false, 0),
        Step::Lock(1, other, (0, 3, false), false, 0),
        Step::Lock(0, writer, (3, 2, false), true, 1),
        Step::Lock(0, other, (0, 3, false), false, 2),
        Step::Lock(1, second, (0, 0, false), true, 2),
        Step::Lock(0, writer, (0, 0, false), true, 2),
        Step::CloseFile(0, 0),
    ] {
        pair.step(step);
    }
}

/// Found by `nothing_is_given_away_in_the_grace`: who held the end of a file, and got it once more, had all the time again to
/// give it back.
#[test]
fn who_gets_an_end_that_it_has_keeps_it_no_longer() {
    let (first, second, third, range) = ((0, 2, 0), (1, 2, 0), (2, 2, 0), (0, 0, false));
    let mut pair = Pair::new();
    for step in [
        Step::Lock(1, third, range, false, 0),
        Step::Lock(1, first, range, false, 1),
        Step::Lock(1, second, range, false, 1),
        Step::Lock(1, first, range, false, 1),
        Step::EndSession(2),
        Step::Lock(1, second, range, false, 1),
        Step::Sleep(2600),
        Step::Cancel(0),
        Step::Sleep(2400),
    ] {
        pair.step(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_one_owner_per_byte(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        for session in 0..3 {
            pair.step(Step::EndSession(session));
        }
        prop_assert_eq!(pair.locks.held().count() + pair.locks.waiting(), 0);
    }

    /// A restart: what was held is held again, whatever others ask for meanwhile, and in whatever order they come back.
    #[test]
    fn nothing_is_given_away_in_the_grace(steps in steps(), order in any::<u64>()) {
        let mut before = Pair::new();
        for step in steps.iter().copied() {
            before.step(step);
        }
        let held: Vec<_> = before.locks.held().collect();
        let mut locks = Locks::new(LockLimits::default(), true);
        let mut asked = 0;
        let mut wait_of = BTreeMap::new();
        let sessions = [order % 3, (order / 3) % 3, 0, 1, 2];
        for session in sessions {
            for step in &steps {
                if let Step::Lock(file, who, place, exclusive, _) = *step {
                    let owner = owner(who);
                    let wanted = Held { range: range(owner, place), mode: mode(owner, exclusive), pid: 7 };
                    asked += 1;
                    let ticket = Ticket { session: owner.session, number: asked };
                    let request = LockRequest { inode: inode(file), owner, wanted, wait: Wait::No };
                    if let Some(answer) = locks.lock(ticket, request) {
                        prop_assert_eq!(answer, LockAnswer::Done);
                        // It had at least that, if it had not been weakened meanwhile: weaken it no further.
                        prop_assert!(held.iter().any(|(of, holder)| *of == inode(file) && holder.owner == owner));
                    } else {
                        wait_of.insert(ticket, request);
                    }
                }
            }
            for (inode, holder) in held.iter().filter(|(_, holder)| holder.owner.session.0 == session + 1) {
                let lock = HeldLock { inode: *inode, kind: holder.owner.kind, owner: holder.owner.id, held: holder.held };
                prop_assert!(locks.reclaim(holder.owner.session, &lock));
            }
        }
        for (inode, holder) in &held {
            let ticket = Ticket { session: SessionId(99), number: 1 };
            let other = LockOwner { session: SessionId(99), kind: holder.owner.kind, id: 1 };
            let (range, mode) = (holder.held.range, LockMode::Exclusive);
            let answer = locks.get(ticket, LockQuery { inode: *inode, owner: other, range, mode });
            prop_assert!(matches!(answer, Some(LockAnswer::Holder(Some(_)))));
        }
        prop_assert!(locks.take_answers().is_empty());
        locks.end_grace();
        for (ticket, answer) in locks.take_answers() {
            prop_assert!(wait_of.remove(&ticket).is_some());
            prop_assert!(matches!(answer, LockAnswer::Done | LockAnswer::Refused(Errno::EAGAIN)));
        }
        prop_assert!(wait_of.is_empty());
    }
}

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const F: InodeId = InodeId(50);
const G: InodeId = InodeId(51);

fn posix(session: SessionId, id: u64) -> LockOwner {
    LockOwner { session, kind: LockKind::Posix, id }
}

fn request(inode: InodeId, owner: LockOwner, (start, end): (u64, u64), mode: LockMode, wait: Wait) -> LockRequest {
    let wanted = Held { range: LockRange::new(start, end).unwrap(), mode, pid: 1 };
    LockRequest { inode, owner, wanted, wait }
}

fn ticket(session: SessionId, number: u64) -> Ticket {
    Ticket { session, number }
}

use LockMode::{Exclusive, Shared};

#[test]
fn readers_that_come_later_do_not_starve_a_writer_for_long_nor_wait_for_ever() {
    let mut locks = Locks::new(LockLimits::default(), false);
    let lock = |locks: &mut Locks, owner: LockOwner, mode| {
        locks.lock(ticket(owner.session, owner.id), request(F, owner, (0, 9), mode, Wait::Yes))
    };
    assert_eq!(lock(&mut locks, posix(A, 1), Shared), Some(LockAnswer::Done));
    assert_eq!(lock(&mut locks, posix(B, 2), Exclusive), None);
    assert_eq!(lock(&mut locks, posix(A, 3), Shared), None, "behind the writer");
    // Who would rather not wait sees only who holds.
    let polite = request(F, posix(B, 4), (0, 9), Shared, Wait::No);
    assert_eq!(locks.lock(ticket(B, 40), polite), Some(LockAnswer::Done));
    // Who holds already passes: the writer waits for it anyway.
    assert_eq!(locks.lock(ticket(A, 10), request(F, posix(A, 1), (5, 20), Shared, Wait::Yes)), Some(LockAnswer::Done));
    locks.set_now(PATIENCE_MS - 1);
    locks.tick();
    assert!(locks.take_answers().is_empty());
    locks.set_now(PATIENCE_MS);
    locks.tick();
    assert_eq!(locks.take_answers(), [(ticket(A, 3), LockAnswer::Done)], "a queue must not hold up for ever");
    for owner in [posix(A, 1), posix(B, 4), posix(A, 3)] {
        assert!(locks.take_answers().is_empty());
        locks.unlock(F, owner, LockRange::ALL);
    }
    assert_eq!(locks.take_answers(), [(ticket(B, 2), LockAnswer::Done)]);
}

#[test]
fn a_cycle_is_refused_to_who_closes_it_across_files_and_sessions() {
    let mut locks = Locks::new(LockLimits::default(), false);
    let wait = Wait::UnlessDeadlock;
    let (one, two, three) = (posix(A, 1), posix(B, 1), posix(B, 2));
    assert_eq!(locks.lock(ticket(A, 1), request(F, one, (0, 0), Exclusive, wait)), Some(LockAnswer::Done));
    assert_eq!(locks.lock(ticket(B, 1), request(G, two, (0, 0), Exclusive, wait)), Some(LockAnswer::Done));
    assert_eq!(locks.lock(ticket(B, 2), request(G, three, (5, 5), Shared, wait)), Some(LockAnswer::Done));
    assert_eq!(locks.lock(ticket(A, 2), request(G, one, (0, 0), Shared, wait)), None);
    assert_eq!(locks.lock(ticket(B, 3), request(G, two, (4, 9), Exclusive, wait)), None);
    let closing = request(F, three, (0, 0), Shared, wait);
    assert_eq!(locks.lock(ticket(B, 4), closing), Some(LockAnswer::Refused(Errno::EDEADLK)));
    // It holds on; whoever asks not to be told waits.
    assert_eq!(locks.lock(ticket(B, 4), LockRequest { wait: Wait::Yes, ..closing }), None);
    locks.cancel(ticket(A, 2));
    assert_eq!(locks.take_answers(), [(ticket(A, 2), LockAnswer::Refused(Errno::EINTR))]);
    locks.release_session(A);
    assert_eq!(locks.take_answers(), [(ticket(B, 4), LockAnswer::Done)]);
}

#[test]
fn two_that_upgrade_are_a_cycle() {
    let mut locks = Locks::new(LockLimits::default(), false);
    for session in [A, B] {
        let shared = request(F, posix(session, 1), (0, 9), Shared, Wait::No);
        assert_eq!(locks.lock(ticket(session, 1), shared), Some(LockAnswer::Done));
    }
    let upgrade = |session| request(F, posix(session, 1), (0, 9), Exclusive, Wait::UnlessDeadlock);
    assert_eq!(locks.lock(ticket(A, 2), upgrade(A)), None);
    assert_eq!(locks.lock(ticket(B, 2), upgrade(B)), Some(LockAnswer::Refused(Errno::EDEADLK)));
    locks.unlock(F, posix(B, 1), LockRange::ALL);
    assert_eq!(locks.take_answers(), [(ticket(A, 2), LockAnswer::Done)]);
}

#[test]
fn a_cycle_that_a_thread_of_a_waiting_process_closes_by_getting_a_lock_is_found() {
    let mut locks = Locks::new(LockLimits::default(), false);
    let (one, two) = (posix(A, 1), posix(B, 1));
    let (yes, no) = (Wait::UnlessDeadlock, Wait::No);
    assert_eq!(locks.lock(ticket(A, 1), request(F, one, (0, 0), Exclusive, no)), Some(LockAnswer::Done));
    assert_eq!(locks.lock(ticket(A, 9), request(G, posix(A, 9), (0, 0), Shared, no)), Some(LockAnswer::Done));
    assert_eq!(locks.lock(ticket(B, 1), request(F, two, (0, 0), Exclusive, yes)), None);
    assert_eq!(locks.lock(ticket(A, 2), request(G, one, (0, 0), Exclusive, yes)), None);
    // Another thread of the second process: now the first waits for it, and it for the first.
    assert_eq!(locks.lock(ticket(B, 2), request(G, two, (0, 0), Shared, no)), Some(LockAnswer::Done));
    assert_eq!(locks.take_answers(), [(ticket(A, 2), LockAnswer::Refused(Errno::EDEADLK))]);
}

#[test]
fn bounds_hold() {
    let mut locks = Locks::new(LockLimits { pieces_per_session: 4, waits_per_session: 2 }, false);
    let mut ask = |session: SessionId, number: u64, byte: u64, wait| {
        locks.lock(ticket(session, number), request(F, posix(session, number), (byte, byte), Exclusive, wait))
    };
    let refused = Some(LockAnswer::Refused(Errno::ENOLCK));
    for byte in 0..3 {
        assert_eq!(ask(A, byte, byte * 2, Wait::No), Some(LockAnswer::Done));
    }
    assert_eq!(ask(A, 9, 9, Wait::No), refused);
    assert_eq!((ask(B, 1, 0, Wait::Yes), ask(B, 2, 0, Wait::Yes)), (None, None));
    assert_eq!(ask(B, 3, 0, Wait::Yes), refused);
}

fn end(session: SessionId) -> LockOwner {
    LockOwner { session, kind: LockKind::End, id: 0 }
}

fn ask_for_end(locks: &mut Locks, session: SessionId, number: u64) -> Option<LockAnswer> {
    locks.lock(ticket(session, number), request(F, end(session), (0, OFFSET_MAX), Exclusive, Wait::Yes))
}

#[test]
fn the_holder_of_an_end_is_asked_for_it_and_the_next_one_too() {
    const C: SessionId = SessionId(3);
    let mut locks = Locks::new(LockLimits::default(), false);
    assert_eq!(ask_for_end(&mut locks, A, 1), Some(LockAnswer::Done));
    assert!(locks.sessions_to_tell().is_empty(), "nobody else wants it");
    assert_eq!((ask_for_end(&mut locks, B, 1), ask_for_end(&mut locks, C, 1)), (None, None));
    assert_eq!(locks.sessions_to_tell(), BTreeSet::from([A]));
    assert_eq!(locks.tell_wanted(A), [F]);
    assert!(locks.sessions_to_tell().is_empty(), "once");
    locks.tell_again(A);
    assert_eq!(locks.tell_wanted(A), [F], "a connection broke");
    locks.release_end(A, F);
    assert_eq!(locks.take_answers(), [(ticket(B, 1), LockAnswer::Done)]);
    assert_eq!((locks.tell_wanted(A), locks.tell_wanted(B)), (vec![], vec![F]), "a third one waits");
    locks.release_session(B);
    assert_eq!(locks.take_answers(), [(ticket(C, 1), LockAnswer::Done)]);
    assert!(locks.sessions_to_tell().is_empty());
    locks.release_file(C, F);
    assert_eq!(locks.held().count(), 0);
}

#[test]
fn an_end_that_is_not_given_back_is_taken_away() {
    let mut locks = Locks::new(LockLimits::default(), false);
    locks.set_now(100);
    assert_eq!(ask_for_end(&mut locks, A, 1), Some(LockAnswer::Done));
    locks.set_now(100 + 10 * END_PATIENCE_MS);
    locks.tick();
    assert_eq!(ask_for_end(&mut locks, B, 1), None, "it may be kept for as long as nobody wants it");
    locks.set_now(100 + 11 * END_PATIENCE_MS - 1);
    locks.tick();
    assert!(locks.take_answers().is_empty());
    locks.set_now(100 + 11 * END_PATIENCE_MS);
    locks.tick();
    assert_eq!(locks.take_answers(), [(ticket(B, 1), LockAnswer::Done)]);
    let old = HeldLock {
        inode: F,
        kind: LockKind::End,
        owner: 0,
        held: request(F, end(A), (0, OFFSET_MAX), Exclusive, Wait::No).wanted,
    };
    assert_eq!(locks.missing(A, &old), [old]);
    assert!(!locks.reclaim(A, &old));
}

#[test]
fn ends_do_not_wait_for_the_dead_as_long_as_other_locks() {
    let mut locks = Locks::new(LockLimits::default(), true);
    locks.set_now(1000);
    let flock =
        request(F, LockOwner { session: B, kind: LockKind::Flock, id: 1 }, (0, OFFSET_MAX), Exclusive, Wait::Yes);
    assert_eq!((ask_for_end(&mut locks, B, 1), locks.lock(ticket(B, 2), flock)), (None, None));
    let held = HeldLock { inode: G, kind: LockKind::End, owner: 0, held: flock.wanted };
    assert!(locks.reclaim(A, &held));
    locks.set_now(1000 + END_PATIENCE_MS - 1);
    locks.tick();
    assert!(locks.take_answers().is_empty());
    locks.set_now(1000 + END_PATIENCE_MS);
    locks.tick();
    assert_eq!(locks.take_answers(), [(ticket(B, 1), LockAnswer::Done)], "the other kind waits on");
    // From here on they are given at once, unless somebody has come back with them.
    let other = request(G, end(B), (0, OFFSET_MAX), Exclusive, Wait::Yes);
    assert_eq!(locks.lock(ticket(B, 3), other), None);
    assert_eq!(locks.tell_wanted(A), [G]);
    locks.release_end(A, G);
    assert_eq!(locks.take_answers(), [(ticket(B, 3), LockAnswer::Done)]);
    locks.end_grace();
    assert_eq!(locks.take_answers(), [(ticket(B, 2), LockAnswer::Done)]);
}

#[test]
fn ends_take_nothing_of_the_room_for_locks_and_pass_nobody() {
    let mut locks = Locks::new(LockLimits { pieces_per_session: 2, waits_per_session: 9 }, false);
    for number in 0..9 {
        let wanted = request(InodeId(100 + number), end(A), (0, OFFSET_MAX), Exclusive, Wait::Yes);
        assert_eq!(locks.lock(ticket(A, number), wanted), Some(LockAnswer::Done));
    }
    assert_eq!(locks.lock(ticket(A, 20), request(F, posix(A, 1), (0, 1), Shared, Wait::No)), Some(LockAnswer::Done));
    assert_eq!(ask_for_end(&mut locks, B, 1), Some(LockAnswer::Done));
    const C: SessionId = SessionId(3);
    assert_eq!((ask_for_end(&mut locks, C, 1), ask_for_end(&mut locks, A, 30)), (None, None));
    locks.release_end(B, F);
    assert_eq!(locks.take_answers(), [(ticket(C, 1), LockAnswer::Done)], "whatever else A holds, C came first");
}
