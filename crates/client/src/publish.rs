//! Drafts: what is done to a file that this client has just made is kept back, and told in one request.
//!
//! The shard says of a file that was made with its contents in the metadata that it is a draft: nobody else was told of it, and
//! whoever asks for it takes this client's lease back first (`recall.rs`). Until then contents, times, mode and owner stay
//! here. They are told when the last of the program's handles is closed, at `fsync`, after a while, and before anything is
//! done to the file that is not done here; from then on it is a file like any other. What outgrows the metadata is written
//! to objects under a write intent (`unwritten.rs`), and only the rest is kept back; while the intent is asked for, contents
//! grow on here.
//!
//! A client that was silent for longer than its lease may find that others were told of the file without its word: the shard
//! refuses it then, and who has the file open here is told `EIO`. A request whose answer does not come is repeated as it
//! was, under its number: until that is answered nothing more is done to the file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ring::buf::Slice;
use tracing::{error, warn};
use types::attr::{Attr, SetAttr};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::draft::Draft;
use crate::file::File;
use crate::intent::Purpose;
use crate::lease::{Lease, Subject};
use crate::looks::Looks;
use crate::metrics::Bytes;
use crate::mutex::lock;
use crate::names::Known;
use crate::retry::{Failure, Ladder, Step};
use crate::router::{Client, Destination};
use crate::settle::checked_layout;
use crate::shards::NumberedChange;
use crate::shared::Shared;
use crate::unwritten::{AGE_MAX, MARGIN, TRY_AGAIN};

/// A draft on its way to the shard, with its number, which stays taken until the answer.
pub(crate) struct Publication {
    message: meta::Settle,
    _numbered: NumberedChange,
}

impl Publication {
    fn drafted(&self) -> Option<&meta::Drafted> {
        self.message.drafted.as_deref()
    }

    pub(crate) fn contents(&self) -> Option<&[u8]> {
        Some(&self.drafted()?.contents.as_ref()?.0)
    }
}

impl std::fmt::Debug for Publication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publication").field("drafted", &self.message.drafted).finish_non_exhaustive()
    }
}

/// Drafts that were changed, and when they are to be told.
#[derive(Default)]
pub(crate) struct Drafts(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// In the order in which they were changed: all wait equally long.
    drafts: VecDeque<(InodeId, Instant)>,
    /// A task looks after them.
    watched: bool,
}

impl Drafts {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }

    /// True where somebody has to look after all of them from here on.
    fn push(&self, inode: InodeId, due: Instant) -> bool {
        let mut queue = self.queue();
        queue.drafts.push_back((inode, due));
        !std::mem::replace(&mut queue.watched, true)
    }

    /// The next one that is due, or when that is; `None`: there is none, and nobody looks after them any more.
    fn next(&self, now: Instant) -> Option<Result<InodeId, Duration>> {
        let mut queue = self.queue();
        match queue.drafts.front() {
            Some(&(_, due)) if due > now => return Some(Err(due - now)),
            Some(_) => {}
            None => queue.watched = false,
        }
        queue.drafts.pop_front().map(|(inode, _)| Ok(inode))
    }
}

/// What can be done to a draft now.
enum DraftAccess<T> {
    Here(T),
    /// It is none.
    Elsewhere,
    /// Another task tells it.
    Busy,
    /// It has to be told first.
    Tell,
    /// It is too long for the metadata.
    Long,
}

/// A task that tells a draft, or asks for objects. Another one may when this is dropped.
struct Turn {
    shared: Arc<Shared>,
    inode: InodeId,
    mark: fn(&mut Draft) -> &mut bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.with_file(self.inode, |file| {
            file.draft.iter_mut().for_each(|draft| *(self.mark)(draft) = false);
            file.done.wake();
        });
    }
}

/// Another task tells the draft, or asks for objects, or has to tell it once more.
fn is_busy(file: &mut File) -> bool {
    file.draft.as_ref().is_some_and(|draft| draft.asking || !draft.is_free())
}

impl File {
    /// Puts what is kept back of a draft over what the shard says. False where it is none.
    pub(crate) fn overlay_draft(&self, attr: &mut Attr) -> bool {
        let Some(draft) = &self.draft else { return false };
        let (nlink, ctime) = (attr.nlink, attr.ctime.max(draft.attr().ctime));
        *attr = Attr { nlink, ctime, ..*draft.attr() };
        if draft.contents().is_none() {
            self.overlay(attr);
        }
        attr.atime = self.read_at.unwrap_or(attr.atime);
        true
    }

    /// The shard has this now.
    fn published(&mut self, publication: &Publication) {
        if let Some(drafted) = publication.drafted() {
            self.told_times(drafted.atime, drafted.mtime);
        }
        if let Some(contents) = publication.contents() {
            self.size = contents.len() as u64;
            self.blocks = self.size.div_ceil(512);
        }
        self.draft = None;
    }

    /// Something is kept back.
    pub(crate) fn keeps_back(&self) -> bool {
        !self.unwritten.is_clean() || self.kept_back().draft
    }

    /// The file is closed. What is still here could not be told, as the last `close` has said.
    pub(crate) fn end_draft(&mut self, total: &Bytes, inode: InodeId) {
        total.change(self.draft_weight(), 0);
        if self.draft.take().is_some_and(|draft| draft.is_changed()) {
            error!(%inode, "a new file was closed of which not all could be told to its shard: that is lost");
        }
    }

    fn draft_weight(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.weight())
    }
}

impl Client {
    /// A file was made: begins to keep back what is done to it, where the shard says so.
    pub(crate) fn begin_draft(&self, reply: &InodeReply, lease: Lease, renamed: u64) {
        if !reply.draft {
            return;
        }
        let draft = Box::new(Draft::new(reply, lease, renamed));
        self.shared.with_file(reply.attr.inode, |file| {
            // After this a recall finds it.
            file.draft = Some(draft).filter(|_| self.shared.board.holds(lease, Instant::now()));
        });
    }

    /// Writes to a draft, at its end where there is no `offset`. False where there is none, or what is written is too long for
    /// it: then it has to go elsewhere.
    ///
    /// # Errors
    /// `EIO` where something that was kept back of this file is lost, `EINTR`; where the draft has to be told first, those of
    /// that.
    pub(crate) async fn write_draft(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: Option<u64>,
        data: &Slice,
    ) -> Result<bool, Errno> {
        if !self.has_contents_in_draft(inode) {
            return Ok(false);
        }
        self.must_have_kept_locks(caller, inode).await?;
        let mut looks = Looks::default();
        loop {
            match self.try_to_draft(
                inode,
                |draft| draft.fits(offset, data.len()),
                |draft, _, now| draft.write(offset, data, now),
            ) {
                DraftAccess::Here(_) => return Ok(true),
                DraftAccess::Elsewhere => return Ok(false),
                DraftAccess::Busy => self.pause_while_for(caller, inode, &mut looks, is_busy).await?,
                DraftAccess::Tell => self.publish(caller, inode).await?,
                DraftAccess::Long if self.grows_on(inode, offset, data.len()) => {}
                DraftAccess::Long => self.outgrow(caller, inode, &mut looks).await?,
            }
        }
    }

    /// Changes attributes of a draft, but no size and no flags; `None` where there is none.
    ///
    /// # Errors
    /// As [`Self::write_draft`].
    pub(crate) async fn set_draft(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        change: &SetAttr,
    ) -> Result<Option<Attr>, Errno> {
        let mut looks = Looks::default();
        loop {
            let set = |draft: &mut Draft, written: &mut Option<Timestamp>, now| {
                draft.set(change, now);
                // Times that are set explicitly win over those of earlier writes.
                written.take_if(|_| change.mtime.is_some());
            };
            match self.try_to_draft(inode, |_| true, set) {
                DraftAccess::Here(attr) => {
                    self.write_early(inode);
                    return Ok(Some(attr));
                }
                DraftAccess::Elsewhere | DraftAccess::Long => return Ok(None),
                DraftAccess::Busy => self.pause_while_for(caller, inode, &mut looks, is_busy).await?,
                DraftAccess::Tell => self.publish(caller, inode).await?,
            }
        }
    }

    /// Attributes of a draft were set: begins to write what objects are to have of it, if this is the moment for that.
    fn write_early(&self, inode: InodeId) {
        let begins = |file: &mut File| {
            let is_any = file.unwritten.has_waiting();
            file.draft.as_mut().is_some_and(|draft| draft.begins_early(is_any))
        };
        if self.shared.file_is(inode, begins) {
            self.write_out_later(inode);
        }
    }

    fn try_to_draft(
        &self,
        inode: InodeId,
        fits: impl FnOnce(&Draft) -> bool,
        change: impl FnOnce(&mut Draft, &mut Option<Timestamp>, Timestamp),
    ) -> DraftAccess<Attr> {
        let (shared, now) = (&self.shared, Instant::now());
        let place = shared.with_file(inode, |file| {
            let before = file.draft_weight();
            let is_open = file.handles > 0 && !file.closing;
            let Some(draft) = &mut file.draft else { return DraftAccess::Elsewhere };
            if draft.busy {
                return DraftAccess::Busy;
            }
            if !is_open && !draft.is_changed() && draft.is_free() {
                // By its name, while the close is on its way, which would not tell of it.
                file.draft = None;
                return DraftAccess::Elsewhere;
            }
            if !is_open || !draft.is_free() || !shared.board.holds_for(draft.lease, now, MARGIN) {
                return DraftAccess::Tell;
            }
            if !fits(draft) {
                return if draft.contents().is_some() { DraftAccess::Long } else { DraftAccess::Elsewhere };
            }
            if shared.metrics.unwritten.get() > shared.config.write_back {
                return DraftAccess::Tell;
            }
            let is_first = !draft.is_changed();
            change(draft, &mut file.mtime, Shared::wall_clock());
            let mut attr = *draft.attr();
            let watch = is_first && draft.is_changed();
            file.drafted();
            shared.metrics.unwritten.change(before, file.draft_weight());
            file.overlay_draft(&mut attr);
            if watch {
                self.watch(inode, now + AGE_MAX);
            }
            DraftAccess::Here(attr)
        });
        place.unwrap_or(DraftAccess::Elsewhere)
    }

    fn has_contents_in_draft(&self, inode: InodeId) -> bool {
        let has = |file: &mut File| file.draft.as_ref().is_some_and(|draft| draft.contents().is_some());
        self.shared.file_is(inode, has)
    }

    /// What a draft has of `range`; `None` where its contents are not here, or it has to be told first.
    pub(crate) fn read_draft(&self, inode: InodeId, range: &std::ops::Range<u64>) -> Option<Vec<Slice>> {
        let board = &self.shared.board;
        self.shared.in_file(inode, |file| {
            let draft = file.draft.as_ref().filter(|draft| board.holds(draft.lease, Instant::now()))?;
            let contents = draft.contents()?;
            let begin = range.start.min(contents.len() as u64) as usize;
            let end = range.end.min(contents.len() as u64) as usize;
            Some(if begin < end { vec![Slice::from_vec(contents[begin..end].to_vec())] } else { Vec::new() })
        })
    }

    /// The attributes of a draft, where they are known without asking.
    pub(crate) fn attr_of_draft(&self, inode: InodeId) -> Option<Known> {
        let (board, renamed, now) = (&self.shared.board, self.shared.contents.renames(), Instant::now());
        self.shared.in_file(inode, |file| {
            let draft = file.draft.as_ref()?;
            let lease = draft.lease;
            let knows_size = draft.contents().is_some() || (file.is_exclusive() && file.estimated_blocks().is_some());
            let is_held = board.holds_long(lease, now) && self.shared.contents.holds(board, lease, now);
            let is_known = knows_size && is_held && draft.knows_links(renamed);
            let mut attr = *draft.attr();
            file.overlay_draft(&mut attr);
            is_known.then_some(Known { attr, lease })
        })
    }

    /// Begins to ask for objects, where contents of `len` bytes more may stay here meanwhile, so that nobody waits for the
    /// answer. False where they have to go there at once.
    fn grows_on(&self, inode: InodeId, offset: Option<u64>, len: usize) -> bool {
        let may_grow = |file: &mut File| file.draft.as_ref().is_some_and(|draft| draft.may_grow(offset, len));
        if !self.shared.file_is(inode, may_grow) || !self.has_room(inode) {
            return false;
        }
        let Some(turn) = self.begin_asking(inode) else { return false };
        self.in_background(async move |client| {
            if let Err(error) = client.ask_for_objects(&Caller::patient(Credentials::default()), turn).await {
                warn!(%inode, "cannot write a new file to objects yet: {error}; fsync and close will tell");
            }
        });
        true
    }

    /// The contents are to be in objects: asks for these, or waits for who does, until it is done or for a moment. From then on
    /// they are where objects are written from.
    ///
    /// # Errors
    /// Those of the shard: then they are still in the draft. `EIO` where they are lost.
    pub(crate) async fn outgrow(&self, caller: &Caller<'_>, inode: InodeId, looks: &mut Looks) -> Result<(), Errno> {
        match self.begin_asking(inode) {
            Some(turn) => self.ask_for_objects(caller, turn).await,
            None => self.pause_while_for(caller, inode, looks, is_busy).await,
        }
    }

    fn begin_asking(&self, inode: InodeId) -> Option<Turn> {
        let mark: fn(&mut Draft) -> &mut bool = |draft| &mut draft.asking;
        self.shared.in_file(inode, |file| {
            let draft =
                file.draft.as_mut().filter(|draft| draft.contents().is_some() && draft.is_free() && !draft.asking)?;
            *mark(draft) = true;
            Some(Turn { shared: Arc::clone(&self.shared), inode, mark })
        })
    }

    /// From the answer on the contents that there are by then are to be written to objects. The file is no draft any more as
    /// far as these go.
    ///
    /// # Errors
    /// Those of the shard, `EINTR`, and `EIO` where it gives no lease within the bound under which they could be written: then
    /// they are still here.
    async fn ask_for_objects(&self, caller: &Caller<'_>, turn: Turn) -> Result<(), Errno> {
        let inode = turn.inode;
        let mut ladder = Ladder::new(Instant::now(), self.shared.config.retry_timeout);
        loop {
            let ticket = self.shared.board.ticket();
            let (before, reply) = match self.write_intent(caller, inode, Purpose::KeepDraft).await {
                Err(errno @ (Errno::ECANCELED | Errno::ESTALE)) => return self.refused(inode, errno),
                reply => reply?,
            };
            checked_layout(&reply)?;
            let lease = Lease::granted(ticket, Subject::inode(inode), reply.lease_ms);
            let is_held = self.shared.with_file(inode, |file| {
                if self.shared.may_be_gone(inode, &before) {
                    return false;
                }
                file.granted(&reply);
                // The size that was granted is that of objects which have nothing yet.
                file.drafted();
                let now = Instant::now();
                let Some(draft) = &mut file.draft else { return true };
                // It may have been taken back before this answer was here.
                if self.shared.board.holds(lease, now) {
                    draft.lease = draft.lease.later(lease);
                }
                // Also while it is being taken back.
                !draft.lease.rest(now).is_zero()
            });
            if is_held != Some(false) {
                self.move_to_objects(inode);
                return Ok(());
            }
            // The shard has begun anew meanwhile, or was away for longer than the term, and this client may not listen to it
            // yet.
            let Step::Again { after, .. } = ladder.after(Instant::now(), &Failure::Busy) else {
                error!(%inode, "cannot write a new file to objects: its shard gives no lease on it");
                return Err(Errno::EIO);
            };
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
            ring::sleep(after).await;
        }
    }

    fn move_to_objects(&self, inode: InodeId) {
        let (has_room, mut begins) = (self.has_room(inode), false);
        let watch = self.shared.file_is(inode, |file| {
            let Some(mut draft) = file.draft.take() else { return false };
            let (weight, written) = (draft.weight(), draft.written());
            begins = draft.goes_on_early();
            let watch = file.keep_back_all(&self.shared.metrics.unwritten, &mut draft, has_room);
            self.shared.metrics.unwritten.change(weight, 0);
            if weight > 0 && !draft.is_changed() {
                file.mtime = Some(written);
            }
            file.draft = Some(draft);
            watch
        });
        if watch {
            self.watch_unwritten(inode);
        }
        if begins {
            self.write_out_later(inode);
        }
    }

    /// Tells the shard what is kept back of a draft, if this is one: from then on it is none.
    ///
    /// # Errors
    /// `EIO` where it is lost, or the shard does not answer within the bound: then it is still here, as with `EINTR`, and with
    /// those of the shard, such as `ENOSPC`.
    pub(crate) async fn publish(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.publish_if(caller, inode, |_| true).await
    }

    async fn publish_if(&self, caller: &Caller<'_>, inode: InodeId, is_due: fn(&Draft) -> bool) -> Result<(), Errno> {
        let mut looks = Looks::default();
        loop {
            let (turn, publication) = match self.next_publication(inode, is_due) {
                DraftAccess::Here(publication) => publication,
                DraftAccess::Busy => {
                    self.pause_while_for(caller, inode, &mut looks, is_busy).await?;
                    continue;
                }
                DraftAccess::Long => {
                    self.outgrow(caller, inode, &mut looks).await?;
                    continue;
                }
                _ => return Ok(()),
            };
            let answer = self.call(caller, Destination::home(inode), &publication.message).await;
            match answer {
                Ok(_) => {
                    // No answer from before counts any more.
                    self.shared.contents.forget(inode);
                    self.shared.with_file(inode, |file| {
                        self.shared.metrics.unwritten.change(file.draft_weight(), 0);
                        file.published(&publication);
                        file.unsynced.record_changed();
                    });
                    return Ok(());
                }
                Err(errno @ (Errno::ECANCELED | Errno::ESTALE)) => return self.refused(inode, errno),
                // A write intent was given whose answer has not come.
                Err(Errno::EOPNOTSUPP) => {
                    self.shared.with_file(inode, |file| file.draft.iter_mut().for_each(|draft| draft.take_back()));
                    drop(turn);
                    self.outgrow(caller, inode, &mut looks).await?;
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The shard says that it is no draft of this client's, or that it is gone.
    fn refused(&self, inode: InodeId, errno: Errno) -> Result<(), Errno> {
        let lost = self.shared.with_file(inode, |file| {
            self.shared.metrics.unwritten.change(file.draft_weight(), 0);
            let lost = file.draft.take().is_some_and(|draft| draft.is_changed());
            if lost {
                file.unwritten.lose();
            }
            lost
        });
        match lost {
            Some(true) => {
                error!(%inode, "what was kept back of a new file is lost: others were told of the file without it ({errno})");
                Err(Errno::EIO)
            }
            Some(false) | None if errno == Errno::ESTALE => Err(errno),
            Some(false) | None => Ok(()),
        }
    }

    fn next_publication(&self, inode: InodeId, is_due: fn(&Draft) -> bool) -> DraftAccess<(Turn, Arc<Publication>)> {
        let shared = &self.shared;
        let next = shared.with_file(inode, |file| {
            let (exclusive, size, blocks) = (file.is_exclusive(), file.size, file.estimated_blocks());
            let written = file.mtime;
            let Some(draft) = file.draft.as_mut().filter(|draft| is_due(draft)) else { return DraftAccess::Elsewhere };
            if draft.asking || draft.busy {
                return DraftAccess::Busy;
            }
            if draft.is_long() {
                return DraftAccess::Long;
            }
            draft.busy = true;
            let turn = Turn { shared: Arc::clone(shared), inode, mark: |draft| &mut draft.busy };
            if let Some(publication) = draft.telling() {
                return DraftAccess::Here((turn, Arc::clone(publication)));
            }
            let numbered = shared.begin_change(inode.home());
            let message = meta::Settle {
                exactly: numbered.exactly.clone(),
                inode,
                size,
                blocks: blocks.unwrap_or(0),
                mtime: None,
                // No such number is ever given out: the size is told later.
                gathered: (!exclusive || blocks.is_none()).then_some(0),
                release: false,
                close: false,
                untouched: false,
                read: None,
                drafted: Some(Box::new(draft.drafted(written))),
            };
            let publication = Arc::new(Publication { message, _numbered: numbered });
            draft.tell(Arc::clone(&publication));
            DraftAccess::Here((turn, publication))
        });
        next.unwrap_or(DraftAccess::Elsewhere)
    }

    /// Tells the shard of a draft to which something was done, and waits for its answer. Others stay as they are.
    pub(crate) async fn publish_changes(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.publish_if(caller, inode, Draft::is_changed).await
    }

    /// Before contents are looked for, or changed, elsewhere.
    pub(crate) async fn end_contents_in_draft(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        if self.has_contents_in_draft(inode) { self.publish(caller, inode).await } else { Ok(()) }
    }

    /// The lease on the file is being taken back: tells what is kept back of a draft, as long as the lease lasts.
    pub(crate) async fn give_back_draft(&self, inode: InodeId) {
        let caller = Caller::patient(Credentials::default());
        loop {
            let rest = self.shared.with_file(inode, |file| {
                let rest = file.draft.as_ref()?.lease.rest(Instant::now());
                if rest.is_zero() {
                    // What was changed may still be told, if nobody was told otherwise meanwhile.
                    file.draft.take_if(|draft| !draft.is_changed() && draft.is_free());
                    return None;
                }
                Some(rest)
            });
            let Some(rest) = rest.flatten() else { return };
            let is_draft = |file: &mut File| file.draft.is_some();
            match ring::timeout(rest, self.publish(&caller, inode)).await {
                Ok(Err(_)) if self.shared.file_is(inode, is_draft) => {
                    ring::sleep(TRY_AGAIN.min(rest)).await;
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Sees to it that the draft is told at `due`.
    fn watch(&self, inode: InodeId, due: Instant) {
        if !self.shared.drafts.push(inode, due) {
            return;
        }
        self.in_background(async move |client| {
            while let Some(next) = client.shared.drafts.next(Instant::now()) {
                match next {
                    Ok(inode) => client.publish_later(inode),
                    Err(rest) => ring::sleep(rest).await,
                }
            }
        });
    }

    fn publish_later(&self, inode: InodeId) {
        let is_changed = |file: &mut File| file.draft.as_ref().is_some_and(|draft| draft.is_changed());
        if !self.shared.file_is(inode, is_changed) {
            return;
        }
        self.in_background(async move |client| {
            if let Err(error) = client.publish(&Caller::patient(Credentials::default()), inode).await {
                client.shared.complain(inode, error);
                client.watch(inode, Instant::now() + TRY_AGAIN);
            }
        });
    }
}
