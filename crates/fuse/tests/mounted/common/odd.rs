//! A model whose reads go wrong in chosen ways.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuse::filesystem::{Attributes, Entry, Lock, Looked, Opened, Statfs, Write};
use fuse::listing::Listing;
use fuse::model_fs::ModelFs;
use fuse::{Arrivals, Context, FileSystem};
use ring::buf::Slice;
use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::id::InodeId;
use types::lock::LockMode;
use types::name::Name;

/// Offsets of a read that mean something else.
pub(crate) const HANG: u64 = 1 << 40;
pub(crate) const PANIC: u64 = 2 << 40;
pub(crate) const TOO_MUCH: u64 = 3 << 40;
pub(crate) const SLEEP: u64 = 4 << 40;
pub(crate) const MANY_PARTS: u64 = 5 << 40;
/// As [`HANG`], whatever becomes of the caller.
pub(crate) const HANG_ON: u64 = 6 << 40;
/// As [`PANIC`], in a task beside the operation, which goes on for ever.
pub(crate) const PANIC_BESIDE: u64 = 7 << 40;

#[derive(Clone)]
pub(crate) struct Odd {
    pub(crate) inner: ModelFs,
    pub(crate) hanging: Arc<AtomicUsize>,
    /// Reads of [`SLEEP`], now and at most at a time.
    pub(crate) sleeping: Arc<AtomicUsize>,
    pub(crate) sleeping_most: Arc<AtomicUsize>,
    /// All reads are as [`HANG_ON`].
    pub(crate) stuck: Arc<AtomicBool>,
    pub(crate) shutdowns: Arc<AtomicUsize>,
    /// Somebody has the one lock that there is, and so many wait for it.
    pub(crate) locked: Arc<AtomicBool>,
    pub(crate) waiting: Arc<AtomicUsize>,
    /// So many look-ups find nothing: somebody else makes the name right after.
    pub(crate) too_early: Arc<AtomicUsize>,
    /// Where it is set, writes wait for what other loops than this one are reading.
    pub(crate) arrivals: Arc<OnceLock<Arrivals>>,
    pub(crate) loop_index: usize,
    /// The highest offset of a write that has waited, and how many came later with a lower one.
    pub(crate) highest: Arc<AtomicU64>,
    pub(crate) overtaken: Arc<AtomicUsize>,
}

impl Odd {
    pub(crate) fn new(inner: ModelFs) -> Self {
        Self {
            inner,
            hanging: Arc::default(),
            sleeping: Arc::default(),
            sleeping_most: Arc::default(),
            stuck: Arc::default(),
            shutdowns: Arc::default(),
            locked: Arc::default(),
            waiting: Arc::default(),
            too_early: Arc::default(),
            arrivals: Arc::default(),
            loop_index: 0,
            highest: Arc::default(),
            overtaken: Arc::default(),
        }
    }
}

macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(async fn $name(&self, cx: &Context, $($argument: $type),*) -> Result<$output, Errno> {
            self.inner.$name(cx, $($argument),*).await
        })*
    };
}

impl FileSystem for Odd {
    delegate! {
        getattr(inode: InodeId, handle: Option<u64>) -> Attributes;
        setattr(inode: InodeId, handle: Option<u64>, change: SetAttr) -> Attributes;
        readlink(inode: InodeId) -> Vec<u8>;
        mknod(parent: InodeId, name: Name, kind: FileType, mode: u32, rdev: u32) -> Entry;
        mkdir(parent: InodeId, name: Name, mode: u32) -> Entry;
        symlink(parent: InodeId, name: Name, target: Vec<u8>) -> Entry;
        unlink(parent: InodeId, name: Name) -> ();
        rmdir(parent: InodeId, name: Name) -> ();
        rename(source: (InodeId, Name), target: (InodeId, Name), flags: u32) -> ();
        link(inode: InodeId, parent: InodeId, name: Name) -> Entry;
        open(inode: InodeId, flags: u32) -> Opened;
        create(parent: InodeId, name: Name, mode: u32, flags: u32) -> (Entry, Opened);
        flush(inode: InodeId, handle: u64, lock_owner: u64) -> ();
        release(inode: InodeId, handle: u64, flags: u32) -> ();
        fsync(inode: InodeId, handle: u64, datasync: bool) -> ();
        opendir(inode: InodeId) -> Opened;
        releasedir(inode: InodeId, handle: u64) -> ();
        fsyncdir(inode: InodeId, handle: u64, datasync: bool) -> ();
        statfs() -> Statfs;
    }

    async fn write(&self, cx: &Context, write: Write) -> Result<u32, Errno> {
        if let Some(arrivals) = self.arrivals.get() {
            if write.offset < self.highest.load(Ordering::SeqCst) {
                self.overtaken.fetch_add(1, Ordering::SeqCst);
            }
            assert!(arrivals.settle_writes(self.loop_index, Duration::from_secs(20)).await);
            self.highest.fetch_max(write.offset, Ordering::SeqCst);
        }
        self.inner.write(cx, write).await
    }

    async fn lookup(&self, cx: &Context, parent: InodeId, name: Name) -> Result<Looked, Errno> {
        let less = |left: usize| left.checked_sub(1);
        if self.too_early.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Errno::ENOENT);
        }
        self.inner.lookup(cx, parent, name).await
    }

    async fn read(
        &self,
        cx: &Context,
        inode: InodeId,
        handle: u64,
        at: u64,
        size: u32,
        flags: u32,
    ) -> Result<Vec<Slice>, Errno> {
        match at {
            HANG => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                cx.interrupted().await;
                self.hanging.fetch_sub(1, Ordering::SeqCst);
                Err(Errno::EINTR)
            }
            at if at == HANG_ON || self.stuck.load(Ordering::SeqCst) => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            PANIC => panic!("a test asked for it"),
            PANIC_BESIDE => {
                ring::spawn(async { panic!("a test asked for it") });
                std::future::pending().await
            }
            TOO_MUCH => Ok(vec![Slice::from_vec(vec![1; size as usize + 1])]),
            SLEEP => {
                let now = self.sleeping.fetch_add(1, Ordering::SeqCst) + 1;
                self.sleeping_most.fetch_max(now, Ordering::SeqCst);
                ring::sleep(Duration::from_secs(1)).await;
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                Ok(vec![Slice::from_vec(vec![2; size as usize])])
            }
            MANY_PARTS => Ok((0..size).map(|i| Slice::from_vec(vec![i as u8])).collect()),
            _ => self.inner.read(cx, inode, handle, at, size, flags).await,
        }
    }

    async fn setlk(
        &self,
        cx: &Context,
        _inode: InodeId,
        _lock: &Lock,
        _mode: LockMode,
        wait: bool,
    ) -> Result<(), Errno> {
        assert!(wait, "the tests wait");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.locked.load(Ordering::SeqCst) && !cx.is_interrupted() {
            ring::sleep(std::time::Duration::from_millis(5)).await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if self.locked.load(Ordering::SeqCst) { Err(Errno::EINTR) } else { Ok(()) }
    }

    async fn unlock(&self, _cx: &Context, _inode: InodeId, _lock: &Lock) -> Result<(), Errno> {
        self.locked.store(false, Ordering::SeqCst);
        Ok(())
    }

    async fn readdir(
        &self,
        cx: &Context,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        listing: &mut Listing,
    ) -> Result<InodeId, Errno> {
        self.inner.readdir(cx, inode, handle, cookie, listing).await
    }

    async fn shutdown(&self) {
        self.shutdowns.fetch_add(1, Ordering::SeqCst);
    }
}
