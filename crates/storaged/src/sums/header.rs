//! The first 512 bytes, one sector, of a sidecar.
//!
//! ```text
//!  0 magic "WSUM"   4 version u16    6 state u16: 1 clean, 2 dirty
//!  8 inode u64     16 stripe u32    20 zeros
//! 24 size u64: of the object, in bytes, where it is clean
//! 32 epoch u64     40 run u64: who made it dirty
//! 48 first u64     56 end u64: blocks that were being changed as a whole
//! 64 zeros        508 CRC32C of bytes 0..508
//! ```
//!
//! Numbers are little-endian. Entries follow, 8 bytes for each block of the object.

use std::ops::Range;

use wire::frame::crc32c;

use super::Entry;

pub(crate) const HEADER_LEN: usize = 512;
const MAGIC: &[u8; 4] = b"WSUM";
const VERSION: u16 = 1;
const CRC_AT: usize = HEADER_LEN - 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) inode: u64,
    pub(crate) stripe: u32,
    pub(crate) state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Data and entries were on the disk together, and nothing was changed since.
    Clean {
        /// Bytes of the object.
        size: u64,
    },
    Dirty {
        owner: Owner,
        /// Blocks that were being changed as a whole.
        pending: Option<Range<u64>>,
    },
}

/// A process that changes objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Differs where the page cache of the target's file system may have been lost in between.
    pub(crate) epoch: u64,
    /// Differs from process to process.
    pub(crate) run: u64,
}

impl Owner {
    /// Of objects whose entries are not kept. No process is it.
    pub(crate) const NOBODY: Owner = Owner { epoch: 0, run: 0 };

    /// One that has made nothing dirty: for it, all that is dirty is in doubt.
    pub(crate) const STRANGER: Owner = Owner { epoch: u64::MAX, run: 0 };

    /// One of this epoch that is nobody now.
    pub(crate) fn earlier(self) -> Owner {
        Owner { run: 0, ..self }
    }

    /// This process, for which what it has left dirty up to now is of another epoch.
    pub(crate) fn anew(self) -> Owner {
        // No number is followed by itself.
        Owner { epoch: self.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1).max(1), ..self }
    }
}

impl Header {
    /// Of data that was on the disk together with it, and nothing was changed since.
    pub(crate) fn tells_of_data(&self) -> bool {
        matches!(self.state, State::Clean { size } if size > 0)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(4, &VERSION.to_le_bytes());
        put(8, &self.inode.to_le_bytes());
        put(16, &self.stripe.to_le_bytes());
        match &self.state {
            State::Clean { size } => {
                put(6, &1u16.to_le_bytes());
                put(24, &size.to_le_bytes());
            }
            State::Dirty { owner, pending } => {
                put(6, &2u16.to_le_bytes());
                put(32, &owner.epoch.to_le_bytes());
                put(40, &owner.run.to_le_bytes());
                let pending = pending.clone().unwrap_or(0..0);
                put(48, &pending.start.to_le_bytes());
                put(56, &pending.end.to_le_bytes());
            }
        }
        let crc = crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` for what is no whole header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = bytes.try_into().ok()?;
        let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let whole = bytes.starts_with(MAGIC) && u32_at(CRC_AT)? == crc32c(&bytes[..CRC_AT]);
        if !whole || u16_at(4)? != VERSION {
            return None;
        }
        let state = match u16_at(6)? {
            1 => State::Clean { size: u64_at(24)? },
            2 => {
                let owner = Owner { epoch: u64_at(32)?, run: u64_at(40)? };
                State::Dirty { owner, pending: Some(u64_at(48)?..u64_at(56)?).filter(|range| !range.is_empty()) }
            }
            _ => return None,
        };
        Some(Self { inode: u64_at(8)?, stripe: u32_at(16)?, state })
    }
}

/// Where in the sidecar the entry of a block is.
pub(crate) fn place(block: u64) -> u64 {
    (HEADER_LEN as u64).saturating_add(block.saturating_mul(Entry::LEN as u64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A disk may say anything, with the right checksum too: some older or newer release wrote it.
        #[test]
        fn what_is_taken_for_a_header_is_one(
            bytes in prop::collection::vec(any::<u8>(), CRC_AT),
            (version, state) in (0u16..3, 0u16..4),
        ) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..6].copy_from_slice(&version.to_le_bytes());
            bytes[6..8].copy_from_slice(&state.to_le_bytes());
            bytes.extend(crc32c(&bytes).to_le_bytes());
            let header = Header::decode(&bytes);
            prop_assert_eq!(header.is_some(), version == VERSION && (1..=2).contains(&state));
            if let Some(header) = header {
                prop_assert_eq!(Header::decode(&header.encode()), Some(header));
            }
        }

        #[test]
        fn noise_is_no_header(bytes in prop::collection::vec(any::<u8>(), 0..=HEADER_LEN + 1)) {
            prop_assert_eq!(Header::decode(&bytes), None);
        }
    }

    fn dirty() -> Header {
        let owner = Owner { epoch: 0x1122_3344_5566_7788, run: 9 };
        Header { inode: 0x0001_0000_0000_0010, stripe: 3, state: State::Dirty { owner, pending: Some(5..70) } }
    }

    #[test]
    fn headers_come_back() {
        let clean = Header { inode: u64::MAX, stripe: 0, state: State::Clean { size: 4097 } };
        let idle = Header { state: State::Dirty { owner: Owner::NOBODY, pending: None }, ..dirty() };
        for header in [dirty(), clean, idle] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let bytes = dirty().encode();
        assert_eq!(&bytes[..8], b"WSUM\x01\0\x02\0");
        assert_eq!(bytes[8..20], [0x10, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0]);
        assert_eq!(
            bytes[32..64],
            [
                [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
                [9, 0, 0, 0, 0, 0, 0, 0],
                [5, 0, 0, 0, 0, 0, 0, 0],
                [70, 0, 0, 0, 0, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!((place(0), place(3)), (512, 536));
    }

    #[test]
    fn damage_shows() {
        let good = dirty().encode();
        for at in 0..HEADER_LEN {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Header::decode(&[0; HEADER_LEN]), None);
        assert_eq!(Header::decode(&good[..511]), None);
    }
}
