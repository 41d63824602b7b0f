//! The open files of one target and lane: a bounded cache, since opening costs more than a small read.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use ring::sync::Semaphore;
use rustc_hash::FxHashMap;
use types::id::ObjectId;

use crate::ahead::Pieces;
use crate::direct::Direct;
use crate::durability::Durability;
use crate::engine::sidecar::Sidecar;
use crate::readers::Readers;
use crate::streams::WriteStream;

/// An object's open file and what its users must know of it.
pub(crate) struct OpenFile {
    fd: Arc<OwnedFd>,
    /// Opened for the first large request; `None` where the file system has no such way.
    direct: OnceCell<Option<Direct>>,
    /// False where it was opened while the file system was read-only.
    pub(crate) writable: bool,
    /// Bytes. This lane is the only one that changes the object.
    pub(crate) size: Cell<u64>,
    pub(crate) durability: Durability,
    /// Whose turn it is to sync.
    pub(crate) syncing: Rc<Semaphore>,
    pub(crate) readers: RefCell<Readers>,
    /// Made for the first that is read ahead.
    ahead: OnceCell<Rc<Pieces>>,
    pub(crate) writes: Cell<WriteStream>,
    /// `None` where the object has no sidecar.
    sums: OnceCell<Rc<Sidecar>>,
    used: Cell<bool>,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, writable: bool, size: u64) -> Rc<Self> {
        Rc::new(Self {
            fd: Arc::new(fd),
            direct: OnceCell::new(),
            writable,
            size: Cell::new(size),
            durability: Durability::default(),
            syncing: Rc::new(Semaphore::new(1)),
            readers: RefCell::default(),
            ahead: OnceCell::new(),
            writes: Cell::default(),
            sums: OnceCell::new(),
            used: Cell::new(false),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// For a call on a helper thread: who waits for it may be gone before it is made.
    pub(crate) fn shared_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    pub(crate) fn sums(&self) -> Option<&Rc<Sidecar>> {
        self.sums.get()
    }

    /// The first one stays.
    pub(crate) fn set_sums(&self, sums: Rc<Sidecar>) {
        let _ = self.sums.set(sums);
    }

    /// What was read ahead.
    pub(crate) fn pieces(&self) -> &Rc<Pieces> {
        self.ahead.get_or_init(Rc::default)
    }

    /// `None` where never anything was.
    pub(crate) fn pieces_if_any(&self) -> Option<&Rc<Pieces>> {
        self.ahead.get()
    }

    /// To be said after each change of these bytes, whether it succeeded or not.
    pub(crate) fn changed(&self, range: Range<u64>) {
        self.durability.changes();
        self.changed_on_disk(range);
    }

    /// After one that is on the disk.
    pub(crate) fn changed_on_disk(&self, range: Range<u64>) {
        if let Some(pieces) = self.ahead.get() {
            pieces.forget(&range);
        }
    }

    /// The way past the page cache.
    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.direct.get_or_init(|| Direct::open(self.fd(), self.writable)).as_ref()
    }
}

/// Second-chance order: an entry that was used since its last turn stays for another one.
pub(crate) struct OpenFiles {
    files: FxHashMap<ObjectId, (u64, Rc<OpenFile>)>,
    /// In the order of eviction. An entry whose serial is not the map's is a leftover.
    queue: VecDeque<(ObjectId, u64)>,
    serial: u64,
    capacity: usize,
}

impl OpenFiles {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { files: FxHashMap::default(), queue: VecDeque::new(), serial: 0, capacity: capacity.max(1) }
    }

    pub(crate) fn get(&self, object: ObjectId) -> Option<Rc<OpenFile>> {
        let (_, file) = self.files.get(&object)?;
        file.used.set(true);
        Some(Rc::clone(file))
    }

    /// Adds a file, and hands out those that have to go: the caller makes sure of their data, then drops them.
    pub(crate) fn insert(&mut self, object: ObjectId, file: Rc<OpenFile>) -> Vec<(ObjectId, Rc<OpenFile>)> {
        self.serial += 1;
        self.files.insert(object, (self.serial, file));
        self.queue.push_back((object, self.serial));
        let mut evicted = Vec::new();
        while self.files.len() > self.capacity {
            match self.evict_one() {
                Some(victim) => evicted.push(victim),
                None => break,
            }
        }
        evicted
    }

    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        self.files.keys().copied().collect()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// One step towards a smaller capacity: hands out the file that has to go for it, as [`Self::insert`]. `None` where it has
    /// that; what is too much then is in use, and goes with the next that is opened.
    pub(crate) fn shrink(&mut self, capacity: usize) -> Option<(ObjectId, Rc<OpenFile>)> {
        let capacity = capacity.max(1);
        self.capacity = self.capacity.min(self.files.len().max(capacity));
        let evicted = (self.capacity > capacity).then(|| self.evict_one()).flatten();
        self.capacity = if evicted.is_some() { self.capacity - 1 } else { self.capacity.min(capacity) };
        evicted
    }

    pub(crate) fn remove(&mut self, object: ObjectId) -> Option<Rc<OpenFile>> {
        let removed = self.files.remove(&object).map(|(_, file)| file);
        if self.queue.len() > 2 * self.capacity + 16 {
            let files = &self.files;
            self.queue.retain(|(object, serial)| files.get(object).is_some_and(|(current, _)| current == serial));
        }
        removed
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// `None` where every file is in use by an operation.
    fn evict_one(&mut self) -> Option<(ObjectId, Rc<OpenFile>)> {
        for _ in 0..2 * self.queue.len() {
            let (object, serial) = self.queue.pop_front()?;
            let Some((current, file)) = self.files.get(&object) else { continue };
            if *current != serial {
                continue;
            }
            if file.used.replace(false) || Rc::strong_count(file) > 1 {
                self.queue.push_back((object, serial));
                continue;
            }
            return self.files.remove(&object).map(|(_, file)| (object, file));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use types::id::InodeId;

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), stripe: 0 }
    }

    fn file() -> Rc<OpenFile> {
        OpenFile::new(File::open("/dev/null").expect("every Linux has it").into(), true, 0)
    }

    #[test]
    fn the_least_used_goes_first() {
        let mut files = OpenFiles::new(3);
        for inode in 1..=3 {
            assert!(files.insert(object(inode), file()).is_empty());
        }
        files.get(object(1));
        let evicted: Vec<_> = files.insert(object(4), file()).into_iter().map(|(object, _)| object).collect();
        assert_eq!(evicted, [object(2)]);
        assert_eq!(files.len(), 3);
        assert!(files.get(object(1)).is_some() && files.get(object(2)).is_none());
    }

    #[test]
    fn files_in_use_stay() {
        let mut files = OpenFiles::new(1);
        let held = file();
        files.insert(object(1), Rc::clone(&held));
        let second = file();
        assert!(files.insert(object(2), Rc::clone(&second)).is_empty(), "both are in use: over capacity for a while");
        drop(held);
        let third = file();
        assert_eq!(files.insert(object(3), Rc::clone(&third)).len(), 1);
        assert!(files.get(object(2)).is_some() && files.get(object(3)).is_some());
    }

    #[test]
    fn a_smaller_capacity_is_reached_step_by_step() {
        let mut files = OpenFiles::new(100);
        let held = file();
        for inode in 1..=10 {
            files.insert(object(inode), if inode == 3 { Rc::clone(&held) } else { file() });
        }
        assert!(files.shrink(20).is_none() && files.len() == 10);
        for left in (4..10).rev() {
            let (evicted, _) = files.shrink(4).expect("one too many");
            assert!(evicted != object(3) && files.len() == left);
        }
        assert!(files.shrink(4).is_none() && files.shrink(7).is_none(), "it does not grow");
        assert_eq!(files.insert(object(11), file()).len(), 1);
        assert!(std::iter::from_fn(|| files.shrink(0)).count() == 3 && files.get(object(3)).is_some());
        drop(held);
        assert_eq!((files.insert(object(12), file()).len(), files.capacity()), (1, 1));
    }

    #[test]
    fn removal_and_return_leave_no_litter() {
        let mut files = OpenFiles::new(8);
        for _ in 0..10_000 {
            files.insert(object(1), file());
            assert!(files.remove(object(1)).is_some());
        }
        assert!(files.queue.len() <= 64, "{} leftovers", files.queue.len());
        assert_eq!(files.len(), 0);
    }
}
