//! Reading ahead for who reads a file in small pieces, one after the other: a longer piece is asked for at once, and the next
//! reads are answered from it. Only under a lease that tells of every change ([`crate::contents`]), and of one piece per
//! file: several readers at different places of one file go to the servers.

use ring::buf::Slice;
use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::contents::Content;
use crate::data::{Piece, assemble, joined};
use crate::metrics::Bytes;
use crate::router::Client;

/// Longer reads are [`crate::ahead`]'s, bytes.
pub(crate) const READ_MAX: u64 = 128 << 10;
/// The first piece that is asked for ahead of a reader, bytes; each further one is twice as long...
const FIRST: u64 = 128 << 10;
/// ...up to this.
const LONGEST: u64 = 1 << 20;
/// So many reads that follow each other make a reader.
const FOLLOWING: u32 = 2;

/// What was read ahead of one file, and where its reader is.
#[derive(Default, Debug)]
pub(crate) struct Window {
    /// Where the next read begins if it follows, and how many have followed each other.
    next: u64,
    following: u32,
    /// How much to ask for next.
    length: u64,
    ahead: Option<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    /// Of the [`Content`] that it is a part of.
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

#[derive(PartialEq, Eq, Debug)]
enum Next {
    /// These bytes.
    Here(Vec<u8>),
    /// So many from the offset on are worth asking for.
    Ask(u64),
    /// No more than what is read.
    Nothing,
}

impl Window {
    /// `[offset, end)` of the content `number` is being read.
    fn read(&mut self, number: u64, offset: u64, end: u64) -> Next {
        self.following = if offset == self.next { self.following.saturating_add(1) } else { 0 };
        self.next = end;
        if let Some(ahead) = self.ahead.as_ref().filter(|ahead| ahead.number == number)
            && let Some(begin) = offset.checked_sub(ahead.offset)
            && let Some(bytes) = ahead.bytes.get(begin as usize..(end - ahead.offset) as usize)
        {
            return Next::Here(bytes.to_vec());
        }
        if self.following < FOLLOWING {
            self.length = FIRST;
            return Next::Nothing;
        }
        let length = self.length.max(FIRST);
        self.length = (2 * length).min(LONGEST);
        Next::Ask(length)
    }

    fn bytes(&self) -> usize {
        self.ahead.as_ref().map_or(0, |ahead| ahead.bytes.len())
    }
}

/// Nobody reads the file any more. `total`: of all files.
pub(crate) fn forget(window: &mut Window, total: &Bytes) {
    total.change(window.bytes(), 0);
    *window = Window::default();
}

impl Client {
    /// `[offset, end)` of what the lease tells of, if it was read ahead, or is now; `None`: the servers are to be asked for it.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) async fn read_window(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        content: &Content,
        (offset, end): (u64, u64),
    ) -> Result<Option<Slice>, Errno> {
        let next = |file: &mut crate::file::File| file.window.read(content.number, offset, end);
        if end - offset > READ_MAX {
            return Ok(None);
        }
        let length = match self.shared.with_file(inode, next).ok_or(Errno::EBADF)? {
            Next::Here(bytes) => return Ok(Some(Slice::from_vec(bytes))),
            Next::Ask(length) if self.shared.metrics.ahead.get() < self.shared.config.data_cache => {
                length.max(end - offset)
            }
            Next::Ask(_) | Next::Nothing => return Ok(None),
        };
        let layout = self.shared.with_file(inode, |file| file.layout.clone()).ok_or(Errno::EBADF)?;
        let until = (offset + length).min(content.size);
        let pieces = self.read_pieces(caller, inode, &layout, offset, until).await?;
        // A hole, unless the lease has ended: then it may have been cut.
        if !pieces.iter().all(Piece::is_full) && !self.still_knows(inode, content) {
            return Ok(None);
        }
        let bytes = joined(&assemble(pieces, offset, until));
        let read = bytes[..(end - offset) as usize].to_vec();
        let total = &self.shared.metrics.ahead;
        self.shared.with_file(inode, |file| {
            total.change(file.window.bytes(), bytes.len());
            file.window.ahead = Some(Ahead { number: content.number, offset, bytes });
        });
        Ok(Some(Slice::from_vec(read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(number: u64, offset: u64, len: usize) -> Option<Ahead> {
        Some(Ahead { number, offset, bytes: vec![7; len] })
    }

    #[test]
    fn who_reads_on_is_read_ahead_of_more_and_more() {
        let mut window = Window::default();
        assert_eq!(window.read(1, 50_000, 54_096), Next::Nothing, "the first");
        assert_eq!(window.read(1, 54_096, 58_192), Next::Nothing, "one may be chance");
        assert_eq!(window.read(1, 58_192, 62_288), Next::Ask(FIRST));
        window.ahead = ahead(1, 58_192, FIRST as usize);
        assert_eq!(window.read(1, 62_288, 62_290), Next::Here(vec![7; 2]));
        let end = 58_192 + FIRST;
        window.next = end - 10;
        assert_eq!(window.read(1, end - 10, end + 10), Next::Ask(2 * FIRST), "no part of it is enough");
        window.ahead = ahead(1, end - 10, 2 * FIRST as usize);
        assert_eq!(window.read(1, 10, 20), Next::Nothing, "elsewhere");
        assert_eq!(window.read(1, end, end + 1), Next::Here(vec![7]), "it is still there");
    }

    #[test]
    fn what_was_read_of_another_content_is_worth_nothing() {
        let mut window = Window { ahead: ahead(1, 0, 100), ..Window::default() };
        assert_eq!(window.read(1, 10, 11), Next::Here(vec![7]));
        assert_eq!(window.read(2, 10, 11), Next::Nothing);
        assert_eq!(window.read(1, 99, 101), Next::Nothing, "nor what it has only a part of");
    }
}
