//! What a target's lane keeps beside the sidecars: where they are, which may become clean, and what was found of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use telemetry::metrics::{Counter, Metrics};
use telemetry::names;
use types::error::Errno;
use types::id::ObjectId;

use super::entry_cache::{EntryCache, PAGES_MAX};
use super::files::{Files, OBJECTS, make_folder, open_folder};
use super::folders::{Folder, file_name};
use super::scatter::scatter;
use super::sidecar::{Keeping, Sidecar, hull};
use crate::epoch;
use crate::open_files::OpenFile;
use crate::sums::blocks::BLOCK;
use crate::sums::header::Owner;
use crate::sums::{Entry, Trust};
use crate::target::Target;

/// The directory of a target that holds the sidecars of its objects.
pub(crate) const SUMS: &str = "sums";
/// Objects remembered that are to become clean; further ones stay dirty until a scrub.
const DIRTY_MAX: usize = 1 << 17;
/// Objects remembered that are to be gone over; further ones wait for a scrub.
const DOUBTFUL_MAX: usize = 4096;
/// Objects remembered that were distrusted; if there are more, all are that are not open.
const DISTRUSTED_MAX: usize = 4096;
/// Corrupt blocks that were told once.
const TOLD_MAX: usize = 4096;
/// In place of a block, where it is all checksums of an object of which something is told...
pub(super) const WHOLE: u64 = u64::MAX;
/// ...and by who copies from it, whose object it need not be.
pub(super) const AS_SOURCE: u64 = u64::MAX - 1;
/// In place of a block, where the object is not there.
const LOST: u64 = u64::MAX - 2;

pub(super) struct Sums {
    /// `None` where there is no such directory, and none can be made.
    root: Option<Arc<OwnedFd>>,
    keeping: Cell<Keeping>,
    corrupt: Counter,
    unverified: Counter,
    told: RefCell<BTreeSet<(ObjectId, u64)>>,
    /// With the time of a change, from which on they may have been idle.
    dirty: RefCell<BTreeMap<ObjectId, Instant>>,
    doubtful: RefCell<VecDeque<ObjectId>>,
    distrusted: RefCell<BTreeMap<ObjectId, Distrusted>>,
    /// How often something was distrusted.
    distrusts: Cell<u64>,
    /// The last time that all was which is not open.
    all_distrusted_at: Cell<u64>,
    /// Failed syncs of the file system after which nothing is believed any more that they may have taken.
    heard: Cell<u64>,
    /// Failed syncs of the file system as of the last opening of a sidecar: what was closed before those is not
    /// believed.
    heard_closed: Cell<u64>,
    pub(super) cache: Rc<EntryCache>,
}

/// What is not believed of an object until all of it was gone over, also where its header could not be told.
struct Distrusted {
    blocks: Range<u64>,
    /// The last time, in the count of all. Who began to go over it before may have looked at what is wrong since.
    at: u64,
}

impl Sums {
    /// Opens the sidecars of a target.
    ///
    /// # Errors
    /// Where their directory cannot be made or opened though checksums are on.
    pub(super) fn open(target: &Target, on: bool, metrics: &Metrics) -> std::io::Result<Self> {
        let path = target.path.join(SUMS);
        if on {
            make_folder(&target.path, SUMS)?;
        }
        let root = match open_folder(&path) {
            Ok(root) => {
                scatter(&root);
                Some(Arc::new(OwnedFd::from(root)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let me = match &root {
            Some(root) => epoch::owner(root.as_raw_fd(), target.lost_before()),
            None => epoch::owner(-1, 0),
        };
        // From the start, so that a sum over time begins at 0. The target's id is known by now.
        let counter = |def| metrics.counter(def, &[&target.id().to_string()]);
        Ok(Self {
            root,
            keeping: Cell::new(Keeping { me, on }),
            heard: Cell::new(target.failed_syncs()),
            heard_closed: Cell::new(target.failed_syncs()),
            corrupt: counter(&names::CORRUPT_BLOCKS),
            unverified: counter(&names::UNVERIFIED_BLOCKS),
            told: RefCell::default(),
            dirty: RefCell::default(),
            doubtful: RefCell::default(),
            distrusted: RefCell::default(),
            distrusts: Cell::default(),
            all_distrusted_at: Cell::default(),
            cache: Rc::new(EntryCache::new(PAGES_MAX)),
        })
    }

    /// As of now: who opens a sidecar keeps it.
    pub(super) fn keeping(&self) -> Keeping {
        self.keeping.get()
    }

    /// Entries are written and believed.
    pub(super) fn is_on(&self) -> bool {
        self.keeping.get().on
    }

    pub(super) fn me(&self) -> Owner {
        self.keeping.get().me
    }

    /// Who this process is to one that opens a sidecar, where so many syncs of the target's file system have failed:
    /// what was closed before the last one is not believed, also before this lane has cleaned anything since.
    pub(super) fn me_after(&self, failed_syncs: u64) -> Owner {
        if self.heard_closed.replace(failed_syncs) != failed_syncs {
            self.distrust_closed();
        }
        self.me()
    }

    pub(super) fn root(&self) -> Option<RawFd> {
        self.root.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn shared_root(&self) -> Option<Arc<OwnedFd>> {
        self.root.clone()
    }

    /// It will have to become clean: it was changed at `since`, and may have been later.
    pub(super) fn note_dirty(&self, object: ObjectId, since: Instant) {
        let mut dirty = self.dirty.borrow_mut();
        if dirty.len() < DIRTY_MAX || dirty.contains_key(&object) {
            dirty.insert(object, since);
        }
    }

    /// Up to `count` objects that were noted with a time up to `before`.
    pub(super) fn dirty_before(&self, before: Instant, count: usize) -> Vec<ObjectId> {
        let dirty = self.dirty.borrow();
        dirty.iter().filter(|(_, since)| **since <= before).map(|(object, _)| *object).take(count).collect()
    }

    /// Is gone, or need not become clean any more.
    pub(super) fn forget(&self, object: ObjectId) {
        self.dirty.borrow_mut().remove(&object);
    }

    pub(super) fn note_doubtful(&self, object: ObjectId) {
        let mut doubtful = self.doubtful.borrow_mut();
        if doubtful.len() < DOUBTFUL_MAX && !doubtful.contains(&object) {
            doubtful.push_back(object);
        }
    }

    fn note_distrusted(&self, object: ObjectId, blocks: Range<u64>) {
        let at = self.count_distrust();
        let mut distrusted = self.distrusted.borrow_mut();
        if let Some(known) = distrusted.get_mut(&object) {
            *known = Distrusted { blocks: hull(&known.blocks, &blocks), at };
        } else if distrusted.len() < DISTRUSTED_MAX {
            distrusted.insert(object, Distrusted { blocks, at });
        } else {
            drop(distrusted);
            self.distrust_closed();
        }
    }

    fn count_distrust(&self) -> u64 {
        self.distrusts.set(self.distrusts.get() + 1);
        self.distrusts.get()
    }

    /// What is dirty and not open, or is closed before it is clean, is in doubt until it was gone over.
    pub(super) fn distrust_closed(&self) {
        let Keeping { me, on } = self.keeping.get();
        self.keeping.set(Keeping { me: me.anew(), on });
        self.all_distrusted_at.set(self.count_distrust());
        // They are among those.
        self.distrusted.borrow_mut().clear();
    }

    /// Whether a sync of the file system has failed since this was asked last; so many of the target's have ever.
    pub(super) fn hears_of_failed_sync(&self, count: u64) -> bool {
        self.heard.replace(count) != count
    }

    fn distrusted(&self, object: ObjectId) -> Option<Range<u64>> {
        self.distrusted.borrow().get(&object).map(|known| known.blocks.clone())
    }

    /// For [`Self::may_be_believed`], before anything of an object is gone over.
    pub(super) fn going_over(&self) -> u64 {
        self.distrusts.get()
    }

    /// It is gone: the next object of that name has nothing of it.
    pub(super) fn forget_distrust(&self, object: ObjectId) {
        self.distrusted.borrow_mut().remove(&object);
    }

    /// Who has gone over all of it since then has seen what it is. There may be several at once.
    pub(super) fn may_be_believed(&self, object: ObjectId, since: u64) -> bool {
        let own = self.distrusted.borrow().get(&object).map_or(0, |known| known.at);
        own.max(self.all_distrusted_at.get()) <= since
    }

    /// It is believed, and nobody needs to go over it again: it may have been closed and opened, or somebody else has gone over
    /// it. What comes to be wrong with it later is to be told again.
    pub(super) fn note_believed(&self, object: ObjectId) {
        self.doubtful.borrow_mut().retain(|other| *other != object);
        let mut told = self.told.borrow_mut();
        for told_as in [WHOLE, AS_SOURCE] {
            told.remove(&(object, told_as));
        }
        drop(told);
        self.forget_distrust(object);
    }

    /// Whether that was told before; from here on it was.
    fn remembers(&self, object: ObjectId, block: u64) -> bool {
        let mut told = self.told.borrow_mut();
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        !told.insert((object, block))
    }

    pub(super) fn take_doubtful(&self) -> Option<ObjectId> {
        self.doubtful.borrow_mut().pop_front()
    }
}

impl Files {
    /// From here on the open file has its sidecar.
    pub(super) fn take_in(&self, object: ObjectId, file: &OpenFile, sums: Rc<Sidecar>) {
        if !self.sums.is_on() {
            file.set_sums(sums);
            return;
        }
        if let Some(blocks) = self.sums.distrusted(object) {
            sums.stays_distrusted(blocks);
        }
        if sums.is_dirty() && sums.is_writable() {
            match sums.trust() {
                Trust::Exact => {
                    // It may have been closed and opened again.
                    let noted = self.sums.dirty.borrow().get(&object).copied();
                    match noted {
                        Some(since) => sums.was_changed_at(since),
                        None => self.sums.note_dirty(object, sums.last_change()),
                    }
                }
                // One that has never been gone over is left to a scrub: that is all there is after an upgrade.
                Trust::Either | Trust::Doubt if sums.had_owner() => self.sums.note_doubtful(object),
                Trust::Either | Trust::Doubt => {}
            }
        }
        file.set_sums(sums);
    }

    /// Before the open file goes: when the object was last changed is known by it alone.
    pub(super) fn note_idle(&self, object: ObjectId, file: &OpenFile) {
        if let Some(sums) = file.sums().filter(|sums| sums.must_clean()) {
            self.sums.note_dirty(object, sums.last_change());
        }
    }

    /// What these blocks hold is not known, since their entries could not be written.
    pub(super) async fn distrust(&self, object: ObjectId, sums: &Sidecar, range: Range<u64>) {
        self.sums.note_distrusted(object, range.clone());
        sums.distrust(range).await;
        self.sums.note_doubtful(object);
    }

    pub(super) fn count_unverified(&self, blocks: u64) {
        if self.sums.is_on() {
            self.sums.unverified.inc_by(blocks);
        }
    }

    /// Counts and logs a corrupt block, once while it is remembered.
    pub(super) fn tell_corrupt(&self, object: ObjectId, block: u64, entry: Entry, sum: u32) {
        self.sums.corrupt.inc();
        if self.sums.remembers(object, block) {
            return;
        }
        let (target, path) = (self.target.id(), self.object_path(object));
        let (expected, found) = (format!("{:08x}", entry.now), format!("{sum:08x}"));
        let (inode, stripe, offset) = (object.inode, object.stripe, block * BLOCK);
        tracing::error!(%inode, stripe, %target, offset, expected, found, path = %path.display(),
            "a block of 4096 bytes is corrupt: its checksum does not match; reading it is an error");
    }

    /// The disk does not give the checksums of an object. Logged once while it is remembered, for each way that it is told;
    /// true for that time.
    pub(super) fn tell_unreadable(&self, object: ObjectId, told_as: u64) -> bool {
        self.failed(Errno::EIO, "reading checksums");
        if self.sums.remembers(object, told_as) {
            return false;
        }
        let (target, path) = (self.target.id(), self.target.path.join(SUMS).join(path_of(object)));
        tracing::error!(inode = %object.inode, stripe = object.stripe, %target, path = %path.display(),
            "the disk does not give the checksums of an object: its data is taken as it is");
        true
    }

    /// The disk does not give the checksums of an object of this lane: it is gone over, which gives it new ones.
    pub(super) fn note_unreadable(&self, object: ObjectId) {
        if self.tell_unreadable(object, WHOLE) {
            self.sums.note_doubtful(object);
        }
    }

    /// Gives up those checksums of these blocks that the disk does not give.
    ///
    /// # Errors
    /// Those of writing to their file.
    pub(super) async fn clear_unreadable(
        &self,
        object: ObjectId,
        sums: &Sidecar,
        blocks: Range<u64>,
    ) -> Result<(), Errno> {
        self.note_unreadable(object);
        let cleared = sums.clear_unreadable(blocks.clone()).await;
        match cleared {
            // The disk may give all of them by now.
            Ok(false) => {}
            // Where it was the sync that failed, what else it was to write may not be there, and is not told again.
            Err(errno) if errno != Errno::EROFS => self.distrust(object, sums, 0..u64::MAX).await,
            _ => self.sums.note_distrusted(object, blocks),
        }
        cleared?;
        self.sums.note_doubtful(object);
        Ok(())
    }

    /// Once for each object that is open.
    pub(super) fn tell_doubt(&self, object: ObjectId, block: u64) {
        let (target, inode, stripe, offset) = (self.target.id(), object.inode, object.stripe, block * BLOCK);
        tracing::warn!(%inode, stripe, %target, offset,
            "checksums of an object may be older than its data, after a crash or since it had none: the data is taken as it is");
    }

    /// Counts it each time, and logs it once while it is remembered.
    pub(super) fn tell_lost(&self, object: ObjectId, size: u64) {
        self.sums.corrupt.inc();
        self.note_lost(object, size);
    }

    /// For who only looks how long it is.
    pub(super) fn note_lost(&self, object: ObjectId, size: u64) {
        if self.sums.remembers(object, LOST) {
            return;
        }
        let (target, path) = (self.target.id(), self.object_path(object));
        tracing::error!(inode = %object.inode, stripe = object.stripe, %target, size, path = %path.display(),
            "the file of an object is not there, and by its checksums it should be: reading it is an error");
    }

    pub(super) fn tell_size(&self, object: ObjectId, found: u64, expected: u64) {
        let (target, path) = (self.target.id(), self.object_path(object));
        self.sums.corrupt.inc();
        tracing::error!(inode = %object.inode, stripe = object.stripe, %target, found, expected, path = %path.display(),
            "an object's file has another size than when it was last changed: what is missing of it is corrupt");
    }

    pub(super) fn object_path(&self, object: ObjectId) -> PathBuf {
        self.target.path.join(OBJECTS).join(path_of(object))
    }
}

/// Of an object's file, and of that of its checksums: each in its directory.
fn path_of(object: ObjectId) -> PathBuf {
    PathBuf::from(Folder::of(object).path()).join(file_name(object))
}
