//! The kernel's channel `/dev/fuse`.
//!
//! Each loop has its own descriptor of the mount. One worker of the loop holds the baton and reads; as soon as its
//! request has to wait for something, it passes the baton on and another worker reads. Requests that are answered at
//! once are so served one after the other by one worker, without a wake-up, a task or an allocation in between.
//!
//! Of all loops only the scout waits for the kernel (see [`crate::team`]). Its poll is exclusive, so that loops which
//! share the role for a moment are not woken by the same request.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ring::op;
use ring::sync::Notify;

use crate::abi::{InHeader, Opcode, OutHeader, bytes_of, read_front};
use crate::baton::{Baton, Passed};
use crate::spare::Spare;
use crate::team::Team;
use crate::transport::{Closed, LONG_MAX, Message, Transport};

/// Requests that one worker serves in a row before the loop looks for completions and timers.
const BURST_MAX: u32 = 32;
/// Replies up to this many bytes, among them all about metadata but listings, are copied into one piece.
const SMALL_REPLY: usize = 256;
/// After so long without finding the queue empty a loop calls another one. Shorter than a wake-up is worth nothing.
const CALL_AFTER: Duration = Duration::from_micros(100);

pub(crate) struct Device {
    fd: Arc<OwnedFd>,
    baton: Baton,
    spare: Spare,
    /// Entries so far, and how many there may be: each has at most one request in flight.
    entries: Cell<usize>,
    entries_max: Cell<usize>,
    /// Requests that may wait for long.
    long: Cell<usize>,
    burst: Cell<u32>,
    index: usize,
    team: Arc<Team>,
    is_scout: Cell<bool>,
    /// Since when requests were found without a gap; `None` when the last look found nothing.
    busy_since: Cell<Option<Instant>>,
    /// Called by another loop, or closed.
    called: Notify,
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
    pub(crate) fn new(
        fd: Arc<OwnedFd>,
        max_write: u32,
        entries_max: usize,
        index: usize,
        team: Arc<Team>,
    ) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self {
            fd,
            baton: Baton::default(),
            spare: Spare::new(max_write),
            entries: Cell::new(0),
            entries_max: Cell::new(entries_max.max(1)),
            long: Cell::new(0),
            burst: Cell::new(0),
            index,
            team,
            is_scout: Cell::new(false),
            busy_since: Cell::new(None),
            called: Notify::new(),
        })
    }

    /// Waits until there may be something to read.
    async fn wait(&self) {
        self.burst.set(0);
        self.busy_since.set(None);
        if !self.is_scout.get() {
            self.is_scout.set(self.team.become_scout());
        }
        if !self.is_scout.get() {
            if self.team.fall_asleep(self.index) {
                return self.called.notified().await;
            }
            self.is_scout.set(true);
        }
        let mut readable = pin!(op::poll_exclusive(self.fd.as_raw_fd()));
        let mut called = pin!(self.called.notified());
        std::future::poll_fn(|cx| {
            if called.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // An error of the poll shows again in the read that follows.
            readable.as_mut().poll(cx).map(drop)
        })
        .await;
    }

    /// A request was there without waiting: if that has gone on for long, another loop might help.
    fn call_if_busy(&self) {
        let now = Instant::now();
        match self.busy_since.get() {
            None => self.busy_since.set(Some(now)),
            Some(since) if now - since >= CALL_AFTER => {
                self.busy_since.set(Some(now));
                self.team.call();
            }
            Some(_) => {}
        }
    }

    /// The connection is gone, for this loop and all others.
    fn end(&self) {
        self.close();
        self.team.dismiss();
    }

    /// This loop reads no more for now.
    fn resign(&self) {
        if self.is_scout.replace(false) {
            self.team.resign();
        } else {
            // The scout that was may have called this one, and have counted on it.
            self.team.pass_on();
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.resign();
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
        self.team.has_begun(self.index);
        self.burst.set(self.burst.get() + 1);
        if self.burst.get() >= BURST_MAX {
            self.burst.set(0);
            ring::turn_end().await;
        }
        let mut buf = self.spare.take();
        loop {
            if self.baton.is_closed() {
                return Err(Closed);
            }
            self.team.takes(self.index);
            let taken = read(&self.fd, &mut buf);
            if taken.is_err() || !is_write(&buf) {
                self.team.has_begun(self.index);
            }
            match taken {
                Ok(len) => {
                    self.call_if_busy();
                    return Ok(Message::new(buf, len));
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => self.wait().await,
                    // The request was given up while it was being read; or a signal came.
                    Some(libc::ENOENT | libc::EINTR) => {}
                    Some(libc::ENODEV | libc::ECONNABORTED) => self.end(),
                    _ => {
                        tracing::error!(%error, "cannot read requests from the kernel: the mount ends");
                        self.end();
                    }
                },
            }
        }
    }

    fn recycle(&self, message: Message) {
        self.spare.put_back(message);
    }

    fn park(&self, entry: &mut Entry) -> Option<Entry> {
        self.team.has_begun(self.index);
        if !std::mem::take(&mut entry.reads) || self.baton.pass() == Passed::ToWaiter {
            return None;
        }
        if self.entries.get() < self.entries_max.get() {
            self.entries.set(self.entries.get() + 1);
            return Some(Entry { reads: true });
        }
        self.baton.put_down();
        self.resign();
        None
    }

    fn begin_long(&self, _entry: &Entry) -> bool {
        let fits = self.long.get() < LONG_MAX;
        if fits {
            self.long.set(self.long.get() + 1);
            self.entries_max.set(self.entries_max.get() + 1);
        }
        fits
    }

    fn end_long(&self, _entry: &Entry) {
        self.long.set(self.long.get() - 1);
        self.entries_max.set(self.entries_max.get() - 1);
    }

    fn reply(&self, _entry: &mut Entry, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: u32::try_from(len).map_err(io::Error::other)?, error, unique };
        let fd = self.fd.as_raw_fd();
        if len <= SMALL_REPLY {
            // In one piece the kernel has one page to find rather than two or three.
            let mut whole = [0u8; SMALL_REPLY];
            let mut at = 0;
            for part in std::iter::once(&bytes_of(&header)).chain(parts) {
                whole[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            return op::write_device(fd, &[&whole[..at]]).map(drop);
        }
        match *parts {
            [one] => op::write_device(fd, &[bytes_of(&header), one]),
            _ => {
                let mut all = Vec::with_capacity(parts.len() + 1);
                all.push(bytes_of(&header));
                all.extend_from_slice(parts);
                op::write_device(fd, &all)
            }
        }
        .map(drop)
    }

    fn deliver(&self) {}

    fn come(&self) {
        self.called.notify_one();
    }

    /// A request is handed over by being read, and who has read it begins with it before another task of the loop runs.
    /// All loops read from one queue: what lies there still is younger than what was read.
    async fn catch_up(&self) {}

    fn close(&self) {
        self.baton.close();
        self.called.notify_one();
    }
}

/// Of what was read.
fn is_write(message: &[u8]) -> bool {
    read_front(message).is_some_and(|header: InHeader| header.opcode == Opcode::Write as u32)
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ring::mailbox;

    use super::*;
    use crate::worker::Control;

    #[test]
    fn a_loop_without_room_that_was_called_in_place_of_the_scout_calls_the_next() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mailbox::mailbox()).unzip();
        let team = Arc::new(Team::new(senders));
        let device = |index| {
            let fd = File::open("/dev/null").expect("every Linux has it");
            Device::new(Arc::new(fd.into()), 4096, 1, index, Arc::clone(&team)).expect("a device")
        };
        let devices = [0, 1].map(device);
        devices[0].is_scout.set(team.become_scout());
        assert!(team.fall_asleep(1) && team.fall_asleep(2));
        for (device, next) in devices.iter().zip([1, 2]) {
            let mut entry = device.first_entries().pop().expect("one");
            assert!(device.park(&mut entry).is_none(), "its only one has a request");
            assert!(matches!(receivers[next].try_recv(), Some(Control::Come)), "loop {next} sleeps on");
        }
        assert!(team.become_scout(), "it can");
    }
}
