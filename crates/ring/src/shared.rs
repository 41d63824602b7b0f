//! Memory that two processes of one host have in common: what one puts there the other finds, without a copy by way
//! of a socket.
//!
//! One process makes a [`Memory`], an anonymous file that can never shrink, and tells the other where to find it; the
//! other opens it. Each thread that asked for it ([`lend`]) has an arena in that memory, from which
//! [`Buf::shareable`](crate::buf::Buf::shareable) comes. All of a process's arenas are in one memory, so that a thread can
//! name the place of what another gave it.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::memory;

mod arena;
#[cfg(test)]
pub(crate) use arena::tests::on_a_thread_that_lends;

pub(crate) use arena::{Loan, take};
pub use arena::{abandon, lend, lent, lent_id};

/// Bytes at the beginning of a memory by which the other process knows that it found the right one.
pub const MARK_LEN: usize = 16;
/// Longest memory that is opened for another process, in bytes: address space alone, until it is used.
const FOREIGN_MAX: u64 = arena::LEN as u64;
const NAME: &CStr = c"weft-payloads";
/// How the kernel shows a descriptor of such a memory.
const LINK: &[u8] = b"/memfd:weft-payloads";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// Other processes' memories that are mapped here.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// A mapped part of memory that another process may have mapped too. Its bytes may change at any time.
pub struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    id: u64,
}

// SAFETY: the mapping is the same for all threads, and is there until the last reference to this is gone. Its bytes are given
// out as ranges that do not overlap (`Arena`), or are another process's, which may change them at any time anyway.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`; nothing but the mapping's address changes hands.
unsafe impl Sync for Memory {}

/// A memory that is mapped here for as long as somebody uses it.
struct Opened {
    /// The device and number of its file.
    file: (u64, u64),
    memory: Weak<Memory>,
}

/// Where bytes lie in a [`Memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// [`Memory::id`].
    pub memory: u64,
    /// Bytes from the memory's beginning.
    pub offset: u64,
}

impl Memory {
    /// `len` bytes of zeros that take up nothing until they are used.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn create(len: usize) -> io::Result<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a live local. Past the limit the kernel would kill the process, not refuse.
        if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0 && limit.rlim_cur < len as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = anonymous_file(libc::MFD_ALLOW_SEALING)?;
        file.set_len(len as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file.into(), len)
    }

    /// What another process of this host made: its process id, its descriptor there, and the length. Mapped once, however
    /// often it is opened. Refused where it could be made shorter later, for whoever touches what is missing gets SIGBUS.
    ///
    /// # Errors
    /// Where there is no such process or descriptor, it may not be looked at, or it is something else.
    pub fn open(process: u32, descriptor: u32, len: u64) -> io::Result<Arc<Self>> {
        let refuse = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if len == 0 || len > FOREIGN_MAX {
            return refuse("a shared memory of this length");
        }
        let path = format!("/proc/{process}/fd/{descriptor}");
        // Both before it is opened: that may do something to a device, and of a file on a mount it waits for who serves that,
        // who may wait for us. The name alone says little: in a mount namespace of its own anything can be at the root.
        if !std::fs::read_link(&path)?.as_os_str().as_bytes().starts_with(LINK) {
            return refuse("no memory of this program");
        }
        let named = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        if !is_memory(named.as_raw_fd())? {
            return refuse("no memory at all");
        }
        let path = format!("/proc/self/fd/{}", named.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        // SAFETY: no memory is passed.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return refuse("not a memory that keeps its length");
        }
        let metadata = file.metadata()?;
        if metadata.len() != len {
            return refuse("a memory of another length");
        }
        let key = (metadata.dev(), metadata.ino());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        // Who is still there keeps its file, and so the file's number.
        opened.retain(|opened| opened.memory.strong_count() > 0);
        if let Some(memory) = opened.iter().find(|opened| opened.file == key).and_then(|opened| opened.memory.upgrade())
        {
            return Ok(memory);
        }
        let memory = Arc::new(Self::map(file.into(), len as usize)?);
        opened.push(Opened { file: key, memory: Arc::downgrade(&memory) });
        Ok(memory)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        memory::advise_large_pages(base, len);
        memory::leave_out_of_dumps(base, len);
        Ok(Self { fd, base, len, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    /// Unique in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn mark(&self) -> [u8; MARK_LEN] {
        let mut mark = [0; MARK_LEN];
        let len = MARK_LEN.min(self.len);
        // SAFETY: the mapping has `len` bytes, and the destination is a local.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), mark.as_mut_ptr(), len) };
        mark
    }

    fn set_mark(&self, mark: [u8; MARK_LEN]) {
        // SAFETY: the memory was just made, and has room for it; nobody else knows of it yet.
        unsafe { std::ptr::copy_nonoverlapping(mark.as_ptr(), self.base.as_ptr(), MARK_LEN) };
    }

    /// Gives the pages of a range back to the kernel; its bytes are zeros then.
    fn clear(&self, offset: usize, len: usize) {
        let at = self.at(offset).as_ptr().cast();
        // SAFETY: the range is within the mapping and the caller's own. Without effect it is only held for longer.
        unsafe { libc::madvise(at, len, libc::MADV_REMOVE) };
    }

    /// The address of `offset`, which lies within.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "within the memory");
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.add(offset) }
    }
}

fn anonymous_file(flags: u32) -> io::Result<File> {
    // SAFETY: the name is a live C string; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Whether it is an anonymous file as [`Memory::create`] makes them: those are in one file system, which is the kernel's own,
/// and in which is nothing else that has a name. One of huge pages is in another: of such a one pages can go missing.
fn is_memory(fd: RawFd) -> io::Result<bool> {
    static DEVICE: OnceLock<(u32, u32)> = OnceLock::new();
    let device = match DEVICE.get() {
        Some(device) => *device,
        None => {
            let (_, device) = kind_and_device(anonymous_file(0)?.as_raw_fd())?;
            *DEVICE.get_or_init(|| device)
        }
    };
    Ok(kind_and_device(fd)? == (libc::S_IFREG, device))
}

/// As the kernel knows it, without a question to whoever serves the file.
fn kind_and_device(fd: RawFd) -> io::Result<(u32, (u32, u32))> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an all-zero statx is valid; the path is a live empty string, and the pointer is to a live structure.
    let (result, stat) = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        (libc::statx(fd, c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut stat), stat)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((u32::from(stat.stx_mode) & libc::S_IFMT, (stat.stx_dev_major, stat.stx_dev_minor)))
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; whoever uses it holds a reference to this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Buf;

    #[test]
    fn two_mappings_show_the_same_bytes() {
        on_a_thread_that_lends(|| {
            let mut here = Buf::shareable(100_000);
            let place = here.place().expect("it lies in shared memory");
            let memory = lent().expect("the arena's");
            assert_eq!(place.memory, memory.id());
            let there = Memory::open(std::process::id(), memory.descriptor() as u32, memory.length() as u64);
            let there = there.expect("it is our own");
            assert_eq!(there.mark(), memory.mark());
            let again = Memory::open(std::process::id(), memory.descriptor() as u32, memory.length() as u64);
            assert!(Arc::ptr_eq(&again.expect("as before"), &there), "mapped once");
            let mut same = Buf::in_memory(&there, place.offset, 100_000).expect("within");
            here.fill(7);
            assert!(same.iter().all(|&byte| byte == 7));
            same[99_999] = 8;
            assert_eq!(here[99_999], 8);
            let part = here.freeze().slice(10..20);
            assert_eq!(part.place(), Some(Place { memory: memory.id(), offset: place.offset + 10 }));
            let length = memory.length() as u64;
            for (offset, len) in [(u64::MAX, 1), (0, 32 << 30), (length, 1), (length - 4096, 8192)] {
                assert!(Buf::in_memory(&there, offset, len).is_none(), "{offset} {len}");
            }
        });
    }

    #[test]
    fn what_is_no_such_memory_is_refused() {
        on_a_thread_that_lends(|| {
            let _taken = Buf::shareable(1);
            let memory = lent().expect("the arena's");
            let (process, descriptor) = (std::process::id(), memory.descriptor() as u32);
            let len = memory.length() as u64;
            assert!(Memory::open(process, descriptor, len - 1).is_err());
            assert!(Memory::open(process, descriptor, u64::MAX).is_err());
            assert!(Memory::open(process, 0x7fff_ffff, len).is_err());
            // One that could shrink.
            let plain = tempfile::tempfile().expect("a file");
            plain.set_len(len).expect("its length, with holes");
            assert!(Memory::open(process, plain.as_raw_fd() as u32, len).is_err());
        });
    }

    #[test]
    fn what_is_no_memory_is_told_before_it_is_opened() {
        let ours = anonymous_file(libc::MFD_ALLOW_SEALING).expect("memory");
        let shown = |fd: RawFd| {
            let path = format!("/proc/self/fd/{fd}");
            OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).expect("shown")
        };
        assert!(is_memory(shown(ours.as_raw_fd()).as_raw_fd()).expect("looked at"));
        let plain = tempfile::tempfile().expect("a file");
        // In memory as well, and on a file system that somebody has mounted.
        let mounted = tempfile::tempfile_in("/dev/shm").ok();
        let device = File::open("/dev/null").ok();
        // They cannot be made everywhere.
        let huge = anonymous_file(libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB).ok();
        for other in [Some(plain), mounted, device, huge].into_iter().flatten() {
            assert!(!is_memory(shown(other.as_raw_fd()).as_raw_fd()).expect("looked at"), "{other:?}");
        }
    }
}
