//! The memory of one entry: where the kernel puts a request and finds the answer.

use std::io;
use std::ptr::NonNull;

use ring::buf::Buf;

use crate::abi::over_ring::{ARGUMENTS_AT, ARGUMENTS_MAX, ENTRY_AT, HEADERS_LEN};
use crate::abi::{InHeader, OutHeader, RingEntryInOut, bytes_of, read_front};

/// The headers have the first page for themselves.
const PAYLOAD_AT: usize = 4096;
const _: () = assert!(HEADERS_LEN <= PAYLOAD_AT && ENTRY_AT + size_of::<RingEntryInOut>() == HEADERS_LEN);

/// Mapped memory, which takes up nothing until it is used. The kernel writes to it between a command and its completion;
/// nobody else touches it then.
pub(crate) struct Area {
    base: NonNull<u8>,
    /// Longest payload, in bytes.
    payload_max: usize,
    /// What the kernel reads when the entry is registered: headers, payload.
    vectors: [libc::iovec; 2],
}

/// A request as it lies in an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrived {
    pub(crate) commit_id: u64,
    pub(crate) unique: u64,
    arguments: usize,
    payload: usize,
}

impl Area {
    /// # Errors
    /// Where there is no address space left.
    pub(crate) fn new(payload_max: usize) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        let len = PAYLOAD_AT + payload_max;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page would hold two areas, and most of both is never used: many requests are short. It is no loss where a
        // kernel has none.
        // SAFETY: the mapping that was just made.
        unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: within the mapping.
        let payload = unsafe { base.add(PAYLOAD_AT) };
        let vector = |base: NonNull<u8>, len| libc::iovec { iov_base: base.as_ptr().cast(), iov_len: len };
        Ok(Self { base, payload_max, vectors: [vector(base, HEADERS_LEN), vector(payload, payload_max)] })
    }

    /// Address and number of the vectors that describe it.
    pub(crate) fn vectors(&self) -> (u64, u32) {
        (self.vectors.as_ptr() as u64, self.vectors.len() as u32)
    }

    /// The request that has just come; `None` where its lengths make no sense.
    pub(crate) fn arrived(&self) -> Option<Arrived> {
        let header: InHeader = read_front(self.bytes(0, size_of::<InHeader>()))?;
        let entry: RingEntryInOut = read_front(self.bytes(ENTRY_AT, size_of::<RingEntryInOut>()))?;
        let payload = entry.payload_len as usize;
        let arguments = (header.len as usize).checked_sub(size_of::<InHeader>())?.checked_sub(payload)?;
        let fits = arguments <= ARGUMENTS_MAX && payload <= self.payload_max;
        fits.then_some(Arrived { commit_id: entry.commit_id, unique: header.unique, arguments, payload })
    }

    /// Copies the request together, as `/dev/fuse` would have delivered it. The answer is its length; `None` where `into`
    /// is too short.
    pub(crate) fn copy_request(&self, arrived: Arrived, into: &mut Buf) -> Option<usize> {
        let parts = [
            self.bytes(0, size_of::<InHeader>()),
            self.bytes(ARGUMENTS_AT, arrived.arguments),
            self.bytes(PAYLOAD_AT, arrived.payload),
        ];
        let mut at = 0;
        for part in parts {
            into.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        Some(at)
    }

    /// Puts an answer in the place of the request. False where it is too long; nothing is changed then.
    pub(crate) fn put_answer(&self, arrived: Arrived, error: i32, parts: &[&[u8]]) -> bool {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        if payload > self.payload_max {
            return false;
        }
        // Within 32 bits, as the longest payload is.
        let (payload_len, len) = (payload as u32, (size_of::<OutHeader>() + payload) as u32);
        self.put(0, bytes_of(&OutHeader { len, error, unique: arrived.unique }));
        let entry = RingEntryInOut { commit_id: arrived.commit_id, payload_len, ..Default::default() };
        self.put(ENTRY_AT, bytes_of(&entry));
        let mut at = PAYLOAD_AT;
        for part in parts {
            self.put(at, part);
            at += part.len();
        }
        true
    }

    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= PAYLOAD_AT + self.payload_max, "within the area");
        // SAFETY: within the mapping, which is initialised (zeros at first) and lives as long as `self`. The kernel
        // writes only between a command and its completion, when the entry asks for nothing here.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PAYLOAD_AT + self.payload_max, "within the area");
        // SAFETY: within the mapping; nobody holds a reference into it, as all of `bytes()` end within a method of this
        // type, and the source is memory of others.
        unsafe { self.base.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever still lets the kernel write to it owns it as well.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAYLOAD_AT + self.payload_max) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(request: &InHeader, arguments: &[u8], payload: &[u8]) -> Area {
        let area = Area::new(8192).expect("address space");
        area.put(0, bytes_of(request));
        area.put(ARGUMENTS_AT, arguments);
        area.put(PAYLOAD_AT, payload);
        let payload_len = payload.len() as u32;
        area.put(ENTRY_AT, bytes_of(&RingEntryInOut { commit_id: 9, payload_len, ..Default::default() }));
        area
    }

    #[test]
    fn a_request_is_put_together_and_answered_in_place() {
        let header = InHeader { len: 40 + 8 + 5, opcode: 15, unique: 7, ..Default::default() };
        let area = area(&header, &[1; 8], b"hello");
        let arrived = area.arrived().expect("sound lengths");
        assert_eq!((arrived.commit_id, arrived.unique), (9, 7));
        let mut buf = Buf::with_capacity(100);
        assert_eq!(area.copy_request(arrived, &mut buf), Some(53));
        assert_eq!((&buf[..40], &buf[40..48], &buf[48..53]), (bytes_of(&header), &[1; 8][..], &b"hello"[..]));
        assert_eq!(area.copy_request(arrived, &mut Buf::with_capacity(52)), None);

        assert!(area.put_answer(arrived, 0, &[b"good ", b"bye"]));
        let out: OutHeader = read_front(area.bytes(0, 16)).expect("a header");
        assert_eq!((out.len, out.error, out.unique), (24, 0, 7));
        let entry: RingEntryInOut = read_front(area.bytes(ENTRY_AT, 32)).expect("an entry");
        assert_eq!((entry.commit_id, entry.payload_len), (9, 8));
        assert_eq!(area.bytes(PAYLOAD_AT, 8), b"good bye");
        assert!(!area.put_answer(arrived, 0, &[&[0; 8000], &[0; 193]]), "longer than the payload may be");
    }

    /// Pages of it that take up memory.
    fn resident(area: &Area) -> usize {
        let len = PAYLOAD_AT + area.payload_max;
        let mut pages = vec![0_u8; len.div_ceil(4096)];
        // SAFETY: the mapping, and a byte for each of its pages.
        let result = unsafe { libc::mincore(area.base.as_ptr().cast(), len, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn what_is_not_used_takes_up_nothing() {
        // Several, so that some huge page would lie in them.
        let areas: Vec<Area> = (0..8).map(|_| Area::new(1 << 20).expect("address space")).collect();
        for area in &areas {
            assert_eq!(resident(area), 0);
            area.put(PAYLOAD_AT, &[1; 5000]);
        }
        assert!(areas.iter().all(|area| resident(area) == 2));
    }

    #[test]
    fn lengths_that_make_no_sense_are_no_request() {
        let length = |len| InHeader { len, unique: 7, ..Default::default() };
        assert_eq!(area(&length(39), &[], &[]).arrived(), None, "shorter than its header");
        assert_eq!(area(&length(44), &[], b"hello").arrived(), None, "shorter than its payload");
        assert_eq!(area(&length(40 + 129), &[], &[]).arrived(), None, "more arguments than there is room for");
        let too_much = area(&length(40 + 9000), &[], &[]);
        too_much.put(ENTRY_AT, bytes_of(&RingEntryInOut { payload_len: 9000, ..Default::default() }));
        assert_eq!(too_much.arrived(), None, "a payload that cannot be there");
    }
}
