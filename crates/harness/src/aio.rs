//! Writes that nobody waits for, by the kernel's `io_submit`, which the standard library has no function for.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::syscall::checked;

/// `IOCB_CMD_PWRITE` of `<linux/aio_abi.h>`.
const PWRITE: u16 = 1;

/// `struct iocb` of `<linux/aio_abi.h>`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// Bytes in a page of their own, as `O_DIRECT` wants them.
#[repr(C, align(4096))]
pub struct Pages(pub [u8; 64 << 10]);

/// One write at a time.
pub struct Aio {
    context: u64,
}

impl Aio {
    /// # Errors
    /// The kernel's, as for all functions here.
    pub fn new() -> io::Result<Self> {
        let mut context = 0u64;
        // SAFETY: a number to be written to, which is 0 as it has to be.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) })?;
        Ok(Self { context })
    }

    /// Begins to write, does `meanwhile`, waits for the write, and says how many bytes it has written.
    ///
    /// # Errors
    /// As above, and of the write.
    pub fn write_beside(&self, file: &File, pages: &Pages, offset: u64, meanwhile: impl FnOnce()) -> io::Result<usize> {
        self.run(file, address_of(&pages.0), offset, meanwhile)
    }

    /// Appends to a file that was opened for that.
    ///
    /// # Errors
    /// As above, and of the write.
    pub fn append(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.run(file, address_of(bytes), 0, || {})
    }

    /// Writes from memory that is not there.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write_from_nowhere(&self, file: &File, offset: u64) -> io::Result<usize> {
        self.run(file, (4096, 4096), offset, || {})
    }

    fn run(&self, file: &File, (buffer, len): (u64, u64), offset: u64, meanwhile: impl FnOnce()) -> io::Result<usize> {
        let mut request = Request {
            opcode: PWRITE,
            fd: u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?,
            buffer,
            len,
            offset: i64::try_from(offset).map_err(io::Error::other)?,
            ..Request::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: one request of an open file; its bytes live until it is waited for below, or are nowhere: the kernel says so.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) })?;
        meanwhile();
        let mut event = Event::default();
        let no_timeout = std::ptr::null::<libc::timespec>();
        // SAFETY: there is room for the one event that is waited for.
        checked(unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, &raw mut event, no_timeout) })?;
        usize::try_from(event.result).map_err(|_| io::Error::from_raw_os_error(-(event.result as i32)))
    }
}

fn address_of(bytes: &[u8]) -> (u64, u64) {
    (NonNull::from(bytes).addr().get() as u64, bytes.len() as u64)
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: nobody else has it, and nothing is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
