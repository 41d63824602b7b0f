//! Commands to the driver of a device (`IORING_OP_URING_CMD`), such as FUSE's.

use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};

use crate::driver::Via;
use crate::executor::with_core;
use crate::op::Op;

/// Bytes that a command carries within its entry.
const DATA_LEN: usize = 80;
/// Where an entry says how long what its `addr` points to is (`io_uring_sqe.len`).
const LEN_AT: usize = 24;
const _: () = assert!(size_of::<Entry128>() == 128);

/// A command in flight: with the next turn's end, or [`flush`], the kernel has it. `T` owns the memory that the driver may
/// touch until it is done, at addresses that do not change when `T` moves.
///
/// Dropped before it is ready, it stays with the kernel until its device ends it: commands cannot be taken back.
#[must_use = "dropped, it goes on and nobody learns of its end"]
pub struct Command<T: 'static>(Op<T>);

impl<T: 'static> Command<T> {
    /// Command number `number` to the driver of `fd`. `vectors` is the address of an array of `iovec`s and their number, if
    /// the command takes one; the kernel reads it when it takes the command.
    ///
    /// # Panics
    /// Where `data` is longer than 80 bytes, and outside [`crate::Ring::run`], as every operation.
    pub fn new(fd: RawFd, number: u32, data: &[u8], vectors: Option<(u64, u32)>, resources: T) -> Self {
        let mut cmd = [0; DATA_LEN];
        cmd[..data.len()].copy_from_slice(data);
        let command = opcode::UringCmd80::new(types::Fd(fd), number).cmd(cmd);
        let entry = match vectors {
            None => command.build(),
            Some((address, count)) => with_length(command.addr(Some(address)).build(), count),
        };
        let key = with_core(|core| core.driver.borrow_mut().submit_command(entry));
        Self(Op::submitted(Via::Command, key, resources))
    }
}

/// The crate's builder has no word for this field.
fn with_length(mut entry: Entry128, count: u32) -> Entry128 {
    // SAFETY: the entry is the kernel's 128 bytes (asserted above, `repr(C)`), of which these four are a number.
    unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write_unaligned(count) };
    entry
}

impl<T: Unpin + 'static> Future for Command<T> {
    type Output = (io::Result<usize>, T);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Hands everything that was begun on sockets, devices and timers to the kernel now, rather than at the end of the turn.
///
/// # Errors
/// The kernel's, where it refuses the ring itself.
pub fn flush() -> io::Result<()> {
    with_core(|core| core.driver.borrow_mut().flush())
}
