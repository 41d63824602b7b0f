//! FUSE operations as client operations.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::{Caller, Client, Durability, Gate, LockAsk, MayKeep};
use fuse::filesystem::{Attributes, CopyRange, Entry, Lock, Looked, OpenFlags, Opened, Statfs, Write};
use fuse::listing::Listing;
use fuse::{Context, FileSystem, Notifier};
use ring::buf::Slice;
use types::allocation::Allocation;
use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;
use types::lock::{Held, LockKind, LockMode, Wait};
use types::name::Name;
use types::xattr;

use self::handle::{FileHandle, is_writable, o_flags};
use crate::failed_writes::{FailedWrites, Wish};
use crate::habits::{self, Habits};
use crate::process;
use crate::sent::Sent;
use crate::who::Who;

/// Runs `$body` with the caller of `$context`.
macro_rules! as_caller {
    ($context:expr, $caller:ident => $body:expr) => {{
        let interrupted = || $context.is_interrupted();
        let ending = || $context.is_ending();
        let $caller = &Caller::interruptible($context.credentials(), &interrupted, &ending);
        $body
    }};
}

mod handle;
mod told;

/// Unit of `statfs`; the larger of the two that Linux programs expect.
const BLOCK_SIZE: u32 = 4096;

/// One loop's file system.
pub(crate) struct Adapter {
    client: Rc<Client>,
    /// Entered where an answer is made that the kernel may keep, left when it has it.
    gate: Gate,
    notifier: Arc<OnceLock<Notifier>>,
    sent: Sent,
    habits: Arc<Habits>,
    failed_writes: Arc<FailedWrites>,
    /// Nothing is to be done when a file is closed: locks do not leave the kernel, and no writes are kept back.
    hears_no_close: bool,
}

impl Adapter {
    pub(crate) fn new(
        client: Rc<Client>,
        gate: Gate,
        notifier: Arc<OnceLock<Notifier>>,
        sent: Sent,
        habits: Arc<Habits>,
        failed_writes: Arc<FailedWrites>,
        hears_no_close: bool,
    ) -> Self {
        Self { client, gate, notifier, sent, habits, failed_writes, hears_no_close }
    }

    /// Every read and write comes here, past the page cache. Mapped files are cached for as long as they are open.
    ///
    /// Every close has to be told, since it ends locks of its process, and the kernel asks at the open whether it shall
    /// tell: before anybody can know if there will be locks.
    fn file_opened(&self, flags: u32) -> Opened {
        let flags_out = OpenFlags {
            direct_io: true,
            no_flush: self.hears_no_close,
            parallel_direct_writes: true,
            ..OpenFlags::default()
        };
        Opened { handle: FileHandle::new(self.client.number_open_file(), flags).0, flags: flags_out }
    }

    /// The contents were changed through this open file, which may want that on the disks, as may the request by its `flags`.
    async fn sync_if_wanted(&self, context: &Context, inode: InodeId, handle: u64, flags: u32) -> Result<(), Errno> {
        let handle = FileHandle(handle);
        match handle.syncs(flags) {
            None => Ok(()),
            Some(durability) => self.sync(context, inode, handle, durability).await,
        }
    }

    /// Brings the file to the disks, and tells what was lost while this open file was open.
    async fn sync(
        &self,
        context: &Context,
        inode: InodeId,
        handle: FileHandle,
        durability: Durability,
    ) -> Result<(), Errno> {
        as_caller!(context, caller => {
            self.client.fsync_open_file(caller, inode, handle.number(), durability).await
        })
    }

    /// Before a change of contents by `who`.
    async fn drop_privileges(&self, caller: &Caller<'_>, inode: InodeId, who: Who) -> Result<(), Errno> {
        if self.client.kill_suid_sgid(caller, inode, &who).await? {
            self.attributes_changed(inode);
        }
        Ok(())
    }

    async fn write_to(&self, context: &Context, write: Write) -> Result<u32, Errno> {
        let append = write.flags & o_flags::APPEND != 0 && !write.from_cache;
        let len = write.data.len() as u32;
        // Before anything is waited for: so are the parts of one write in order which other loops have begun with.
        let place = append.then(|| self.client.place_to_append(write.inode, write.offset));
        if append {
            self.sent.hear_of_writes().await;
        }
        as_caller!(context, caller => {
            // What was changed through a mapping was permitted when it was mapped.
            if !write.from_cache {
                self.client.may_be_written(caller, write.inode, append).await?;
            }
            if write.kill_suid_sgid {
                self.drop_privileges(caller, write.inode, Who::of(context, true)).await?;
            }
            if let Some(place) = place {
                self.client.append(caller, write.inode, place, &write.data, write.is_full).await
            } else if write.from_cache {
                self.client.write_mapped(caller, write.inode, write.offset, &write.data).await
            } else {
                let direct = write.flags & (o_flags::DIRECT | o_flags::DSYNC) != 0;
                self.client.write(caller, write.inode, write.offset, &write.data, direct).await
            }
        })?;
        if !write.from_cache {
            self.sync_if_wanted(context, write.inode, write.handle, write.flags).await?;
        }
        Ok(len)
    }
}

fn ask(lock: &Lock, mode: LockMode, wait: Wait) -> LockAsk {
    LockAsk { kind: lock.kind, owner: lock.owner, range: lock.range, mode, pid: lock.pid, wait }
}

fn is_acl(name: &[u8]) -> bool {
    [xattr::ACCESS_ACL, xattr::DEFAULT_ACL].contains(&name)
}

impl FileSystem for Adapter {
    async fn lookup(&self, context: &Context, parent: InodeId, name: Name) -> Result<Looked, Errno> {
        match as_caller!(context, caller => self.client.lookup(caller, parent, name).await)? {
            client::Looked::Found(named) => {
                if named.attr.kind != FileType::Directory {
                    self.habits.asks(context.pid);
                }
                Ok(Looked::Found(self.entry(&named).await))
            }
            client::Looked::Absent(lease) => {
                self.gate.enter();
                Ok(Looked::Absent { valid: self.gate.remaining(lease, Instant::now()) })
            }
        }
    }

    fn waits_for_delivery(&self) -> bool {
        self.gate.is_entered()
    }

    fn replied(&self) {
        self.gate.leave();
    }

    fn forget(&self, inode: InodeId, _count: u64) {
        self.client.forgotten(inode);
        // It may have been told of it more often.
        if !self.notifier.get().is_some_and(|notifier| notifier.is_told_of(inode)) {
            self.client.unused(inode);
        }
    }

    async fn lookup_inode(&self, context: &Context, inode: InodeId) -> Result<Entry, Errno> {
        // Of a file handle, which may be of another cluster: nobody waits long for a shard that there never was.
        if !self.client.finds_shard(inode.home()).await {
            return Err(Errno::ESTALE);
        }
        let known = as_caller!(context, caller => self.client.getattr(caller, inode).await)?;
        self.entry_without_name(&known).await
    }

    async fn lookup_parent(&self, context: &Context, directory: InodeId) -> Result<Entry, Errno> {
        let known = as_caller!(context, caller => {
            let parent = self.client.parent(caller, directory).await?;
            self.client.getattr(caller, parent).await
        })?;
        self.entry_without_name(&known).await
    }

    async fn getattr(&self, context: &Context, inode: InodeId, _handle: Option<u64>) -> Result<Attributes, Errno> {
        let known = as_caller!(context, caller => self.client.getattr(caller, inode).await)?;
        if self.client.tells_rights_first(&known.attr) {
            return Ok(Attributes { attr: known.attr, valid: Duration::ZERO });
        }
        self.client.end_listings(std::iter::once(&known.attr)).await;
        self.gate.enter();
        Ok(self.attributes(&known.attr, known.lease, Instant::now()))
    }

    async fn setattr(
        &self,
        context: &Context,
        inode: InodeId,
        handle: Option<u64>,
        change: SetAttr,
    ) -> Result<Attributes, Errno> {
        match self.failed_writes.wish(handle, context.pid, &change).await {
            Wish::Programs => {}
            Wish::Unclear => return Err(Errno::EINTR),
            Wish::Kernels => {
                return as_caller!(context, caller => self.client.getattr(caller, inode).await)
                    .map(|known| Attributes::uncached(known.attr));
            }
        }
        // The kernel tells of a truncate by itself whether the caller is privileged.
        let who = Who::of(context, change.size.is_some());
        as_caller!(context, caller =>
            self.client.setattr_for(caller, inode, change, &who).await.map(Attributes::uncached))
    }

    async fn readlink(&self, context: &Context, inode: InodeId) -> Result<Vec<u8>, Errno> {
        as_caller!(context, caller => self.client.readlink(caller, inode).await)
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
        let made = as_caller!(context, caller => self.client.mknod(caller, parent, name, kind, mode, rdev).await)?;
        self.directory_changed(parent);
        Ok(self.entry(&made).await)
    }

    async fn mkdir(&self, context: &Context, parent: InodeId, name: Name, mode: u32) -> Result<Entry, Errno> {
        let made = as_caller!(context, caller => self.client.mkdir(caller, parent, name, mode).await)?;
        self.directory_changed(parent);
        Ok(self.entry(&made).await)
    }

    async fn symlink(&self, context: &Context, parent: InodeId, name: Name, target: Vec<u8>) -> Result<Entry, Errno> {
        let made = as_caller!(context, caller => self.client.symlink(caller, parent, name, &target).await)?;
        self.directory_changed(parent);
        Ok(self.entry(&made).await)
    }

    async fn unlink(&self, context: &Context, parent: InodeId, name: Name) -> Result<(), Errno> {
        as_caller!(context, caller => self.client.unlink_for(caller, parent, name, &Who::of(context, false)).await)?;
        self.directory_changed(parent);
        Ok(())
    }

    async fn rmdir(&self, context: &Context, parent: InodeId, name: Name) -> Result<(), Errno> {
        as_caller!(context, caller => self.client.rmdir_for(caller, parent, name, &Who::of(context, false)).await)?;
        self.directory_changed(parent);
        Ok(())
    }

    async fn rename(
        &self,
        context: &Context,
        source: (InodeId, Name),
        target: (InodeId, Name),
        flags: u32,
    ) -> Result<(), Errno> {
        let parents = (source.0, target.0);
        let who = Who::of(context, false);
        as_caller!(context, caller => self.client.rename_for(caller, [source, target], flags, &who).await)?;
        self.directory_changed(parents.0);
        if parents.1 != parents.0 {
            self.directory_changed(parents.1);
        }
        Ok(())
    }

    async fn link(&self, context: &Context, inode: InodeId, parent: InodeId, name: Name) -> Result<Entry, Errno> {
        let linked = as_caller!(context, caller => self.client.link(caller, inode, parent, name).await)?;
        self.directory_changed(parent);
        Ok(Entry::uncached(linked))
    }

    async fn open(&self, context: &Context, inode: InodeId, flags: u32) -> Result<Opened, Errno> {
        as_caller!(context, caller => match is_writable(flags) {
            true => self.client.open_to_write(caller, inode, flags & o_flags::APPEND != 0).await,
            false => self.client.open(caller, inode, false).await,
        })?;
        Ok(self.file_opened(flags))
    }

    async fn create(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        mode: u32,
        flags: u32,
    ) -> Result<(Entry, Opened), Errno> {
        let created = as_caller!(context, caller =>
            self.client.create(caller, parent, name, mode, is_writable(flags)).await);
        match created {
            Ok(named) => {
                self.directory_changed(parent);
                Ok((self.entry(&named).await, self.file_opened(flags)))
            }
            // Another client was faster: the kernel looks again, and opens it with all checks.
            Err(Errno::EEXIST) if flags & o_flags::EXCL == 0 => Err(Errno::ESTALE),
            Err(errno) => Err(errno),
        }
    }

    async fn tmpfile(
        &self,
        context: &Context,
        parent: InodeId,
        mode: u32,
        flags: u32,
    ) -> Result<(Entry, Opened), Errno> {
        let made = as_caller!(context, caller => self.client.tmpfile(caller, parent, mode, is_writable(flags)).await);
        made.map(|attr| (Entry::uncached(attr), self.file_opened(flags)))
    }

    async fn read(
        &self,
        context: &Context,
        inode: InodeId,
        _handle: u64,
        offset: u64,
        size: u32,
        flags: u32,
    ) -> Result<Vec<Slice>, Errno> {
        let direct = flags & o_flags::DIRECT != 0;
        let data = as_caller!(context, caller => self.client.read(caller, inode, offset, size, direct).await)?;
        if flags & o_flags::NOATIME == 0 {
            self.client.accessed(inode);
        }
        Ok(data)
    }

    async fn write(&self, context: &Context, write: Write) -> Result<u32, Errno> {
        let (handle, is_a_programs) = (write.handle, !write.from_cache);
        let written = self.write_to(context, write).await;
        if written.is_err() && is_a_programs {
            self.failed_writes.add(handle, context.pid);
        }
        written
    }

    async fn flush(&self, context: &Context, inode: InodeId, handle: u64, lock_owner: u64) -> Result<(), Errno> {
        as_caller!(context, caller => {
            let writes = FileHandle(handle).writes();
            let written = if writes { self.client.write_out(caller, inode).await } else { Ok(()) };
            self.client.release_owner(caller, inode, lock_owner).await;
            written
        })
    }

    async fn getlk(
        &self,
        context: &Context,
        inode: InodeId,
        lock: &Lock,
        mode: LockMode,
    ) -> Result<Option<Held>, Errno> {
        let (ask, closes) = (ask(lock, mode, Wait::No), || self.sent.hear_of_closes());
        let holder = as_caller!(context, caller => self.client.get_lock(caller, inode, &ask, closes).await)?;
        // A process number of another host would be somebody else's here.
        Ok(holder.map(|holder| if holder.is_here { holder.held } else { Held { pid: 0, ..holder.held } }))
    }

    async fn setlk(
        &self,
        context: &Context,
        inode: InodeId,
        lock: &Lock,
        mode: LockMode,
        wait: bool,
    ) -> Result<(), Errno> {
        // Of `flock` the owners are open files: while one waits, another thread may still unlock.
        let mut wait = Wait::new(wait, lock.kind == LockKind::Posix);
        // Before others ask whom it waits for.
        if wait.detects() && process::waits_for_open_file(context.pid).await {
            wait = Wait::Yes;
        }
        let ask = ask(lock, mode, wait);
        let closes = || self.sent.hear_of_closes();
        as_caller!(context, caller => match self.client.lock(caller, inode, lock.handle, &ask, closes).await {
            // It had not fallen asleep then.
            Err(Errno::EDEADLK) if process::waits_for_open_file(context.pid).await => {
                let ask = LockAsk { wait: Wait::Yes, ..ask };
                self.client.lock(caller, inode, lock.handle, &ask, closes).await
            }
            result => result,
        })
    }

    async fn unlock(&self, context: &Context, inode: InodeId, lock: &Lock) -> Result<(), Errno> {
        as_caller!(context, caller =>
            self.client.unlock(caller, inode, lock.kind, lock.owner, lock.range).await);
        Ok(())
    }

    async fn release(&self, context: &Context, inode: InodeId, handle: u64, _flags: u32) -> Result<(), Errno> {
        let caller = Caller::patient(context.credentials());
        self.failed_writes.forget(handle);
        self.client.release_handle(&caller, inode, handle).await;
        self.client.close(context.credentials(), inode, FileHandle(handle).writes());
        Ok(())
    }

    async fn fsync(&self, context: &Context, inode: InodeId, handle: u64, datasync: bool) -> Result<(), Errno> {
        let durability = if datasync { Durability::Data } else { Durability::All };
        self.sync(context, inode, FileHandle(handle), durability).await
    }

    async fn fallocate(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<(), Errno> {
        let what = Allocation::from_mode(mode)?;
        // To reserve space changes nothing of what is there.
        let appends = matches!(what, Allocation::Reserve { .. });
        as_caller!(context, caller => {
            self.client.may_be_written(caller, inode, appends).await?;
            self.drop_privileges(caller, inode, Who::of(context, false)).await?;
            self.client.allocate(caller, inode, offset, len, what).await
        })?;
        self.attributes_changed(inode);
        self.sync_if_wanted(context, inode, handle, 0).await
    }

    async fn copy_range(&self, context: &Context, range: CopyRange) -> Result<u64, Errno> {
        let CopyRange { source, target, len } = range;
        let (from, to) = ((source.inode, source.offset), (target.inode, target.offset));
        let count = as_caller!(context, caller => {
            self.client.may_be_written(caller, target.inode, false).await?;
            self.drop_privileges(caller, target.inode, Who::of(context, false)).await?;
            self.client.copy_range(caller, from, to, len).await
        })?;
        // Such a request does not say what the flags of its open files are now.
        if count > 0 && !FileHandle(source.handle).leaves_atime() {
            self.client.accessed(source.inode);
        }
        if count > 0 {
            self.sync_if_wanted(context, target.inode, target.handle, 0).await?;
        }
        Ok(count)
    }

    async fn seek(
        &self,
        context: &Context,
        inode: InodeId,
        _handle: u64,
        offset: u64,
        hole: bool,
    ) -> Result<u64, Errno> {
        as_caller!(context, caller => self.client.seek(caller, inode, offset, hole).await)
    }

    async fn opendir(&self, _context: &Context, inode: InodeId) -> Result<Opened, Errno> {
        let may_keep = self.client.may_keep_listing(inode);
        let flags = OpenFlags {
            cache_dir: may_keep != MayKeep::Nothing,
            keep_cache: may_keep == MayKeep::All,
            ..OpenFlags::default()
        };
        Ok(Opened { handle: 0, flags })
    }

    async fn readdir(
        &self,
        context: &Context,
        inode: InodeId,
        _handle: u64,
        cookie: u64,
        listing: &mut Listing,
    ) -> Result<InodeId, Errno> {
        let count = u32::try_from(listing.entries_left()).unwrap_or(u32::MAX);
        if !listing.is_first() && self.habits.has_ended(context.pid, inode, cookie, Instant::now()) {
            // No dots are in a later page, so nobody asks what `..` is.
            return Ok(inode);
        }
        // Of later pages the kernel knows whether the entries of earlier ones were looked at.
        let wanted = match listing.wants_attributes() {
            false => habits::Attributes::None,
            true if listing.is_first() => self.habits.lists(context.pid, Instant::now()),
            true => habits::Attributes::All,
        };
        let attributes = wanted != habits::Attributes::None;
        let page = as_caller!(context, caller => self.client.readdir(caller, inode, cookie, count, attributes).await)?;
        self.client.end_listings(page.entries.iter().filter_map(|entry| Some(&entry.named.as_ref()?.attr))).await;
        self.gate.enter();
        let now = Instant::now();
        let mut withholds = wanted == habits::Attributes::AllButOne;
        let mut last = cookie;
        for entry in page.entries {
            let withheld = withholds && entry.kind != FileType::Directory;
            withholds &= !withheld;
            let named = entry.named.filter(|_| !withheld);
            let attributes = named.map(|named| self.entry_inside(&named, now));
            if !listing.push(&entry.name, entry.inode, entry.kind, entry.cookie, attributes.as_ref()) {
                return Ok(page.parent);
            }
            last = entry.cookie;
        }
        if page.end {
            self.habits.ends(context.pid, inode, last, now);
        }
        Ok(page.parent)
    }

    async fn releasedir(&self, _context: &Context, _inode: InodeId, _handle: u64) -> Result<(), Errno> {
        Ok(())
    }

    async fn fsyncdir(&self, context: &Context, inode: InodeId, _handle: u64, _datasync: bool) -> Result<(), Errno> {
        as_caller!(context, caller => self.client.fsync_directory(caller, inode).await)
    }

    async fn statfs(&self, context: &Context) -> Result<Statfs, Errno> {
        let stat = as_caller!(context, caller => self.client.statfs(caller).await)?;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_SIZE);
        Ok(Statfs {
            block_size: BLOCK_SIZE,
            blocks: blocks(stat.total_bytes),
            blocks_free: blocks(stat.free_bytes),
            blocks_available: blocks(stat.free_bytes),
            files: stat.inodes.saturating_add(stat.free_inodes),
            files_free: stat.free_inodes,
        })
    }

    async fn setxattr(
        &self,
        context: &Context,
        inode: InodeId,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    ) -> Result<(), Errno> {
        as_caller!(context, caller => match is_acl(&name) {
            true => {
                let who = Who::of(context, false);
                self.client.set_acl_for(caller, inode, (&name, &value), flags, &who).await
            }
            false => self.client.setxattr(caller, inode, &name, &value, flags).await,
        })?;
        self.attributes_changed(inode);
        Ok(())
    }

    async fn getxattr(&self, context: &Context, inode: InodeId, name: Vec<u8>) -> Result<Vec<u8>, Errno> {
        if is_acl(&name) {
            return self.list(context, inode, &name).await;
        }
        let value = as_caller!(context, caller => self.client.getxattr(caller, inode, &name).await);
        match value {
            // `ls -l` asks for no more labels then: for each file that would be one of its two requests.
            Err(Errno::ENODATA) if name == xattr::LABEL => Err(Errno::EOPNOTSUPP),
            value => value,
        }
    }

    async fn listxattr(&self, context: &Context, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = as_caller!(context, caller => self.client.listxattr(caller, inode).await)?;
        // The kernel looks who reads one, but leaves it to us whom they are listed for.
        let is_hidden = |name: &Vec<u8>| name.starts_with(xattr::TRUSTED);
        if names.iter().any(is_hidden) && !Who::of(context, false).is_trusted() {
            names.retain(|name| !is_hidden(name));
        }
        Ok(names)
    }

    async fn removexattr(&self, context: &Context, inode: InodeId, name: Vec<u8>) -> Result<(), Errno> {
        let removed = as_caller!(context, caller => match is_acl(&name) {
            true => self.client.remove_acl_for(caller, inode, &name, &Who::of(context, false)).await,
            false => self.client.removexattr(caller, inode, &name).await,
        });
        self.attributes_changed(inode);
        match removed {
            // To take away a list that is not there is no error on local file systems.
            Err(Errno::ENODATA) if is_acl(&name) => Ok(()),
            removed => removed,
        }
    }

    async fn flags(&self, context: &Context, inode: InodeId) -> Result<FileFlags, Errno> {
        as_caller!(context, caller => self.client.flags(caller, inode).await)
    }

    async fn set_flags(&self, context: &Context, inode: InodeId, flags: FileFlags) -> Result<(), Errno> {
        let who = Who::of(context, false);
        as_caller!(context, caller => self.client.set_flags_for(caller, inode, flags, &who).await)?;
        // The time of the last change is another, which the kernel does not doubt after this.
        self.attributes_changed(inode);
        Ok(())
    }

    async fn shutdown(&self) {
        self.client.shutdown().await;
    }
}
