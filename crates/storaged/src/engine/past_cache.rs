//! Requests that go past the page cache: large ones, and writes that are synced one by one.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use ring::buf::{Buf, Slice};
use ring::op;
use types::error::Errno;

use super::files::Files;
use crate::direct::{self, Direct};
use crate::open_files::OpenFile;

/// Bytes: longer writes are worth a sync of their own, and those that follow may find them in the cache.
const SYNCED_MAX: u64 = 64 << 10;
/// Bytes. Where pages are larger, the cache counts for less than it holds: an estimate is enough.
const PAGE: u64 = 4096;

impl Files {
    /// The way past the cache, for a range where that can pay: it is long, most of it is not cached, and the disk has
    /// all of it.
    pub(super) fn past_cache<'a>(&self, file: &'a OpenFile, offset: u64, len: u64) -> Option<&'a Direct> {
        if len < self.options.direct_min {
            return None;
        }
        let cached = direct::cached(file.fd(), offset, len).ok()?;
        let pays = cached.unwritten == 0 && 2 * cached.pages < len.div_ceil(PAGE);
        pays.then(|| file.direct()).flatten()
    }

    /// Whether reads of this length go past the cache now.
    pub(super) fn goes_past_cache(&self, len: u64) -> bool {
        len >= self.options.direct_min && self.cache_cost.is_dear(Instant::now())
    }

    /// Reads `len` bytes, all of them within the file, into the front of `buf`; gives `buf` back with what it has read,
    /// which is less where the file ended before. `Err` gives it back where this way is not for that request.
    pub(super) async fn read_past_cache(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: u64,
        mut buf: Buf,
    ) -> Result<(usize, Buf), Buf> {
        let way = if self.goes_past_cache(len) { self.past_cache(file, offset, len) } else { None };
        let Some((way, rounded)) = way.and_then(|way| Some((way, way.readable(&buf, offset, len)?))) else {
            return Err(buf);
        };
        self.fetch_on(file, offset, len);
        let rest = buf.split_off(rounded);
        let (outcome, read) = op::read_once(way.fd(), buf, offset).await;
        buf = read;
        buf.unsplit(rest).expect("the two parts of one buffer");
        match outcome {
            Ok(count) => {
                let count = count.min(len as usize);
                self.past_bytes.read.inc_by(count as u64);
                Ok((count, buf))
            }
            // Whatever it is, the usual way has it too, and tells it.
            Err(_) => Err(buf),
        }
    }

    /// Writes all of `data` and has it on the disk; `None` where this way is not for that request: it makes the object longer,
    /// say, which would cost a commit of the journal. (So does a hole, which is not looked for: a sync would cost it as well.)
    pub(super) async fn write_durably(&self, file: &OpenFile, offset: u64, data: &Slice) -> Option<Result<(), Errno>> {
        let len = data.len() as u64;
        if len > SYNCED_MAX || offset + len > file.size.get() {
            return None;
        }
        let way = file.direct()?;
        // Small payloads lie anywhere in what came with them.
        let data = if way.is_writable(data, offset) { data.clone() } else { Buf::from_slice(data).freeze() };
        if !way.is_writable(&data, offset) {
            return None;
        }
        // What is there and not written yet, it would have to wait for.
        if direct::cached(file.fd(), offset, len).ok()?.unwritten > 0 {
            return None;
        }
        self.written_past(op::write_durably_at(way.fd(), data, offset).await)
    }

    /// Writes all of `data`; `None` where this way is not for that request.
    pub(super) async fn write_past_cache(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &Slice,
    ) -> Option<Result<(), Errno>> {
        let way = self.past_cache(file, offset, data.len() as u64)?;
        if !way.is_writable(data, offset) {
            return None;
        }
        self.written_past(op::write_at(way.fd(), data.clone(), offset).await)
    }

    fn written_past(&self, outcome: io::Result<usize>) -> Option<Result<(), Errno>> {
        match outcome.map_err(Errno::from) {
            // After a part, the rest may be no longer aligned; and not every file system says before what it wants.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => None,
            Err(errno) => Some(Err(errno)),
            Ok(count) => {
                self.past_bytes.written.inc_by(count as u64);
                Some(Ok(()))
            }
        }
    }
}
