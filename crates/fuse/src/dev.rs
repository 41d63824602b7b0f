//! The kernel's channel `/dev/fuse`.
//!
//! Each loop has its own descriptor of the mount. One worker of the loop holds the baton and reads; as soon as its
//! request has to wait for something, it passes the baton on and another worker reads. Requests that are answered at
//! once are so served one after the other by one worker, without a wake-up, a task or an allocation in between.
//!
//! Waiting is an exclusive poll: a new request wakes one loop, not all of them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::task::Poll;

use ring::buf::Buf;
use ring::op;
use ring::sync::Notify;

use crate::abi::{self, InHeader, OutHeader, WriteIn, bytes_of};
use crate::baton::{Baton, Passed};
use crate::transport::{Closed, Message, Transport};

const PAGE: usize = 4096;
/// Messages are read to here in their buffer, so that the data of a write lies at the beginning of a page.
const MESSAGE_START: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();
/// Room for the arguments of requests other than writes, beyond `max_write`.
const ARGUMENTS_MAX: usize = PAGE;
/// Requests that one worker serves in a row before the loop looks for completions and timers.
const BURST_MAX: u32 = 32;

pub(crate) struct Device {
    fd: OwnedFd,
    baton: Baton,
    buffer: RefCell<Option<Buf>>,
    buffer_len: usize,
    /// Entries so far, and how many there may be: each has at most one request in flight.
    entries: Cell<usize>,
    entries_max: usize,
    burst: Cell<u32>,
    closing: Notify,
}

pub(crate) struct Entry {
    /// This entry holds the baton.
    reads: bool,
}

impl Device {
    /// Serves the connection of `fd`, which is made non-blocking.
    ///
    /// # Errors
    /// Where the descriptor refuses.
    pub(crate) fn new(fd: OwnedFd, max_write: u32, entries_max: usize) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        let buffer_len = (MESSAGE_START + abi::READ_BUFFER_MIN).max(PAGE + max_write as usize + ARGUMENTS_MAX);
        Ok(Self {
            fd,
            baton: Baton::default(),
            buffer: RefCell::default(),
            buffer_len,
            entries: Cell::new(0),
            entries_max: entries_max.max(1),
            burst: Cell::new(0),
            closing: Notify::new(),
        })
    }

    fn take_buffer(&self) -> Buf {
        self.buffer.borrow_mut().take().unwrap_or_else(|| {
            let mut region = Buf::with_capacity(self.buffer_len);
            region.split_off(MESSAGE_START)
        })
    }

    /// Waits until there may be something to read.
    async fn wait(&self) {
        let mut readable = pin!(op::poll_exclusive(self.fd.as_raw_fd()));
        let mut closing = pin!(self.closing.notified());
        std::future::poll_fn(|cx| {
            if closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // An error of the poll shows again in the read that follows.
            readable.as_mut().poll(cx).map(drop)
        })
        .await;
    }
}

impl Transport for Device {
    type Entry = Entry;

    fn first_entries(&self) -> Vec<Entry> {
        self.entries.set(1);
        vec![Entry { reads: true }]
    }

    async fn receive(&self, entry: &mut Entry) -> Result<Message, Closed> {
        if !entry.reads {
            if !self.baton.take().await {
                return Err(Closed);
            }
            entry.reads = true;
        }
        self.burst.set(self.burst.get() + 1);
        if self.burst.get() >= BURST_MAX {
            self.burst.set(0);
            ring::turn_end().await;
        }
        let mut buf = self.take_buffer();
        loop {
            if self.baton.is_closed() {
                return Err(Closed);
            }
            match read(&self.fd, &mut buf) {
                Ok(len) => return Ok(Message::new(buf, len)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        self.burst.set(0);
                        self.wait().await;
                    }
                    // The request was given up while it was being read; or a signal came.
                    Some(libc::ENOENT | libc::EINTR) => {}
                    Some(libc::ENODEV | libc::ECONNABORTED) => self.close(),
                    _ => {
                        tracing::error!(%error, "cannot read requests from the kernel: the mount ends");
                        self.close();
                    }
                },
            }
        }
    }

    fn recycle(&self, message: Message) {
        *self.buffer.borrow_mut() = Some(message.into_buf());
    }

    fn park(&self, entry: &mut Entry) -> Option<Entry> {
        if !std::mem::take(&mut entry.reads) || self.baton.pass() == Passed::ToWaiter {
            return None;
        }
        if self.entries.get() < self.entries_max {
            self.entries.set(self.entries.get() + 1);
            return Some(Entry { reads: true });
        }
        self.baton.put_down();
        None
    }

    fn reply(&self, _entry: &mut Entry, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: u32::try_from(len).map_err(io::Error::other)?, error, unique };
        let fd = self.fd.as_raw_fd();
        match *parts {
            [] => op::write_device(fd, &[bytes_of(&header)]),
            [one] => op::write_device(fd, &[bytes_of(&header), one]),
            [one, two] => op::write_device(fd, &[bytes_of(&header), one, two]),
            _ => {
                let mut all = Vec::with_capacity(parts.len() + 1);
                all.push(bytes_of(&header));
                all.extend_from_slice(parts);
                op::write_device(fd, &all)
            }
        }
        .map(drop)
    }

    fn close(&self) {
        self.baton.close();
        self.closing.notify_one();
    }
}

fn read(fd: &OwnedFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most `buf.len()` bytes into a live, exclusive slice.
    let count = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain system calls on a descriptor that we own.
    let result = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
