//! Reading on before a sequential reader asks: by the kernel's page cache or, for large requests that go past it, into
//! memory of our own.

use std::rc::Rc;

use ring::buf::Buf;
use ring::op;

use super::files::{Files, clamp};
use crate::ahead::Piece;
use crate::open_files::OpenFile;

/// Bytes. Farthest that the kernel is told to read ahead.
pub(super) const KERNEL_WINDOW_MAX: u64 = 4 << 20;

impl Files {
    /// Tells the kernel what to read on with, where it does not do so by itself.
    pub(super) fn advise(&self, file: &Rc<OpenFile>, offset: u64, len: u64) {
        if !self.reads_ahead {
            return;
        }
        let ahead = file.readers.borrow_mut().on_read(offset, len, file.size.get(), KERNEL_WINDOW_MAX);
        let (Some((start, len)), Some(place)) = (ahead, self.queue.aside()) else { return };
        let file = Rc::clone(file);
        ring::spawn(async move {
            // Advice alone: where it fails, the read itself says why.
            let _ = op::fadvise(file.fd(), start, clamp(len), libc::POSIX_FADV_WILLNEED).await;
            drop(place);
        });
    }

    /// Told of a read that goes past the cache: has what follows fetched the same way. The pieces are as long as this
    /// read, so that the next ones find theirs whole.
    pub(super) fn fetch_on(&self, file: &Rc<OpenFile>, offset: u64, len: u64) {
        let window_max = self.ahead.window_max();
        let next = file.readers.borrow_mut().on_read(offset, len, file.size.get(), window_max);
        let Some((start, count)) = next else { return };
        let (mut at, end) = (start, start + count);
        while at < end {
            let step = len.min(end - at);
            // Where the cache has it, the cache is better. The disk may have enough to do with what is asked for.
            if self.past_cache(file, at, step).is_some()
                && let Some(place) = self.queue.read_at_once()
                && let Some(piece) = self.ahead.expect(file.pieces(), at..at + step)
            {
                let fetching = fetch(Rc::clone(file), piece);
                ring::spawn(async move {
                    fetching.await;
                    drop(place);
                });
            }
            at += step;
        }
    }

    /// The bytes of a read, all of them within the file, from what was read ahead. `Err` gives `room` back where they are
    /// not there; why not, the usual way finds out.
    pub(super) async fn find_ahead(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: u64,
        room: Option<Buf>,
    ) -> Result<Buf, Option<Buf>> {
        let range = offset..offset + len;
        let Some(taken) = file.pieces_if_any().and_then(|pieces| pieces.take(&range)) else { return Err(room) };
        if self.goes_past_cache(len) {
            self.fetch_on(file, offset, len);
        }
        self.ahead.gather(&taken, range, room).await
    }
}

/// Reads the piece; an error is nobody's yet.
async fn fetch(file: Rc<OpenFile>, piece: Rc<Piece>) {
    let (start, len) = (piece.range.start, piece.range.end - piece.range.start);
    let mut buf = Buf::with_whole_pages(len as usize);
    let way = file.direct().and_then(|way| Some((way, way.readable(&buf, start, len)?)));
    let bytes = match way {
        Some((way, rounded)) if !piece.is_forgotten() => {
            buf.truncate(rounded);
            match op::read_once(way.fd(), buf, start).await {
                (Ok(count), mut buf) if count as u64 >= len => {
                    buf.truncate(len as usize);
                    Some(buf)
                }
                _ => None,
            }
        }
        _ => None,
    };
    piece.arrive(bytes);
}
