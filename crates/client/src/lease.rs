//! What this client may believe without asking, and how that ends.
//!
//! An answer may bear a lease (see the shard's `leases`): until it is recalled or its term is over, whoever asked may
//! keep the answer. Whoever keeps answers (the kernel, for a mount) is told of recalls by one task ([`crate::recall`]),
//! while answers come in on other threads. So an answer must not be passed on as good after its recall was obeyed,
//! whatever the order in which the two arrive:
//!
//! - Each request takes a [`Ticket`] before it is sent. A recall raises a counter, and notes it for its subject.
//! - Who passes an answer on enters its [`Gate`], asks how long the answer is good, passes it on, and leaves. A recall
//!   that was noted after the ticket makes that zero.
//! - A recall is noted first, then it waits until every gate was empty once, and only then what was kept is removed.
//!
//! The clock that terms are measured by stands still while the machine sleeps, and that of the shards does not. So how long it
//! has slept is asked for with each request of the kernel and each answer to it; when that is more than before, all that was
//! told before is noted as recalled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use types::id::InodeId;
use types::name::Name;

use crate::few::Counted;
use crate::mutex::lock;

/// Recalls are noted by the hash of their subject, in so many places. Two subjects in one place cost an answer its
/// lease now and then.
const PLACES: usize = 1 << 14;
/// Where CPUs are short, a program that an answer wakes runs a tenth of a second later and more (seen with four dozen busy
/// threads on two CPUs), and only then the kernel begins to count.
const LEARNS_WITHIN: Duration = Duration::from_millis(500);

/// Two clocks that are read one after the other differ by less, where the thread has a pause between them.
pub(crate) const SLEPT: Duration = Duration::from_millis(100);

/// What a lease covers, as a place where its recalls are noted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Subject(u16);

impl Subject {
    pub(crate) fn inode(inode: InodeId) -> Self {
        Self::of(mix(inode.0))
    }

    pub(crate) fn name(parent: InodeId, name: &Name) -> Self {
        let mut hash = mix(parent.0 ^ 0x5bd1_e995);
        for chunk in name.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
        Self::of(hash)
    }

    fn of(hash: u64) -> Self {
        Self((hash as usize % PLACES) as u16)
    }
}

/// The finaliser of `MurmurHash3` (Appleby, public domain).
pub(crate) fn mix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 33)
}

/// When a request was sent: what its answer says was true after that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    recalls: u64,
    at: Instant,
    /// How long the machine had slept by then.
    asleep: Duration,
}

impl Ticket {
    pub(crate) fn at(self) -> Instant {
        self.at
    }

    /// One of so long ago.
    #[cfg(test)]
    pub(crate) fn before(self, ago: Duration) -> Self {
        Self { at: self.at - ago, ..self }
    }
}

/// The right to believe an answer for a while.
#[derive(Clone, Copy, Debug)]
pub struct Lease(Option<Term>);

#[derive(Clone, Copy, Debug)]
struct Term {
    subject: Subject,
    recalls: u64,
    from: Instant,
    until: Instant,
    /// How long the machine had slept at its beginning.
    asleep: Duration,
}

impl Lease {
    pub(crate) const NONE: Lease = Lease(None);

    /// What an answer grants with a term of `lease_ms` milliseconds; with 0 it grants nothing. A part of the term is
    /// kept back: clocks may run differently, and what we pass on takes its time.
    pub(crate) fn granted(ticket: Ticket, subject: Subject, lease_ms: u32) -> Lease {
        if lease_ms == 0 {
            return Lease::NONE;
        }
        let term = Duration::from_millis(u64::from(lease_ms - lease_ms / 20));
        let Ticket { recalls, at, asleep } = ticket;
        Lease(Some(Term { subject, recalls, from: at, until: at + term, asleep }))
    }

    /// For how long it would last if it were not recalled: as long as a recall is not acknowledged, the shard counts on that.
    pub(crate) fn rest(self, now: Instant) -> Duration {
        if self.0.is_none() { Duration::ZERO } else { self.rest_of(now, ring::asleep()) }
    }

    /// What [`Self::rest`] says, where the machine has slept for `asleep` in all.
    fn rest_of(self, now: Instant, asleep: Duration) -> Duration {
        let Some(term) = self.0 else { return Duration::ZERO };
        let slept = Some(asleep.saturating_sub(term.asleep)).filter(|slept| *slept >= SLEPT).unwrap_or_default();
        term.until.saturating_duration_since(now).saturating_sub(slept)
    }

    /// From when it was asked for; zero for none.
    pub(crate) fn term(self) -> Duration {
        self.0.map_or(Duration::ZERO, |term| term.until - term.from)
    }

    /// Of two on the same thing, both held, the one that is held longer.
    pub(crate) fn later(self, other: Lease) -> Lease {
        let until = |lease: &Lease| lease.0.map(|term| term.until);
        if until(&other) > until(&self) { other } else { self }
    }
}

/// Recalls so far, and who passes answers on.
pub(crate) struct Board {
    recalls: AtomicU64,
    places: Box<[AtomicU64]>,
    /// The last one that concerned all subjects.
    all: AtomicU64,
    gates: Mutex<Vec<Arc<AtomicBool>>>,
    /// How long the machine had slept when that was last seen to have grown, ms.
    asleep_ms: AtomicU64,
    /// By changes that are in doubt: see [`crate::given_up`].
    doubted: Counted<Subject>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self {
            recalls: AtomicU64::new(0),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
            gates: Mutex::default(),
            asleep_ms: AtomicU64::new(0),
            doubted: Counted::default(),
        }
    }

    /// Before a request is sent.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { recalls: self.recalls.load(Ordering::SeqCst), at: Instant::now(), asleep: ring::asleep() }
    }

    /// Notes recalls of these. When it returns, nobody passes on an answer from before as good any more.
    pub(crate) fn recall(&self, subjects: impl Iterator<Item = Subject>) {
        for subject in subjects {
            self.note(subject);
        }
        // Nobody inside a gate waits for this: who drops one leaves it before.
        for gate in lock(&self.gates).iter() {
            // For one reply to the kernel: some microseconds, unless its thread has lost its CPU.
            while gate.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    }

    /// Notes a recall of `subject`: what was asked for before this is not to be kept.
    pub(crate) fn note(&self, subject: Subject) {
        let number = self.recalls.fetch_add(1, Ordering::SeqCst) + 1;
        self.places[usize::from(subject.0)].fetch_max(number, Ordering::SeqCst);
    }

    /// Notes a recall of all subjects: nothing that was asked for before this is to be kept.
    pub(crate) fn note_all(&self) {
        let number = self.recalls.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(number, Ordering::SeqCst);
    }

    /// The machine has slept for so long in all. True for the first who says so since it has: nothing that was told before is
    /// believed then.
    pub(crate) fn has_slept(&self, asleep: Duration) -> bool {
        let asleep_ms = u64::try_from(asleep.as_millis()).unwrap_or(u64::MAX);
        let grown = |known: u64| asleep_ms >= known.saturating_add(SLEPT.as_millis() as u64);
        if !grown(self.asleep_ms.load(Ordering::SeqCst)) {
            return false;
        }
        // Before anybody finds that it was seen.
        self.note_all();
        grown(self.asleep_ms.fetch_max(asleep_ms, Ordering::SeqCst))
    }

    /// It may be changed at any time without a recall: until [`Self::end_doubt`], before which it is to be noted, no lease on
    /// it is held.
    pub(crate) fn begin_doubt(&self, subject: Subject) {
        self.doubted.begin(subject);
    }

    pub(crate) fn end_doubt(&self, subject: Subject) {
        self.doubted.end(&subject);
    }

    /// Subjects in doubt.
    pub(crate) fn doubts(&self) -> usize {
        self.doubted.count()
    }

    /// The lease is held: neither over nor recalled, so that the answer may be given now to who asks. (Who keeps it for
    /// later enters a [`Gate`].)
    pub(crate) fn holds(&self, lease: Lease, now: Instant) -> bool {
        !self.remaining(lease, now).is_zero()
    }

    /// The lease is held, and more than `margin` of its term is left, also if the machine has slept a moment ago: something
    /// may be kept back under it.
    pub(crate) fn holds_for(&self, lease: Lease, now: Instant, margin: Duration) -> bool {
        self.keeps_for(lease, now, ring::asleep(), margin)
    }

    /// What [`Self::holds_for`] says, where the machine has slept for `asleep` in all.
    fn keeps_for(&self, lease: Lease, now: Instant, asleep: Duration, margin: Duration) -> bool {
        self.remaining(lease, now).min(lease.rest_of(now, asleep)) > margin
    }

    /// The lease is held, and more than a quarter of its term is left: it need not be renewed yet.
    pub(crate) fn holds_long(&self, lease: Lease, now: Instant) -> bool {
        self.remaining(lease, now) > lease.term() / 4
    }

    /// The lease is held, and more than three quarters of its term are left: it has only just begun.
    pub(crate) fn holds_most(&self, lease: Lease, now: Instant) -> bool {
        self.remaining(lease, now) > lease.term() / 4 * 3
    }

    /// The lease is held, and at most half of its term is left: time to renew it, if it is to be held on.
    pub(crate) fn is_to_be_renewed(&self, lease: Lease, now: Instant) -> bool {
        let rest = self.remaining(lease, now);
        !rest.is_zero() && rest <= lease.term() / 2
    }

    /// What is left of the lease's term; zero where it was recalled, or its subject is in doubt.
    fn remaining(&self, lease: Lease, now: Instant) -> Duration {
        let Some(term) = lease.0 else { return Duration::ZERO };
        let recalled = self.places[usize::from(term.subject.0)].load(Ordering::SeqCst);
        if recalled.max(self.all.load(Ordering::SeqCst)) > term.recalls {
            return Duration::ZERO;
        }
        if self.doubted.has(&term.subject) {
            return Duration::ZERO;
        }
        term.until.saturating_duration_since(now)
    }
}

/// One thread's way of passing answers on. See the module.
pub struct Gate {
    shared: Arc<crate::Shared>,
    inside: Arc<AtomicBool>,
}

impl Gate {
    pub(crate) fn new(shared: &Arc<crate::Shared>) -> Self {
        let inside = Arc::new(AtomicBool::new(false));
        lock(&shared.board.gates).push(Arc::clone(&inside));
        Self { shared: Arc::clone(shared), inside }
    }

    /// From now on until [`Gate::leave`], recalls wait. Never across a wait of one's own.
    pub fn enter(&self) {
        self.shared.look_for_sleep();
        self.inside.store(true, Ordering::SeqCst);
    }

    /// For how long the answer may be believed once it is known. Inside the gate only. A little less than its lease, so that
    /// who asks all the time asks again while it is held, and what is kept under it goes on being good; and so that it ends
    /// in time though the kernel counts from when the program runs that asked.
    #[must_use]
    pub fn remaining(&self, lease: Lease, now: Instant) -> Duration {
        debug_assert!(self.inside.load(Ordering::Relaxed), "only inside the gate");
        let rest = self.shared.board.remaining(lease, now);
        rest.saturating_sub((rest / 20).max(LEARNS_WITHIN))
    }

    /// Recalls wait.
    #[must_use]
    pub fn is_entered(&self) -> bool {
        self.inside.load(Ordering::Relaxed)
    }

    /// What was asked for inside has been passed on.
    pub fn leave(&self) {
        self.inside.store(false, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.leave();
        let mut gates = lock(&self.shared.board.gates);
        gates.retain(|gate| !Arc::ptr_eq(gate, &self.inside));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    #[test]
    fn an_answer_asked_for_before_a_recall_is_worth_nothing_after_it() {
        let board = Board::new();
        let (file, other) = (Subject::inode(InodeId(77)), Subject::name(InodeId(77), &name("x")));
        let before = board.ticket();
        let lease = Lease::granted(before, file, 10_000);
        assert!(board.remaining(lease, before.at) == Duration::from_millis(9_500));
        board.recall([other].into_iter());
        assert!(!board.remaining(lease, before.at).is_zero(), "something else was recalled");
        board.recall([file].into_iter());
        assert!(board.remaining(lease, before.at).is_zero());
        let after = board.ticket();
        assert!(!board.remaining(Lease::granted(after, file, 10_000), after.at).is_zero());
        assert!(board.remaining(Lease::granted(after, file, 0), after.at).is_zero());
        let late = after.at + Duration::from_millis(9_500);
        assert!(board.remaining(Lease::granted(after, file, 10_000), late).is_zero());
    }

    #[test]
    fn the_time_of_a_term_goes_on_while_the_machine_sleeps() {
        let (board, seconds) = (Board::new(), Duration::from_secs);
        let ticket = Ticket { asleep: seconds(100), ..board.ticket() };
        let lease = Lease::granted(ticket, Subject::inode(InodeId(5)), 10_000);
        let rest = |after: u64, asleep| lease.rest_of(ticket.at + seconds(after), asleep);
        assert_eq!(rest(1, seconds(100)), Duration::from_millis(8_500));
        assert_eq!(rest(1, seconds(100) + SLEPT / 2), Duration::from_millis(8_500), "two clocks");
        assert_eq!(rest(1, seconds(105)), Duration::from_millis(3_500));
        assert_eq!(rest(1, seconds(3600)), Duration::ZERO);
    }

    #[test]
    fn nothing_is_kept_back_under_a_lease_that_ended_while_the_machine_slept() {
        let (board, seconds) = (Board::new(), Duration::from_secs);
        let ticket = Ticket { asleep: seconds(100), ..board.ticket() };
        let lease = Lease::granted(ticket, Subject::inode(InodeId(5)), 10_000);
        let keeps = |asleep| board.keeps_for(lease, ticket.at + seconds(1), seconds(asleep), seconds(2));
        assert!(keeps(100) && keeps(105) && !keeps(107) && !keeps(3600));
        board.recall([Subject::inode(InodeId(5))].into_iter());
        assert!(!keeps(100));
    }

    #[test]
    fn what_was_told_before_the_machine_slept_is_not_believed_after_it() {
        let (board, file) = (Board::new(), Subject::inode(InodeId(5)));
        let lease = || Lease::granted(board.ticket(), file, 10_000);
        assert!(board.has_slept(Duration::from_secs(100)), "before the mount began");
        let before = lease();
        assert!(!board.has_slept(Duration::from_secs(100) + SLEPT / 2));
        assert!(board.holds(before, Instant::now()));
        assert!(board.has_slept(Duration::from_secs(103)) && !board.has_slept(Duration::from_secs(103)));
        assert!(!board.holds(before, Instant::now()) && board.holds(lease(), Instant::now()));
    }

    #[test]
    fn a_recall_waits_for_who_is_inside() {
        let board = Arc::new(Board::new());
        let inside = Arc::new(AtomicBool::new(true));
        board.gates.lock().expect("no panic").push(Arc::clone(&inside));
        let (told, tells) = std::sync::mpsc::channel();
        let recalling = std::thread::spawn({
            let board = Arc::clone(&board);
            move || {
                board.recall([Subject::inode(InodeId(5))].into_iter());
                told.send(()).expect("the test listens");
            }
        });
        assert!(tells.recv_timeout(Duration::from_millis(50)).is_err(), "it has to wait");
        inside.store(false, Ordering::SeqCst);
        tells.recv_timeout(Duration::from_secs(10)).expect("nobody is inside");
        recalling.join().expect("ends");
    }
}
