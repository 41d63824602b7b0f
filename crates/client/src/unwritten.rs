//! Writes that are kept back: small ones to be written together, long ones so that programs go on meanwhile.
//!
//! Who alone writes a file, while no other session has it open, may keep back what programs have written for as long as it
//! holds a lease on the file's attributes: whoever asks for the file, or opens it, takes that lease back first, and then
//! all is written before it is given up (`recall.rs`). It is written as well when enough has gathered, after a while, before
//! this client itself looks at the objects, and before `fsync` and `close` return, which so tell of errors; what could
//! not be written stays here and is tried again.
//!
//! A client that was stopped or cut off may find that its lease is over: what it kept back then is lost, and everybody who
//! has the file open here is told `EIO`. So that nothing of it arrives late, over what others have written since,
//! each object takes it only if it was not changed since a version that was given out while the lease was held. Where none is
//! known, nothing is kept back: the write goes through, and its answer tells. No object was changed of a file that this client
//! has made and that nobody was told of: any version of the same lane will do.
//!
//! A shard that has restarted renews no lease under which something was kept back before, since it cannot know what others did
//! in between. So nothing is kept back under one of which half the term is over: servers that were all killed at once have that
//! long to come back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::map::CapacityClass;
use ring::buf::Slice;
use tracing::{error, warn};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{GroupId, InodeId};
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::{meta, storage};

use crate::caller::Caller;
use crate::draft::Draft;
use crate::file::File;
use crate::lease::{Board, Lease, Subject, Ticket};
use crate::looks::Looks;
use crate::metrics::Bytes;
use crate::patience::Patience;
use crate::router::{Client, Destination};
use crate::shared::Shared;
use crate::unwritten::flight::Flight;
use crate::unwritten::runs::Runs;

pub(crate) mod crowd;
mod flight;
mod keeping;
pub(crate) mod landing;
mod readers;
mod runs;
pub(crate) mod taken;

/// With so much of a file that is worth being written by itself ([`Runs::ripe`], bytes), writing that begins...
const ENOUGH: usize = 1 << 20;
/// ...and with so much of whatever kind ([`Runs::work`], bytes) writing all...
const ENOUGH_OF_ALL: usize = 4 << 20;
/// Nothing stays here for longer, unless servers do not answer.
pub(crate) const AGE_MAX: Duration = Duration::from_millis(500);
/// Between two attempts to write what could not be written.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Nothing more is kept back when a lease lasts no longer than this.
pub(crate) const MARGIN: Duration = Duration::from_secs(2);

/// What is kept back of one file.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// While it is held, nobody else has the file open, or is told of it.
    lease: Lease,
    /// How often all that is known of the objects came to nothing: others may have changed them in between.
    begun: u64,
    /// With writes that go through although more could be kept back.
    patience: Patience,
    /// Of objects, as of a moment at which the lease was held.
    versions: BTreeMap<u32, u64>,
    /// Nobody has changed objects that have none here since the file was made, and there is space for them.
    fresh: bool,
    /// The time of the last write, by this client's clock: its objects get it, though they may be written much later. Times
    /// that are set here afterwards are later, too. 0: they note themselves when they are written.
    at: Timestamp,
    waiting: Runs,
    /// What is about to be cut off was taken out: it may come back.
    is_cut: bool,
    /// On the way to the servers.
    flying: Option<Arc<Runs>>,
    /// Tasks that write. One goes on for a moment where what it writes was given up.
    flights: u32,
    /// How many writes were kept back, and how many of these are with the servers.
    kept: u64,
    written: u64,
    /// How many somebody waits for.
    wanted: u64,
    /// A task looks after it.
    watched: bool,
    try_at: Option<Instant>,
    /// How much may be kept back that is for this group, by the last look. Of what has changed since it tells nothing.
    in_time: Option<(GroupId, usize)>,
    /// Its targets were short of space when that was looked at last: nothing more is kept back.
    short: bool,
    /// Something was given up.
    lost: bool,
}

impl Default for Unwritten {
    fn default() -> Self {
        Self {
            lease: Lease::NONE,
            begun: 0,
            patience: Patience::default(),
            versions: BTreeMap::new(),
            fresh: false,
            at: Timestamp(0),
            waiting: Runs::default(),
            is_cut: false,
            flying: None,
            flights: 0,
            kept: 0,
            written: 0,
            wanted: 0,
            watched: false,
            try_at: None,
            in_time: None,
            short: false,
            lost: false,
        }
    }
}

impl Unwritten {
    pub(crate) fn is_clean(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_none()
    }

    /// Something is here that is not on its way.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Something is on its way to the servers, or was given up and still may be.
    pub(crate) fn is_flying(&self) -> bool {
        self.flights > 0
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    #[cfg(test)]
    pub(crate) fn keep_for_test(&mut self, offset: u64, bytes: &[u8]) {
        self.waiting.put(offset, bytes);
        self.kept += 1;
    }

    /// The objects may not have what is to be read of this range.
    pub(crate) fn has_some_of(&self, range: &Range<u64>) -> bool {
        self.is_cut
            || self.waiting.have_some_of(range)
            || self.flying.as_ref().is_some_and(|runs| runs.have_some_of(range))
    }

    /// All of this range, as it was written last.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<Slice> {
        // What was taken out may be newer than what is on its way.
        if self.is_cut {
            return None;
        }
        let flying = || self.flying.as_ref().filter(|_| !self.waiting.have_some_of(range))?.find(range);
        self.waiting.find(range).or_else(flying)
    }

    /// Bytes, about: see [`Runs::weight`].
    fn weight(&self) -> usize {
        self.waiting.weight() + self.flying.as_ref().map_or(0, |runs| runs.weight())
    }

    /// It has been here for a while. With a stream of long writes something is always on its way, which leaves short ones
    /// behind: then the next that is takes all.
    fn leave_nothing_behind(&mut self) {
        if self.flying.is_some() {
            self.wanted = self.wanted.max(self.kept);
        }
    }

    /// It is time to write some: there is enough, or all that was here at some time is wanted.
    fn is_due(&self, now: Instant) -> bool {
        let is_wanted = self.wanted > self.written && !self.waiting.is_empty();
        let is_enough = self.waiting.ripe() >= ENOUGH || self.waiting.work() >= ENOUGH_OF_ALL || is_wanted;
        is_enough && self.flying.is_none() && self.try_at.is_none_or(|at| now >= at)
    }

    /// What to write next: all, where that is asked for or somebody waits for it, or else what does not grow any more, if that
    /// is enough.
    fn take(&mut self, all: bool) -> Runs {
        if all || self.wanted > self.written || self.waiting.ripe() < ENOUGH {
            self.waiting.take_all()
        } else {
            self.waiting.take_ripe()
        }
    }

    /// Who has the file open is told.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// The first handle is being opened: nobody is left who was to be told of a loss.
    pub(crate) fn begin(&mut self) {
        self.lost = false;
    }

    /// The file is closed. What is still here could not be written, which the last `close` has told.
    pub(crate) fn end(&mut self, total: &Bytes, inode: InodeId) {
        let bytes = self.weight();
        if bytes > 0 {
            total.change(bytes, 0);
            error!(%inode, bytes, "a file was closed whose last writes could not be written: they are lost");
        }
    }

    fn change_waiting<R>(&mut self, total: &Bytes, change: impl FnOnce(&mut Runs) -> R) -> R {
        let before = self.weight();
        let result = change(&mut self.waiting);
        total.change(before, self.weight());
        result
    }

    /// See [`File::know_objects_anew`].
    pub(crate) fn begin_anew(&mut self, lease: Lease) {
        (self.lease, self.fresh, self.at, self.short) = (lease, false, Timestamp(0), false);
        self.begun += 1;
        self.versions.clear();
    }

    fn saw(&mut self, board: &Board, stripe: u32, version: u64) {
        if board.holds(self.lease, Instant::now()) {
            let known = self.versions.entry(stripe).or_insert(version);
            *known = version.max(*known);
        }
    }
}

/// What is kept back of a file, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct KeptBack {
    /// A draft's contents are on their way to where objects are written from, or have to go there: the rest follows that.
    contents: bool,
    /// Of the first so many writes not all are with the servers, or something is lost.
    writes: Option<u64>,
    /// The shard has to be told of a draft.
    pub(crate) draft: bool,
}

impl File {
    pub(crate) fn kept_back(&self) -> KeptBack {
        let (draft, unwritten) = (self.draft.as_deref(), &self.unwritten);
        KeptBack {
            contents: draft.is_some_and(|draft| draft.asking || draft.is_long()),
            writes: (unwritten.lost || !unwritten.is_clean()).then_some(unwritten.kept),
            draft: draft.is_some_and(Draft::is_changed),
        }
    }

    /// All that there is of a new file, and that its objects are to have: nobody else has seen these, as long as `lease` is
    /// held. True where a task is to look after it. `has_room`: the targets have.
    pub(crate) fn keep_back_all(&mut self, total: &Bytes, draft: &mut Draft, has_room: bool) -> bool {
        self.know_objects_anew(draft.lease);
        let unwritten = &mut self.unwritten;
        (unwritten.fresh, unwritten.at) = (has_room, draft.written());
        let contents = draft.leave_metadata();
        if contents.is_empty() {
            return false;
        }
        let before = unwritten.weight();
        self.size = contents.len() as u64;
        unwritten.waiting.put_first(contents);
        unwritten.kept += 1;
        total.change(before, unwritten.weight());
        !std::mem::replace(&mut unwritten.watched, true)
    }
}

/// What is kept back will not be written: who has the file open is told, and its objects tell the size.
fn give_up(shared: &Shared, inode: InodeId, file: &mut File, why: &str) {
    let unwritten = &mut file.unwritten;
    let bytes = unwritten.weight();
    (unwritten.waiting, unwritten.flying, unwritten.lost) = (Runs::default(), None, true);
    shared.metrics.unwritten.change(bytes, 0);
    file.lose_exclusivity();
    file.done.wake();
    error!(%inode, bytes, "what was kept back of a file is lost: {why}");
}

/// Some of it is on its way: nothing more goes before that is there.
fn has_flying_runs(file: &mut File) -> bool {
    file.unwritten.flying.is_some()
}

type Part<'a> = Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;

/// What is next for who wants everything written.
enum Step {
    Done,
    Busy,
    Lost,
    Write(Flight, Layout),
}

impl Client {
    /// The object was written, with this answer.
    pub(crate) fn wrote_through(&self, inode: InodeId, stripe: u32, answer: &storage::WriteReply) {
        let board = &self.shared.board;
        self.shared.with_file(inode, |file| {
            file.unwritten.saw(board, stripe, answer.version);
            file.unsynced.written(stripe, answer);
        });
    }

    /// Asks the shard for a lease under which writes may be kept back, and has it when it comes: nobody waits for a
    /// shard to write.
    pub(crate) fn ask_if_alone(&self, inode: InodeId) {
        let Some(client) = self.itself() else { return };
        ring::spawn(async move {
            let caller = Caller::patient(Credentials::default());
            let ticket = client.shared.board.ticket();
            match client.call(&caller, Destination::home(inode), &meta::GetAttr { inode }).await {
                Ok(reply) => client.told_if_alone(ticket, &reply),
                Err(error) => warn!(%inode, "cannot ask whether writes may be kept back: {error}"),
            }
        });
    }

    fn told_if_alone(&self, ticket: Ticket, reply: &meta::InodeReply) {
        let inode = reply.attr.inode;
        let lease = Lease::granted(ticket, Subject::inode(inode), if reply.alone { reply.lease_ms } else { 0 });
        let (board, now) = (&self.shared.board, Instant::now());
        self.shared.with_file(inode, |file| {
            if !reply.exclusive {
                file.lose_exclusivity();
            }
            if !file.is_under(reply.intents) {
                return;
            }
            let unwritten = &mut file.unwritten;
            // A recall of this file ends it once all is written. One of something else that `holds` takes for that, as long
            // as something is kept back, does not: it was never given back.
            let goes_on = !unwritten.is_clean() && !unwritten.lease.rest(now).is_zero() && board.holds(lease, now);
            if goes_on || board.holds(unwritten.lease, now) {
                unwritten.lease = unwritten.lease.later(lease);
            } else if unwritten.is_clean() {
                // Others may have changed the objects in between.
                file.know_objects_anew(lease);
            }
        });
    }

    /// None of the file's targets is short of space, so that what is kept back will find some.
    pub(crate) fn has_room(&self, inode: InodeId) -> bool {
        let map = self.shared.map();
        let groups = self.shared.with_file(inode, |file| file.layout.groups.clone()).unwrap_or_default();
        groups.iter().all(|group| {
            let members = map.groups.get(group).map_or(&[][..], |group| &group.members);
            let is_normal = |target| map.targets.get(target).is_some_and(|found| found.class == CapacityClass::Normal);
            members.iter().all(is_normal)
        })
    }

    /// Looks after what is kept back of a file until there is nothing left.
    pub(crate) fn watch_unwritten(&self, inode: InodeId) {
        let Some(client) = self.itself() else { return };
        ring::spawn(async move {
            loop {
                ring::sleep(AGE_MAX).await;
                let (board, now, short) = (&client.shared.board, Instant::now(), !client.has_room(inode));
                let looked = client.shared.with_file(inode, |file| {
                    let unwritten = &mut file.unwritten;
                    unwritten.short = short;
                    unwritten.in_time = None;
                    unwritten.watched = !unwritten.is_clean();
                    unwritten.leave_nothing_behind();
                    let may_try = unwritten.try_at.is_none_or(|at| now >= at) && unwritten.flying.is_none();
                    let renew = !unwritten.lease.rest(now).is_zero()
                        && !board.holds_most(unwritten.lease, now)
                        && unwritten.patience.may_ask(now);
                    unwritten.watched.then_some((may_try, renew))
                });
                let Some((may_try, renew)) = looked.flatten() else { return };
                if may_try {
                    client.write_out_later(inode);
                }
                if renew {
                    client.ask_if_alone(inode);
                }
            }
        });
    }

    /// Writes what is due, as long as something is.
    fn write_on(&self, inode: InodeId) {
        let Some(client) = self.itself() else { return };
        ring::spawn(async move {
            let caller = Caller::patient(Credentials::default());
            loop {
                let is_due = client.shared.with_file(inode, |file| file.unwritten.is_due(Instant::now()));
                if is_due != Some(true) {
                    return;
                }
                let Step::Write(flight, layout) = client.next_step(inode, None) else { return };
                if let Err(error) = client.fly(&caller, flight, &layout).await {
                    return client.shared.complain(inode, error);
                }
            }
        });
    }

    /// Waits until something was written, or is being written no more.
    async fn make_room(&self, caller: &Caller<'_>, inode: InodeId, looks: &mut Looks) -> Result<(), Errno> {
        match self.next_step(inode, None) {
            Step::Done => Ok(()),
            Step::Lost => Err(Errno::EIO),
            Step::Busy => self.pause_while_for(caller, inode, looks, has_flying_runs).await,
            Step::Write(flight, layout) => self.fly(caller, flight, &layout).await,
        }
    }

    /// Writes what is kept back for objects. What stands in the way is logged, and stays for who waits for it.
    pub(crate) fn write_out_later(&self, inode: InodeId) {
        let Some(client) = self.itself() else { return };
        ring::spawn(async move {
            if let Err(error) = client.write_runs_out(&Caller::patient(Credentials::default()), inode).await {
                client.shared.complain(inode, error);
            }
        });
    }

    /// Writes all that is kept back of the file when this begins, if anything is, and tells the rest. What others write
    /// meanwhile it does not wait for.
    ///
    /// # Errors
    /// Those of the storage, and `EINTR`: then it is still here. `EIO` where something is lost.
    pub async fn write_out(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let mut looks = Looks::default();
        loop {
            let kept_back = self.shared.with_file(inode, |file| file.kept_back()).unwrap_or_default();
            if kept_back.contents {
                // Either it asks the shard or it waits for who does: no look follows another at once.
                self.outgrow(caller, inode, &mut looks).await?;
                continue;
            }
            let writes = |kept| -> Part<'_> { Box::pin(self.write_first(caller, inode, kept)) };
            let publishes = || -> Part<'_> { Box::pin(self.publish_changes(caller, inode)) };
            match (kept_back.writes, kept_back.draft) {
                (None, false) => return Ok(()),
                (Some(kept), false) => return writes(kept).await,
                // Where the shard does not take its contents they are to be written now.
                (None, true) => publishes().await?,
                // At once: nobody is told of the file before both are done.
                (Some(kept), true) => return ring::join_all([writes(kept), publishes()]).await.into_iter().collect(),
            }
        }
    }

    /// The same of what objects are to have.
    pub(crate) async fn write_runs_out(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        match self.shared.in_file(inode, |file| file.kept_back().writes) {
            Some(kept) => self.write_first(caller, inode, kept).await,
            None => Ok(()),
        }
    }

    /// Writes what is still here of the first `kept` writes that were kept back.
    async fn write_first(&self, caller: &Caller<'_>, inode: InodeId, kept: u64) -> Result<(), Errno> {
        let mut looks = Looks::default();
        loop {
            match self.next_step(inode, Some(kept)) {
                Step::Done => return Ok(()),
                Step::Lost => return Err(Errno::EIO),
                Step::Busy => self.pause_while_for(caller, inode, &mut looks, has_flying_runs).await?,
                Step::Write(flight, layout) => self.fly(caller, flight, &layout).await?,
            }
        }
    }

    /// `EIO` where something was lost that was kept back of the file.
    pub(crate) fn must_not_be_lost(&self, inode: InodeId) -> Result<(), Errno> {
        let lost = self.shared.with_file(inode, |file| file.unwritten.lost);
        if lost == Some(true) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// For who wants the first `kept` writes written, or some.
    fn next_step(&self, inode: InodeId, kept: Option<u64>) -> Step {
        let (shared, now) = (&self.shared, Instant::now());
        let step = shared.with_file(inode, |file| {
            let unwritten = &mut file.unwritten;
            if unwritten.lost {
                return Step::Lost;
            }
            if kept.is_some_and(|kept| unwritten.written >= kept) {
                return Step::Done;
            }
            if unwritten.flying.is_some() {
                unwritten.wanted = unwritten.wanted.max(kept.unwrap_or_default());
                return Step::Busy;
            }
            if unwritten.waiting.is_empty() {
                return Step::Done;
            }
            if unwritten.lease.rest(now).is_zero() {
                give_up(shared, inode, file, "the lease is over under which it was");
                return Step::Lost;
            }
            let before = unwritten.weight();
            let runs = Arc::new(unwritten.take(kept.is_some()));
            let kept = unwritten.waiting.is_empty().then_some(unwritten.kept);
            unwritten.flying = Some(Arc::clone(&runs));
            // One more run, where a part of one stays.
            shared.metrics.unwritten.change(before, unwritten.weight());
            unwritten.flights += 1;
            let flight = Flight { shared: Arc::clone(shared), inode, runs, at: unwritten.at, kept, landed: false };
            Step::Write(flight, file.layout.clone())
        });
        step.unwrap_or(Step::Done)
    }

    /// The lease on the file is being taken back: writes what is kept back, as long as the lease lasts.
    pub(crate) async fn give_back_unwritten(self: &Rc<Self>, inode: InodeId) {
        loop {
            let looked = self.shared.with_file(inode, |file| {
                let unwritten = &mut file.unwritten;
                let rest = unwritten.lease.rest(Instant::now());
                if !unwritten.is_clean() && !rest.is_zero() {
                    return Some(rest);
                }
                if !unwritten.is_clean() {
                    give_up(&self.shared, inode, file, "it could not be written in time");
                }
                file.know_objects_anew(Lease::NONE);
                None
            });
            let Some(rest) = looked.flatten() else { return };
            let caller = Caller::patient(Credentials::default());
            match ring::timeout(rest, self.write_runs_out(&caller, inode)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => ring::sleep(TRY_AGAIN.min(rest)).await,
                Err(_) => {}
            }
        }
    }

    /// The file is going to be settled: nothing is kept back any more, and nothing is on its way. False where some of it could
    /// not be written: that is given up, as whoever closed the file was told.
    pub(crate) async fn write_out_for_good(&self, caller: &Caller<'_>, inode: InodeId) -> bool {
        let (mut is_written, mut looks) = (true, Looks::default());
        loop {
            is_written &= self.write_runs_out(caller, inode).await.is_ok();
            let is_over = self.shared.with_file(inode, |file| {
                if file.unwritten.is_flying() {
                    return false;
                }
                if !is_written && !file.unwritten.is_clean() {
                    give_up(&self.shared, inode, file, "it could not be written before the file was closed");
                    file.unwritten.lost = false;
                }
                file.unwritten.is_clean()
            });
            if is_over != Some(false) {
                return is_written;
            }
            // Also where something has come meanwhile: never without a pause.
            let is_left = |file: &mut File| file.unwritten.is_flying() || !file.unwritten.is_clean();
            self.pause_while(inode, &mut looks, is_left).await;
        }
    }

    /// Writes what is kept back of all files.
    pub(crate) async fn write_all_out(&self) {
        let caller = Caller::patient(Credentials::default());
        for inode in self.shared.unwritten_files() {
            let told = self.publish_changes(&caller, inode).await;
            if let Err(error) = told.and(self.write_runs_out(&caller, inode).await) {
                error!(%inode, "could not write what was kept back: {error}; it is lost");
            }
        }
    }
}

#[cfg(test)]
mod tests;
