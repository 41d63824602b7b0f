//! The seam between the loops and the kernel's channel.
//!
//! A loop serves requests with *entries*: each receives a request, has it answered, and receives the next. `/dev/fuse`
//! makes entries as they are needed, which take turns at reading the device ([`crate::dev`]). FUSE over io_uring has a
//! set of them ([`crate::uring`]): its entry is the kernel's own, with its payload buffer, and `reply` followed by `receive`
//! is one commit-and-fetch.

use std::io;

use ring::buf::{Buf, Slice};

use crate::abi::InHeader;

/// The connection to the kernel is gone: the file system was unmounted, or the connection aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Closed;

/// One request as it came.
#[derive(Debug)]
pub(crate) struct Message {
    buf: Buf,
    len: usize,
}

impl Message {
    /// The first `len` bytes of `buf` are the message.
    pub(crate) fn new(buf: Buf, len: usize) -> Self {
        assert!(len <= buf.len(), "a message lies within its buffer");
        Self { buf, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// The bytes after the header.
    pub(crate) fn arguments(&self) -> &[u8] {
        self.bytes().get(size_of::<InHeader>()..).unwrap_or_default()
    }

    /// The last `len` bytes, without a copy.
    pub(crate) fn into_tail(mut self, len: usize) -> Slice {
        self.buf.truncate(self.len);
        let all = self.buf.freeze();
        let end = all.len();
        all.slice(end - len.min(end)..end)
    }

    pub(crate) fn into_buf(self) -> Buf {
        self.buf
    }
}

/// Waits for locks in one loop, beside the requests that may be in flight.
pub(crate) const LONG_MAX: usize = 2048;

pub(crate) trait Transport: 'static {
    type Entry: 'static;

    /// The entries to begin with.
    fn first_entries(&self) -> Vec<Self::Entry>;

    /// The next request of this entry.
    async fn receive(&self, entry: &mut Self::Entry) -> Result<Message, Closed>;

    /// The message is decoded and its buffer free again.
    fn recycle(&self, message: Message);

    /// The entry's request has to wait for something. The answer is another entry, if one should start now to receive
    /// in the meantime.
    fn park(&self, entry: &mut Self::Entry) -> Option<Self::Entry>;

    /// A request begins that may wait for another application, however long: it must not count against the requests that
    /// may be in flight, or enough of them would keep out the one that they wait for. False where there are too many
    /// of the kind.
    fn begin_long(&self, entry: &Self::Entry) -> bool;

    fn end_long(&self, entry: &Self::Entry);

    /// Answers the entry's request: `error` is 0 or a negative error number, in which case there are no parts. The kernel
    /// has the answer at the end of the turn at the latest.
    fn reply(&self, entry: &mut Self::Entry, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()>;

    /// Sees to it that the kernel has all answers that were given so far.
    fn deliver(&self);

    /// Other loops have more to do than they can do: receive, if this one slept.
    fn come(&self);

    /// Returns when a worker has begun with each request that the kernel had handed to this loop before.
    async fn catch_up(&self);

    /// Makes every `receive` end with [`Closed`].
    fn close(&self);
}
