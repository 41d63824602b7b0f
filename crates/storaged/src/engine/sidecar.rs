//! The open sidecar of one object: its entries, and the state that its header tells. `sums` has the rules.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::buf::Buf;
use ring::sync::Semaphore;
use ring::{Helpers, op};
use types::error::Errno;
use types::id::ObjectId;

use super::entry_cache::{EntryCache, PAGE};
use super::sidecar_file::{Found, header};
use super::syscall;
use super::unreadable::{FILE_PAGE, blocks_of_page, put_zeros, unreadable_pages};
use crate::sums::header::{Owner, State, place};
use crate::sums::{Belief, Entry, Trust, Verdict, blocks, judge, must_look, trust};

/// Bytes. What is not cached is read in steps of this length: the entries of 32 MiB of the object.
const READ_STEP: u64 = 64 << 10;

/// What is kept of objects' sums, and by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub(crate) me: Owner,
    /// Entries are written and believed. Otherwise they are only said to be out of date.
    pub(crate) on: bool,
}

/// What the sidecars of a target have in common in a lane.
pub(super) struct Common<'a> {
    pub(super) keeping: Keeping,
    pub(super) helpers: &'a Helpers,
    pub(super) cache: &'a Rc<EntryCache>,
}

pub(super) fn hull(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// An open sidecar.
pub(crate) struct Sidecar {
    fd: Arc<OwnedFd>,
    object: ObjectId,
    keeping: Keeping,
    helpers: Helpers,
    /// False where it was opened while the file system was read-only.
    writable: bool,
    /// Bytes of the file: beyond it, all entries are zero.
    len: Cell<u64>,
    cache: Rc<EntryCache>,
    /// What its entries are called in the cache: no other sidecar is ever called so.
    cache_id: u64,
    /// Beginnings and ends of writes of entries: what is read beside one is not kept.
    writes: Cell<u64>,
    state: Cell<Phase>,
    /// That it is dirty is known to be on the disk too, or nothing else is there. Another process may have ended before it
    /// had seen to that.
    durable: Cell<bool>,
    trust: Cell<Trust>,
    /// Who made it dirty.
    owner: Cell<Owner>,
    /// Blocks that an earlier process was changing as a whole.
    inherited: RefCell<Option<Range<u64>>>,
    /// Blocks that are being changed so.
    pending: RefCell<Vec<Range<u64>>>,
    turning: Rc<Semaphore>,
    changing: Cell<u32>,
    changes: Cell<u64>,
    last_change: Cell<Instant>,
    /// It was opened dirty: what was changed before, the kernel may have told another descriptor of.
    was_dirty: Cell<bool>,
    /// That this object is in doubt was told.
    pub(super) doubt_told: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Clean,
    Dirty,
}

/// Something of the object is being changed.
pub(crate) struct Change(Rc<Sidecar>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changing.set(self.0.changing.get() - 1);
        self.0.note_change();
        self.0.last_change.set(ring::now());
    }
}

/// Entries are being written. To be held until what the cache has is right again.
pub(super) struct Writing<'a>(&'a Sidecar);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writes.set(self.0.writes.get() + 1);
    }
}

/// The sidecar's file is being cut at `end`.
pub(super) struct Cut<'a> {
    pub(super) end: u64,
    writing: Writing<'a>,
}

impl Cut<'_> {
    /// The file was cut: it is as long as that now.
    pub(super) fn done(self) {
        self.writing.0.len.set(self.end);
    }
}

impl Sidecar {
    /// `size`: of the object's file, in bytes. With it the size that the object has by the sidecar: what is missing of it
    /// in the file was lost.
    pub(super) fn new(found: Found, object: ObjectId, common: &Common<'_>, size: u64) -> (Rc<Self>, u64) {
        let Common { keeping, helpers, cache } = *common;
        let Found { fd, writable, header, len, made, uncut } = found;
        // Where they could not be cut off, nothing is believed.
        let trust = if uncut { Trust::Doubt } else { trust(header.as_ref(), keeping.me) };
        let (state, owner, inherited, size) = match header.map(|header| header.state) {
            // What is there beyond it has no entries, and reads as corrupt rather than as nothing.
            Some(State::Clean { size: known }) => (Phase::Clean, keeping.me, None, known.max(size)),
            Some(State::Dirty { owner, pending }) => (Phase::Dirty, owner, pending, size),
            None => (Phase::Dirty, Owner::NOBODY, None, size),
        };
        let this = Rc::new(Self {
            fd: Arc::new(fd),
            object,
            keeping,
            helpers: helpers.clone(),
            writable,
            len: Cell::new(len),
            cache: Rc::clone(cache),
            cache_id: cache.serial(),
            writes: Cell::new(0),
            state: Cell::new(state),
            durable: Cell::new(made.unwrap_or(state == Phase::Dirty && owner == keeping.me)),
            trust: Cell::new(trust),
            owner: Cell::new(owner),
            inherited: RefCell::new(inherited),
            pending: RefCell::default(),
            turning: Rc::new(Semaphore::new(1)),
            changing: Cell::new(0),
            changes: Cell::new(0),
            last_change: Cell::new(Instant::now()),
            was_dirty: Cell::new(state == Phase::Dirty && made.is_none()),
            doubt_told: Cell::new(false),
        });
        (this, size)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// For a call on a helper thread: who waits for it may be gone before it is made.
    pub(super) fn shared_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Entries are kept here.
    pub(super) fn is_kept(&self) -> bool {
        self.keeping.on
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust.get()
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.state.get() == Phase::Dirty
    }

    /// Its entries were kept before.
    pub(super) fn had_owner(&self) -> bool {
        self.owner.get() != Owner::NOBODY
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    fn is_pending(&self, block: u64) -> bool {
        self.inherited.borrow().as_ref().is_some_and(|range| range.contains(&block))
    }

    pub(super) fn judge(&self, block: u64, entry: Entry, sum: u32) -> Verdict {
        judge(self.trust.get(), self.is_pending(block), entry, sum)
    }

    /// For who judges elsewhere.
    pub(super) fn belief(&self) -> Belief {
        Belief { trust: self.trust.get(), inherited: self.inherited.borrow().clone() }
    }

    pub(super) fn must_look(&self, block: u64, entry: Entry) -> bool {
        must_look(self.trust.get(), self.is_pending(block), entry)
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// To be called before anything of the object is changed, and to be held until it is.
    ///
    /// # Errors
    /// Those of writing to the sidecar; nothing may be changed then.
    pub(super) async fn begin_change(self: &Rc<Self>) -> Result<Change, Errno> {
        if !self.writable {
            return Err(Errno::EROFS);
        }
        self.changing.set(self.changing.get() + 1);
        self.note_change();
        let change = Change(Rc::clone(self));
        if self.state.get() == Phase::Clean || !self.durable.get() || !self.keeping.on {
            self.make_dirty().await?;
        }
        Ok(change)
    }

    /// What is clean on the disk stays so until it is known there that it is not.
    async fn make_dirty(&self) -> Result<(), Errno> {
        let _turn = self.turning.acquire(1).await;
        let was_clean = self.state.get() == Phase::Clean;
        if was_clean || !self.keeping.on && self.owner.get() != Owner::NOBODY {
            let owner = if self.keeping.on { self.keeping.me } else { Owner::NOBODY };
            self.write_header(State::Dirty { owner, pending: None }).await?;
            self.owner.set(owner);
        } else if !self.durable.get() {
            // Once more: after a failed sync the kernel takes what it could not write for written.
            self.write_header(self.dirty_state()).await?;
        }
        if (was_clean || !self.durable.get())
            && let Err(error) = op::fsync(self.fd(), true).await
        {
            if !was_clean {
                // Nor may its entries be there, which the kernel takes for written as well.
                self.distrust_from_here(0..u64::MAX);
            }
            if self.owner.get().epoch == self.keeping.me.epoch {
                // Who opens it anew must not take it for known to be on the disk.
                let _ = self.write_header(self.dirty_by(self.keeping.me.earlier())).await;
            }
            return Err(error.into());
        }
        self.state.set(Phase::Dirty);
        self.durable.set(true);
        if !self.keeping.on {
            self.trust.set(Trust::Doubt);
        }
        Ok(())
    }

    async fn write_header(&self, state: State) -> Result<(), Errno> {
        let (fd, bytes) = (self.shared_fd(), header(self.object, state).encode());
        self.helpers.run(move || syscall::write_at(fd.as_raw_fd(), &bytes, 0)).await
    }

    fn dirty_state(&self) -> State {
        self.dirty_by(self.owner.get())
    }

    fn dirty_by(&self, owner: Owner) -> State {
        let own = self.pending.borrow();
        let all = own.iter().chain(self.inherited.borrow().iter()).cloned().reduce(|a, b| hull(&a, &b));
        State::Dirty { owner, pending: all }
    }

    /// These blocks may be anything until [`Self::end_pending`].
    pub(super) async fn begin_pending(&self, range: Range<u64>) -> Result<(), Errno> {
        self.pending.borrow_mut().push(range.clone());
        // Where it cannot be said, nothing is begun.
        self.write_pending().await.inspect_err(|_| self.forget_pending(&range))
    }

    /// Their entries are right.
    pub(super) async fn end_pending(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.forget_pending(range);
        self.write_pending().await
    }

    fn forget_pending(&self, range: &Range<u64>) {
        let mut pending = self.pending.borrow_mut();
        if let Some(at) = pending.iter().position(|other| other == range) {
            pending.swap_remove(at);
        }
    }

    /// One after the other, so that the last state is what stays.
    async fn write_pending(&self) -> Result<(), Errno> {
        let _turn = self.turning.acquire(1).await;
        self.write_header(self.dirty_state()).await
    }

    /// The entries of these blocks.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) async fn entries(&self, range: Range<u64>) -> Result<Vec<Entry>, Errno> {
        let count = (range.end - range.start) as usize;
        let mut entries = vec![Entry::default(); count];
        if self.cache.copy(self.cache_id, range.start, &mut entries) {
            return Ok(entries);
        }
        let (first, end) = (range.start - range.start % PAGE, range.end.next_multiple_of(PAGE));
        if place(first) >= self.len.get() {
            // New objects, and the ends of those that grow, take no memory for that.
            return Ok(entries);
        }
        let writes = self.writes.get();
        let pages = self.read_pages(first..end).await?;
        // What was written meanwhile may be missing in it, though nothing of what was asked for. A write that goes on will
        // put its entries there.
        if self.writes.get() == writes {
            for (page, entries) in (first / PAGE..).zip(pages.chunks(PAGE as usize)) {
                self.cache.insert(self.cache_id, page, entries);
            }
        }
        entries.copy_from_slice(&pages[(range.start - first) as usize..][..count]);
        Ok(entries)
    }

    async fn read_pages(&self, range: Range<u64>) -> Result<Vec<Entry>, Errno> {
        let mut entries = vec![Entry::default(); (range.end - range.start) as usize];
        let start = place(range.start);
        let there = place(range.end).min(self.len.get()).saturating_sub(start) as usize;
        let there = there - there % Entry::LEN;
        if there == 0 {
            return Ok(entries);
        }
        let mut bytes = vec![0; there];
        if syscall::read_cached(self.fd(), &mut bytes, start) != Ok(there) {
            self.read_uncached(&mut bytes, start).await?;
        }
        for (entry, read) in entries.iter_mut().zip(Self::decode(&bytes)) {
            *entry = read;
        }
        Ok(entries)
    }

    /// In steps that the next ones profit from.
    async fn read_uncached(&self, bytes: &mut [u8], start: u64) -> Result<(), Errno> {
        let end = start + bytes.len() as u64;
        let from = start - start % READ_STEP;
        let to = end.next_multiple_of(READ_STEP).min(self.len.get().max(end));
        let (outcome, buf) = op::read_at(self.fd(), Buf::with_capacity((to - from) as usize), from).await;
        let (count, buf, skip) = match outcome {
            Ok(count) => (count, buf, (start - from) as usize),
            // It may be somewhere else that the disk does not give.
            Err(_) => {
                let (outcome, buf) = op::read_at(self.fd(), Buf::with_capacity(bytes.len()), start).await;
                (outcome?, buf, 0)
            }
        };
        let there = buf[..count].get(skip..).unwrap_or_default();
        // Shorter than it was: somebody else's doing.
        let there = &there[..there.len().min(bytes.len())];
        bytes.fill(0);
        bytes[..there.len()].copy_from_slice(there);
        Ok(())
    }

    /// The bytes to put at [`place`] of the first block.
    pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
        entries.iter().flat_map(|entry| entry.encode()).collect()
    }

    /// From such bytes.
    pub(super) fn decode(bytes: &[u8]) -> impl Iterator<Item = Entry> {
        bytes.as_chunks::<{ Entry::LEN }>().0.iter().map(|bytes| Entry::decode(*bytes))
    }

    #[cfg(test)]
    pub(super) fn cache_id(&self) -> u64 {
        self.cache_id
    }

    pub(super) fn begin_write(&self) -> Writing<'_> {
        self.writes.set(self.writes.get() + 1);
        Writing(self)
    }

    /// These entries were written, from block `first` on.
    pub(super) fn wrote(&self, _writing: &Writing<'_>, first: u64, entries: &[Entry]) {
        self.reached(place(first + entries.len() as u64));
        self.cache.update(self.cache_id, first, entries);
    }

    /// Entries of these blocks may have been written.
    pub(super) fn may_have_written(&self, _writing: &Writing<'_>, blocks: Range<u64>, reached: u64) {
        self.reached(reached);
        self.cache.forget(self.cache_id, blocks);
    }

    /// Bytes up to this place were written.
    fn reached(&self, end: u64) {
        self.len.set(self.len.get().max(end));
    }

    /// Beyond an object of this size there are no entries. Blocks, though seldom for long.
    ///
    /// # Errors
    /// Those of truncating.
    pub(super) fn cut(&self, size: u64) -> Result<(), Errno> {
        if let Some(cut) = self.begin_cut(size) {
            syscall::truncate(self.fd(), cut.end)?;
            cut.done();
        }
        Ok(())
    }

    /// As [`Self::cut`] where the caller truncates the file. `None` where there is nothing to be cut off.
    pub(super) fn begin_cut(&self, size: u64) -> Option<Cut<'_>> {
        let end = place(size.div_ceil(blocks::BLOCK));
        (self.len.get() > end).then(|| {
            let writing = self.begin_write();
            // Beyond what there is, the cache has but zeros.
            let there = (self.len.get() - place(0)).div_ceil(Entry::LEN as u64);
            self.cache.forget(self.cache_id, size.div_ceil(blocks::BLOCK)..there);
            Cut { end, writing }
        })
    }

    /// The entries of these blocks are not believed any more, also by those who open it later where that can be said.
    pub(super) async fn distrust(&self, range: Range<u64>) {
        // Who is about to make it clean does not.
        self.note_change();
        self.distrust_from_here(range);
        let _turn = self.turning.acquire(1).await;
        if self.state.get() == Phase::Dirty {
            let _ = self.write_header(self.dirty_state()).await;
        }
    }

    /// All entries are right, and nobody is changing any.
    pub(super) async fn believe(&self) -> Result<(), Errno> {
        if self.trust.get() == Trust::Exact || !self.keeping.on || !self.writable {
            return Ok(());
        }
        let owner = self.keeping.me;
        self.write_header(State::Dirty { owner, pending: None }).await?;
        self.owner.set(owner);
        self.inherited.replace(None);
        self.state.set(Phase::Dirty);
        self.trust.set(Trust::Exact);
        Ok(())
    }

    /// Puts zeros where the disk does not give entries of these blocks: what they hold is not known any more. Also during
    /// changes. False where the disk gives all of them.
    ///
    /// # Errors
    /// Those of writing to the sidecar; nothing of these blocks may be changed then.
    pub(super) async fn clear_unreadable(&self, range: Range<u64>) -> Result<bool, Errno> {
        if !self.writable {
            return Err(Errno::EROFS);
        }
        // Who is about to make it clean does not.
        self.note_change();
        let _turn = self.turning.acquire(1).await;
        // All that is read with them.
        let (first, end) = (range.start - range.start % PAGE, range.end.next_multiple_of(PAGE));
        let (fd, bytes) = (self.shared_fd(), place(first)..place(end).min(self.len.get()));
        let pages = self.helpers.run(move || unreadable_pages(fd.as_raw_fd(), bytes)).await?;
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return Ok(false) };
        let lost = blocks_of_page(*first).start..blocks_of_page(*last).end;
        let reached = (last + 1) * FILE_PAGE;
        self.distrust_from_here(lost.clone());
        self.state.set(Phase::Dirty);
        let header = header(self.object, self.dirty_state());
        let (fd, writing) = (self.shared_fd(), self.begin_write());
        let outcome = self.helpers.run(move || put_zeros(fd.as_raw_fd(), &header, &pages)).await;
        self.may_have_written(&writing, lost, reached);
        outcome.map(|()| true)
    }

    /// The entries of these blocks are not believed, as [`Self::distrust`] could not write down before the sidecar was
    /// opened anew.
    pub(super) fn stays_distrusted(&self, range: Range<u64>) {
        self.distrust_from_here(range);
        self.state.set(Phase::Dirty);
        self.durable.set(false);
    }

    pub(super) fn distrusts_all(&self) -> bool {
        *self.inherited.borrow() == Some(0..u64::MAX)
    }

    /// Something of it is written that the disk need not have.
    pub(super) fn may_lack_writes(&self) -> bool {
        self.keeping.on && self.writable && self.is_dirty()
    }

    /// Where the disk has refused something of its file system: whether all that was written here is on it, as far as the
    /// kernel tells.
    pub(super) async fn is_written(&self) -> bool {
        !self.was_dirty.get() && op::fsync(self.fd(), true).await.is_ok()
    }

    fn distrust_from_here(&self, range: Range<u64>) {
        if self.trust.get() == Trust::Exact {
            self.trust.set(Trust::Either);
            self.owner.set(self.keeping.me.earlier());
        }
        let others = self.inherited.borrow_mut().take();
        let all = others.map_or(range.clone(), |other| hull(&other, &range));
        self.inherited.replace(Some(all));
    }

    pub(super) fn must_clean(&self) -> bool {
        self.trust.get() == Trust::Exact && self.state.get() == Phase::Dirty && self.keeping.on && self.writable
    }

    pub(super) fn last_change(&self) -> Instant {
        self.last_change.get()
    }

    /// It was closed in between, and not changed.
    pub(super) fn was_changed_at(&self, last_change: Instant) {
        self.last_change.set(last_change);
    }

    /// `None` where it cannot become clean now; else what to give [`Self::clean`].
    pub(super) fn may_clean(&self, idle_since: Instant) -> Option<u64> {
        let idle = self.changing.get() == 0 && self.last_change.get() <= idle_since;
        (idle && self.must_clean()).then(|| self.changes.get())
    }

    /// Data and entries were brought to the disk after [`Self::may_clean`] said `changes`. A change that begins meanwhile
    /// waits until it is written, and then makes it dirty first; so does one that begins after a failure.
    pub(super) async fn clean(&self, changes: u64, size: u64) -> Result<bool, Errno> {
        if self.changes.get() != changes || self.changing.get() != 0 {
            return Ok(false);
        }
        let Some(_turn) = self.turning.try_acquire(1) else { return Ok(false) };
        self.state.set(Phase::Clean);
        self.durable.set(false);
        self.was_dirty.set(false);
        self.write_header(State::Clean { size }).await?;
        Ok(true)
    }
}
