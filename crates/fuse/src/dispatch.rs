//! One match from operations to the methods of the file system.

use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::context::Context;
use crate::file_flags::{self, Form};
use crate::filesystem::{CopyRange, FileOffset, FileSystem, Write};
use crate::init;
use crate::listing::Listing;
use crate::operation::Operation;
use crate::reply::{Body, Outcome};
use crate::transport::Message;

/// What all requests and replies of a mount have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Longest page of a listing or data, in bytes.
    pub(crate) reply_max: u32,
    /// `setxattr` comes in its longer form.
    pub(crate) extended_setxattr: bool,
}

impl Shape {
    /// A write of `size` bytes is as long as one can be. Memory need not begin at a page: up to a page less than the
    /// longest is cut off as well.
    fn is_full(self, size: u32) -> bool {
        size > self.reply_max.saturating_sub(init::PAGE)
    }
}

/// Runs `operation` on `inode`. `message` holds the data of a write.
pub(crate) async fn dispatch<F: FileSystem>(
    fs: &F,
    shape: Shape,
    cx: &Context,
    inode: InodeId,
    operation: Operation,
    message: Option<Message>,
) -> Outcome {
    let entry = |entry| Body::entry(&entry);
    let created = |(entry, opened)| Body::created(&entry, opened);
    let attributes = |attributes| Body::attributes(&attributes);
    let statx = |attributes| Body::statx(&attributes);
    let empty = |()| Body::Empty;
    let call = Call { fs, shape, cx, inode };
    Some(match operation {
        Operation::Lookup { name } => call.lookup(name).await,
        Operation::LookupInode => fs.lookup_inode(cx, inode).await.map(entry),
        Operation::LookupParent => fs.lookup_parent(cx, inode).await.map(entry),
        Operation::Forget { count } => return call.forget(&[(inode, count)]),
        Operation::BatchForget { inodes } => return call.forget(&inodes),
        Operation::Getattr { handle } => fs.getattr(cx, inode, handle).await.map(attributes),
        Operation::Statx { handle } => fs.getattr(cx, inode, handle).await.map(statx),
        Operation::Setattr { handle, change } => fs.setattr(cx, inode, handle, change).await.map(attributes),
        Operation::GetFlags { form } => call.get_flags(form).await,
        Operation::SetFlags { flags } => fs.set_flags(cx, inode, flags).await.map(|()| Body::ioctl(Vec::new())),
        Operation::Readlink => fs.readlink(cx, inode).await.map(Body::Bytes),
        Operation::Symlink { name, target } => fs.symlink(cx, inode, name, target).await.map(entry),
        Operation::Mknod { name, kind, mode, rdev, .. } => fs.mknod(cx, inode, name, kind, mode, rdev).await.map(entry),
        Operation::Mkdir { name, mode, .. } => fs.mkdir(cx, inode, name, mode).await.map(entry),
        Operation::Unlink { name } => fs.unlink(cx, inode, name).await.map(empty),
        Operation::Rmdir { name } => fs.rmdir(cx, inode, name).await.map(empty),
        Operation::Rename { name, target_parent, target_name, flags } => {
            fs.rename(cx, (inode, name), (target_parent, target_name), flags).await.map(empty)
        }
        Operation::Link { inode: linked, name } => fs.link(cx, linked, inode, name).await.map(entry),
        Operation::Open { flags } => fs.open(cx, inode, flags).await.map(Body::opened),
        Operation::Create { name, mode, flags, .. } => fs.create(cx, inode, name, mode, flags).await.map(created),
        Operation::Tmpfile { mode, flags, .. } => fs.tmpfile(cx, inode, mode, flags).await.map(created),
        Operation::Read { handle, offset, size, flags } => call.read(handle, offset, size, flags).await,
        Operation::Write { handle, offset, size, flags, kill_suid_sgid, from_cache } => {
            let Some(message) = message else { return Some(Err(Errno::EIO)) };
            let (data, is_full) = (message.into_tail(size as usize), shape.is_full(size));
            let write = Write { inode, handle, offset, data, flags, kill_suid_sgid, from_cache, is_full };
            fs.write(cx, write).await.map(|written| Body::written(written.min(size)))
        }
        Operation::Fallocate { handle, offset, len, mode } => {
            fs.fallocate(cx, inode, handle, offset, len, mode).await.map(empty)
        }
        Operation::CopyFileRange { source, target, len, wide } => call.copy_file_range(source, target, len, wide).await,
        Operation::Seek { handle, offset, hole } => fs.seek(cx, inode, handle, offset, hole).await.map(Body::sought),
        Operation::Flush { handle, lock_owner } => fs.flush(cx, inode, handle, lock_owner).await.map(empty),
        Operation::Release { handle, flags } => fs.release(cx, inode, handle, flags).await.map(empty),
        Operation::Fsync { handle, datasync } => fs.fsync(cx, inode, handle, datasync).await.map(empty),
        Operation::GetLock { lock, mode } => fs.getlk(cx, inode, &lock, mode).await.map(Body::lock),
        Operation::SetLock { lock, mode: Some(mode), wait } => fs.setlk(cx, inode, &lock, mode, wait).await.map(empty),
        Operation::SetLock { lock, mode: None, .. } => fs.unlock(cx, inode, &lock).await.map(empty),
        Operation::Opendir => fs.opendir(cx, inode).await.map(Body::opened),
        Operation::Readdir { handle, offset, size, plus } => call.readdir(handle, offset, size, plus).await,
        Operation::Releasedir { handle } => fs.releasedir(cx, inode, handle).await.map(empty),
        Operation::Fsyncdir { handle, datasync } => fs.fsyncdir(cx, inode, handle, datasync).await.map(empty),
        Operation::Getxattr { name, size } => call.getxattr(name, size).await,
        Operation::Setxattr { name, value, flags } => fs.setxattr(cx, inode, name, value, flags).await.map(empty),
        Operation::Listxattr { size } => call.listxattr(size).await,
        Operation::Removexattr { name } => fs.removexattr(cx, inode, name).await.map(empty),
        Operation::Statfs => fs.statfs(cx).await.map(|statfs| Body::statfs(&statfs)),
        // Taken by the worker, which knows the requests in flight.
        Operation::Interrupt { .. } => return None,
        Operation::Destroy => Ok(Body::Empty),
    })
}

/// One request: what takes more than a line to be passed on and answered.
struct Call<'a, F> {
    fs: &'a F,
    shape: Shape,
    cx: &'a Context,
    inode: InodeId,
}

impl<F: FileSystem> Call<'_, F> {
    async fn lookup(&self, name: Name) -> Result<Body, Errno> {
        let looked = self.fs.lookup(self.cx, self.inode, name).await?;
        Body::looked(&looked)
    }

    fn forget(&self, inodes: &[(InodeId, u64)]) -> Outcome {
        inodes.iter().for_each(|&(inode, count)| self.fs.forget(inode, count));
        None
    }

    async fn get_flags(&self, form: Form) -> Result<Body, Errno> {
        let flags = self.fs.flags(self.cx, self.inode).await?;
        Ok(Body::ioctl(file_flags::answer(flags, form)))
    }

    async fn read(&self, handle: u64, offset: u64, size: u32, flags: u32) -> Result<Body, Errno> {
        let (inode, size) = (self.inode, size.min(self.shape.reply_max));
        let slices = self.fs.read(self.cx, inode, handle, offset, size, flags).await?;
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if len > size as usize {
            tracing::error!(%inode, len, size, "the file system read more than was asked for");
            return Err(Errno::EIO);
        }
        Ok(Body::Data(slices))
    }

    async fn copy_file_range(
        &self,
        (handle, offset): (u64, u64),
        target: (InodeId, u64, u64),
        len: u64,
        wide: bool,
    ) -> Result<Body, Errno> {
        // The shorter reply has 32 bits, and its kernels no page of more.
        let len = if wide { len } else { len.min(u64::from(u32::MAX) & !0xfff) };
        let range = CopyRange {
            source: FileOffset { inode: self.inode, handle, offset },
            target: FileOffset { inode: target.0, handle: target.1, offset: target.2 },
            len,
        };
        self.fs.copy_range(self.cx, range).await.map(|count| Body::copied(count, wide))
    }

    async fn readdir(&self, handle: u64, offset: u64, size: u32, plus: bool) -> Result<Body, Errno> {
        let capacity = size.min(self.shape.reply_max) as usize;
        let (mut listing, cookie) = Listing::new(offset, capacity, plus);
        let parent = self.fs.readdir(self.cx, self.inode, handle, cookie, &mut listing).await?;
        let (bytes, told) = listing.finish(self.inode, parent);
        Ok(Body::Listing(bytes, told))
    }

    async fn getxattr(&self, name: Vec<u8>, size: u32) -> Result<Body, Errno> {
        Body::xattr(self.fs.getxattr(self.cx, self.inode, name).await?, size)
    }

    async fn listxattr(&self, size: u32) -> Result<Body, Errno> {
        let mut bytes = Vec::new();
        for name in self.fs.listxattr(self.cx, self.inode).await? {
            bytes.extend_from_slice(&name);
            bytes.push(0);
        }
        Body::xattr(bytes, size)
    }
}
