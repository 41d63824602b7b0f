//! The reference file system as a mount: what FUSE alone costs, and a real kernel's opinion of the model.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use model::{Limits, Model, New};
use ring::buf::{Buf, Slice};
use telemetry::clock;
use types::attr::{Attr, FileType, SetAttr};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::context::Context;
use crate::filesystem::{Attributes, Entry, FileSystem, Looked, OpenFlags, Opened, Statfs, Write};
use crate::listing::Listing;

/// How much of the kernel's caching the files of a model allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Caching {
    /// Reads and writes pass the page cache.
    #[default]
    Direct,
    /// Files go through the page cache, which is checked against their attributes.
    Pages,
}

/// One loop's view of a model that all loops share.
#[derive(Clone)]
pub struct ModelFs {
    model: Arc<RwLock<Model>>,
    caching: Caching,
}

impl ModelFs {
    /// An empty file system, its root owned by the calling user.
    #[must_use]
    pub fn new(limits: Limits, caching: Caching) -> Self {
        // SAFETY: system calls without arguments that cannot fail.
        let owner = unsafe { Credentials { uid: libc::geteuid(), gid: libc::getegid(), umask: 0 } };
        Self { model: Arc::new(RwLock::new(Model::new(limits, owner, clock::now()))), caching }
    }

    fn read_model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().expect("no operation of the model panics")
    }

    fn change(&self) -> RwLockWriteGuard<'_, Model> {
        self.model.write().expect("no operation of the model panics")
    }

    fn make(&self, context: &Context, parent: InodeId, name: &Name, new: &New<'_>) -> Result<Entry, Errno> {
        self.change().create(parent, name, new, context.credentials(), clock::now()).map(Entry::uncached)
    }

    fn opened(&self) -> Opened {
        let direct = self.caching == Caching::Direct;
        let flags = OpenFlags {
            direct_io: direct,
            keep_cache: !direct,
            no_flush: true,
            parallel_direct_writes: true,
            ..OpenFlags::default()
        };
        Opened { handle: 0, flags }
    }
}

impl FileSystem for ModelFs {
    async fn lookup(&self, _: &Context, parent: InodeId, name: Name) -> Result<Looked, Errno> {
        self.read_model().lookup(parent, &name).map(|attr| Looked::Found(Entry::uncached(attr)))
    }

    async fn lookup_inode(&self, _: &Context, inode: InodeId) -> Result<Entry, Errno> {
        self.read_model().getattr(inode).map(Entry::uncached)
    }

    async fn lookup_parent(&self, _: &Context, directory: InodeId) -> Result<Entry, Errno> {
        let model = self.read_model();
        model.parent(directory).and_then(|parent| model.getattr(parent)).map(Entry::uncached)
    }

    async fn getattr(&self, _: &Context, inode: InodeId, _: Option<u64>) -> Result<Attributes, Errno> {
        self.read_model().getattr(inode).map(Attributes::uncached)
    }

    async fn setattr(&self, _: &Context, inode: InodeId, _: Option<u64>, change: SetAttr) -> Result<Attributes, Errno> {
        self.change().setattr(inode, &change, clock::now()).map(Attributes::uncached)
    }

    async fn readlink(&self, _: &Context, inode: InodeId) -> Result<Vec<u8>, Errno> {
        self.read_model().readlink(inode).map(<[u8]>::to_vec)
    }

    async fn mknod(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        kind: FileType,
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        self.make(context, parent, &name, &New::Node { kind, mode, rdev })
    }

    async fn mkdir(&self, context: &Context, parent: InodeId, name: Name, mode: u32) -> Result<Entry, Errno> {
        self.make(context, parent, &name, &New::Directory { mode })
    }

    async fn symlink(&self, context: &Context, parent: InodeId, name: Name, target: Vec<u8>) -> Result<Entry, Errno> {
        self.make(context, parent, &name, &New::Symlink { target: &target })
    }

    async fn unlink(&self, _: &Context, parent: InodeId, name: Name) -> Result<(), Errno> {
        self.change().unlink(parent, &name, clock::now())
    }

    async fn rmdir(&self, _: &Context, parent: InodeId, name: Name) -> Result<(), Errno> {
        self.change().rmdir(parent, &name, clock::now())
    }

    async fn rename(
        &self,
        context: &Context,
        source: (InodeId, Name),
        target: (InodeId, Name),
        flags: u32,
    ) -> Result<(), Errno> {
        let (source, target) = ((source.0, &source.1[..]), (target.0, &target.1[..]));
        self.change().rename(source, target, flags, context.credentials(), clock::now())
    }

    async fn link(&self, _: &Context, inode: InodeId, parent: InodeId, name: Name) -> Result<Entry, Errno> {
        self.change().link(inode, parent, &name, clock::now()).map(Entry::uncached)
    }

    async fn open(&self, _: &Context, inode: InodeId, _: u32) -> Result<Opened, Errno> {
        self.change().open(inode)?;
        Ok(self.opened())
    }

    async fn create(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        mode: u32,
        flags: u32,
    ) -> Result<(Entry, Opened), Errno> {
        let new = New::Node { kind: FileType::Regular, mode, rdev: 0 };
        let exclusive = flags & libc::O_EXCL as u32 != 0;
        let mut model = self.change();
        let attr: Attr = match model.create(parent, &name, &new, context.credentials(), clock::now()) {
            Err(Errno::EEXIST) if !exclusive => Err(Errno::ESTALE),
            other => other,
        }?;
        model.open(attr.inode)?;
        Ok((Entry::uncached(attr), self.opened()))
    }

    async fn read(
        &self,
        _: &Context,
        inode: InodeId,
        _: u64,
        offset: u64,
        size: u32,
        _: u32,
    ) -> Result<Vec<Slice>, Errno> {
        let model = self.read_model();
        let bytes = model.read(inode, offset, size as usize)?;
        Ok(if bytes.is_empty() { Vec::new() } else { vec![Buf::from_slice(bytes).freeze()] })
    }

    async fn write(&self, _: &Context, write: Write) -> Result<u32, Errno> {
        self.change().write(write.inode, write.offset, &write.data, write.kill_suid_sgid, clock::now())?;
        Ok(write.data.len() as u32)
    }

    async fn flush(&self, _: &Context, _: InodeId, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    async fn release(&self, _: &Context, inode: InodeId, _: u64, _: u32) -> Result<(), Errno> {
        self.change().close(inode)
    }

    async fn fsync(&self, _: &Context, _: InodeId, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    async fn opendir(&self, _: &Context, inode: InodeId) -> Result<Opened, Errno> {
        self.change().open(inode)?;
        Ok(Opened::default())
    }

    async fn readdir(
        &self,
        _: &Context,
        inode: InodeId,
        _: u64,
        cookie: u64,
        listing: &mut Listing,
    ) -> Result<InodeId, Errno> {
        let model = self.read_model();
        let count = listing.entries_left() + 1;
        for entry in model.readdir(inode, cookie, count)? {
            let attributes = Entry::uncached(entry.attr);
            let attributes = listing.wants_attributes().then_some(&attributes);
            if !listing.push(&entry.name, entry.attr.inode, entry.attr.kind, entry.cookie, attributes) {
                break;
            }
        }
        model.parent(inode)
    }

    async fn releasedir(&self, _: &Context, inode: InodeId, _: u64) -> Result<(), Errno> {
        self.change().close(inode)
    }

    async fn fsyncdir(&self, _: &Context, _: InodeId, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    async fn statfs(&self, _: &Context) -> Result<Statfs, Errno> {
        const BLOCK: u64 = 4096;
        let usage = self.read_model().usage();
        let blocks = self.read_model().limits().total_bytes / BLOCK;
        let free = blocks.saturating_sub(usage.content_bytes.div_ceil(BLOCK));
        Ok(Statfs {
            block_size: BLOCK as u32,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files: usage.inodes + (1 << 20),
            files_free: 1 << 20,
        })
    }

    async fn setxattr(
        &self,
        _: &Context,
        inode: InodeId,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    ) -> Result<(), Errno> {
        self.change().setxattr(inode, &name, &value, flags, clock::now())
    }

    async fn getxattr(&self, _: &Context, inode: InodeId, name: Vec<u8>) -> Result<Vec<u8>, Errno> {
        self.read_model().getxattr(inode, &name).map(<[u8]>::to_vec)
    }

    async fn listxattr(&self, _: &Context, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        self.read_model().listxattr(inode)
    }

    async fn removexattr(&self, _: &Context, inode: InodeId, name: Vec<u8>) -> Result<(), Errno> {
        self.change().removexattr(inode, &name, clock::now())
    }
}
