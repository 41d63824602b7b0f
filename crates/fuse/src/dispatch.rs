//! One match from operations to the methods of the file system.

use types::error::Errno;
use types::id::InodeId;

use crate::context::Context;
use crate::decode::Operation;
use crate::file_flags;
use crate::filesystem::{CopyRange, FileOffset, FileSystem, Write};
use crate::init;
use crate::listing::{Listing, Page};
use crate::reply::{Body, Outcome};
use crate::transport::Message;

/// What all requests and replies of a mount have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// `st_blksize`, in bytes.
    pub(crate) block_size: u32,
    /// Longest page of a listing or data, in bytes.
    pub(crate) reply_max: u32,
    /// `setxattr` comes in its longer form.
    pub(crate) extended_setxattr: bool,
}

/// Runs `operation` on `inode`. `message` holds the data of a write.
pub(crate) async fn dispatch<F: FileSystem>(
    fs: &F,
    shape: Shape,
    context: &Context,
    inode: InodeId,
    operation: Operation,
    message: Option<Message>,
) -> Outcome {
    Some(match operation {
        Operation::Forget { count } => {
            fs.forget(inode, count);
            return None;
        }
        Operation::BatchForget { inodes } => {
            inodes.into_iter().for_each(|(inode, count)| fs.forget(inode, count));
            return None;
        }
        // Taken by the worker, which knows the requests in flight.
        Operation::Interrupt { .. } => return None,
        Operation::Destroy => Ok(Body::Empty),
        Operation::Read { .. } | Operation::Write { .. } => data(fs, shape, context, inode, operation, message).await,
        Operation::Readdir { .. } => listing(fs, shape, context, inode, operation).await,
        Operation::Getxattr { .. }
        | Operation::Setxattr { .. }
        | Operation::Listxattr { .. }
        | Operation::Removexattr { .. } => xattr(fs, context, inode, operation).await,
        Operation::GetFlags { form } => {
            fs.flags(context, inode).await.map(|flags| Body::ioctl(file_flags::answer(flags, form)))
        }
        Operation::SetFlags { flags } => fs.set_flags(context, inode, flags).await.map(|()| Body::ioctl(Vec::new())),
        other => metadata(fs, shape, context, inode, other).await,
    })
}

async fn metadata<F: FileSystem>(
    fs: &F,
    shape: Shape,
    cx: &Context,
    inode: InodeId,
    operation: Operation,
) -> Result<Body, Errno> {
    let entry = |entry| Body::entry(&entry, shape.block_size);
    let attributes = |attributes| Body::attributes(&attributes, shape.block_size);
    let empty = |()| Body::Empty;
    match operation {
        Operation::Lookup { name } => {
            fs.lookup(cx, inode, name).await.and_then(|looked| Body::looked(&looked, shape.block_size))
        }
        Operation::LookupInode => fs.lookup_inode(cx, inode).await.map(entry),
        Operation::LookupParent => fs.lookup_parent(cx, inode).await.map(entry),
        Operation::Getattr { handle } => fs.getattr(cx, inode, handle).await.map(attributes),
        Operation::Setattr { handle, change } => fs.setattr(cx, inode, handle, change).await.map(attributes),
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
        Operation::Open { flags, kill_suid_sgid } => fs.open(cx, inode, flags, kill_suid_sgid).await.map(Body::opened),
        Operation::Statx { handle } => {
            fs.getattr(cx, inode, handle).await.map(|attributes| Body::statx(&attributes, shape.block_size))
        }
        Operation::Tmpfile { mode, flags, .. } => {
            let created = fs.tmpfile(cx, inode, mode, flags).await;
            created.map(|(entry, opened)| Body::created(&entry, opened, shape.block_size))
        }
        Operation::Create { name, mode, flags, .. } => {
            let created = fs.create(cx, inode, name, mode, flags).await;
            created.map(|(entry, opened)| Body::created(&entry, opened, shape.block_size))
        }
        Operation::Flush { handle, lock_owner } => fs.flush(cx, inode, handle, lock_owner).await.map(empty),
        Operation::GetLock { lock, mode } => fs.getlk(cx, inode, &lock, mode).await.map(Body::lock),
        Operation::SetLock { lock, mode: Some(mode), wait } => fs.setlk(cx, inode, &lock, mode, wait).await.map(empty),
        Operation::SetLock { lock, mode: None, .. } => fs.unlock(cx, inode, &lock).await.map(empty),
        Operation::Release { handle, flags } => fs.release(cx, inode, handle, flags).await.map(empty),
        Operation::Fsync { handle, datasync } => fs.fsync(cx, inode, handle, datasync).await.map(empty),
        Operation::Fallocate { handle, offset, len, mode } => {
            fs.fallocate(cx, inode, handle, offset, len, mode).await.map(empty)
        }
        Operation::CopyFileRange { source: (handle, offset), target, len, wide } => {
            // The shorter reply has 32 bits, and its kernels no page of more.
            let len = if wide { len } else { len.min(u64::from(u32::MAX) & !0xfff) };
            let range = CopyRange {
                source: FileOffset { inode, handle, offset },
                target: FileOffset { inode: target.0, handle: target.1, offset: target.2 },
                len,
            };
            fs.copy_range(cx, range).await.map(|count| Body::copied(count, wide))
        }
        Operation::Seek { handle, offset, hole } => fs.seek(cx, inode, handle, offset, hole).await.map(Body::sought),
        Operation::Opendir => fs.opendir(cx, inode).await.map(Body::opened),
        Operation::Releasedir { handle } => fs.releasedir(cx, inode, handle).await.map(empty),
        Operation::Fsyncdir { handle, datasync } => fs.fsyncdir(cx, inode, handle, datasync).await.map(empty),
        Operation::Statfs => fs.statfs(cx).await.map(|statfs| Body::statfs(&statfs)),
        _ => unreachable!("`dispatch` sends the rest elsewhere"),
    }
}

async fn data<F: FileSystem>(
    fs: &F,
    shape: Shape,
    cx: &Context,
    inode: InodeId,
    operation: Operation,
    message: Option<Message>,
) -> Result<Body, Errno> {
    match operation {
        Operation::Read { handle, offset, size } => {
            let size = size.min(shape.reply_max);
            let slices = fs.read(cx, inode, handle, offset, size).await?;
            let len: usize = slices.iter().map(|slice| slice.len()).sum();
            if len > size as usize {
                tracing::error!(%inode, len, size, "the file system read more than was asked for");
                return Err(Errno::EIO);
            }
            Ok(Body::Data(slices))
        }
        Operation::Write { handle, offset, size, flags, kill_suid_sgid, from_cache } => {
            let data = message.ok_or(Errno::EIO)?.into_tail(size as usize);
            // Memory need not begin at a page: up to a page less than the longest is cut off as well.
            let is_full = size > shape.reply_max.saturating_sub(init::PAGE);
            let write = Write { inode, handle, offset, data, flags, kill_suid_sgid, from_cache, is_full };
            fs.write(cx, write).await.map(|written| Body::written(written.min(size)))
        }
        _ => unreachable!("`dispatch` sends reads and writes alone"),
    }
}

async fn listing<F: FileSystem>(
    fs: &F,
    shape: Shape,
    cx: &Context,
    inode: InodeId,
    operation: Operation,
) -> Result<Body, Errno> {
    let Operation::Readdir { handle, offset, size, plus } = operation else {
        unreachable!("`dispatch` sends listings alone")
    };
    let page = Page { block_size: shape.block_size };
    let capacity = size.min(shape.reply_max) as usize;
    let (mut listing, cookie) = Listing::new(offset, capacity, plus, page);
    let parent = fs.readdir(cx, inode, handle, cookie, &mut listing).await?;
    let (bytes, told) = listing.finish(inode, parent);
    Ok(Body::Listing(bytes, told))
}

async fn xattr<F: FileSystem>(fs: &F, cx: &Context, inode: InodeId, operation: Operation) -> Result<Body, Errno> {
    match operation {
        Operation::Getxattr { name, size } => Body::xattr(fs.getxattr(cx, inode, name).await?, size),
        Operation::Setxattr { name, value, flags } => {
            fs.setxattr(cx, inode, name, value, flags).await.map(|()| Body::Empty)
        }
        Operation::Listxattr { size } => {
            let mut bytes = Vec::new();
            for name in fs.listxattr(cx, inode).await? {
                bytes.extend_from_slice(&name);
                bytes.push(0);
            }
            Body::xattr(bytes, size)
        }
        Operation::Removexattr { name } => fs.removexattr(cx, inode, name).await.map(|()| Body::Empty),
        _ => unreachable!("`dispatch` sends xattrs alone"),
    }
}
