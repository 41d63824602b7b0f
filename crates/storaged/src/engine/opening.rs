//! From an object to its open file, with its sidecar: one opening of an object at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::sync::{Notify, Permit};
use types::error::Errno;
use types::id::ObjectId;

use super::files::{self, Files, READ_ONLY, READ_WRITE};
use super::sidecar::{Common, Sidecar};
use super::sidecar_file::{self, Missing, Sought};
use super::{folders, lost, syscall};
use crate::open_files::OpenFile;
use crate::sums::header::Owner;

/// Objects that are being opened.
#[derive(Default)]
pub(super) struct Openings {
    under_way: RefCell<BTreeMap<ObjectId, Rc<Notify>>>,
}

struct Opening<'a> {
    openings: &'a Openings,
    object: ObjectId,
}

impl Openings {
    /// Waits while somebody else opens the object; true where somebody did.
    async fn others(&self, object: ObjectId) -> bool {
        let Some(end) = self.under_way.borrow().get(&object).cloned() else { return false };
        end.notified().await;
        true
    }

    fn begin(&self, object: ObjectId) -> Opening<'_> {
        self.under_way.borrow_mut().insert(object, Rc::default());
        Opening { openings: self, object }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.openings.under_way.borrow_mut().remove(&self.object) {
            end.notify_all();
        }
    }
}

/// Why nothing was opened.
enum Unopened {
    Failed(Errno),
    /// It is not there, and by its sidecar it should be, with so many bytes.
    Lost(u64),
}

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// What was opened.
struct Opened {
    fd: OwnedFd,
    writable: bool,
    created: bool,
    sums: Sought,
}

impl Files {
    /// `None` where there is no such object.
    ///
    /// # Errors
    /// `EIO` where there should be one, by its checksums; those of opening it.
    pub(super) async fn open_existing(&self, object: ObjectId) -> Result<Option<Rc<OpenFile>>, Errno> {
        let _opening = loop {
            if let Some(file) = self.open.borrow().get(object) {
                return Ok(Some(file));
            }
            if !self.openings.others(object).await {
                break self.openings.begin(object);
            }
        };
        let place = self.retiring.acquire(1).await;
        let me = self.sums.me_after(self.target.failed_syncs());
        let opened: Result<Opened, Unopened> = match open_cached(self.root(), self.sums.root(), object, me) {
            Ok(opened) => Ok(opened),
            // Most of them are holes, of which the kernel knows that.
            Err(Errno::ENOENT) if self.has_no_sidecar(object) => Err(Errno::ENOENT.into()),
            Err(_) => {
                let (root, sums) = (Arc::clone(&self.root), self.sums.shared_root());
                let missing = if self.sums.is_on() { Missing::Leave } else { Missing::Empty };
                self.unblock(move || open(root.as_raw_fd(), raw(&sums), object, me, missing)).await
            }
        };
        match opened.and_then(|opened| Ok(self.keep(object, opened, place)?)) {
            Ok(file) => Ok(Some(file)),
            Err(Unopened::Failed(Errno::ENOENT)) => self.check_root().map(|()| None),
            Err(Unopened::Failed(errno)) => Err(self.failed(errno, "open")),
            Err(Unopened::Lost(size)) => {
                self.check_root()?;
                self.tell_lost(object, size);
                Err(Errno::EIO)
            }
        }
    }

    /// As far as that can be told without the disk.
    fn has_no_sidecar(&self, object: ObjectId) -> bool {
        let Some(sums) = self.sums.root().filter(|_| self.sums.is_on()) else { return true };
        syscall::open_cached(sums, &folders::path(object), READ_ONLY).is_err_and(|errno| errno == Errno::ENOENT)
    }

    /// "No such object" may mean that everything was removed under us, which is not a hole.
    pub(super) fn check_root(&self) -> Result<(), Errno> {
        match syscall::stat(self.root()) {
            Ok((_, links)) if links > 0 => Ok(()),
            _ => {
                self.target.note_vanished("the objects directory was removed");
                Err(Errno::EIO)
            }
        }
    }

    /// For `len` bytes of new data: makes nothing that has to go without them.
    pub(super) async fn open_for_data(&self, object: ObjectId, len: u64) -> Result<Rc<OpenFile>, Errno> {
        if self.target.is_short_of(len) && self.open_existing(object).await?.is_none() {
            return Err(Errno::ENOSPC);
        }
        self.open_or_create(object).await
    }

    pub(super) async fn open_or_create(&self, object: ObjectId) -> Result<Rc<OpenFile>, Errno> {
        if self.target.is_short_of_inodes() && self.open_existing(object).await?.is_none() {
            return Err(Errno::ENOSPC);
        }
        let _opening = loop {
            if let Some(file) = self.open.borrow().get(object).filter(|file| file.writable) {
                return Ok(file);
            }
            if !self.openings.others(object).await {
                break self.openings.begin(object);
            }
        };
        let place = self.retiring.acquire(1).await;
        let made = self.sums.is_on().then(|| self.sums.shared_root()).flatten();
        let (sums, me) = (self.sums.shared_root(), self.sums.me_after(self.target.failed_syncs()));
        let outcome = if self.pace.is_calm(Instant::now()) {
            self.pace.timed(|| open_or_create(self.root(), raw(&sums), raw(&made), object, me))
        } else {
            let root = Arc::clone(&self.root);
            self.detour(move || open_or_create(root.as_raw_fd(), raw(&sums), raw(&made), object, me)).await
        };
        if outcome.as_ref().is_ok_and(|opened| opened.created) {
            self.entries.borrow_mut().note_created(object);
            self.target.note_created();
        }
        match outcome.and_then(|opened| self.keep(object, opened, place)) {
            Ok(file) => Ok(file),
            Err(Errno::ENOENT) => Err(self.check_root().err().unwrap_or(Errno::EIO)),
            Err(errno) => Err(self.refused(errno, "create")),
        }
    }

    /// `place`: for the one that has to go for it; waited for before the opening, since until the disk has the data of those
    /// that were given up, their descriptors stay in use.
    ///
    /// # Errors
    /// `ENOENT` where it was removed after it was opened.
    fn keep(&self, object: ObjectId, opened: Opened, place: Permit) -> Result<Rc<OpenFile>, Errno> {
        let Opened { fd, writable, sums, .. } = opened;
        let (stored, links) = syscall::stat(fd.as_raw_fd())?;
        if links == 0 {
            return Err(Errno::ENOENT);
        }
        if sums.unreadable {
            self.note_unreadable(object);
        }
        let (sums, size) = match sums.found {
            Some(found) => {
                let (sums, size) = Sidecar::new(found, object, &self.common(), stored.size);
                (Some(sums), size)
            }
            None => (None, stored.size),
        };
        if size != stored.size {
            self.tell_size(object, stored.size, size);
            // As a hole that its checksums do not agree with: what is changed next has no other word of the size.
            if writable && let Err(errno) = syscall::truncate(fd.as_raw_fd(), size) {
                self.refused(errno, "giving an object the size that its checksums say");
            }
        }
        let file = OpenFile::new(fd, writable, size);
        if let Some(sums) = sums {
            self.take_in(object, &file, sums);
        }
        let evicted = self.open.borrow_mut().insert(object, Rc::clone(&file));
        let mut place = Some(place);
        for (object, file) in evicted {
            self.retire(object, file, &mut place);
        }
        Ok(file)
    }

    /// The sidecar of an object that is about to be changed: made where it has none, and that can be.
    pub(super) async fn make_sidecar(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
    ) -> Result<Option<Rc<Sidecar>>, Errno> {
        let can_be_made = self.sums.is_on() && file.writable;
        // One at a time: who comes later with the size of before would cut off the entries of what was written since.
        let _opening = loop {
            if file.sums().is_some() || !can_be_made {
                return Ok(file.sums().cloned());
            }
            if !self.openings.others(object).await {
                break self.openings.begin(object);
            }
        };
        let Some(root) = self.sums.shared_root() else { return Ok(None) };
        let (me, size) = (self.sums.me_after(self.target.failed_syncs()), file.size.get());
        let found = self.unblock(move || sidecar_file::open(root.as_raw_fd(), object, me, Missing::Make, size)).await;
        let sought = found.map_err(|errno| self.refused(errno, "making the file of checksums"))?;
        if sought.unreadable {
            self.note_unreadable(object);
        }
        if let Some(found) = sought.found {
            let (sums, _) = Sidecar::new(found, object, &self.common(), size);
            self.take_in(object, file, sums);
        }
        Ok(file.sums().cloned())
    }

    fn common(&self) -> Common<'_> {
        Common { keeping: self.sums.keeping(), helpers: &self.target.helpers, cache: &self.sums.cache }
    }
}

fn size_of(fd: &OwnedFd) -> Result<u64, Errno> {
    syscall::stat(fd.as_raw_fd()).map(|(stored, _)| stored.size)
}

fn raw(fd: &Option<Arc<OwnedFd>>) -> Option<RawFd> {
    fd.as_ref().map(AsRawFd::as_raw_fd)
}

/// Only where that needs no disk.
fn open_cached(root: RawFd, sums: Option<RawFd>, object: ObjectId, me: Owner) -> Result<Opened, Errno> {
    let fd = syscall::open_cached(root, &folders::path(object), READ_WRITE)?;
    let size = size_of(&fd)?;
    let found = sums.map(|sums| sidecar_file::open_cached(sums, object, me, size)).transpose()?;
    Ok(Opened { fd, writable: true, created: false, sums: Sought { found, unreadable: false } })
}

/// Blocks.
fn open(root: RawFd, sums: Option<RawFd>, object: ObjectId, me: Owner, missing: Missing) -> Result<Opened, Unopened> {
    let path = folders::path(object);
    let (fd, writable) = match (syscall::open_at(root, &path, READ_WRITE), sums) {
        (Err(Errno::EROFS), _) => (syscall::open_at(root, &path, READ_ONLY)?, false),
        // A removal takes the sidecar first.
        (Err(Errno::ENOENT), Some(sums)) if missing == Missing::Leave => {
            return Err(lost::size(sums, object)?.map_or(Errno::ENOENT.into(), Unopened::Lost));
        }
        (outcome, _) => (outcome?, true),
    };
    let size = size_of(&fd)?;
    let sums = sums.map(|sums| sidecar_file::open(sums, object, me, missing, size)).transpose()?.unwrap_or_default();
    Ok(Opened { fd, writable, created: false, sums })
}

/// `sums`: where sidecars are; `made`: where new ones are to be made. Blocks, though seldom for long.
fn open_or_create(
    root: RawFd,
    sums: Option<RawFd>,
    made: Option<RawFd>,
    object: ObjectId,
    me: Owner,
) -> Result<Opened, Errno> {
    let path = folders::path(object);
    match syscall::open_at(root, &path, READ_WRITE) {
        Err(Errno::ENOENT) => {}
        outcome => {
            let fd = outcome?;
            let size = size_of(&fd)?;
            let missing = if made.is_some() { Missing::Make } else { Missing::Empty };
            let sums =
                sums.map(|sums| sidecar_file::open(sums, object, me, missing, size)).transpose()?.unwrap_or_default();
            return Ok(Opened { fd, writable: true, created: false, sums });
        }
    }
    // The sidecar first: an object that has none is one of which nothing is known. Where it says that there was one, that is
    // made with its size, as one that was cut: who writes all of a block heals it, and who wants it gone can have that.
    let sums = match (made, sums) {
        (Some(made), _) => sidecar_file::open(made, object, me, Missing::Begin, 0)?,
        (None, Some(sums)) => sidecar_file::remove(sums, object).map(|()| Sought::default())?,
        (None, None) => Sought::default(),
    };
    let fd = files::create(root, object)?;
    Ok(Opened { fd, writable: true, created: true, sums })
}
