//! The receive path as a pure, incremental state machine: bytes in, frames out. Shared by both sides, and fuzzed.

use std::ops::Range;

use thiserror::Error;
use types::error::Errno;
use wire::frame::{HEADER_LEN, Header, HeaderError, Status, crc32c, flags};
use wire::op::Op;

/// From this payload length on (bytes), the part of a payload that has not arrived yet is received straight into its
/// destination; shorter ones are awaited in the receive buffer.
pub const DIRECT_MIN: usize = 16 << 10;

/// Why a frame closes its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    #[error("{0}")]
    Header(#[from] HeaderError),
    #[error("body checksum does not match")]
    BodyChecksum,
    #[error("payload checksum does not match")]
    PayloadChecksum,
    #[error("request {got} does not rise above {last}: replayed or out of order")]
    NotRising { last: u64, got: u64 },
    #[error("a reply where only requests come")]
    NotARequest,
    #[error("a request where only replies come")]
    NotAReply,
    #[error("a request with status {0:#06x}")]
    StatusOfRequest(u16),
    #[error("a failed reply with content")]
    ContentOfFailure,
    #[error("a reply to no request ({0:#x})")]
    UnknownReply(u64),
    #[error("a reply of {got:?} to a request of {asked:?}")]
    OtherOp { asked: Op, got: Op },
    #[error("a payload of {got} bytes where {room} were asked for")]
    PayloadOverflow { got: usize, room: usize },
    #[error("a payload in memory that is not shared")]
    NoSuchPlace,
    #[error("a reply that does not decode: {0}")]
    Body(#[from] wire::codec::DecodeError),
}

/// What this side may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The answering side: requests, their ids strictly rising.
    Requests,
    /// The calling side: replies.
    Replies,
}

/// What the bytes at the front of the stream are. Ranges and lengths count from the frame's first byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// Nothing can be said before so many bytes of this frame are there.
    Need(usize),
    /// A frame with `payload` bytes of its payload after the body; those that are missing (only of payloads of at least
    /// [`DIRECT_MIN`]) come next in the stream. The payload is not verified: [`check_payload`].
    Frame { header: Header, body: Range<usize>, payload: Range<usize>, missing: usize },
}

/// One connection's receiving direction. Call [`parse`](Self::parse) with all unconsumed bytes; after
/// [`Parsed::Frame`] drop that frame's bytes from the front, after an error close the connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    version: u16,
    seed: u32,
    role: Role,
    /// The id of the newest request.
    last: u64,
}

impl Receiver {
    #[must_use]
    pub fn new(version: u16, seed: u32, role: Role) -> Self {
        Self { version, seed, role, last: 0 }
    }

    /// # Errors
    /// Where the bytes are no frame that may come now.
    pub fn parse(&mut self, bytes: &[u8]) -> Result<Parsed, FrameError> {
        let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
            return Ok(Parsed::Need(HEADER_LEN));
        };
        let header = Header::decode(head, self.seed, self.version)?;
        self.check_role(&header)?;
        let body = HEADER_LEN..HEADER_LEN + header.body_len as usize;
        let end = body.end + header.payload_len as usize;
        let Some(body_bytes) = bytes.get(body.clone()) else {
            return Ok(Parsed::Need(body.end));
        };
        if crc32c(body_bytes) != header.body_crc {
            return Err(FrameError::BodyChecksum);
        }
        let missing = end.saturating_sub(bytes.len());
        if missing > 0 && (header.payload_len as usize) < DIRECT_MIN {
            return Ok(Parsed::Need(end));
        }
        let payload = body.end..end - missing;
        if self.role == Role::Requests {
            self.last = header.request;
        }
        Ok(Parsed::Frame { header, body, payload, missing })
    }

    fn check_role(&self, header: &Header) -> Result<(), FrameError> {
        let reply = header.flags & flags::REPLY != 0;
        match self.role {
            Role::Requests if reply => Err(FrameError::NotARequest),
            Role::Requests if header.status != Status::Ok => Err(FrameError::StatusOfRequest(header.status.to_u16())),
            Role::Requests if header.request <= self.last => {
                Err(FrameError::NotRising { last: self.last, got: header.request })
            }
            Role::Replies if !reply => Err(FrameError::NotAReply),
            Role::Replies if header.status != Status::Ok && header.body_len + header.payload_len > 0 => {
                Err(FrameError::ContentOfFailure)
            }
            Role::Requests | Role::Replies => Ok(()),
        }
    }
}

/// Verifies a whole payload where its sender gave a checksum.
///
/// # Errors
/// Where it does not match.
pub fn check_payload(header: &Header, payload: &[u8]) -> Result<(), FrameError> {
    if header.flags & flags::CHECKED != 0 && crc32c(payload) != header.payload_crc {
        return Err(FrameError::PayloadChecksum);
    }
    Ok(())
}

/// As [`Errno`] for those who only pass a number on.
impl From<FrameError> for Errno {
    fn from(_: FrameError) -> Self {
        Errno::EPROTO
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::id::{Epoch, Generation, GroupId};
    use wire::frame::VERSION;

    use super::*;

    const SEED: u32 = 0x1234_5678;

    fn frame(request: u64, body: &[u8], payload: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut header = Header {
            version: VERSION,
            op: Op::Write,
            flags: 0,
            status: Status::Ok,
            group: GroupId(1),
            request,
            generation: Generation(2),
            epoch: Epoch(3),
            body_len: body.len() as u32,
            payload_len: payload.len() as u32,
            body_crc: crc32c(body),
            payload_crc: 0,
        };
        change(&mut header);
        [&header.encode(SEED)[..], body, payload].concat()
    }

    fn receiver(role: Role) -> Receiver {
        Receiver::new(VERSION, SEED, role)
    }

    /// Request, body, payload.
    type Taken = (u64, Vec<u8>, Vec<u8>);

    /// Takes all frames of a stream that arrives in pieces, then the error if any.
    fn receive(pieces: &[&[u8]], role: Role) -> (Vec<Taken>, Option<FrameError>) {
        let mut receiver = receiver(role);
        let (mut stream, mut got) = (Vec::new(), Vec::new());
        let mut pieces = pieces.iter();
        loop {
            match receiver.parse(&stream) {
                Ok(Parsed::Frame { header, body, payload, missing }) => {
                    while stream.len() < payload.end + missing {
                        let Some(piece) = pieces.next() else { return (got, None) };
                        stream.extend_from_slice(piece);
                    }
                    let payload = payload.start..payload.end + missing;
                    if let Err(error) = check_payload(&header, &stream[payload.clone()]) {
                        return (got, Some(error));
                    }
                    got.push((header.request, stream[body].to_vec(), stream[payload.clone()].to_vec()));
                    stream.drain(..payload.end);
                }
                Ok(Parsed::Need(len)) => {
                    assert!(len > stream.len(), "asks for what is there already");
                    let Some(piece) = pieces.next() else { return (got, None) };
                    stream.extend_from_slice(piece);
                }
                Err(error) => return (got, Some(error)),
            }
        }
    }

    fn error_of(bytes: &[u8], role: Role) -> FrameError {
        receive(&[bytes], role).1.unwrap()
    }

    #[test]
    fn requests_must_rise() {
        let twice = [frame(7, b"a", b"", |_| ()), frame(7, b"a", b"", |_| ())].concat();
        let (got, error) = receive(&[&twice], Role::Requests);
        assert_eq!(got.len(), 1);
        assert_eq!(error, Some(FrameError::NotRising { last: 7, got: 7 }));
        assert_eq!(error_of(&frame(0, b"", b"", |_| ()), Role::Requests), FrameError::NotRising { last: 0, got: 0 });
    }

    #[test]
    fn each_side_takes_only_its_own_kind() {
        let reply = |header: &mut Header| header.flags = flags::REPLY;
        assert_eq!(error_of(&frame(1, b"", b"", reply), Role::Requests), FrameError::NotARequest);
        assert_eq!(error_of(&frame(1, b"", b"", |_| ()), Role::Replies), FrameError::NotAReply);
        let failed = |header: &mut Header| header.status = Status::Busy;
        assert_eq!(error_of(&frame(1, b"", b"", failed), Role::Requests), FrameError::StatusOfRequest(0x8003));
        let failed_reply = |header: &mut Header| {
            header.flags = flags::REPLY;
            header.status = Status::Busy;
        };
        assert_eq!(error_of(&frame(1, b"x", b"", failed_reply), Role::Replies), FrameError::ContentOfFailure);
        assert_eq!(receive(&[&frame(1, b"", b"", failed_reply)], Role::Replies).0.len(), 1);
    }

    #[test]
    fn checksums_are_verified() {
        assert_eq!(error_of(&frame(1, b"abc", b"", |h| h.body_crc ^= 1), Role::Requests), FrameError::BodyChecksum);
        let checked = |crc| {
            move |header: &mut Header| {
                header.flags = flags::CHECKED;
                header.payload_crc = crc;
            }
        };
        for len in [5, DIRECT_MIN + 5] {
            let payload = vec![7; len];
            let good = frame(1, b"", &payload, checked(crc32c(&payload)));
            let bad = frame(1, b"", &payload, checked(crc32c(&payload) ^ 1));
            for at in [66, len] {
                assert_eq!(receive(&[&good[..at], &good[at..]], Role::Requests).0.len(), 1);
                assert_eq!(receive(&[&bad[..at], &bad[at..]], Role::Requests).1, Some(FrameError::PayloadChecksum));
            }
        }
    }

    #[test]
    fn a_large_payload_is_handed_out_before_it_is_whole_and_a_small_one_is_awaited() {
        let large = frame(1, b"body", &[1; DIRECT_MIN], |_| ());
        let parsed = receiver(Role::Requests).parse(&large[..100]).unwrap();
        let Parsed::Frame { body, payload, missing, .. } = parsed else { panic!("{parsed:?}") };
        assert_eq!((body, payload, missing), (64..68, 68..100, DIRECT_MIN - 32));
        let small = frame(1, b"body", &[1; DIRECT_MIN - 1], |_| ());
        assert_eq!(receiver(Role::Requests).parse(&small[..100]), Ok(Parsed::Need(small.len())));
    }

    #[test]
    fn lengths_over_the_limit_are_refused_by_the_header_alone() {
        let body = frame(1, b"", b"", |header| header.body_len = u32::MAX);
        assert_eq!(error_of(&body, Role::Requests), HeaderError::BodyLength(u32::MAX).into());
        let payload = frame(1, b"", b"", |header| header.payload_len = u32::MAX);
        assert_eq!(error_of(&payload, Role::Requests), HeaderError::PayloadLength(u32::MAX).into());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 0usize..40_000), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            flip in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut stream: Vec<u8> = frames
                .iter()
                .enumerate()
                .flat_map(|(at, (body, payload))| frame(at as u64 + 1, body, &vec![at as u8; *payload], |_| ()))
                .collect();
            if let Some(flip) = flip {
                let at = flip.index(stream.len());
                stream[at] ^= 0x10;
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&stream[from..cut]);
                from = cut;
            }
            pieces.push(&stream[from..]);
            let whole = receive(&[&stream], Role::Requests);
            prop_assert_eq!(&receive(&pieces, Role::Requests), &whole);
            if flip.is_none() {
                prop_assert_eq!(whole.0.len(), frames.len());
            }
        }

        #[test]
        fn noise_is_an_error_or_needs_more_and_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
        ) {
            let (got, error) = receive(&[&bytes], Role::Requests);
            prop_assert!(got.is_empty());
            prop_assert_eq!(error.is_some(), bytes.len() >= HEADER_LEN);
            // A good header with noise after it.
            let good = frame(1, b"0123", b"", |_| ());
            let mut mutated = good.clone();
            let at = at.index(mutated.len());
            mutated[at] = mutated[at].wrapping_add(1);
            prop_assert!(receive(&[&mutated], Role::Requests).1.is_some());
        }
    }
}
