//! What NetBench's reads answer and its writes send: the same bytes everywhere, made once.

use std::cell::OnceCell;

use ring::buf::{Buf, Slice};

/// Bytes after which they begin anew.
const UNIT: usize = 1 << 20;

/// The bytes of one thread; none until somebody asks.
#[derive(Default)]
pub struct Memory {
    unit: OnceCell<Slice>,
}

impl Memory {
    /// `length` bytes. In `room`, where the caller lent memory that is long enough.
    #[must_use]
    pub fn payload(&self, length: usize, room: Option<Buf>) -> Vec<Slice> {
        let unit = self.unit.get_or_init(|| {
            let mut unit = Buf::with_capacity(UNIT);
            fill(&mut unit);
            unit.freeze()
        });
        if let Some(mut room) = room.filter(|room| room.len() >= length) {
            room.truncate(length);
            room.chunks_mut(UNIT).for_each(|chunk| chunk.copy_from_slice(&unit[..chunk.len()]));
            return vec![room.freeze()];
        }
        let part = |at: usize| unit.slice(0..UNIT.min(length - at));
        (0..length).step_by(UNIT).map(part).collect()
    }
}

/// Forgets a payload that was received. One that lies in the caller's memory has not moved yet: it is copied once, as it
/// would be on its way to a disk.
pub fn forget(payload: &Slice) {
    if payload.place().is_some() {
        std::hint::black_box(Buf::from_slice(payload));
    }
}

/// `length` bytes in one piece that can be shared with a server on this host.
pub(super) fn to_send(length: usize) -> Slice {
    if length == 0 {
        return Slice::empty();
    }
    let mut bytes = Buf::shareable(length);
    fill(&mut bytes);
    bytes.freeze()
}

/// Whether a payload of NetBench arrived as it was sent, as far as its first and its last word tell.
pub(super) fn is_whole(bytes: &[u8], length: usize) -> bool {
    let is_right = |at: usize| bytes.get(at..at + 8).is_none_or(|found| found == word(at).to_le_bytes());
    bytes.len() == length && is_right(0) && is_right(length.saturating_sub(8) / 8 * 8)
}

fn fill(bytes: &mut [u8]) {
    for (at, chunk) in (0..).step_by(8).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(at).to_le_bytes()[..chunk.len()]);
    }
}

/// That nothing on the way can make fewer.
fn word(at: usize) -> u64 {
    ((at % UNIT) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_as_long_as_asked_and_told_from_others() {
        let memory = Memory::default();
        for length in [0, 1, 7, 8, 4096, UNIT, UNIT + 1, 3 * UNIT + 4096] {
            let parts = memory.payload(length, None);
            let whole: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            assert!(is_whole(&whole, length), "{length}");
            assert!(!is_whole(&whole, length + 1));
            assert_eq!(to_send(length).to_vec(), whole);
            let room = memory.payload(length, Some(Buf::zeroed(4 * UNIT)));
            assert_eq!(room.iter().map(|part| part.to_vec()).collect::<Vec<_>>().concat(), whole);
        }
        assert!(!is_whole(&[0; 4096], 4096));
    }

    #[test]
    fn too_little_room_is_not_used() {
        let parts = Memory::default().payload(4096, Some(Buf::zeroed(100)));
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 4096);
    }
}
