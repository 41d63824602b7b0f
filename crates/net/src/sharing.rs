//! Payloads in memory that caller and answerer have in common: where both are on one host, only the place of a payload
//! goes over the socket. The caller makes the memory (`ring::shared`) and offers it; the answerer maps it.
//!
//! The answerer touches a place from the arrival of its request until it has sent the reply, and a connection that was
//! lost says nothing of when that will be. So the caller keeps what it lent until the reply is there; where the
//! connection ends before, nothing more is taken from that memory.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ring::buf::{Buf, Slice};
use ring::shared::{self, Memory};
use types::error::Errno;
use wire::codec::{Bytes, decode_body};
use wire::frame::{Place, Status, flags};
use wire::v1::session::Share;

use crate::receive::FrameError;

/// Shorter payloads (bytes) go over the socket: they are in the receive buffer by the time that they are looked at.
pub const PLACED_MIN: usize = 16 << 10;

/// Whether both ends of the connection are on this host, as far as addresses tell.
pub(crate) fn is_local(socket: &OwnedFd) -> bool {
    let ends = socket.as_fd().try_clone_to_owned().map(TcpStream::from).and_then(|stream| {
        let here = stream.local_addr()?;
        Ok((here, stream.peer_addr()?))
    });
    ends.is_ok_and(|(here, there)| there.ip().is_loopback() || here.ip() == there.ip())
}

/// The calling side's state of one connection.
pub(crate) struct Lending {
    state: Cell<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Over the socket, always.
    Never,
    Untried,
    /// Asked, and not answered: what was shared before may be gone at the other side.
    Offered,
    /// The memory with this id.
    Shared(u64),
}

/// What the other side may touch until it has replied.
#[derive(Default)]
pub(crate) enum Lent {
    #[default]
    Nothing,
    /// The payload, to read.
    Payload(#[expect(dead_code, reason = "keeps the bytes as they are")] Slice),
    /// The buffer for the reply's payload, to write.
    Room,
}

/// How a request goes out.
pub(crate) struct Outgoing {
    pub(crate) payload: Vec<Slice>,
    pub(crate) flags: u16,
    pub(crate) lent: Lent,
}

impl Lending {
    pub(crate) fn new(is_local: bool) -> Self {
        Self { state: Cell::new(if is_local { State::Untried } else { State::Never }) }
    }

    /// Names places instead of sending bytes where that can be.
    pub(crate) fn place(&self, payload: Vec<Slice>, into: Option<&Buf>) -> Outgoing {
        let plain = |payload| Outgoing { payload, flags: 0, lent: Lent::Nothing };
        let State::Shared(memory) = self.state.get() else { return plain(payload) };
        let named = |offset, len: usize| Slice::from_vec(Place { offset, len: len as u64 }.encode().to_vec());
        match (&payload[..], into) {
            ([only], _) if only.len() >= PLACED_MIN => match only.place().filter(|place| place.memory == memory) {
                Some(place) => Outgoing {
                    payload: vec![named(place.offset, only.len())],
                    flags: flags::PLACED,
                    lent: Lent::Payload(only.clone()),
                },
                None => plain(payload),
            },
            ([], Some(into)) if into.len() >= PLACED_MIN => match into.place().filter(|place| place.memory == memory) {
                Some(place) => {
                    Outgoing { payload: vec![named(place.offset, into.len())], flags: flags::ROOM, lent: Lent::Room }
                }
                None => plain(payload),
            },
            _ => plain(payload),
        }
    }

    /// The memory to offer now, if a payload of this request lies in one that was not: once for each.
    pub(crate) fn to_offer(&self, payload: &[Slice], into: Option<&Buf>) -> Option<Arc<Memory>> {
        let current = shared::lent_id()?;
        if matches!(self.state.get(), State::Never | State::Offered) || self.state.get() == State::Shared(current) {
            return None;
        }
        let mut places = payload.iter().map(Slice::place).chain(into.map(Buf::place)).flatten();
        if places.any(|place| place.memory == current) { self.offered() } else { None }
    }

    /// The memory to offer so that the other side lets go of another, which was abandoned.
    pub(crate) fn to_replace(&self) -> Option<Arc<Memory>> {
        match (self.state.get(), shared::lent_id()) {
            (State::Shared(known), Some(current)) if known != current => self.offered(),
            _ => None,
        }
    }

    fn offered(&self) -> Option<Arc<Memory>> {
        let memory = shared::lent()?;
        self.state.set(State::Offered);
        Some(memory)
    }

    /// The other side has it, or has said no.
    pub(crate) fn answered(&self, memory: &Memory, taken: bool) {
        if self.state.get() == State::Offered {
            self.state.set(if taken { State::Shared(memory.id()) } else { State::Never });
        }
    }

    /// The connection ends, and nobody can say what the other side still reads or writes.
    pub(crate) fn abandon(&self) {
        if let State::Shared(memory) = self.state.replace(State::Never) {
            shared::abandon(memory);
        }
    }
}

pub(crate) fn offer(memory: &Memory) -> Share {
    Share {
        process: std::process::id(),
        descriptor: memory.descriptor().unsigned_abs(),
        length: memory.length() as u64,
        mark: Bytes(memory.mark().to_vec()),
    }
}

/// The reply's payload lies in `into` already; `payload` says where. What is left of the buffer comes second.
pub(crate) fn reply_in_place(payload: &[u8], lent: &Lent, into: Option<Buf>) -> Result<(Buf, Buf), FrameError> {
    let (Some(place), Lent::Room, Some(mut into)) = (Place::decode(payload), lent, into) else {
        return Err(FrameError::NoSuchPlace);
    };
    let len = place.len as usize;
    if into.place().is_none_or(|room| room.offset != place.offset) || len > into.len() {
        return Err(FrameError::NoSuchPlace);
    }
    let rest = into.split_off(len);
    Ok((into, rest))
}

/// The answering side's state of one connection.
#[derive(Default)]
pub(crate) struct Borrowing {
    memory: RefCell<Option<Arc<Memory>>>,
}

impl Borrowing {
    /// Maps what the caller offers, instead of what it offered before.
    ///
    /// # Errors
    /// Where that cannot be; the caller then sends all over the socket.
    pub(crate) fn take(&self, body: &[u8]) -> Result<(), Status> {
        let offered: Share = decode_body(body).map_err(|_| Status::Errno(Errno::EPROTO))?;
        let found = Memory::open(offered.process, offered.descriptor, offered.length)
            .and_then(|memory| if memory.mark()[..] == offered.mark.0 { Ok(memory) } else { Err(another()) });
        match found {
            Ok(memory) => {
                *self.memory.borrow_mut() = Some(memory);
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%error, process = offered.process, "cannot share memory with a caller");
                Err(Status::Errno(error.into()))
            }
        }
    }

    /// The range that a request's payload names.
    pub(crate) fn find(&self, payload: &[u8]) -> Result<Buf, FrameError> {
        let place = Place::decode(payload).ok_or(FrameError::NoSuchPlace)?;
        let memory = self.memory.borrow();
        let memory = memory.as_ref().ok_or(FrameError::NoSuchPlace)?;
        Buf::in_memory(memory, place.offset, place.len as usize).ok_or(FrameError::NoSuchPlace)
    }
}

/// In another process namespace the same numbers are somebody else's.
fn another() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "another memory has this process id and descriptor")
}

/// What a reply says in place of its payload, where that was put into the caller's room.
pub(crate) fn placed_reply(room: Option<shared::Place>, payload: &[Slice]) -> Option<Slice> {
    let [only] = payload else { return None };
    let place = only.place().filter(|place| Some(*place) == room)?;
    Some(Slice::from_vec(Place { offset: place.offset, len: only.len() as u64 }.encode().to_vec()))
}
