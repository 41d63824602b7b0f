//! The frame header: 64 bytes, little-endian, with a checksum of its own so that a length can be trusted before it is
//! used.
//!
//! ```text
//!  0 magic u32      4 version u16   6 op u16         8 flags u16     10 status u16     12 group u32
//! 16 request id u64                 24 generation u64                32 epoch u64
//! 40 body length u32  44 payload length u32  48 body CRC32C u32  52 payload CRC32C u32 (0 without flag CHECKED)
//! 56 reserved u32 (0)  60 CRC32C of bytes 0..60 u32, xor the connection's seed
//! ```

use thiserror::Error;
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId};

pub use crate::crc::{crc32c, crc32c_of_parts};
use crate::op::Op;

pub const MAGIC: u32 = 0x5446_4557; // "WEFT"
pub const HEADER_LEN: usize = 64;
/// Longest body, in bytes: a page of 4096 directory entries with attributes fits.
pub const BODY_MAX: usize = 2 << 20;
/// Longest payload, in bytes: the largest read or write.
pub const PAYLOAD_MAX: usize = 8 << 20;

/// Newest and oldest protocol that this build speaks.
pub const VERSION: u16 = 1;
pub const VERSION_MIN: u16 = 1;

const _: () = {
    let (u16s, u32s, u64s) = (4, 8, 3);
    assert!(HEADER_LEN == u16s * 2 + u32s * 4 + u64s * 8, "the fields fill the header");
    assert!(size_of::<Op>() == 2, "an operation has two bytes");
    assert!(BODY_MAX + PAYLOAD_MAX < 1 << 32, "lengths fit their fields");
    assert!(VERSION_MIN >= 1 && VERSION_MIN <= VERSION, "0 means that no version was agreed");
};

/// Bits of [`Header::flags`].
pub mod flags {
    /// The frame answers the request with its id.
    pub const REPLY: u16 = 1;
    /// `payload_crc` is set and must be verified.
    pub const CHECKED: u16 = 2;
    /// The payload is a [`Place`](super::Place), and its bytes are there.
    pub const PLACED: u16 = 4;
    /// Requests: the payload is a [`Place`](super::Place) to which the reply's payload may go.
    pub const ROOM: u16 = 8;
    pub(super) const KNOWN: u16 = REPLY | CHECKED | PLACED | ROOM;
}

/// A range of the memory that the caller shares on this connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Bytes from the memory's beginning.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Place {
    pub const ENCODED_LEN: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let mut out = [0; Self::ENCODED_LEN];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// `None` where the payload has another length than a place has, or the place more bytes than a payload may.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::ENCODED_LEN] = payload.try_into().ok()?;
        let (offset, len) = bytes.split_first_chunk::<8>()?;
        let place = Self { offset: u64::from_le_bytes(*offset), len: u64::from_le_bytes(len.try_into().ok()?) };
        (place.len <= PAYLOAD_MAX as u64).then_some(place)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub version: u16,
    pub op: Op,
    pub flags: u16,
    /// Replies: 0 for success, else why it failed; the body of a failed reply is empty.
    pub status: Status,
    /// The group that the request is for; 0 where none is.
    pub group: GroupId,
    /// Rises by at least one with each request of a connection; a reply repeats its request's.
    pub request: u64,
    /// The group's generation as the sender knows it.
    pub generation: Generation,
    /// That of the cluster map which the sender goes by. Nobody fetches a newer map for it: see `docs/protocol.md`.
    pub epoch: Epoch,
    /// Bytes.
    pub body_len: u32,
    /// Bytes.
    pub payload_len: u32,
    pub body_crc: u32,
    pub payload_crc: u32,
}

/// Outcome of a request: success, an errno for the application, or a fact for the client core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok,
    /// To the application.
    Errno(Errno),
    /// The generation is not the current one, or the group is not served here: fetch the map, try again.
    StaleMap,
    /// The session is not known here: open it again, with what it holds, then try again.
    NoSession,
    /// Not now (starting, or a bounded queue is full): try again shortly.
    Busy,
}

impl Status {
    const STALE_MAP: u16 = 0x8001;
    const NO_SESSION: u16 = 0x8002;
    const BUSY: u16 = 0x8003;

    #[must_use]
    pub fn to_u16(self) -> u16 {
        match self {
            Status::Ok => 0,
            Status::Errno(errno) => errno.0,
            Status::StaleMap => Self::STALE_MAP,
            Status::NoSession => Self::NO_SESSION,
            Status::Busy => Self::BUSY,
        }
    }

    #[must_use]
    pub fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            0 => Status::Ok,
            Self::STALE_MAP => Status::StaleMap,
            Self::NO_SESSION => Status::NoSession,
            Self::BUSY => Status::Busy,
            errno if errno < 4096 => Status::Errno(Errno(errno)),
            _ => return None,
        })
    }
}

/// Why bytes are no acceptable header. Each closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HeaderError {
    #[error("bad magic {0:#010x}: the other side does not speak Weft")]
    Magic(u32),
    #[error("header checksum does not match: damaged, or replayed from another connection")]
    Checksum,
    #[error("version {0} was not negotiated")]
    Version(u16),
    #[error("unknown operation {0:#06x}")]
    Op(u16),
    #[error("unknown flags {0:#06x}")]
    Flags(u16),
    #[error("unknown status {0:#06x}")]
    Status(u16),
    #[error("reserved field is {0:#010x}")]
    Reserved(u32),
    #[error("body of {0} bytes is over the limit")]
    BodyLength(u32),
    #[error("payload of {0} bytes is over the limit")]
    PayloadLength(u32),
}

impl Header {
    /// `seed` is the connection's, agreed in the handshake, so that a frame recorded elsewhere is refused.
    #[must_use]
    pub fn encode(&self, seed: u32) -> [u8; HEADER_LEN] {
        let mut out = [0u8; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6..8].copy_from_slice(&(self.op as u16).to_le_bytes());
        out[8..10].copy_from_slice(&self.flags.to_le_bytes());
        out[10..12].copy_from_slice(&self.status.to_u16().to_le_bytes());
        out[12..16].copy_from_slice(&self.group.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.request.to_le_bytes());
        out[24..32].copy_from_slice(&self.generation.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.body_len.to_le_bytes());
        out[44..48].copy_from_slice(&self.payload_len.to_le_bytes());
        out[48..52].copy_from_slice(&self.body_crc.to_le_bytes());
        out[52..56].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c(&out[..60]) ^ seed;
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// # Errors
    /// Where the header is damaged, from another connection, or asks for what cannot be.
    pub fn decode(bytes: &[u8; HEADER_LEN], seed: u32, version: u16) -> Result<Self, HeaderError> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | (u32::from(u16_at(at + 2)) << 16);
        let u64_at = |at: usize| u64::from(u32_at(at)) | (u64::from(u32_at(at + 4)) << 32);
        if u32_at(0) != MAGIC {
            return Err(HeaderError::Magic(u32_at(0)));
        }
        if u32_at(60) != crc32c(&bytes[..60]) ^ seed {
            return Err(HeaderError::Checksum);
        }
        if u16_at(4) != version {
            return Err(HeaderError::Version(u16_at(4)));
        }
        let op = Op::from_u16(u16_at(6)).ok_or(HeaderError::Op(u16_at(6)))?;
        if u16_at(8) & !flags::KNOWN != 0 {
            return Err(HeaderError::Flags(u16_at(8)));
        }
        let status = Status::from_u16(u16_at(10)).ok_or(HeaderError::Status(u16_at(10)))?;
        if u32_at(56) != 0 {
            return Err(HeaderError::Reserved(u32_at(56)));
        }
        if u32_at(40) as usize > BODY_MAX {
            return Err(HeaderError::BodyLength(u32_at(40)));
        }
        if u32_at(44) as usize > PAYLOAD_MAX {
            return Err(HeaderError::PayloadLength(u32_at(44)));
        }
        Ok(Self {
            version,
            op,
            flags: u16_at(8),
            status,
            group: GroupId(u32_at(12)),
            request: u64_at(16),
            generation: Generation(u64_at(24)),
            epoch: Epoch(u64_at(32)),
            body_len: u32_at(40),
            payload_len: u32_at(44),
            body_crc: u32_at(48),
            payload_crc: u32_at(52),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            version: VERSION,
            op: Op::Write,
            flags: flags::CHECKED,
            status: Status::Ok,
            group: GroupId(0x0102_0304),
            request: 0x1112_1314_1516_1718,
            generation: Generation(9),
            epoch: Epoch(0x2122_2324_2526_2728),
            body_len: 28,
            payload_len: 4096,
            body_crc: 0x3132_3334,
            payload_crc: 0x4142_4344,
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(Header::decode(&header().encode(77), 77, VERSION), Ok(header()));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        for bit in 0..HEADER_LEN * 8 {
            let mut bytes = header().encode(0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes, 0, VERSION).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn places_round_trip_and_are_no_longer_than_payloads() {
        let place = Place { offset: 0x0102_0304_0506_0708, len: PAYLOAD_MAX as u64 };
        let bytes = place.encode();
        assert_eq!(bytes[..9], [8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(Place::decode(&bytes), Some(place));
        assert_eq!(Place::decode(&bytes[1..]), None);
        assert_eq!(Place::decode(&Place { len: place.len + 1, ..place }.encode()), None);
    }

    #[test]
    fn a_frame_of_another_connection_is_refused() {
        assert_eq!(Header::decode(&header().encode(1), 2, VERSION), Err(HeaderError::Checksum));
    }
}
