//! The first engine: one file per object in hashed folders of any POSIX file system, buffered by its page cache or,
//! where requests are large, past it.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::buf::{Buf, Slice};
use ring::op;
use ring::sync::{Permit, Semaphore};
use telemetry::metrics::Metrics;
use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;

use super::copy::Range;
use super::folders::{self, Entries, Folder, c_string};
use super::keeping::{SUMS, Sums};
use super::opening::Openings;
use super::read_ahead::KERNEL_WINDOW_MAX;
use super::removals::Removals;
use super::scatter::scatter;
use super::stamp::Stamp;
use super::{
    Checked, Data, Found, LaneShare, Leftover, ObjectStore, Page, Stored, Written, listing, lost, sidecar_file, syscall,
};
use crate::ahead::Ahead;
use crate::failures::Failures;
use crate::metrics::PastCache;
use crate::open_files::{OpenFile, OpenFiles};
use crate::pace::{CacheCost, Pace};
use crate::queue::Queue;
use crate::target::Target;

/// The directory of a target that holds its objects.
pub(crate) const OBJECTS: &str = "objects";
/// Files of a target and lane, at most, that the cache has given up and whose data is on its way to the disk, together with
/// those that are being opened: one for each eight that it may have.
const RETIRING_MAX: usize = 64;
/// Larger files are removed and cut on a helper thread: freeing their pages and blocks takes long.
const FREE_IN_PLACE_MAX: u64 = 1 << 20;
pub(super) const READ_WRITE: i32 = libc::O_RDWR | libc::O_NOFOLLOW;
pub(super) const READ_ONLY: i32 = libc::O_RDONLY | libc::O_NOFOLLOW;

/// Opens the file of an object below `root`, of its data or its checksums; makes it, and its folders, where they are missing.
/// Blocks.
pub(super) fn create(root: RawFd, object: ObjectId) -> Result<OwnedFd, Errno> {
    let path = folders::path(object);
    let create = || syscall::open_at(root, &path, READ_WRITE | libc::O_CREAT);
    match create() {
        Err(Errno::ENOENT) => {}
        outcome => return outcome,
    }
    let folder = Folder::of(object);
    syscall::make_folder(root, &c_string(folder.outer_name()))?;
    syscall::make_folder(root, &c_string(folder.path()))?;
    create()
}

/// Makes what lanes open of a target, and looks whether it can be listed: a lane that finds out has nobody to tell.
///
/// # Errors
/// The disk's.
pub(crate) fn prepare_folders(target: &Path, checksums: bool) -> std::io::Result<()> {
    for name in [Some(OBJECTS), checksums.then_some(SUMS)].into_iter().flatten() {
        make_folder(target, name)?;
        match std::fs::read_dir(target.join(name)) {
            Ok(mut entries) => entries.next().transpose().map(drop)?,
            // Of a target that is mounted read-only, and has none.
            Err(error) if name == SUMS && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A directory of a target, on its disk. A target that is mounted read-only still serves what it has.
pub(super) fn make_folder(target: &Path, name: &str) -> std::io::Result<()> {
    let path = target.join(name);
    match std::fs::create_dir(&path) {
        Ok(()) => std::fs::File::open(target)?.sync_all(),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem && (name == SUMS || path.is_dir()) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// As the folder that objects are found from: whatever else has that name is none.
pub(super) fn open_folder(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Of each target and lane, at first: see [`Files::keep_open`].
    pub(crate) open_files_max: usize,
    /// Bytes. Writes up to this length are made on the lane's thread while the disk keeps up.
    pub(crate) write_in_place_max: usize,
    /// Bytes. Reads and writes from this length on go past the page cache.
    pub(crate) direct_min: u64,
    /// Keep and verify the checksums of objects.
    pub(crate) checksums: bool,
}

pub(crate) struct Files {
    pub(super) target: Arc<Target>,
    failures: Rc<Failures>,
    pub(super) options: Options,
    path: PathBuf,
    pub(super) root: Arc<OwnedFd>,
    pub(super) open: RefCell<OpenFiles>,
    pub(super) openings: Openings,
    /// Places for files that the cache has given up; who opens one holds the place of the one that goes for it.
    pub(super) retiring: Rc<Semaphore>,
    pub(super) entries: Rc<RefCell<Entries>>,
    removals: Rc<Removals>,
    pub(super) pace: Pace,
    pub(super) cache_cost: CacheCost,
    /// The kernel itself reads less far ahead than we would.
    pub(super) reads_ahead: bool,
    pub(super) ahead: Rc<Ahead>,
    pub(super) queue: Rc<Queue>,
    pub(super) sums: Sums,
    pub(super) past_bytes: PastCache,
}

impl Files {
    /// Opens the objects of a target, whose directory exists.
    ///
    /// # Errors
    /// Where `objects` cannot be made or opened.
    pub(crate) fn open(
        target: Arc<Target>,
        failures: Rc<Failures>,
        options: Options,
        ahead: Rc<Ahead>,
        queue: Rc<Queue>,
        metrics: &Metrics,
    ) -> std::io::Result<Self> {
        let path = target.path.join(OBJECTS);
        make_folder(&target.path, OBJECTS)?;
        let root = open_folder(&path)?;
        scatter(&root);
        let reads_ahead = kernel_read_ahead(root.metadata()?.dev()) < KERNEL_WINDOW_MAX;
        let root: OwnedFd = root.into();
        let sums = Sums::open(&target, options.checksums, metrics)?;
        let pace = Pace::new(Arc::clone(&target.pulse));
        Ok(Self {
            target,
            failures,
            open: RefCell::new(OpenFiles::new(options.open_files_max)),
            openings: Openings::default(),
            retiring: Rc::new(Semaphore::new((options.open_files_max / 8).clamp(1, RETIRING_MAX))),
            options,
            path,
            root: Arc::new(root),
            entries: Rc::new(RefCell::new(Entries::new())),
            removals: Rc::default(),
            pace,
            cache_cost: CacheCost::default(),
            reads_ahead,
            ahead,
            queue,
            sums,
            past_bytes: PastCache::new(metrics),
        })
    }

    /// Has so many files open from here on, at most: what is too much goes as fast as the disk takes its data.
    pub(crate) async fn keep_open(&self, count: usize) {
        loop {
            let mut place = Some(self.retiring.acquire(1).await);
            let evicted = self.open.borrow_mut().shrink(count);
            let Some((object, file)) = evicted else { return };
            self.retire(object, file, &mut place);
            drop(place);
            ring::next_turn().await;
        }
    }

    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.borrow().len()
    }

    pub(super) fn root(&self) -> RawFd {
        self.root.as_raw_fd()
    }

    /// Runs `call` on a helper thread of the target.
    pub(super) async fn unblock<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let _calling = self.queue.call();
        self.target.helpers.run(call).await
    }

    pub(super) async fn unblock_with<T: Send + 'static>(
        &self,
        data: Slice,
        call: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        let _calling = self.queue.call();
        self.target.helpers.run_with(data, call).await
    }

    /// Makes a short call in place while the disk keeps up, else on a detour.
    pub(super) async fn paced<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        if self.pace.is_calm(Instant::now()) { self.pace.timed(call) } else { self.detour(call).await }
    }

    /// Runs a call on a helper thread that is made in place while the disk keeps up.
    pub(super) async fn detour<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        self.detour_with(Slice::empty(), move |_| call()).await
    }

    pub(super) async fn detour_with<T: Send + 'static>(
        &self,
        data: Slice,
        call: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        let (detour, _calling) = (self.pace.detour(), self.queue.call());
        let timed = move |data: &[u8]| {
            let begun = Instant::now();
            (call(data), begun.elapsed())
        };
        let (outcome, took) = self.target.helpers.run_with(data, timed).await;
        detour.took(took);
        outcome
    }

    /// Passes an error on, after telling the target's health of it. Of a call that was to change nothing: it takes nothing that
    /// was acknowledged.
    pub(super) fn failed(&self, errno: Errno, what: &str) -> Errno {
        self.target.note_error(errno, what);
        errno
    }

    /// Passes on the error of a call that was to change something, after telling the target's health of it.
    pub(super) fn refused(&self, errno: Errno, what: &str) -> Errno {
        self.target.note_refusal(errno, what);
        errno
    }

    /// Closes a file that the cache gives up. Its dirty data is written first: once it is closed, nobody would hear of
    /// a failure. Takes `place` where it needs one.
    pub(super) fn retire(&self, object: ObjectId, file: Rc<OpenFile>, place: &mut Option<Permit>) {
        self.note_idle(object, &file);
        if !file.durability.is_dirty() {
            return;
        }
        let (failures, target) = (Rc::clone(&self.failures), Arc::clone(&self.target));
        // Without one goes only what was in use when the cache should have given it up: then it had one file too many already.
        let place = place.take().or_else(|| self.retiring.try_acquire(1));
        ring::spawn(async move {
            let fd = file.shared_fd();
            if let Err(errno) = target.helpers.run(move || syscall::write_back(fd.as_raw_fd())).await {
                note_loss(&target, &failures, object, errno);
            }
            drop((file, place));
        });
    }

    fn write_behind(&self, object: ObjectId, file: &Rc<OpenFile>, offset: u64, len: u64) {
        let mut stream = file.writes.get();
        let behind = stream.on_write(offset, len);
        file.writes.set(stream);
        // Where the disk has enough to do with what was begun before, the kernel begins it some time later.
        let (Some((start, len)), Some(place)) = (behind, self.queue.aside()) else { return };
        let (file, failures, target) = (Rc::clone(file), Rc::clone(&self.failures), Arc::clone(&self.target));
        ring::spawn(async move {
            if let Err(error) = op::sync_range(file.fd(), start, clamp(len)).await {
                note_loss(&target, &failures, object, error.into());
            }
            drop(place);
        });
    }

    /// `durable`: it is to be on the disk, if that can be had at once. Answers whether it is.
    pub(super) async fn put(&self, file: &OpenFile, offset: u64, data: Slice, durable: bool) -> Result<bool, Errno> {
        if durable && let Some(outcome) = self.write_durably(file, offset, &data).await {
            return outcome.map(|()| true);
        }
        file.durability.changes();
        self.put_anywhere(file, offset, data).await.map(|()| false)
    }

    async fn put_anywhere(&self, file: &OpenFile, offset: u64, data: Slice) -> Result<(), Errno> {
        let begun = Instant::now();
        let in_place = data.len() <= self.options.write_in_place_max && self.pace.is_calm(begun);
        let is_large = data.len() as u64 >= self.options.direct_min;
        if is_large
            && !(in_place && self.cache_cost.pays(begun))
            && let Some(outcome) = self.write_past_cache(file, offset, &data).await
        {
            return outcome;
        }
        if in_place {
            let outcome = self.pace.timed(|| syscall::write_at(file.fd(), &data, offset));
            if is_large {
                self.cache_cost.record(data.len() as u64, begun, Instant::now());
            }
            return outcome;
        }
        if data.len() > self.options.write_in_place_max {
            return op::write_at(file.fd(), data, offset).await.map(drop).map_err(Errno::from);
        }
        let fd = file.shared_fd();
        self.detour_with(data, move |data| syscall::write_at(fd.as_raw_fd(), data, offset)).await
    }

    pub(super) async fn resize(&self, file: &OpenFile, size: u64) -> Result<(), Errno> {
        let fd = file.shared_fd();
        let is_small = file.size.get().saturating_sub(size) <= FREE_IN_PLACE_MAX;
        let truncate = move || syscall::truncate(fd.as_raw_fd(), size);
        if is_small { self.paced(truncate).await } else { self.unblock(truncate).await }
    }

    async fn unlink(&self, object: ObjectId) -> Result<(), Errno> {
        let file = self.open.borrow_mut().remove(object);
        let path = folders::path(object);
        let small = file.is_some_and(|file| file.size.get() <= FREE_IN_PLACE_MAX);
        let (root, sums) = (Arc::clone(&self.root), self.sums.shared_root());
        // The sidecar first: one without its object would wait for the next object of that name.
        let unlink = move || {
            sums.map_or(Ok(()), |sums| sidecar_file::remove(sums.as_raw_fd(), object))?;
            syscall::unlink_at(root.as_raw_fd(), &path)
        };
        let outcome = if small { self.paced(unlink).await } else { self.unblock(unlink).await };
        // Who looks after checksums may have opened it meanwhile.
        drop(self.open.borrow_mut().remove(object));
        self.sums.forget(object);
        self.sums.forget_distrust(object);
        outcome
    }

    /// `len` bytes, all of them within the object.
    async fn read_unverified(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: u64,
        room: Option<Buf>,
    ) -> Result<Buf, Errno> {
        let room = match self.find_ahead(file, offset, len, room).await {
            Ok(buf) => return Ok(buf),
            Err(room) => room,
        };
        let buf = room.filter(|room| room.len() as u64 >= len).unwrap_or_else(|| Buf::with_whole_pages(len as usize));
        let (done, mut buf) = match self.read_past_cache(file, offset, len, buf).await {
            Ok(read) => read,
            Err(buf) => (0, buf),
        };
        buf.truncate(len as usize);
        if done == len as usize {
            return Ok(buf);
        }
        self.advise(file, offset + done as u64, len - done as u64);
        let (outcome, rest) = op::read_at(file.fd(), buf.split_off(done), offset + done as u64).await;
        buf.unsplit(rest).expect("the two parts of one buffer");
        let count = outcome.map_err(|error| self.failed(error.into(), "read"))?;
        if file.sums().is_some() {
            // What the file should have and has not is as good as zeros, and as bad.
            buf[done + count..].fill(0);
        } else {
            buf.truncate(done + count);
        }
        Ok(buf)
    }

    pub(super) async fn sync_data(&self, object: ObjectId, file: &OpenFile) -> Result<(), Errno> {
        // One after the other: the kernel tells an error of a file once, and who is not told must not answer before it is
        // noted.
        let _turn = file.syncing.acquire(1).await;
        let then = file.durability.now();
        if file.durability.is_complete() {
            return Ok(());
        }
        op::fsync(file.fd(), true).await.map_err(|error| {
            let errno = Errno::from(error);
            note_loss(&self.target, &self.failures, object, errno);
            errno
        })?;
        file.durability.synced(then);
        Ok(())
    }

    /// All of the target, and whatever else is there.
    pub(super) async fn sync_file_system(&self) -> Result<(), Errno> {
        let (target, root) = (Arc::clone(&self.target), Arc::clone(&self.root));
        let sync = move || {
            // Noted by the thread that hears of it: who waits may give up, and the kernel tells it once.
            syscall::sync_file_system(root.as_raw_fd()).inspect_err(|&errno| {
                target.note_loss_of_some();
                target.note_error(errno, "sync of the file system");
            })
        };
        self.target.syncer.run(sync).await
    }

    /// What is below this descriptor, as requests find it: what has the target's path may be another one by now, or none.
    async fn list_below(
        &self,
        root: Arc<OwnedFd>,
        after: Option<ObjectId>,
        count: usize,
        share: LaneShare,
    ) -> Result<Page, Errno> {
        let list = move || listing::list(&path_of_fd(&root), after, count, share);
        let page = self.unblock(list).await.map_err(|errno| self.failed(errno, "list"))?;
        if let Some(errno) = page.failed {
            self.failed(errno, "list");
        }
        Ok(page)
    }

    async fn sync_entry(&self, object: ObjectId) -> Result<(), Errno> {
        if !self.entries.borrow().is_unsynced(object) {
            return Ok(());
        }
        sync_folder(&self.target, &self.root, &self.entries, Folder::of(object))
            .await
            .map_err(|errno| self.refused(errno, "sync of a folder"))
    }
}

impl ObjectStore for Files {
    async fn read(&self, object: ObjectId, offset: u64, len: u32, room: Option<Buf>) -> Result<Found, Errno> {
        let Some(file) = self.open_existing(object).await? else { return Ok(Found::nothing(0)) };
        let size = file.size.get();
        let len = u64::from(len).min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(Found::nothing(size));
        }
        let mut data = self.read_unverified(&file, offset, len, room).await?;
        let crc = self.verify(object, &file, offset, size, &mut data).await?;
        Ok(Found { data, crc, size })
    }

    async fn write(&self, object: ObjectId, offset: u64, data: Data) -> Result<Written, Errno> {
        let len = data.bytes.len() as u64;
        let end = offset.checked_add(len).filter(|&end| i64::try_from(end).is_ok()).ok_or(Errno::EFBIG)?;
        let file = self.open_for_data(object, len).await?;
        self.admit_write(&file, offset..end).await?;
        let outcome = self.write_summed(object, &file, offset, data).await;
        match outcome {
            Ok(true) => file.changed_on_disk(offset..end),
            _ => file.changed(offset..end),
        }
        match outcome {
            Ok(durable) => {
                file.size.set(file.size.get().max(end));
                self.write_behind(object, &file, offset, len);
                let durable = durable && !self.entries.borrow().is_unsynced(object);
                Ok(Written { size: file.size.get(), durable })
            }
            Err(errno) => {
                if let Some((stored, _)) = syscall::stat(file.fd()).ok().filter(|_| has_begun_change(&file)) {
                    file.size.set(stored.size);
                }
                Err(errno)
            }
        }
    }

    fn last_modified(&self, object: ObjectId) -> Option<Timestamp> {
        let file = self.open.borrow().get(object)?;
        syscall::stat(file.fd()).ok().map(|(stored, _)| stored.mtime)
    }

    async fn stamp(&self, object: ObjectId, stamp: Stamp) -> Result<(), Errno> {
        let file = self.open_or_create(object).await?;
        let fd = file.shared_fd();
        // In one go: others may write meanwhile.
        let set = self.paced(move || {
            let noted = syscall::stat(fd.as_raw_fd())?.0.mtime;
            let wanted = stamp.of(noted);
            if wanted == noted { Ok(()) } else { syscall::set_modified(fd.as_raw_fd(), wanted) }
        });
        set.await.map_err(|errno| self.refused(errno, "setting the time"))
    }

    async fn truncate(&self, object: ObjectId, size: u64) -> Result<(), Errno> {
        let file = self.open_or_create(object).await?;
        file.durability.changes();
        let outcome = self.resize_summed(object, &file, size).await;
        file.changed(0..u64::MAX);
        if outcome.is_ok() || has_begun_change(&file) && has_size(&file, size) {
            file.size.set(size);
        }
        outcome?;
        if size == 0 {
            self.failures.forget(object);
        }
        Ok(())
    }

    async fn allocate(&self, object: ObjectId, offset: u64, len: u64, what: Allocation) -> Result<u64, Errno> {
        self.change_space(object, offset, len, what).await
    }

    async fn copy(&self, source: ObjectId, object: ObjectId, range: Range) -> Result<u64, Errno> {
        self.copy_object(source, object, range).await
    }

    async fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
        self.find_next(object, offset, hole).await
    }

    async fn stat(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno> {
        self.stat_files(objects).await
    }

    async fn stat_whole(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno> {
        self.stat_as_summed(objects).await
    }

    async fn sync(&self, object: ObjectId) -> Result<(), Errno> {
        let Some(file) = self.open_existing(object).await? else { return Ok(()) };
        // Together, so that one journal commit does for both.
        let data: LocalBox<'_> = Box::pin(self.sync_data(object, &file));
        let entry: LocalBox<'_> = Box::pin(self.sync_entry(object));
        ring::join_all([data, entry]).await.into_iter().collect()
    }

    async fn remove(&self, object: ObjectId) -> Result<(), Errno> {
        match self.unlink(object).await {
            Ok(()) => {}
            Err(Errno::ENOENT) => self.check_root()?,
            Err(errno) => return Err(self.refused(errno, "remove")),
        }
        self.failures.forget(object);
        self.entries.borrow_mut().note_removed(object);
        let (target, root) = (Arc::clone(&self.target), Arc::clone(&self.root));
        let entries = Rc::clone(&self.entries);
        let sync = async move |folder| sync_folder(&target, &root, &entries, folder).await;
        match self.removals.made_durable(Folder::of(object), sync).await {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.refused(errno, "sync of a removal")),
        }
    }

    async fn list(&self, after: Option<ObjectId>, count: usize, share: LaneShare) -> Result<Page, Errno> {
        let page = self.list_below(Arc::clone(&self.root), after, count, share).await?;
        self.check_root()?;
        Ok(page)
    }

    async fn place(&self, object: ObjectId) -> Result<(PathBuf, bool), Errno> {
        let exists = self.stat(&[object]).await?.iter().any(Option::is_some);
        Ok((self.path.join(Folder::of(object).path()).join(folders::file_name(object)), exists))
    }

    async fn write_out(&self) -> bool {
        // Object by object it would take longer than whoever stops us waits.
        let written = self.sync_file_system().await;
        written
            .inspect_err(|errno| {
                tracing::error!(target = %self.target.id(), %errno, "acknowledged data could not be written");
            })
            .is_ok()
    }

    #[cfg(test)]
    async fn sync_all(&self) {
        if self.write_out().await {
            self.clean(Instant::now()).await;
        }
    }

    async fn check(&self, object: ObjectId, offset: u64, len: u64) -> Result<Checked, Errno> {
        self.check_range(object, offset, len).await
    }

    async fn next_to_check(&self, object: ObjectId, offset: u64) -> Result<Option<u64>, Errno> {
        self.next_block(object, offset).await
    }

    fn going_over(&self) -> u64 {
        self.sums.going_over()
    }

    async fn believe(&self, object: ObjectId, since: u64) -> Result<(), Errno> {
        self.believe_sums(object, since).await
    }

    async fn list_checksums(&self, after: Option<ObjectId>, count: usize, share: LaneShare) -> Result<Page, Errno> {
        match self.sums.shared_root() {
            Some(sums) => self.list_below(sums, after, count, share).await,
            None => Ok(Page { objects: Vec::new(), end: true, failed: None }),
        }
    }

    async fn remove_leftover(&self, object: ObjectId) -> Result<Leftover, Errno> {
        if self.stat(&[object]).await?.iter().any(Option::is_some) {
            return Ok(Leftover::Kept);
        }
        let Some(sums) = self.sums.shared_root() else { return Ok(Leftover::Kept) };
        let left = self.unblock(move || lost::remove_leftover(sums.as_raw_fd(), object)).await;
        left.map_err(|errno| self.refused(errno, "removing checksums"))
    }

    fn keeps_checksums(&self) -> bool {
        self.options.checksums
    }

    fn doubtful(&self) -> Option<ObjectId> {
        self.sums.take_doubtful()
    }

    async fn clean(&self, idle_since: Instant) {
        if let Err(errno) = self.clean_idle(idle_since).await {
            tracing::warn!(target = %self.target.id(), %errno, "objects stay dirty: their checksums would be in doubt after a loss of power");
        }
    }
}

/// Whether the target at `path` holds any object. Blocks.
pub(crate) fn holds_objects(path: &std::path::Path) -> bool {
    let everything = LaneShare { lane: 0, lanes: 1 };
    // What cannot be listed may hold some.
    let is_empty = |page: Page| page.objects.is_empty() && page.failed.is_none();
    !listing::list(&path.join(OBJECTS), None, 1, everything).is_ok_and(is_empty)
}

/// The change has begun, though it failed: before, the file had the size that its clean header says.
fn has_begun_change(file: &OpenFile) -> bool {
    file.sums().is_none_or(|sums| sums.is_dirty())
}

/// After a truncate that failed: a file system that could not free what it cut off has cut it off all the same.
pub(super) fn has_size(file: &OpenFile, size: u64) -> bool {
    syscall::stat(file.fd()).is_ok_and(|(stored, _)| stored.size == size)
}

/// Data of the object that was acknowledged could not be written.
pub(super) fn note_loss(target: &Target, failures: &Failures, object: ObjectId, errno: Errno) {
    // From the kernel's io_uring, which could start no thread for the call: no disk was asked.
    if errno == Errno::ECANCELED {
        return;
    }
    target.note_error(errno, "write-back");
    target.note_loss();
    failures.note(object, errno);
}

type LocalBox<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;

/// Good while it is open.
fn path_of_fd(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

pub(super) fn clamp(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Bytes that the kernel reads ahead of a sequential reader on this device; 0 where it does not say.
fn kernel_read_ahead(device: u64) -> u64 {
    let path = format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse::<u64>().map_or(0, |kib| kib << 10)
}

/// Makes the entries of a folder durable and, the first time, the way to it.
async fn sync_folder(
    target: &Target,
    root: &Arc<OwnedFd>,
    entries: &RefCell<Entries>,
    folder: Folder,
) -> Result<(), Errno> {
    let begun_at = entries.borrow().clock();
    sync_directory(target, root, folder.path()).await?;
    if entries.borrow().is_new_folder(folder) {
        sync_directory(target, root, folder.outer_name()).await?;
        sync_directory(target, root, ".".to_owned()).await?;
    }
    entries.borrow_mut().note_synced(folder, begun_at);
    Ok(())
}

async fn sync_directory(target: &Target, root: &Arc<OwnedFd>, path: String) -> Result<(), Errno> {
    let (path, flags) = (c_string(path), libc::O_RDONLY | libc::O_DIRECTORY);
    let directory = match syscall::open_cached(root.as_raw_fd(), &path, flags) {
        Ok(directory) => directory,
        Err(_) => {
            let root = Arc::clone(root);
            target.helpers.run(move || syscall::open_at(root.as_raw_fd(), &path, flags)).await?
        }
    };
    op::fsync(directory.as_raw_fd(), false).await.map_err(Errno::from)
}
