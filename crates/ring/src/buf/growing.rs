//! Bytes that grow at their end, on any thread, and are sent without being copied.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{Buf, Common};

/// Room for a number of bytes, from memory that can be shared ([`Buf::shareable`]), of which the first are filled.
pub struct Growing {
    /// All of the room. Nobody else has a part of it.
    room: Common,
    len: usize,
}

impl Growing {
    /// Room for `capacity` bytes, of which none is filled. `None` where this thread lends no memory, or all of it is in use.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Option<Self> {
        let room = Buf::only_shareable(capacity)?;
        Some(Self { room: room.freeze().into_common(), len: 0 })
    }

    /// Bytes, filled or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.room.len
    }

    /// Adds as much of `bytes` as there is room for; what there is none for is given back.
    pub fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(self.capacity() - self.len));
        let before = self.len;
        self.len += now.len();
        self[before..].copy_from_slice(now);
        rest
    }

    /// Forgets what was filled after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// What is filled, for any number of readers.
    #[must_use]
    pub fn into_common(self) -> Common {
        Common { len: self.len, ..self.room }
    }
}

impl Deref for Growing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl DerefMut for Growing {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the room, which is initialised. It came from a `Buf`, which nobody shares, and no clone of the
        // `Common` was ever made: this is the only handle of the bytes, and it is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.room.given.memory.as_ptr().add(self.room.start), self.len) }
    }
}

impl fmt::Debug for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Growing({} of {} bytes)", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::buf::Slice;
    use crate::shared::on_a_thread_that_lends;

    #[test]
    fn threads_fill_it_one_after_the_other_and_read_it_at_once() {
        on_a_thread_that_lends(|| {
            let mut growing = Growing::with_capacity(10).expect("room");
            assert!(growing.fill(b"abc").is_empty());
            let address = growing.as_ptr().addr();
            let fill = move || {
                assert!(growing.fill(b"defg").is_empty());
                growing
            };
            let mut growing = thread::spawn(fill).join().expect("the thread fills it");
            growing[1..3].copy_from_slice(b"BC");
            assert_eq!(growing.fill(b"hijk"), b"k", "there is room for ten");
            assert_eq!((&growing[..], growing.capacity()), (&b"aBCdefghij"[..], 10));
            growing.truncate(9);
            assert_eq!(growing.fill(b"J!"), b"!");
            let common = growing.into_common();
            let theirs = common.clone();
            let read = move || assert_eq!(&Slice::from_common(&theirs)[..], b"aBCdefghiJ");
            thread::spawn(read).join().expect("it is read");
            assert_eq!(Slice::from_common(&common).as_ptr().addr(), address, "it was never copied");
        });
    }

    #[test]
    fn only_what_is_filled_is_told() {
        on_a_thread_that_lends(|| {
            let mut growing = Growing::with_capacity(1 << 20).expect("room");
            assert!(growing.fill(b"x").is_empty());
            assert!(Growing::with_capacity(1 << 20).is_none(), "all that the thread lends is in use");
            assert_eq!(&growing.into_common()[..], b"x");
        });
    }

    #[test]
    fn a_thread_that_lends_nothing_has_no_room() {
        assert!(Growing::with_capacity(1).is_none());
    }
}
