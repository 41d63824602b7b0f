//! System calls that the standard library has no function for.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// # Panics
/// Where a path holds a zero byte.
fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in a path")
}

pub(crate) fn checked(result: impl Into<i64>) -> io::Result<usize> {
    let result = result.into();
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// What the kernel gives to find a file again by, without a name.
#[repr(C)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

/// # Errors
/// The kernel's, as for all functions here.
pub fn name_to_handle(path: &Path) -> io::Result<FileHandle> {
    let (path, mut mount) = (c(path), 0i32);
    let mut handle = FileHandle { bytes: 128, kind: 0, handle: [0; 128] };
    // SAFETY: a terminated string, a handle that says how much room it has, and a number to be written to.
    let result = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &raw mut handle, &raw mut mount, 0)
    };
    checked(result).map(|_| handle)
}

impl FileHandle {
    /// Of the same kind, with the highest number that there may be: of FUSE it comes first.
    #[must_use]
    pub fn of_nothing(&self) -> Self {
        let mut handle = self.handle;
        handle[..8].fill(0xff);
        Self { handle, ..*self }
    }
}

/// Opens for reading what has this handle on the file system of `mount`.
///
/// # Errors
/// As above.
pub fn open_by_handle(mount: &File, handle: &FileHandle) -> io::Result<File> {
    let (fd, handle) = (mount.as_raw_fd(), std::ptr::from_ref(handle));
    // SAFETY: an open descriptor, and a handle as the kernel has made it; it is not written to.
    let fd = checked(unsafe { libc::syscall(libc::SYS_open_by_handle_at, fd, handle, libc::O_RDONLY) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Opens for reading what `path` leads to from `dir` on.
///
/// # Errors
/// As above.
pub fn open_at(dir: &File, path: &Path) -> io::Result<File> {
    let path = c(path);
    // SAFETY: an open descriptor and a terminated string that live through the call.
    let fd = checked(unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// How often the kernel may say that it does not know.
const FINDS_MAX: u32 = 100_000;

/// Finds what `path` leads to where `dir` is the root, as to a process whose root it is; without opening it. `follows`: also
/// a symbolic link at its end.
///
/// # Errors
/// As above.
pub fn find_in_root(dir: &File, path: &Path, follows: bool) -> io::Result<File> {
    let (fd, path) = (dir.as_raw_fd(), c(path));
    // SAFETY: the struct is plain numbers, and 0 means nothing asked for in all of them.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    let flags = libc::O_PATH | libc::O_CLOEXEC | if follows { 0 } else { libc::O_NOFOLLOW };
    (how.flags, how.resolve) = (flags as u64, libc::RESOLVE_IN_ROOT);
    let (how, size) = (std::ptr::from_ref(&how), size_of::<libc::open_how>());
    let mut left = FINDS_MAX;
    let fd = loop {
        // SAFETY: an open descriptor, a terminated string and a struct of the size given, which live through the call.
        match checked(unsafe { libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), how, size) }) {
            // Somewhere on the machine something was renamed or mounted, and the kernel cannot tell whether `..` led out.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && left > 0 => left -= 1,
            found => break found?,
        }
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Closes it, and tells what the kernel says to that: `File` forgets it.
///
/// # Errors
/// As above.
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was the file's, which does not close it any more.
    checked(unsafe { libc::close(file.into_raw_fd()) }).map(drop)
}

/// # Errors
/// As above.
pub fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c(from), c(to));
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })?;
    Ok(())
}

/// A name for what `from` leads to, also through a symbolic link such as those of `/proc/self/fd`.
///
/// # Errors
/// As above.
pub fn link_followed(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to, cwd) = (c(from), c(to), libc::AT_FDCWD);
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::linkat(cwd, from.as_ptr(), cwd, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) })?;
    Ok(())
}

/// # Errors
/// As above.
pub fn setxattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (c(path), c(Path::new(name)));
    // SAFETY: terminated strings, and a buffer of the given length.
    checked(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) })?;
    Ok(())
}

/// # Errors
/// As above; `ERANGE` above 64 KiB.
pub fn getxattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let (path, name) = (c(path), c(Path::new(name)));
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: terminated strings, and a buffer of the given length that is written to.
    let len = checked(unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) as i64
    })?;
    value.truncate(len);
    Ok(value)
}

/// Without a look at any name of the file.
///
/// # Errors
/// As above.
pub fn fgetxattr(file: &std::fs::File, name: &str) -> io::Result<Vec<u8>> {
    let name = c(Path::new(name));
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: an open file, a terminated string, and a buffer of the given length that is written to.
    let len = checked(unsafe {
        libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) as i64
    })?;
    value.truncate(len);
    Ok(value)
}

/// Names in byte order.
///
/// # Errors
/// As above.
pub fn listxattr(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let path = c(path);
    let mut list = vec![0u8; 64 << 10];
    // SAFETY: a terminated string, and a buffer of the given length that is written to.
    let len = checked(unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) as i64 })?;
    list.truncate(len);
    let mut names: Vec<Vec<u8>> =
        list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort();
    Ok(names)
}

/// # Errors
/// As above.
pub fn removexattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c(path), c(Path::new(name)));
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })?;
    Ok(())
}

/// Sets atime and mtime, in nanoseconds since 1970.
///
/// # Errors
/// As above.
pub fn utimens(path: &Path, atime: i64, mtime: i64) -> io::Result<()> {
    let path = c(path);
    let time = |ns: i64| libc::timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    let times = [time(atime), time(mtime)];
    // SAFETY: a terminated string and two times, which live through the call.
    checked(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })?;
    Ok(())
}

/// Sets both times to now, as who may write the file may do.
///
/// # Errors
/// As above.
pub fn touch(path: &Path) -> io::Result<()> {
    let path = c(path);
    // SAFETY: a terminated string that lives through the call; no times stand for now.
    checked(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) })?;
    Ok(())
}

/// Without opening it.
///
/// # Errors
/// As above.
pub fn truncate(path: &Path, len: i64) -> io::Result<()> {
    let path = c(path);
    // SAFETY: a terminated string that lives through the call.
    checked(unsafe { libc::truncate(path.as_ptr(), len) })?;
    Ok(())
}

/// A fifo.
///
/// # Errors
/// As above.
pub fn mkfifo(path: &Path, mode: u32) -> io::Result<()> {
    let path = c(path);
    // SAFETY: a terminated string that lives through the call.
    checked(unsafe { libc::mkfifo(path.as_ptr(), mode) })?;
    Ok(())
}

/// Bytes that a file system has free for everyone.
///
/// # Errors
/// As above.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c(path);
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a terminated string, and room for what the call writes.
    checked(unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded and so written all of it.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail * answer.f_frsize)
}

/// A file mapped for reading and writing.
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// The first `len` bytes of `file`, shared.
    ///
    /// # Errors
    /// As above.
    pub fn new(file: &std::fs::File, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice takes nobody's memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at: at.cast(), len }) }
    }

    /// A copy of bytes of it.
    ///
    /// # Panics
    /// Where they do not lie in it.
    #[must_use]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "inside the mapping");
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping, which is not ours to hold a reference into; the buffer is as long.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// # Panics
    /// Where the bytes do not lie in it.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len, "inside the mapping");
        // SAFETY: inside the mapping; nobody in this process holds a reference into it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at.add(offset), data.len()) };
    }

    /// msync: what was written through it is in the file.
    ///
    /// # Errors
    /// As above.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: this mapping's own range.
        checked(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) })?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping's own range, which nobody refers to.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// `pwritev2` with `RWF_DSYNC`: this write is on the disk when it returns.
///
/// # Errors
/// As above.
pub fn write_synced(file: &std::fs::File, data: &[u8], offset: i64) -> io::Result<usize> {
    let part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: the kernel only reads from `data`.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_DSYNC) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Sets those of the flags of `open` that can be changed while a file is open, and takes away the others of these.
///
/// # Errors
/// As above.
pub fn set_open_flags(file: &std::fs::File, flags: i32) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Changes the space of a range; `mode` as for `fallocate(2)`.
///
/// # Errors
/// As above.
pub fn fallocate(file: &std::fs::File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), len.cast_signed()) })?;
    Ok(())
}

/// The next data, or the next hole.
///
/// # Errors
/// As above; `ENXIO` where there is none.
pub fn seek(file: &std::fs::File, offset: u64, hole: bool) -> io::Result<u64> {
    let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
    // SAFETY: no memory is passed.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset.cast_signed(), whence) };
    checked(found).map(|found| found as u64)
}

/// How many bytes were copied from one file to the other.
///
/// # Errors
/// As above.
pub fn copy_range(from: (&std::fs::File, u64), to: (&std::fs::File, u64), len: usize) -> io::Result<usize> {
    let (mut source, mut target) = (from.1.cast_signed(), to.1.cast_signed());
    // SAFETY: pointers to two live numbers.
    checked(unsafe {
        let (from, to) = (from.0.as_raw_fd(), to.0.as_raw_fd());
        libc::copy_file_range(from, &raw mut source, to, &raw mut target, len, 0) as i64
    })
}

/// A file without a name in a directory, open for reading and writing.
///
/// # Errors
/// As above.
pub fn tmpfile(directory: &Path, mode: u32) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options().read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Gives an open file a name.
///
/// # Errors
/// As above.
pub fn name_open_file(file: &std::fs::File, to: &Path) -> io::Result<()> {
    let (from, to) = (c(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))), c(to));
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })?;
    Ok(())
}

/// When the file was made, in nanoseconds since 1970.
///
/// # Errors
/// As above; `ENODATA` where the file system does not say.
pub fn born(path: &Path) -> io::Result<i64> {
    let path = c(path);
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_BTIME);
    // SAFETY: a terminated string, and room for what the call writes.
    checked(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, stat.as_mut_ptr()) })?;
    // SAFETY: zeroed, and the call has succeeded.
    let stat = unsafe { stat.assume_init() };
    if stat.stx_mask & libc::STATX_BTIME == 0 {
        return Err(io::Error::from_raw_os_error(libc::ENODATA));
    }
    Ok(stat.stx_btime.tv_sec * 1_000_000_000 + i64::from(stat.stx_btime.tv_nsec))
}

/// The time of the last change, in seconds and nanoseconds: the file system is asked for it, whatever the kernel keeps.
///
/// # Errors
/// The kernel's.
pub fn mtime_asked_for(path: &Path) -> io::Result<(i64, i64)> {
    let path = c(path);
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW | libc::AT_STATX_FORCE_SYNC, libc::STATX_MTIME);
    // SAFETY: a terminated string, and room for what the call writes.
    checked(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, stat.as_mut_ptr()) })?;
    // SAFETY: zeroed, and the call has succeeded.
    let mtime = unsafe { stat.assume_init() }.stx_mtime;
    Ok((mtime.tv_sec, i64::from(mtime.tv_nsec)))
}

/// The mode, and nothing else that a file system might have to be asked for.
///
/// # Errors
/// The kernel's.
pub fn mode(path: &Path) -> io::Result<u32> {
    let path = c(path);
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_MODE);
    // SAFETY: a terminated string, and room for what the call writes.
    checked(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, stat.as_mut_ptr()) })?;
    // SAFETY: zeroed, and the call has succeeded.
    Ok(u32::from(unsafe { stat.assume_init() }.stx_mode))
}

/// A node of any kind; `mode` with the bits of the kind.
///
/// # Errors
/// As above.
pub fn mknod(path: &Path, mode: u32, device: u64) -> io::Result<()> {
    let path = c(path);
    // SAFETY: a terminated string that lives through the call.
    checked(unsafe { libc::mknod(path.as_ptr(), mode, device) })?;
    Ok(())
}

/// Runs `work` in a thread that is this user, with these groups, and no capabilities. Only root can.
///
/// # Panics
/// Where this process may not become another user, or `work` panics.
pub fn as_user<R: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> R + Send) -> R {
    let become_user = || {
        // SAFETY: raw calls change this thread alone; the pointer and the count are those of a live slice.
        unsafe {
            checked(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
            checked(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
            checked(libc::syscall(libc::SYS_setresuid, uid, uid, uid))
        }
    };
    in_thread(become_user, work)
}

/// Runs `work` in a thread without this capability, a number of `<linux/capability.h>` below 32.
///
/// # Panics
/// Where `work` panics.
pub fn without_capability<R: Send>(capability: u32, work: impl FnOnce() -> R + Send) -> R {
    let give_up = || {
        // The third version: effective, permitted and inheritable ones, of numbers below 32 and above.
        let header = [0x2008_0522_u32, 0];
        let mut sets = [0_u32; 6];
        // SAFETY: raw calls about this thread alone, with room for what they read and write.
        unsafe {
            checked(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()))?;
            sets[..2].iter_mut().for_each(|set| *set &= !(1 << capability));
            checked(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()))
        }
    };
    in_thread(give_up, work)
}

fn in_thread<R: Send, T>(become_another: impl FnOnce() -> io::Result<T> + Send, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_another().expect("root may become another user");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// An open directory that can be listed again and again.
pub struct Directory(NonNull<libc::DIR>);

impl Directory {
    /// # Errors
    /// As above.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = c(path);
        // SAFETY: a terminated string that lives through the call.
        NonNull::new(unsafe { libc::opendir(path.as_ptr()) }).map(Self).ok_or_else(io::Error::last_os_error)
    }

    /// From the beginning.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        // SAFETY: the stream is open until it is dropped. An entry is good until the next call.
        unsafe {
            libc::rewinddir(self.0.as_ptr());
            while let Some(entry) = libc::readdir(self.0.as_ptr()).as_ref() {
                names.push(CStr::from_ptr(entry.d_name.as_ptr()).to_string_lossy().into_owned());
            }
        }
        names.retain(|name| name != "." && name != "..");
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nobody uses it any more.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}
