//! From the kernel's bytes to an operation with plain values. Trusts nothing: what is too short, too long or no name is
//! refused.

use types::attr::{FileType, SetAttr, SetTime};
use types::error::Errno;
use types::id::InodeId;
use types::lock::{LockKind, LockMode, LockRange};
use types::name::Name;
use types::time::Timestamp;

use crate::abi::{self, InHeader, Layout, Opcode, fattr, read_front};
use crate::file_flags;
use crate::filesystem::{Lock, SETXATTR_KILL_SGID};
use crate::operation::Operation;

/// Why there is no operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// A request that the kernel may well send, and that has this answer.
    Answer(Errno),
    /// Bytes that make no sense.
    Malformed,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Answer(errno)
    }
}

/// Reads the arguments of a message, front to back. `Malformed` where they end too soon.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn layout<T: Layout>(&mut self) -> Result<T, Refusal> {
        let value = read_front(self.0).ok_or(Refusal::Malformed)?;
        self.0 = &self.0[size_of::<T>()..];
        Ok(value)
    }

    /// Bytes up to the next zero, which is taken too.
    fn string(&mut self) -> Result<&'a [u8], Refusal> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Refusal::Malformed)?;
        let string = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(string)
    }

    fn name(&mut self) -> Result<Name, Refusal> {
        Ok(Name::new(self.string()?)?)
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Refusal> {
        let bytes = self.0.get(..len).ok_or(Refusal::Malformed)?;
        self.0 = &self.0[len..];
        Ok(bytes)
    }
}

/// The header of a message, where its length is that of the message.
pub(crate) fn header(message: &[u8]) -> Option<InHeader> {
    read_front::<InHeader>(message).filter(|header| header.len as usize == message.len())
}

/// What a whole message asks for, as metrics call it; `None` where it makes no sense or is refused. For tools and tests
/// that try any bytes. `extended_setxattr`: that feature was agreed on.
#[must_use]
pub fn asked(message: &[u8], extended_setxattr: bool) -> Option<&'static str> {
    let opcode = Opcode::from_u32(header(message)?.opcode)?;
    let arguments = &message[size_of::<InHeader>()..];
    operation(opcode, arguments, extended_setxattr).ok().map(|_| opcode.label())
}

/// What is asked in `arguments`, the bytes after the header. `extended_setxattr`: that feature was agreed on.
pub(crate) fn operation(opcode: Opcode, arguments: &[u8], extended_setxattr: bool) -> Result<Operation, Refusal> {
    let r = &mut Reader(arguments);
    match opcode {
        Opcode::Lookup => lookup(r),
        Opcode::Forget => Ok(Operation::Forget { count: r.layout::<abi::ForgetIn>()?.nlookup }),
        Opcode::BatchForget => batch_forget(r),
        Opcode::Getattr => getattr(r),
        Opcode::Setattr => Ok(setattr(&r.layout()?)),
        Opcode::Readlink => Ok(Operation::Readlink),
        Opcode::Symlink => Ok(Operation::Symlink { name: r.name()?, target: r.string()?.to_vec() }),
        Opcode::Mknod => mknod(r),
        Opcode::Mkdir => mkdir(r),
        Opcode::Create => create(r),
        Opcode::Tmpfile => tmpfile(r),
        Opcode::Unlink => Ok(Operation::Unlink { name: r.name()? }),
        Opcode::Rmdir => Ok(Operation::Rmdir { name: r.name()? }),
        Opcode::Rename => rename(r),
        Opcode::Rename2 => rename2(r),
        Opcode::Link => link(r),
        Opcode::Statx => statx(r),
        Opcode::Statfs => Ok(Operation::Statfs),
        Opcode::Setxattr => setxattr(r, extended_setxattr),
        Opcode::Getxattr => getxattr(r),
        Opcode::Listxattr => Ok(Operation::Listxattr { size: r.layout::<abi::GetxattrIn>()?.size }),
        Opcode::Removexattr => Ok(Operation::Removexattr { name: r.string()?.to_vec() }),
        // The kernels that have the one check who sets flags as well.
        Opcode::Ioctl => file_flags::operation(&r.layout()?, r.0, extended_setxattr),
        Opcode::Open => open(r),
        Opcode::Read => read(r),
        Opcode::Write => write(r),
        Opcode::Release => release(r),
        Opcode::Fsync => fsync(r).map(|(handle, datasync)| Operation::Fsync { handle, datasync }),
        Opcode::Flush => flush(r),
        Opcode::Getlk => getlk(r),
        Opcode::Setlk => setlk(r, false),
        Opcode::Setlkw => setlk(r, true),
        Opcode::Fallocate => fallocate(r),
        Opcode::Lseek => lseek(r),
        Opcode::CopyFileRange => copy_file_range(r, false),
        Opcode::CopyFileRange64 => copy_file_range(r, true),
        Opcode::Opendir => Ok(Operation::Opendir),
        Opcode::Readdir => readdir(r, false),
        Opcode::Readdirplus => readdir(r, true),
        Opcode::Releasedir => Ok(Operation::Releasedir { handle: r.layout::<abi::ReleaseIn>()?.fh }),
        Opcode::Fsyncdir => fsync(r).map(|(handle, datasync)| Operation::Fsyncdir { handle, datasync }),
        Opcode::Interrupt => Ok(Operation::Interrupt { unique: r.layout::<abi::InterruptIn>()?.unique }),
        Opcode::Destroy => Ok(Operation::Destroy),
        // Once per mount, and answered before any loop runs.
        Opcode::Init => Err(Refusal::Malformed),
    }
}

fn lookup(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    Ok(match r.string()? {
        b"." => Operation::LookupInode,
        b".." => Operation::LookupParent,
        name => Operation::Lookup { name: Name::new(name)? },
    })
}

fn getattr(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::GetattrIn = r.layout()?;
    Ok(Operation::Getattr { handle: (args.getattr_flags & abi::GETATTR_FH != 0).then_some(args.fh) })
}

fn statx(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::StatxIn = r.layout()?;
    Ok(Operation::Statx { handle: (args.getattr_flags & abi::GETATTR_FH != 0).then_some(args.fh) })
}

fn mknod(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::MknodIn = r.layout()?;
    let kind = FileType::from_mode(args.mode).ok_or(Errno::EINVAL)?;
    let (mode, umask) = (permissions(args.mode), permissions(args.umask));
    Ok(Operation::Mknod { kind, mode, rdev: args.rdev, umask, name: r.name()? })
}

fn mkdir(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::MkdirIn = r.layout()?;
    Ok(Operation::Mkdir { mode: permissions(args.mode), umask: permissions(args.umask), name: r.name()? })
}

fn create(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::CreateIn = r.layout()?;
    let (mode, umask) = (permissions(args.mode), permissions(args.umask));
    Ok(Operation::Create { mode, flags: args.flags, umask, name: r.name()? })
}

/// The name that follows is no entry's.
fn tmpfile(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::CreateIn = r.layout()?;
    Ok(Operation::Tmpfile { mode: permissions(args.mode), flags: args.flags, umask: permissions(args.umask) })
}

fn link(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::LinkIn = r.layout()?;
    Ok(Operation::Link { inode: InodeId(args.oldnodeid), name: r.name()? })
}

fn setxattr(r: &mut Reader<'_>, extended: bool) -> Result<Operation, Refusal> {
    let args: abi::SetxattrIn = r.layout()?;
    let more = if extended { r.layout::<abi::SetxattrMore>()?.setxattr_flags } else { 0 };
    let kill_sgid = if more & abi::SETXATTR_ACL_KILL_SGID != 0 { SETXATTR_KILL_SGID } else { 0 };
    let name = r.string()?.to_vec();
    let value = r.bytes(args.size as usize)?.to_vec();
    Ok(Operation::Setxattr { name, value, flags: args.flags | kill_sgid })
}

fn getxattr(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::GetxattrIn = r.layout()?;
    Ok(Operation::Getxattr { name: r.string()?.to_vec(), size: args.size })
}

fn fallocate(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::FallocateIn = r.layout()?;
    Ok(Operation::Fallocate { handle: args.fh, offset: args.offset, len: args.length, mode: args.mode })
}

fn copy_file_range(r: &mut Reader<'_>, wide: bool) -> Result<Operation, Refusal> {
    let args: abi::CopyFileRangeIn = r.layout()?;
    Ok(Operation::CopyFileRange {
        source: (args.fh_in, args.off_in),
        target: (InodeId(args.nodeid_out), args.fh_out, args.off_out),
        len: args.len,
        wide,
    })
}

fn lseek(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::LseekIn = r.layout()?;
    let hole = match args.whence {
        abi::SEEK_DATA => false,
        abi::SEEK_HOLE => true,
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(Operation::Seek { handle: args.fh, offset: args.offset, hole })
}

fn open(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::OpenIn = r.layout()?;
    Ok(Operation::Open { flags: args.flags })
}

fn read(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::ReadIn = r.layout()?;
    Ok(Operation::Read { handle: args.fh, offset: args.offset, size: args.size, flags: args.flags })
}

fn write(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::WriteIn = r.layout()?;
    if r.0.len() != args.size as usize {
        return Err(Refusal::Malformed);
    }
    Ok(Operation::Write {
        handle: args.fh,
        offset: args.offset,
        size: args.size,
        flags: args.flags,
        kill_suid_sgid: args.write_flags & abi::WRITE_KILL_SUIDGID != 0,
        from_cache: args.write_flags & abi::WRITE_CACHE != 0,
    })
}

fn release(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::ReleaseIn = r.layout()?;
    Ok(Operation::Release { handle: args.fh, flags: args.flags })
}

/// The handle, and whether data alone is to be synced: of a file or of a directory.
fn fsync(r: &mut Reader<'_>) -> Result<(u64, bool), Refusal> {
    let args: abi::FsyncIn = r.layout()?;
    Ok((args.fh, args.fsync_flags & abi::FSYNC_DATASYNC != 0))
}

fn flush(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::FlushIn = r.layout()?;
    Ok(Operation::Flush { handle: args.fh, lock_owner: args.lock_owner })
}

fn readdir(r: &mut Reader<'_>, plus: bool) -> Result<Operation, Refusal> {
    let args: abi::ReadIn = r.layout()?;
    Ok(Operation::Readdir { handle: args.fh, offset: args.offset, size: args.size, plus })
}

fn getlk(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let (lock, mode) = lock(r)?;
    Ok(Operation::GetLock { lock, mode: mode.ok_or(Errno::EINVAL)? })
}

fn setlk(r: &mut Reader<'_>, wait: bool) -> Result<Operation, Refusal> {
    let (lock, mode) = lock(r)?;
    Ok(Operation::SetLock { lock, mode, wait })
}

/// A lock and its mode, which is `None` where it is to be given back.
fn lock(r: &mut Reader<'_>) -> Result<(Lock, Option<LockMode>), Refusal> {
    let args: abi::LkIn = r.layout()?;
    let kind = if args.lk_flags & abi::LK_FLOCK != 0 { LockKind::Flock } else { LockKind::Posix };
    let range = LockRange::new(args.start, args.end).ok_or(Refusal::Malformed)?;
    let mode = match args.kind {
        abi::LOCK_SHARED => Some(LockMode::Shared),
        abi::LOCK_EXCLUSIVE => Some(LockMode::Exclusive),
        abi::LOCK_NONE => None,
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok((Lock { handle: args.fh, kind, owner: args.owner, range, pid: args.pid }, mode))
}

fn rename(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::RenameIn = r.layout()?;
    both_names(r, args.newdir, 0)
}

fn rename2(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::Rename2In = r.layout()?;
    both_names(r, args.newdir, args.flags)
}

fn both_names(r: &mut Reader<'_>, newdir: u64, flags: u32) -> Result<Operation, Refusal> {
    let name = r.name()?;
    Ok(Operation::Rename { name, target_parent: InodeId(newdir), target_name: r.name()?, flags })
}

fn batch_forget(r: &mut Reader<'_>) -> Result<Operation, Refusal> {
    let args: abi::BatchForgetIn = r.layout()?;
    let count = args.count as usize;
    if r.0.len() != count.saturating_mul(size_of::<abi::ForgetOne>()) {
        return Err(Refusal::Malformed);
    }
    let mut inodes = Vec::with_capacity(count);
    for _ in 0..count {
        let one: abi::ForgetOne = r.layout()?;
        inodes.push((InodeId(one.nodeid), one.nlookup));
    }
    Ok(Operation::BatchForget { inodes })
}

fn setattr(args: &abi::SetattrIn) -> Operation {
    let has = |bit: u32| args.valid & bit != 0;
    let time = |bit: u32, now: u32, seconds: u64, nanoseconds: u32| {
        let at = SetTime::At(Timestamp::from_parts(seconds.cast_signed(), nanoseconds));
        has(bit).then_some(if has(now) { SetTime::Now } else { at })
    };
    let change = SetAttr {
        mode: has(fattr::MODE).then_some(permissions(args.mode)),
        uid: has(fattr::UID).then_some(args.uid),
        gid: has(fattr::GID).then_some(args.gid),
        size: has(fattr::SIZE).then_some(args.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtimensec),
        // The kernel names nothing where a change of owner to what it is, or `fallocate`, is to clear them.
        kill_suid_sgid: has(fattr::KILL_SUIDGID) || args.valid & !fattr::FH & !fattr::LOCK_OWNER == 0,
        kill_sgid: false,
        flags: None,
    };
    Operation::Setattr { handle: has(fattr::FH).then_some(args.fh), change }
}

fn permissions(mode: u32) -> u32 {
    mode & types::attr::PERMISSION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::bytes_of;

    fn operation(opcode: Opcode, arguments: &[u8]) -> Result<Operation, Refusal> {
        super::operation(opcode, arguments, true)
    }

    #[test]
    fn setxattr_has_two_forms() {
        let head = abi::SetxattrIn { size: 5, flags: 2 };
        let more = abi::SetxattrMore { setxattr_flags: abi::SETXATTR_ACL_KILL_SGID, padding: 0 };
        let text = b"user.a\0value";
        for (extended, message, expected) in [
            (false, with(bytes_of(&head), text), 2),
            (true, with(bytes_of(&head), &with(bytes_of(&more), text)), 2 | SETXATTR_KILL_SGID),
        ] {
            let Ok(Operation::Setxattr { name, value, flags }) = super::operation(Opcode::Setxattr, &message, extended)
            else {
                panic!("a good setxattr is refused");
            };
            assert_eq!((&name[..], &value[..], flags), (&b"user.a"[..], &b"value"[..], expected));
        }
    }

    fn with(layout: &[u8], rest: &[u8]) -> Vec<u8> {
        [layout, rest].concat()
    }

    #[test]
    fn every_opcode_refuses_every_truncation() {
        // Whatever the bytes, decoding ends without a panic; and no prefix of a full request is taken for it.
        let rename = with(bytes_of(&abi::Rename2In { newdir: 9, flags: 1, padding: 0 }), b"old\0new\0");
        assert!(matches!(operation(Opcode::Rename2, &rename), Ok(Operation::Rename { flags: 1, .. })));
        for len in 0..rename.len() {
            assert!(operation(Opcode::Rename2, &rename[..len]).is_err(), "{len} bytes");
        }
        for &opcode in Opcode::ALL {
            for len in 0..200 {
                for fill in [0, 1, 0x41, 0xff] {
                    let _ = operation(opcode, &vec![fill; len]);
                }
            }
        }
    }

    #[test]
    fn names_are_checked() {
        assert!(matches!(operation(Opcode::Lookup, b"file\0"), Ok(Operation::Lookup { name }) if &*name == b"file"));
        assert_eq!(operation(Opcode::Lookup, b"file").expect_err("no zero"), Refusal::Malformed);
        assert!(matches!(operation(Opcode::Lookup, b".\0"), Ok(Operation::LookupInode)));
        assert!(matches!(operation(Opcode::Lookup, b"..\0"), Ok(Operation::LookupParent)));
        assert_eq!(operation(Opcode::Unlink, b"a/b\0").expect_err("slash"), Refusal::Answer(Errno::EINVAL));
        let long = [&[b'x'; 256][..], b"\0"].concat();
        assert_eq!(operation(Opcode::Lookup, &long).expect_err("long"), Refusal::Answer(Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_write_has_exactly_the_bytes_that_it_says() {
        let head =
            abi::WriteIn { fh: 3, offset: 8, size: 4, write_flags: abi::WRITE_KILL_SUIDGID, ..Default::default() };
        let message = with(bytes_of(&head), b"data");
        let Ok(Operation::Write { handle: 3, offset: 8, size: 4, kill_suid_sgid: true, from_cache: false, .. }) =
            operation(Opcode::Write, &message)
        else {
            panic!("a good write is refused");
        };
        assert!(operation(Opcode::Write, &with(bytes_of(&head), b"data!")).is_err());
        assert!(operation(Opcode::Write, &with(bytes_of(&head), b"dat")).is_err());
    }

    #[test]
    fn a_read_says_what_the_flags_of_its_open_file_are_now() {
        let args = abi::ReadIn { fh: 3, offset: 8, size: 4, read_flags: 2, flags: 0o1_040_000, ..Default::default() };
        assert!(matches!(
            operation(Opcode::Read, bytes_of(&args)),
            Ok(Operation::Read { handle: 3, offset: 8, size: 4, flags: 0o1_040_000 })
        ));
    }

    #[test]
    fn attributes_that_are_not_named_stay() {
        let args = abi::SetattrIn {
            valid: fattr::SIZE | fattr::MTIME | fattr::ATIME | fattr::ATIME_NOW,
            size: 77,
            mtime: (-1i64).cast_unsigned(),
            mtimensec: 5,
            mode: 0o777,
            ..Default::default()
        };
        let Ok(Operation::Setattr { handle: None, change }) = operation(Opcode::Setattr, bytes_of(&args)) else {
            panic!("a good setattr is refused");
        };
        let expected = SetAttr {
            size: Some(77),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(Timestamp(-999_999_995))),
            ..SetAttr::default()
        };
        assert_eq!(change, expected);
        for (valid, kills) in [(0, true), (fattr::FH, true), (fattr::MODE, false), (fattr::KILL_SUIDGID, true)] {
            let args = abi::SetattrIn { valid, ..Default::default() };
            let Ok(Operation::Setattr { change, .. }) = operation(Opcode::Setattr, bytes_of(&args)) else {
                panic!("a good setattr is refused");
            };
            assert_eq!(change.kill_suid_sgid, kills, "{valid:#x}");
        }
    }

    #[test]
    fn a_batch_of_forgets_counts_right() {
        let one = abi::ForgetOne { nodeid: 16, nlookup: 2 };
        let head = abi::BatchForgetIn { count: 1, dummy: 0 };
        let good = with(bytes_of(&head), bytes_of(&one));
        assert!(matches!(operation(Opcode::BatchForget, &good),
            Ok(Operation::BatchForget { inodes }) if inodes == [(InodeId(16), 2)]));
        let lying = with(bytes_of(&abi::BatchForgetIn { count: u32::MAX, dummy: 0 }), bytes_of(&one));
        assert!(operation(Opcode::BatchForget, &lying).is_err());
    }

    #[test]
    fn locks_have_a_range_and_a_mode() {
        let args =
            abi::LkIn { fh: 3, owner: 9, start: 5, end: 5, kind: abi::LOCK_EXCLUSIVE, pid: 7, ..Default::default() };
        let Ok(Operation::SetLock { lock, mode: Some(LockMode::Exclusive), wait: true }) =
            operation(Opcode::Setlkw, bytes_of(&args))
        else {
            panic!("a good lock is refused");
        };
        assert_eq!((lock.handle, lock.kind, lock.owner, lock.pid), (3, LockKind::Posix, 9, 7));
        let unlock = abi::LkIn { kind: abi::LOCK_NONE, lk_flags: abi::LK_FLOCK, ..args };
        assert!(matches!(operation(Opcode::Setlk, bytes_of(&unlock)),
            Ok(Operation::SetLock { lock, mode: None, wait: false }) if lock.kind == LockKind::Flock));
        assert!(operation(Opcode::Getlk, bytes_of(&unlock)).is_err(), "nothing to look for");
        let is_long = |opcode, args: &abi::LkIn| {
            operation(opcode, bytes_of(args)).map(|operation| operation.may_wait_for_long()).expect("it makes sense")
        };
        assert!(is_long(Opcode::Setlkw, &args) && !is_long(Opcode::Setlk, &args) && !is_long(Opcode::Getlk, &args));
        assert!(!is_long(Opcode::Setlkw, &unlock), "as the kernel sends what `flock` gives back");
        assert!(operation(Opcode::Setlk, bytes_of(&abi::LkIn { end: 4, ..args })).is_err());
        assert!(operation(Opcode::Setlk, bytes_of(&abi::LkIn { end: u64::MAX, ..args })).is_err());
        assert!(operation(Opcode::Setlk, bytes_of(&abi::LkIn { kind: 3, ..args })).is_err());
    }

    #[test]
    fn a_header_tells_the_true_length() {
        let header = InHeader { len: 40, opcode: 1, ..Default::default() };
        assert!(super::header(bytes_of(&header)).is_some());
        assert!(super::header(&with(bytes_of(&header), b"x")).is_none());
        assert!(super::header(&bytes_of(&header)[..39]).is_none());
    }
}
