//! What waits to be sent on one connection: all frames of a turn leave in one send.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::pin::pin;
use std::time::{Duration, Instant};

use ring::buf::Slice;
use ring::op;
use ring::sync::{Notify, Permit};
use wire::frame::{BODY_MAX, HEADER_LEN, Header, PAYLOAD_MAX, crc32c, crc32c_of_parts, flags};

use crate::metrics::Meter;

/// Payload parts shorter than this (bytes) are copied behind their header: cheaper than a vector of their own.
const COPY_MAX: usize = 4 << 10;
/// Bounds of the room that is set aside for a turn's headers and bodies, in bytes.
const SMALL_MIN: usize = 1 << 10;
const SMALL_MAX: usize = 256 << 10;

/// What waits to be sent holds the permits for its memory for at most so long.
const HOLD_MAX: Duration = Duration::from_secs(5);

/// The frame is longer than the protocol allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

/// Frames encoded and not yet sent. Its bound is that of the requests in flight.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: RefCell<Queue>,
    filled: Notify,
    closed: Cell<bool>,
    /// Since when what is being sent waits for the socket.
    sending: Cell<Option<Instant>>,
    /// That it has waited for longer than anybody's memory is held for it.
    takes_long: Cell<bool>,
}

#[derive(Default)]
struct Queue {
    /// Headers, bodies and short payloads.
    small: Vec<u8>,
    /// Long payload parts, each with its place: how much of `small` goes before it.
    long: Vec<(usize, Slice)>,
    frames: usize,
    /// Bytes of memory that the sender accounts for, as given to `push`.
    cost: usize,
    /// Given back when what waits is sent, to whoever bounds its memory.
    held: Vec<Permit>,
    /// Lengths of the last turn's `small` and `long`: what the next one may need.
    usual: (usize, usize),
}

impl Queue {
    /// All that waits, as parts in order.
    fn take(&mut self) -> (Vec<Slice>, Sent, Vec<Permit>) {
        self.usual = (self.small.len(), self.long.len());
        let small = Slice::from_vec(std::mem::take(&mut self.small));
        let mut parts = Vec::with_capacity(2 * self.long.len() + 1);
        let mut from = 0;
        for (place, part) in self.long.drain(..) {
            if place > from {
                parts.push(small.slice(from..place));
            }
            parts.push(part);
            from = place;
        }
        if from < small.len() {
            parts.push(small.slice(from..small.len()));
        }
        let sent = Sent { frames: std::mem::take(&mut self.frames), cost: std::mem::take(&mut self.cost) };
        (parts, sent, std::mem::take(&mut self.held))
    }

    /// Ready for a turn like the last one.
    fn begin(&mut self) {
        let (small, long) = self.usual;
        self.small.reserve(small.next_power_of_two().clamp(SMALL_MIN, SMALL_MAX));
        self.long.reserve(long);
    }
}

/// Frames that were sent together.
pub(crate) struct Sent {
    pub(crate) frames: usize,
    pub(crate) cost: usize,
}

impl Outbox {
    /// Queues one frame; lengths and checksums of `header` are set here, the payload's where its flags promise one: `crc`, if
    /// it is known. `cost` comes back in [`Sent`].
    pub(crate) fn push(
        &self,
        mut header: Header,
        seed: u32,
        cost: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        payload: Vec<Slice>,
        crc: Option<u32>,
    ) -> Result<(), TooLong> {
        if self.closed.get() {
            return Ok(());
        }
        let payload_len: usize = payload.iter().map(|part| part.len()).sum();
        let mut queue = self.queue.borrow_mut();
        if queue.frames == 0 {
            queue.begin();
        }
        let start = queue.small.len();
        let body_start = start + HEADER_LEN;
        queue.small.extend_from_slice(&[0; HEADER_LEN]);
        encode(&mut queue.small);
        let body_len = queue.small.len() - body_start;
        if body_len > BODY_MAX || payload_len > PAYLOAD_MAX {
            queue.small.truncate(start);
            return Err(TooLong);
        }
        header.body_len = body_len as u32;
        header.payload_len = payload_len as u32;
        header.body_crc = crc32c(&queue.small[body_start..]);
        if header.flags & flags::CHECKED != 0 {
            header.payload_crc = crc.unwrap_or_else(|| crc32c_of_parts(payload.iter().map(|part| &part[..])));
        }
        queue.small[start..body_start].copy_from_slice(&header.encode(seed));
        for part in payload {
            if part.len() < COPY_MAX {
                queue.small.extend_from_slice(&part);
            } else {
                let place = queue.small.len();
                queue.long.push((place, part));
            }
        }
        queue.cost += cost;
        queue.frames += 1;
        if queue.frames == 1 {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Keeps `permit` until what was pushed last has left, but not for longer than the other side may need to take it: one that
    /// takes nothing is not to keep others waiting, and has bounds of its own.
    pub(crate) fn hold(&self, permit: Permit) {
        if !self.closed.get() && !self.takes_long.get() {
            self.queue.borrow_mut().held.push(permit);
        }
    }

    /// Sends until the outbox is closed or the socket fails; tells `on_sent` after each send.
    pub(crate) async fn run(&self, socket: RawFd, meter: &Meter, mut on_sent: impl FnMut(Sent)) -> io::Result<()> {
        loop {
            while self.queue.borrow().frames == 0 {
                if self.closed.get() {
                    return Ok(());
                }
                self.filled.notified().await;
            }
            ring::turn_end().await;
            let (parts, sent, held) = self.queue.borrow_mut().take();
            let bytes = parts.iter().map(|part| part.len()).sum();
            self.sending.set(Some(ring::now()));
            let mut sending = pin!(op::send_all(socket, parts));
            match ring::timeout(HOLD_MAX, sending.as_mut()).await {
                Ok(result) => result?,
                Err(_) => {
                    drop(held);
                    // Nor are those to wait that come behind it.
                    self.takes_long.set(true);
                    self.queue.borrow_mut().held.clear();
                    sending.await?;
                    self.takes_long.set(false);
                }
            }
            self.sending.set(None);
            meter.sent(bytes);
            on_sent(sent);
        }
    }

    /// All that was pushed is with the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().frames == 0 && self.sending.get().is_none()
    }

    /// Since when the send of the moment is under way.
    pub(crate) fn sending_since(&self) -> Option<Instant> {
        self.sending.get()
    }

    /// Drops what waits and takes nothing more.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        *self.queue.borrow_mut() = Queue::default();
        self.filled.notify_all();
    }
}
