//! Long writes over what is there already, made in place part by part: each part is written while the CPU's cache still
//! has it from its checksums, which saves a pass over memory.
//!
//! Only what lets the object keep its size is written so: others that look at it would see it grow step by step.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::buf::Slice;
use types::error::Errno;
use types::id::ObjectId;

use super::files::Files;
use super::sidecar::Sidecar;
use super::{Data, syscall};
use crate::open_files::OpenFile;
use crate::sums::blocks;

/// Bytes of a part: what a core's own cache holds beside all else.
const PART: usize = 128 << 10;
/// Bytes. Shorter writes are made at once.
const IN_PARTS_MIN: usize = 2 * PART;

#[cfg(test)]
std::thread_local! {
    /// Parts that this thread has written in place.
    pub(super) static PARTS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Whether a write of `len` bytes to an object of `size` may be made in parts: it changes whole blocks, so that none of
/// them has to be found right before anything is written, and the object keeps its size.
fn is_divisible(offset: u64, len: usize, size: u64) -> bool {
    let bytes = offset..offset + len as u64;
    len >= IN_PARTS_MIN && bytes.end <= size && blocks::edges(&bytes, size).is_empty()
}

impl Files {
    /// Whether this write is to be made by [`Self::write_in_parts`].
    pub(super) fn goes_in_parts(&self, file: &OpenFile, offset: u64, data: &Data) -> bool {
        let (len, now) = (data.bytes.len(), Instant::now());
        let takes_cache = (len as u64) < self.options.direct_min || !self.cache_cost.is_dear(now);
        // Where the sums are known, the bytes are looked at once anyway.
        data.sums.is_none()
            && is_divisible(offset, len, file.size.get())
            && len <= self.options.write_in_place_max
            && takes_cache
            && self.pace.is_calm(now)
    }

    /// Writes `data`, of each part the entries first; the rest in the usual way, once the disk does not keep up. After an
    /// error the parts before it are written, and none after it.
    pub(super) async fn write_in_parts(
        &self,
        object: ObjectId,
        file: &Rc<OpenFile>,
        sums: &Rc<Sidecar>,
        offset: u64,
        data: Data,
    ) -> Result<bool, Errno> {
        let (len, mut done, mut took) = (data.bytes.len(), 0, Duration::ZERO);
        file.durability.changes();
        while done < len && (done == 0 || self.pace.is_calm(Instant::now())) {
            let at = offset + done as u64;
            // So no part ends within a block of the file system, whose rest would have to be read.
            let end = len.min(done + PART - at as usize % PART);
            let part = Data { bytes: data.bytes.slice(done..end), sums: None, durable: false };
            let put = async |bytes: Slice| {
                let begun = Instant::now();
                // To change the entries may have taken long.
                if !self.pace.is_calm(begun) {
                    return self.put(file, at, bytes, false).await;
                }
                #[cfg(test)]
                PARTS.set(PARTS.get() + 1);
                let outcome = syscall::write_at(file.fd(), &bytes, at);
                let ended = Instant::now();
                took += ended - begun;
                // All parts together are one call that may have been held up.
                self.pace.record(ended.checked_sub(took).unwrap_or(begun), ended);
                outcome.map(|()| false)
            };
            self.change_summed(object, file, sums, at, part, put).await?;
            done = end;
        }
        let now = Instant::now();
        if len as u64 >= self.options.direct_min && !took.is_zero() {
            self.cache_cost.record(done as u64, now.checked_sub(took).unwrap_or(now), now);
        }
        if done == len {
            return Ok(false);
        }
        let (at, rest) = (offset + done as u64, Data { bytes: data.bytes.slice(done..len), ..data });
        self.change_summed(object, file, sums, at, rest, async |bytes| self.put(file, at, bytes, false).await).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    #[test]
    fn only_what_is_long_and_covers_what_is_there_is_written_in_parts() {
        for (offset, len, size, divisible) in [
            (0, 256 * K, 256 * K, true),
            (0, 255 * K, 256 * K, false),
            (4 * K, 300 * K, 1024 * K, true),
            (0, 256 * K, 256 * K - 1, false),
            (64 * K, 256 * K, 256 * K, false),
            (0, 256 * K, 0, false),
            (1, 300 * K, 1024 * K, false),
            (0, 256 * K + 1, 1024 * K, false),
            // Up to the end, which may lie within a block.
            (0, 256 * K + 1, 256 * K + 1, true),
        ] {
            assert_eq!(is_divisible(offset, len as usize, size), divisible, "{len} bytes to {offset} of {size}");
        }
    }
}
