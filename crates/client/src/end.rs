//! The end of a file: among all clients, who holds it at the file's shard appends and cuts alone.
//!
//! It is kept until the shard says that somebody else waits for it, so that who appends all the time asks once. To hold it
//! is what keeps records in order and whole; that none is written over another does not rest on it but on the versions of
//! the objects: see [`crate::append`]. So a client that has lost it unawares does no harm.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::lock::{Held, LockKind, LockMode, LockRange, Wait};
use wire::v1::lock::{self, HeldLock};

use crate::caller::Caller;
use crate::file::File;
use crate::lease::Lease;
use crate::locks::{Ended, lock_request};
use crate::looks::Looks;
use crate::router::Client;
use crate::shared::Shared;

/// The owner of all ends that this client holds.
const OWNER: u64 = 0;
const WHOLE: Held = Held { range: LockRange::ALL, mode: LockMode::Exclusive, pid: 0 };
/// How often an end is asked for whose write intent ended meanwhile.
const INTENTS_MAX: u32 = 8;
/// So long the rest of a long write may take to come.
const REST_PATIENCE: Duration = Duration::from_millis(100);
/// Who waits for its turn looks at least so often: by what one is late, all who are behind it in the queue are.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How often it is looked whether an end that others wait for can be given back.
const LOOK_IF_FREE: Duration = Duration::from_millis(1);

/// What a client knows of the end of a file that it has open.
#[derive(Debug)]
pub(crate) struct End {
    /// The turn of who works at the end or gives it back: others of this client wait.
    turn: Option<u64>,
    /// Those who are going to work there, in the order in which they shall.
    queue: VecDeque<Waiting>,
    held: bool,
    /// Another client waits for it.
    wanted: bool,
    /// Until then the rest of a write that was cut may come.
    unfinished_until: Option<Instant>,
    /// As long as this is not taken back, no other client has a write intent: the size that is known here is the end.
    pub(crate) alone: Lease,
    /// Of the objects, as last seen. What is written under another version than the present one is refused.
    pub(crate) versions: BTreeMap<u32, u64>,
}

impl Default for End {
    fn default() -> Self {
        Self {
            turn: None,
            queue: VecDeque::new(),
            held: false,
            wanted: false,
            unfinished_until: None,
            alone: Lease::NONE,
            versions: BTreeMap::new(),
        }
    }
}

/// One who is going to work at the end of a file.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u64,
    /// Of who appends: where the kernel takes the end for.
    offset: Option<u64>,
    /// It was the first of all, and works for its turn by now.
    has_begun: bool,
}

/// What can be done about an end that others wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// Nobody works at it: it is the caller's turn.
    Free,
    /// Somebody works at it: it can be given back only after that.
    Busy,
    /// The end was given back already, and there is nothing left to do.
    Gone,
}

impl End {
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// It is not held any more, or that is not sure.
    pub(crate) fn given_up(&mut self) {
        self.held = false;
        self.doubt();
    }

    /// What is known of objects and size may be outdated.
    pub(crate) fn doubt(&mut self) {
        self.alone = Lease::NONE;
        self.versions.clear();
    }

    /// Last; but who appends comes before those who do so behind its `offset`, unless they have begun.
    fn enqueue(&mut self, number: u64, offset: Option<u64>) {
        let follows = |other: &Waiting| !other.has_begun && offset.is_some_and(|offset| other.offset > Some(offset));
        let at = self.queue.iter().position(follows).unwrap_or(self.queue.len());
        self.queue.insert(at, Waiting { number, offset, has_begun: false });
    }

    fn dequeue(&mut self, number: u64) {
        self.queue.retain(|waiting| waiting.number != number);
    }

    /// Nobody is before who is still to have it.
    fn take_turn(&mut self, number: u64) -> bool {
        let free = self.turn.is_none() && !self.is_behind(number);
        if free {
            self.turn = Some(number);
            self.dequeue(number);
        }
        free
    }

    /// Somebody is before who neither had the turn nor went. Who appends and has not begun is before those alone who append:
    /// what it waits for may be for another one to end who needs a turn for that.
    fn is_behind(&self, number: u64) -> bool {
        let Some(at) = self.queue.iter().position(|waiting| waiting.number == number) else {
            return !self.queue.is_empty();
        };
        let appends = self.queue[at].offset.is_some();
        self.queue.range(..at).any(|before| appends || before.has_begun || before.offset.is_none())
    }

    /// Who appends begins where nobody is before.
    fn begin(&mut self, number: u64) -> bool {
        let first = !self.is_behind(number);
        if first && let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.number == number) {
            waiting.has_begun = true;
        }
        first
    }

    /// Before all who wait for it.
    fn take_turn_first(&mut self, number: u64) -> bool {
        let free = self.turn.is_none();
        if free {
            self.turn = Some(number);
        }
        free
    }

    /// The rest of a write that was cut may follow.
    fn is_unfinished(&self, now: Instant) -> bool {
        self.unfinished_until.is_some_and(|until| now < until)
    }

    /// `number`: for the turn.
    fn look_if_free(&mut self, number: u64, now: Instant) -> Wanted {
        if !self.wanted {
            return Wanted::Gone;
        }
        if self.is_unfinished(now) || !self.take_turn_first(number) { Wanted::Busy } else { Wanted::Free }
    }
}

/// For a shard that is told what is held.
pub(crate) fn held(inode: InodeId) -> HeldLock {
    HeldLock { inode, kind: LockKind::End, owner: OWNER, held: WHOLE }
}

/// A place in the queue of those who work at the end, until it is dropped.
pub struct Place {
    shared: Arc<Shared>,
    inode: InodeId,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.with_file(self.inode, |file| file.end.dequeue(self.number));
    }
}

/// The right to work at the end, among the threads of this client, until it is dropped.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    inode: InodeId,
    number: u64,
    /// When it began, the rest of a write that was cut was still to come.
    rest_follows: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.with_file(self.inode, |file| {
            if file.end.turn == Some(self.number) {
                file.end.turn = None;
            }
        });
    }
}

impl Client {
    /// Waits until no other operation of this client works at the end of the file, which is open.
    ///
    /// # Errors
    /// `EBADF` where it is not open, `EINTR`.
    pub(crate) async fn turn_at_end(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Turn, Errno> {
        self.turn_of(caller, self.queue_at_end(inode, None)).await
    }

    fn queue_at_end(&self, inode: InodeId, offset: Option<u64>) -> Place {
        let number = self.shared.locks.number();
        self.shared.with_file(inode, |file| file.end.enqueue(number, offset));
        Place { shared: Arc::clone(&self.shared), inode, number }
    }

    /// A place among those who append to the file. The kernel sends the parts of a long append all at once (where the program
    /// does not wait for it), to several threads; it lets nobody else append meanwhile. So their `offset`s, which say where it
    /// takes the end of the file for, tell which comes first. To be asked for before anything is waited for.
    #[must_use]
    pub fn place_to_append(&self, inode: InodeId, offset: u64) -> Place {
        self.queue_at_end(inode, Some(offset))
    }

    /// Waits until all who are before have their turn, or are gone.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn first_at_end(&self, caller: &Caller<'_>, place: &Place) -> Result<(), Errno> {
        let waits = || self.shared.file_is(place.inode, |file| !file.end.begin(place.number));
        Looks::within(LOOK_AGAIN).until(caller, || (!waits()).then_some(())).await
    }

    /// As [`Self::turn_at_end`], of who is in the queue.
    pub(crate) async fn turn_of(&self, caller: &Caller<'_>, place: Place) -> Result<Turn, Errno> {
        let Place { inode, number, .. } = place;
        let take = |file: &mut File| file.end.take_turn(number).then(|| file.end.is_unfinished(Instant::now()));
        let taken = || self.shared.with_file(inode, take).ok_or(Errno::EBADF).transpose();
        let rest_follows = Looks::within(LOOK_AGAIN).until(caller, taken).await??;
        Ok(Turn { shared: Arc::clone(&self.shared), inode, number, rest_follows })
    }

    /// Holds the end of the file, which this client intends to write. It is the caller's turn.
    ///
    /// # Errors
    /// `EINTR`, `EIO` where the shard does not answer within the bound.
    pub(crate) async fn hold_end(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let (shard, caller) = (inode.home(), &caller.but_for_its_end());
        // Where the session may have ended, others may hold it by now.
        let sure = self.shared.assurances.is_sure(shard, ring::now());
        if !sure {
            self.shared.with_file(inode, |file| file.end.given_up());
            self.reopen_session(shard);
        }
        for _ in 0..INTENTS_MAX {
            if self.shared.file_is(inode, |file| file.end.held) {
                return Ok(());
            }
            let number = self.shared.locks.number();
            let telling = self.shared.locks.tellings(shard);
            let request = lock_request(number, inode, (LockKind::End, OWNER), WHOLE, Wait::Yes);
            match self.ask_for_lock(caller, shard, number, &request).await {
                Ok(_) => self.got_end(inode, telling),
                // A settling has ended the intent.
                Err(Ended::Refused(Errno::EBADF)) => {
                    self.shared.with_file(inode, File::lose_intent);
                    self.ensure_intent(caller, inode).await?;
                }
                Err(Ended::Refused(errno)) => return Err(errno),
                Err(Ended::Unknown(errno)) => {
                    self.abandon_end(inode, number);
                    return Err(errno);
                }
            }
        }
        Err(Errno::EIO)
    }

    /// Noted first, so that a shard which begins anew is told of it; then it counts, if that has not happened meanwhile.
    fn got_end(&self, inode: InodeId, telling: u64) {
        self.shared.with_file(inode, |file| {
            file.end.given_up();
            file.end.held = true;
        });
        if self.shared.locks.tellings(inode.home()) != telling {
            self.shared.with_file(inode, |file| file.end.given_up());
        }
    }

    /// Nobody waits for this request any more, but the shard may grant it yet.
    fn abandon_end(&self, inode: InodeId, number: u64) {
        self.in_background(async move |client| {
            client.insist(inode, &lock::CancelLock { number }).await;
            client.give_back_wanted_end(inode).await;
        });
    }

    /// The caller is done at the end, where it may have come between the parts of a long append: no program waits for it, so
    /// that the kernel lets it in.
    pub(crate) fn leave_end_as_found(&self, turn: Turn) {
        let rest_follows = turn.rest_follows;
        self.leave_end(turn, rest_follows);
    }

    /// The caller is done at the end for now. `unfinished`: the rest of its write may follow.
    pub(crate) fn leave_end(&self, turn: Turn, unfinished: bool) {
        let now = Instant::now();
        // Who does not hear what others wait for keeps nothing.
        let keeps = self.shared.kept.is_enabled();
        let due = self.shared.file_is(turn.inode, |file| {
            let end = &mut file.end;
            end.wanted |= !keeps;
            end.unfinished_until = unfinished.then(|| now + REST_PATIENCE);
            end.wanted && end.held && !unfinished
        });
        if due {
            self.in_background(async move |client| client.give_end_back(turn).await);
        } else if unfinished && !keeps {
            let inode = turn.inode;
            drop(turn);
            self.in_background(async move |client| client.give_back_wanted_end(inode).await);
        }
    }

    /// Another client waits for the end of the file: gives it back as soon as no operation of this one works there.
    pub(crate) async fn give_back_wanted_end(self: Rc<Self>, inode: InodeId) {
        let number = self.shared.locks.number();
        self.shared.with_file(inode, |file| file.end.wanted = true);
        while !self.shared.has_ended() {
            match self.shared.with_file(inode, |file| file.end.look_if_free(number, Instant::now())) {
                Some(Wanted::Busy) => ring::sleep(LOOK_IF_FREE).await,
                Some(Wanted::Free) => {
                    return self
                        .give_end_back(Turn { shared: Arc::clone(&self.shared), inode, number, rest_follows: false })
                        .await;
                }
                // Also one that is not open: the close has given it back, or will.
                Some(Wanted::Gone) | None => return,
            }
        }
    }

    async fn give_end_back(&self, turn: Turn) {
        let inode = turn.inode;
        self.shared.with_file(inode, |file| {
            file.end.given_up();
            file.end.wanted = false;
        });
        let (kind, owner, range) = (LockKind::End, OWNER, LockRange::ALL);
        let caller = Caller::patient(Credentials::default());
        let request = lock::Unlock { inode, kind, owner, range };
        let destination = crate::router::Destination::home(inode);
        if let Err(error) = self.call(&caller, destination, &request).await {
            warn!(%inode, "could not give the end of a file back: {error}; the shard takes it in time");
        }
        drop(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_client;

    #[test]
    fn an_end_that_others_want_is_given_back_between_writes_and_not_within_one() {
        let (mut end, now) = (End { held: true, ..End::default() }, Instant::now());
        assert_eq!(end.look_if_free(1, now), Wanted::Gone, "nobody wants it");
        end.wanted = true;
        assert!(end.take_turn(2) && !end.take_turn(3));
        assert_eq!(end.look_if_free(1, now), Wanted::Busy);
        end.turn = None;
        end.unfinished_until = Some(now + REST_PATIENCE);
        assert_eq!(end.look_if_free(1, now), Wanted::Busy, "the rest of the write is to come");
        assert_eq!(end.look_if_free(1, now + REST_PATIENCE), Wanted::Free, "it did not come");
        assert!(!end.take_turn(4), "until it is given back");
    }

    /// It was not let in by the kernel, which has a long append to the end first.
    #[test]
    fn who_came_between_the_parts_of_an_append_leaves_the_end_as_it_was() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_client::run(async |client| {
            client.shared.with_new_file(file, || test_client::file(file), |file| file.add_handle(true));
            for rest_follows in [true, false] {
                let before = rest_follows.then(|| Instant::now() + Duration::from_secs(60));
                client.shared.with_file(file, |file| file.end.unfinished_until = before);
                let turn = client.turn_at_end(&caller, file).await.expect("it is open");
                client.leave_end_as_found(turn);
                let is_unfinished = client.shared.file_is(file, |file| file.end.is_unfinished(Instant::now()));
                assert_eq!(is_unfinished, rest_follows);
            }
        });
    }

    #[test]
    fn who_came_first_works_first_though_another_one_is_ready_before() {
        let mut end = End::default();
        (1..=3).for_each(|number| end.enqueue(number, None));
        assert!(!end.take_turn(2) && end.take_turn(1) && !end.take_turn(2));
        end.turn = None;
        end.wanted = true;
        assert_eq!(end.look_if_free(9, Instant::now()), Wanted::Free, "others wait for it");
        end.turn = None;
        // The second has gone.
        end.dequeue(2);
        assert!(end.take_turn(3));
        end.turn = None;
        assert!(end.take_turn(4), "nobody waits");
    }

    /// Their parts are told apart by the offset alone: threads that read at the same time come in any order.
    #[test]
    fn who_appends_comes_before_who_appends_behind_it_and_has_not_begun() {
        let (mut end, mib) = (End::default(), 1 << 20);
        assert!(end.take_turn(9));
        for (number, offset) in [(1, 0), (4, 3 * mib), (2, mib), (3, 2 * mib)] {
            end.enqueue(number, Some(offset));
        }
        assert!((2..=4).all(|number| !end.begin(number)) && end.begin(1) && !end.begin(2));
        end.enqueue(5, Some(0));
        assert!(!end.begin(5), "too late");
        end.turn = None;
        assert!(!end.take_turn(5) && end.take_turn(1));
        end.dequeue(5);
        for number in 2..=4 {
            end.turn = None;
            assert!((number + 1..=4).all(|later| !end.begin(later)), "{number}");
            assert!(end.begin(number) && end.take_turn(number), "{number}");
        }
        assert!(end.queue.is_empty());
    }

    /// Who changes attributes before it appends waits for the end of a truncate that failed, which is told in a turn.
    #[test]
    fn who_appends_and_has_not_begun_is_in_the_way_of_nobody_else() {
        let mut end = End::default();
        end.enqueue(1, Some(0));
        end.enqueue(2, None);
        end.enqueue(3, Some(5));
        assert!(!end.begin(3) && end.take_turn(2));
        end.turn = None;
        end.enqueue(4, None);
        assert!(end.begin(1) && !end.take_turn(4), "by now it is");
        assert!(end.take_turn(1) && !end.take_turn(4));
    }

    #[test]
    fn what_was_known_under_an_end_ends_with_it() {
        let mut end = End { held: true, versions: BTreeMap::from([(0, 7)]), ..End::default() };
        end.doubt();
        assert!(end.is_held() && end.versions.is_empty());
        end.given_up();
        assert!(!end.is_held());
    }
}
