//! Advice to the kernel about memory.

use std::ops::Range;
use std::ptr::NonNull;

/// Bytes of the smallest large page.
const LARGE: usize = 2 << 20;

/// Asks for large pages under `memory`, which is looked at here and there all over: with small ones nearly each look walks
/// through page tables first, in a virtual machine through two. Without effect where the kernel has none to give, and
/// on what is smaller than such a page.
pub fn prefer_large_pages(memory: &Range<*const u8>) {
    let begin = memory.start.addr().next_multiple_of(LARGE);
    let end = memory.end.addr() / LARGE * LARGE;
    let Some(len) = end.checked_sub(begin).filter(|&len| len > 0) else { return };
    let begin = memory.start.with_addr(begin).cast_mut().cast();
    for advice in [libc::MADV_HUGEPAGE, libc::MADV_COLLAPSE] {
        // SAFETY: the pages lie within the range, and this advice changes what is under them, not what is in them. The
        // answer does not matter: it is only advice.
        unsafe { libc::madvise(begin, len, advice) };
    }
}

/// Asks for large pages under memory that nobody has touched yet.
pub(crate) fn advise_large_pages(memory: NonNull<u8>, len: usize) {
    // SAFETY: the range is the caller's own; what is in it stays. The answer does not matter: it is only advice.
    unsafe { libc::madvise(memory.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

/// A dump of this process has nothing of it: it may be much longer than what is used of it.
pub(crate) fn leave_out_of_dumps(memory: NonNull<u8>, len: usize) {
    // SAFETY: as above.
    unsafe { libc::madvise(memory.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this process that are on large pages.
    fn on_large_pages() -> u64 {
        let all = std::fs::read_to_string("/proc/self/smaps_rollup").expect("readable");
        let line = all.lines().find(|line| line.starts_with("AnonHugePages:")).expect("a line of them");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    #[test]
    fn what_is_there_stays_and_may_move_to_large_pages() {
        let mut bytes = vec![7_u8; 8 * LARGE];
        prefer_large_pages(&bytes.as_ptr_range());
        bytes[LARGE] = 8;
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == if at == LARGE { 8 } else { 7 }));
        let allowed = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if allowed.contains("[always]") || allowed.contains("[madvise]") {
            assert!(on_large_pages() >= 4 * LARGE as u64, "{} bytes are", on_large_pages());
        }
    }

    #[test]
    fn nothing_happens_to_what_is_too_small() {
        let bytes = [1_u8; 100];
        prefer_large_pages(&bytes.as_ptr_range());
        prefer_large_pages(&bytes[..0].as_ptr_range());
        assert_eq!(bytes, [1; 100]);
    }
}
