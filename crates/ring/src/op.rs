//! Operations: each takes its buffers by value and gives them back.

use std::any::Any;
use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue, types};

use crate::buf::{Buf, Slice};
use crate::driver::{FileRing, GivesDescriptor, Via};
use crate::executor::{try_with_core, with_core};

mod command;
mod socket;

pub use crate::unblock::unblock;
pub use command::{Command, flush};
pub use socket::{
    TcpSigns, connect, connect_from, connect_local, listen, own_user, peer_user, recv, recv_exact, send_all, shutdown,
    tcp_signs,
};

/// An operation in flight. `T` owns everything that the kernel may read or write, at addresses that do not change when
/// `T` moves.
pub(crate) struct Op<T: 'static> {
    state: OpState,
    via: Via,
    resources: Option<T>,
}

enum OpState {
    InFlight(usize),
    /// The ring had no room for it.
    Failed(io::Error),
    Finished,
}

impl<T: 'static> Op<T> {
    pub(crate) fn new(via: Via, entry: squeue::Entry, resources: T) -> Self {
        Self::submitted(via, with_core(|core| core.driver.borrow_mut().submit(via, entry)), resources)
    }

    fn submitted(via: Via, key: io::Result<usize>, resources: T) -> Self {
        let state = match key {
            Ok(key) => OpState::InFlight(key),
            Err(error) => OpState::Failed(error),
        };
        Self { state, via, resources: Some(resources) }
    }
}

impl<T: Unpin + 'static> Future for Op<T> {
    type Output = (io::Result<usize>, T);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match std::mem::replace(&mut self.state, OpState::Finished) {
            OpState::InFlight(key) => match with_core(|core| core.driver.borrow_mut().poll(key, cx.waker())) {
                Poll::Ready(result) => from_result(result),
                Poll::Pending => {
                    self.state = OpState::InFlight(key);
                    return Poll::Pending;
                }
            },
            OpState::Failed(error) => Err(error),
            OpState::Finished => unreachable!("polled after it was ready"),
        };
        let resources = self.resources.take().expect("an operation is ready once");
        Poll::Ready((result, resources))
    }
}

impl<T: 'static> Drop for Op<T> {
    fn drop(&mut self) {
        let OpState::InFlight(key) = self.state else { return };
        let mut resources: Option<Box<dyn Any>> = self.resources.take().map(|resources| Box::new(resources) as _);
        let via = self.via;
        try_with_core(|core| {
            if let Some(resources) = resources.take() {
                core.driver.borrow_mut().abandon(key, resources, via);
            }
        });
        // Outside any ring nobody learns when the kernel is done: better leaked than freed under its hands.
        std::mem::forget(resources);
    }
}

fn from_result(result: i32) -> io::Result<usize> {
    if result >= 0 { Ok(result as usize) } else { Err(io::Error::from_raw_os_error(-result)) }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("buffers stay below 4 GiB")
}

/// Reads at `offset` into the whole of `buf`; fewer bytes only at the end of the file.
pub async fn read_at(fd: RawFd, mut buf: Buf, offset: u64) -> (io::Result<usize>, Buf) {
    let entry = opcode::Read::new(types::Fd(fd), buf.as_raw(), length(&buf)).offset(offset).build();
    let (first, mut buf) = Op::new(Via::File(FileRing::Read), entry, buf).await;
    let mut done = match first {
        Ok(0) | Err(_) => return (first, buf),
        Ok(count) => count,
    };
    // A short read is the end of the file, or a page that was not there yet: ask on until it says 0.
    while done < buf.len() {
        let rest = buf.split_off(done);
        let (count, rest) = read_once(fd, rest, offset + done as u64).await;
        buf.unsplit(rest).expect("the two halves of one buffer");
        match count {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => return (Err(error), buf),
        }
    }
    (Ok(done), buf)
}

/// Reads at `offset` into `buf` once: fewer bytes also where more are there.
pub async fn read_once(fd: RawFd, mut buf: Buf, offset: u64) -> (io::Result<usize>, Buf) {
    let entry = opcode::Read::new(types::Fd(fd), buf.as_raw(), length(&buf)).offset(offset).build();
    Op::new(Via::File(FileRing::Read), entry, buf).await
}

/// Writes all of `data` at `offset`.
///
/// # Errors
/// The kernel's, after which a part may have been written; `WriteZero` where it accepts no more.
pub async fn write_at(fd: RawFd, data: Slice, offset: u64) -> io::Result<usize> {
    write_with(fd, data, offset, 0).await
}

/// Writes all of `data` at `offset`, and it is on the disk then, as after an `fdatasync`; what was written to the file
/// before need not be.
///
/// # Errors
/// Those of [`write_at`] and [`fsync`].
pub async fn write_durably_at(fd: RawFd, data: Slice, offset: u64) -> io::Result<usize> {
    write_with(fd, data, offset, libc::RWF_DSYNC).await
}

async fn write_with(fd: RawFd, data: Slice, offset: u64, flags: i32) -> io::Result<usize> {
    let mut done = 0;
    while done < data.len() {
        let rest = data.slice(done..data.len());
        let entry = opcode::Write::new(types::Fd(fd), rest.as_ptr(), length(&rest))
            .offset(offset + done as u64)
            .rw_flags(flags)
            .build();
        match Op::new(Via::File(FileRing::Write), entry, rest).await.0? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(done)
}

/// Makes the file durable; with `datasync` only what is needed to read its data back.
///
/// # Errors
/// The kernel's: data written earlier may be lost.
pub async fn fsync(fd: RawFd, datasync: bool) -> io::Result<()> {
    let flags = if datasync { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
    let entry = opcode::Fsync::new(types::Fd(fd)).flags(flags).build();
    Op::new(Via::File(FileRing::Write), entry, ()).await.0.map(drop)
}

/// Starts writing back the dirty pages of the range; does not wait for them, and promises nothing.
///
/// # Errors
/// The kernel's.
pub async fn sync_range(fd: RawFd, offset: u64, len: u32) -> io::Result<()> {
    let entry =
        opcode::SyncFileRange::new(types::Fd(fd), len).offset(offset).flags(libc::SYNC_FILE_RANGE_WRITE).build();
    Op::new(Via::File(FileRing::Write), entry, ()).await.0.map(drop)
}

/// Tells the kernel how the range will be used (`POSIX_FADV_*`).
///
/// # Errors
/// The kernel's.
pub async fn fadvise(fd: RawFd, offset: u64, len: u32, advice: i32) -> io::Result<()> {
    let entry = opcode::Fadvise::new(types::Fd(fd), i64::from(len), advice).offset(offset).build();
    Op::new(Via::File(FileRing::Read), entry, ()).await.0.map(drop)
}

/// As [`poll_readable`], only that of all who wait so for the same event (on other rings, too) one is woken.
///
/// # Errors
/// The kernel's.
pub async fn poll_exclusive(fd: RawFd) -> io::Result<()> {
    let events = libc::POLLIN as u32 | libc::EPOLLEXCLUSIVE as u32;
    let entry = opcode::PollAdd::new(types::Fd(fd), events).build();
    Op::new(Via::Main, entry, ()).await.0.map(drop)
}

/// Writes one message of a device in parts, at once.
///
/// # Errors
/// The kernel's.
pub fn write_device(fd: RawFd, parts: &[&[u8]]) -> io::Result<usize> {
    const PARTS_MAX: usize = 64;
    assert!(parts.len() <= PARTS_MAX, "at most {PARTS_MAX} parts in one message");
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    // SAFETY: the vectors point to live slices, and the kernel only reads them.
    let count = unsafe { libc::writev(fd, vectors.as_ptr(), parts.len() as i32) };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
}

/// The next connection of a listening socket. One that comes while this is dropped is closed.
///
/// # Errors
/// The kernel's, such as `EMFILE`.
pub async fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    let entry = opcode::Accept::new(types::Fd(fd), std::ptr::null_mut(), std::ptr::null_mut())
        .flags(libc::SOCK_CLOEXEC)
        .build();
    let fd = Op::new(Via::Main, entry, GivesDescriptor).await.0?;
    // SAFETY: a fresh descriptor from the kernel, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    match socket::set_no_delay(&socket) {
        // A UNIX socket delays nothing.
        Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
        _ => Ok(socket),
    }
}
