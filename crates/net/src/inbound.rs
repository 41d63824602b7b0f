//! The receiving direction of a socket: one receive, then all frames that are complete in it, without copies.

use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use ring::op;
use wire::frame::Header;

use crate::metrics::Meter;
use crate::receive::{FrameError, Parsed, Receiver};

/// Bytes of one receive buffer: what one receive can bring at most, on a connection that has something to do.
const REGION: usize = 128 << 10;
/// Bytes of a receive buffer on a connection that was idle so far: a server has many thousands.
const REGION_IDLE: usize = 4 << 10;
/// One that was idle for so long gives back what it has of memory.
const IDLE: Duration = Duration::from_secs(1);
/// A buffer of which less than this part is left is given up for a new one.
const ROOM_MIN_PART: usize = 4;
/// After a payload of at least this length, in bytes, more of the kind are expected...
const BULK_MIN: usize = 32 << 10;
/// ...and the next receive takes only so much: the frame's head, so that its payload goes straight to its place.
const BULK_RECEIVE: usize = 512;

/// A frame whose payload may still be in the socket.
pub(crate) struct Incoming {
    pub(crate) header: Header,
    pub(crate) body: Slice,
    /// What is there of the payload.
    pub(crate) payload: Slice,
    /// Bytes of it that come next in the socket: [`Inbound::finish`] takes them.
    pub(crate) missing: usize,
}

/// When the other side was last heard, and whether we wait for the rest of a frame of it.
pub(crate) struct Pulse {
    pub(crate) heard: Cell<Instant>,
    pub(crate) mid_frame: Cell<bool>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { heard: Cell::new(ring::now()), mid_frame: Cell::new(false) }
    }

    fn beat(&self) {
        self.heard.set(ring::now());
        self.mid_frame.set(false);
    }
}

pub(crate) struct Inbound {
    socket: RawFd,
    receiver: Receiver,
    meter: Meter,
    /// Received and not yet parsed; `room` begins where it ends.
    head: Buf,
    room: Buf,
    /// Bytes of the next receive buffer.
    region: usize,
    /// Bytes of the frame at the front that are needed to go on.
    need: usize,
    bulk: bool,
}

impl Inbound {
    pub(crate) fn new(socket: RawFd, receiver: Receiver, meter: Meter) -> Self {
        let mut room = Buf::with_capacity(REGION_IDLE);
        let head = room.split_to(0);
        Self { socket, receiver, meter, head, room, region: REGION_IDLE, need: 0, bulk: false }
    }

    /// Receives once. `Ok(false)` is the end of the stream, at the end of a frame.
    pub(crate) async fn fill(&mut self, pulse: &Pulse) -> io::Result<bool> {
        self.make_room();
        let wanted = if self.bulk && self.head.is_empty() { BULK_RECEIVE } else { self.room.len() };
        let later = self.room.split_off(wanted);
        let buf = std::mem::replace(&mut self.room, later);
        pulse.mid_frame.set(!self.head.is_empty());
        let begun = ring::now();
        let (result, mut buf) = op::recv(self.socket, buf).await;
        pulse.beat();
        let count = *result.as_ref().unwrap_or(&0);
        self.meter.received(count);
        let received = buf.split_to(count);
        self.head.unsplit(received).expect("received right behind what was there");
        let later = std::mem::replace(&mut self.room, buf);
        self.room.unsplit(later).expect("the two parts of the room");
        if count == wanted {
            // More may have been there.
            self.region = REGION;
        } else if count < REGION_IDLE && ring::now().saturating_duration_since(begun) >= IDLE {
            self.region = REGION_IDLE;
        }
        match result? {
            0 if self.head.is_empty() => Ok(false),
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "ended in the middle of a frame")),
            _ => Ok(true),
        }
    }

    fn make_room(&mut self) {
        let missing = self.need.saturating_sub(self.head.len());
        let room_min = self.region / ROOM_MIN_PART;
        let is_idle = self.region == REGION_IDLE && self.head.is_empty() && self.room.len() > REGION_IDLE;
        if self.room.len() >= missing.max(room_min) && !is_idle {
            return;
        }
        let mut room = Buf::with_capacity(self.region.max(self.need + room_min));
        let mut head = room.split_to(self.head.len());
        head.copy_from_slice(&self.head);
        self.head = head;
        self.room = room;
    }

    /// The next frame whose head is complete, or `None` where more has to be received.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, FrameError> {
        if self.head.is_empty() {
            self.need = 0;
            return Ok(None);
        }
        match self.receiver.parse(&self.head)? {
            Parsed::Need(len) => {
                self.need = len;
                Ok(None)
            }
            Parsed::Frame { header, body, payload, missing } => {
                self.bulk = header.payload_len as usize >= BULK_MIN;
                let frame = self.head.split_to(payload.end).freeze();
                let (body, payload) = (frame.slice(body), frame.slice(payload));
                Ok(Some(Incoming { header, body, payload, missing }))
            }
        }
    }

    /// Puts the whole payload of `incoming` into `destination`, which has exactly its length.
    pub(crate) async fn finish(&self, incoming: &Incoming, mut destination: Buf, pulse: &Pulse) -> io::Result<Buf> {
        let there = incoming.payload.len();
        destination[..there].copy_from_slice(&incoming.payload);
        if incoming.missing == 0 {
            return Ok(destination);
        }
        let rest = destination.split_off(there);
        pulse.mid_frame.set(true);
        let (result, rest) = op::recv_exact(self.socket, rest).await;
        pulse.beat();
        self.meter.received(rest.len());
        destination.unsplit(rest).expect("the two halves of one buffer");
        result.map(|()| destination)
    }
}
