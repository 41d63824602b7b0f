//! FUSE over io_uring (Linux 6.14): requests arrive as completions of the loop's own ring.
//!
//! Each entry is a command that stays with the kernel until a request comes, which the kernel writes into the entry's
//! memory ([`area`]); the answer goes back with the next command, which waits for the next request at the same time. The
//! kernel has a queue of entries for each CPU and puts a request into that of its caller's ([`queues`]), so with loops that
//! are bound to CPUs nobody is woken on another one.
//!
//! What the kernel tells without waiting (`FORGET`, `INTERRUPT`) still comes over `/dev/fuse`: the first loop reads it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ring::op::{self, Command};

use crate::abi::{RingCommand, bytes_of, over_ring};
use crate::dev::{self, Device};
use crate::reply::error_number;
use crate::spare::Spare;
use crate::team::Team;
use crate::transport::{Closed, LONG_MAX, Message, Transport};
use crate::uring::area::{Area, Arrived};
use types::error::Errno;

mod area;
pub(crate) mod offer;
pub(crate) mod queues;

/// So many of the completions that it owes a ring the kernel posts at least, each time that it is entered
/// (`IO_LOCAL_TW_DEFAULT_MAX`).
const HANDED_OVER_MIN: usize = 20;
/// How often who waits for all that the kernel has kept back looks for an entry that has nothing to do.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Entries in a queue of this loop.
struct Queue {
    number: u16,
    /// So many may be in flight beside those that wait for long.
    base: usize,
    entries: Cell<usize>,
    /// Requests that may wait for long; each gets an entry more, which stays. (A request that comes while all entries are
    /// in use the kernel takes up with the next answer in its queue, not with a new entry.)
    long: Cell<usize>,
    /// Entries with a request that is not answered.
    serving: Cell<usize>,
    /// Answers so far.
    answered: Cell<usize>,
}

impl Queue {
    fn new(number: u16, base: usize) -> Self {
        let [entries, long, serving, answered] = [const { Cell::new(0) }; 4];
        Self { number, base, entries, long, serving, answered }
    }

    fn delivered(&self) {
        self.serving.set(self.serving.get() + 1);
    }

    fn answered(&self) {
        self.serving.set(self.serving.get() - 1);
        self.answered.set(self.answered.get() + 1);
    }

    /// Some entry waits for a request, and has done so since the answers were `answered`.
    fn has_waited(&self, answered: usize) -> bool {
        let waiting = self.entries.get() - self.serving.get();
        waiting > self.answered.get().wrapping_sub(answered)
    }
}

pub(crate) struct Uring {
    fd: Arc<OwnedFd>,
    queues: Vec<Queue>,
    payload_max: usize,
    spare: Spare,
    /// In the first loop.
    device: Option<Device>,
    /// Made by [`Self::register`], to begin with.
    first: RefCell<Vec<Entry>>,
    /// Of entries that wait for a request, by their number.
    waiting: RefCell<Vec<Option<Waker>>>,
    closed: Cell<bool>,
    team: Arc<Team>,
}

/// What a loop needs to be told by io_uring, beside the descriptor of the mount.
pub(crate) struct RingSetup {
    /// Numbers of the queues that this loop serves.
    pub(crate) queues: Vec<u16>,
    /// Requests in flight in this loop.
    pub(crate) requests_max: usize,
    /// Longest data of a request or reply, in bytes.
    pub(crate) payload_max: u32,
    /// Present in the one loop that reads `/dev/fuse`.
    pub(crate) device: Option<Device>,
}

pub(crate) enum Entry {
    Ring(RingEntry),
    Device(dev::Entry),
}

pub(crate) struct RingEntry {
    /// Among those of the loop.
    queue: usize,
    /// Unique within the loop.
    number: usize,
    area: Rc<Area>,
    state: State,
}

enum State {
    /// The kernel has it.
    Fetching(Command<Rc<Area>>),
    /// The kernel has put a request into it.
    Delivered,
    /// The request is being worked on.
    Serving(Arrived),
    Ended,
}

impl Uring {
    /// Hands the first entries of this loop to the kernel, which uses them when those of all queues are there.
    ///
    /// # Errors
    /// Where there is no memory for them, or the kernel refuses them.
    pub(crate) async fn register(fd: Arc<OwnedFd>, setup: RingSetup, team: Arc<Team>) -> io::Result<Self> {
        let base = (setup.requests_max / setup.queues.len().max(1)).max(1);
        let this = Self {
            fd,
            queues: setup.queues.into_iter().map(|number| Queue::new(number, base)).collect(),
            payload_max: setup.payload_max as usize,
            spare: Spare::new(setup.payload_max),
            device: setup.device,
            first: RefCell::default(),
            waiting: RefCell::default(),
            closed: Cell::new(false),
            team,
        };
        let mut entries = Vec::new();
        for queue in 0..this.queues.len() {
            for _ in 0..base {
                entries.push(this.new_entry(queue)?);
            }
        }
        // A refusal shows at once.
        ring::next_turn().await;
        let mut cx = Context::from_waker(Waker::noop());
        for entry in &mut entries {
            let State::Fetching(command) = &mut entry.state else { continue };
            match Pin::new(command).poll(&mut cx) {
                Poll::Pending => {}
                Poll::Ready((Ok(_), _)) => {
                    this.queues[entry.queue].delivered();
                    entry.state = State::Delivered;
                }
                Poll::Ready((Err(error), _)) => return Err(error),
            }
        }
        let first = entries.into_iter().map(Entry::Ring);
        let device = this.device.as_ref().map(Transport::first_entries).unwrap_or_default();
        let all = first.chain(device.into_iter().map(Entry::Device)).collect();
        *this.first.borrow_mut() = all;
        Ok(this)
    }

    fn new_entry(&self, queue: usize) -> io::Result<RingEntry> {
        let area = Rc::new(Area::new(self.payload_max)?);
        let vectors = area.vectors();
        let command = self.command(over_ring::REGISTER, queue, 0, Some(vectors), &area);
        let count = &self.queues[queue].entries;
        count.set(count.get() + 1);
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(None);
        Ok(RingEntry { queue, number: waiting.len() - 1, area, state: State::Fetching(command) })
    }

    fn command(
        &self,
        number: u32,
        queue: usize,
        commit_id: u64,
        vectors: Option<(u64, u32)>,
        area: &Rc<Area>,
    ) -> Command<Rc<Area>> {
        let data = RingCommand { flags: 0, commit_id, queue: self.queues[queue].number, padding: [0; 6] };
        Command::new(self.fd.as_raw_fd(), number, bytes_of(&data), vectors, Rc::clone(area))
    }

    /// Waits for the kernel to put a request into the entry.
    async fn delivered(&self, entry: &mut RingEntry) -> Result<(), Closed> {
        let completed = std::future::poll_fn(|cx| {
            if self.closed.get() {
                return Poll::Ready(Err(None));
            }
            let State::Fetching(command) = &mut entry.state else { return Poll::Ready(Ok(())) };
            match Pin::new(command).poll(cx) {
                Poll::Ready((result, _)) => Poll::Ready(result.map(drop).map_err(Some)),
                Poll::Pending => {
                    let slot = &mut self.waiting.borrow_mut()[entry.number];
                    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        *slot = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        });
        let completed = completed.await;
        if !matches!(entry.state, State::Delivered) {
            self.queues[entry.queue].delivered();
        }
        entry.state = State::Delivered;
        let Err(error) = completed else { return Ok(()) };
        entry.state = State::Ended;
        match error.as_ref().map(io::Error::raw_os_error) {
            None | Some(Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV)) => {}
            Some(_) => tracing::error!(error = ?error, "cannot take requests from the kernel: the mount ends"),
        }
        self.end();
        Err(Closed)
    }

    /// The connection is gone, for this loop and all others.
    fn end(&self) {
        if !self.closed.get() {
            self.close();
            self.team.dismiss();
        }
    }

    async fn receive_from_ring(&self, entry: &mut RingEntry) -> Result<Message, Closed> {
        loop {
            match entry.state {
                State::Fetching(_) | State::Delivered => self.delivered(entry).await?,
                // Nobody answered: the kernel would wait for ever.
                State::Serving(arrived) => {
                    self.answer(entry, arrived, error_number(Errno::EIO), &[]);
                    continue;
                }
                State::Ended => return Err(Closed),
            }
            let Some(arrived) = entry.area.arrived() else {
                tracing::error!("the kernel sent a request of impossible lengths: the mount ends");
                entry.state = State::Ended;
                self.end();
                return Err(Closed);
            };
            entry.state = State::Serving(arrived);
            let mut buf = self.spare.take();
            match entry.area.copy_request(arrived, &mut buf) {
                Some(len) => return Ok(Message::new(buf, len)),
                None => tracing::error!(unique = arrived.unique, "the kernel sent more than was agreed on"),
            }
        }
    }

    /// False where the answer is longer than the kernel takes.
    fn answer(&self, entry: &mut RingEntry, arrived: Arrived, error: i32, parts: &[&[u8]]) -> bool {
        let fits = entry.area.put_answer(arrived, error, parts);
        if fits {
            self.queues[entry.queue].answered();
            let commit = over_ring::COMMIT_AND_FETCH;
            entry.state = State::Fetching(self.command(commit, entry.queue, arrived.commit_id, None, &entry.area));
        }
        fits
    }

    /// # Panics
    /// Where this is not the loop that has it: no other has entries of it.
    fn device(&self) -> &Device {
        self.device.as_ref().expect("only the loop with a device has its entries")
    }
}

impl Transport for Uring {
    type Entry = Entry;

    fn first_entries(&self) -> Vec<Entry> {
        self.first.take()
    }

    async fn receive(&self, entry: &mut Entry) -> Result<Message, Closed> {
        match entry {
            Entry::Ring(entry) => self.receive_from_ring(entry).await,
            Entry::Device(entry) => self.device().receive(entry).await,
        }
    }

    fn recycle(&self, message: Message) {
        self.spare.put_back(message);
    }

    fn park(&self, entry: &mut Entry) -> Option<Entry> {
        let entry = match entry {
            Entry::Ring(entry) => entry,
            Entry::Device(entry) => return self.device().park(entry).map(Entry::Device),
        };
        let queue = &self.queues[entry.queue];
        if queue.entries.get() >= queue.base + queue.long.get() || self.closed.get() {
            return None;
        }
        match self.new_entry(entry.queue) {
            Ok(another) => Some(Entry::Ring(another)),
            Err(error) => {
                tracing::warn!(%error, "no memory for another request: one that waits for a lock keeps its place");
                None
            }
        }
    }

    fn begin_long(&self, entry: &Entry) -> bool {
        let Entry::Ring(entry) = entry else { return true };
        let long = &self.queues[entry.queue].long;
        let fits = long.get() < LONG_MAX;
        if fits {
            long.set(long.get() + 1);
        }
        fits
    }

    fn end_long(&self, entry: &Entry) {
        let Entry::Ring(entry) = entry else { return };
        let long = &self.queues[entry.queue].long;
        long.set(long.get() - 1);
    }

    fn reply(&self, entry: &mut Entry, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        match entry {
            Entry::Ring(entry) => {
                let arrived = match entry.state {
                    State::Serving(arrived) if arrived.unique == unique => arrived,
                    // Answered already.
                    _ => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
                };
                let fits = self.answer(entry, arrived, error, parts);
                if fits { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
            }
            Entry::Device(entry) => self.device().reply(entry, unique, error, parts),
        }
    }

    fn deliver(&self) {
        if let Err(error) = op::flush() {
            tracing::warn!(%error, "answers reach the kernel later than they should");
        }
    }

    fn come(&self) {
        if let Some(device) = &self.device {
            device.come();
        }
    }

    /// Requests are handed over in their order, when this thread enters the kernel. Those for which there was no entry it
    /// keeps: it has none as long as some entry waits in vain.
    async fn catch_up(&self) {
        let entries: usize = self.queues.iter().map(|queue| queue.entries.get()).sum();
        for queue in &self.queues {
            loop {
                let answered = queue.answered.get();
                for _ in 0..=entries / HANDED_OVER_MIN {
                    ring::next_turn().await;
                }
                if queue.has_waited(answered) || self.closed.get() {
                    break;
                }
                ring::sleep(LOOK_AGAIN).await;
            }
        }
    }

    fn close(&self) {
        self.closed.set(true);
        if let Some(device) = &self.device {
            device.close();
        }
        let waiting: Vec<Waker> = self.waiting.borrow_mut().iter_mut().filter_map(Option::take).collect();
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_empty_when_an_entry_has_waited_in_vain() {
        let queue = Queue::new(0, 2);
        queue.entries.set(2);
        assert!(queue.has_waited(0));
        queue.delivered();
        assert!(queue.has_waited(0), "the other one");
        queue.delivered();
        assert!(!queue.has_waited(0));
        queue.answered();
        assert!(!queue.has_waited(0), "the kernel may have something for it");
        assert!(queue.has_waited(1), "it had nothing");
        queue.delivered();
        queue.answered();
        queue.answered();
        assert!(!queue.has_waited(1), "both were answered since");
        assert!(queue.has_waited(2));
    }
}
