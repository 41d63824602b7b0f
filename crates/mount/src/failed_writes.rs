//! Writes that have failed, and what the kernel asks for then.
//!
//! Of a write that its program does not wait for (io_uring, libaio), that fails and would have made the file longer, the kernel
//! takes back what there may be of it: it has the file cut where it believes its end to be (`fuse_do_truncate` in Linux's
//! `fs/fuse/file.c`). It believes what this mount has told it last, and other mounts may have written behind that since.
//! Nothing tells such a request from a program's `ftruncate` but what its thread is at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::attr::SetAttr;

use crate::process::{self, Cutter};

/// The kernel cuts right after the answer; but this process may stand still.
const CUT_WITHIN: Duration = Duration::from_secs(10);
/// Most programs that cut a file are asleep by then.
const LOOKS_IF_NONE_FAILED: u32 = 3;

/// The last one of each open file, of those after which the kernel has asked for nothing yet.
#[derive(Default)]
pub(crate) struct FailedWrites {
    by_handle: Mutex<BTreeMap<u64, Failed>>,
    count: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    thread: u32,
    at: Instant,
}

impl Failed {
    fn is_new(&self) -> bool {
        self.at.elapsed() < CUT_WITHIN
    }
}

/// Who wants a file to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Programs,
    /// The kernel takes back what there may be of a failed write.
    Kernels,
    /// It may be either. The kernel does not look at the answer, and a program that is told of an interruption asks again, and
    /// has it then.
    Unclear,
}

impl FailedWrites {
    /// A write of this thread through this open file has failed, or a part of one.
    pub(crate) fn add(&self, handle: u64, thread: u32) {
        let mut table = self.table();
        table.insert(handle, Failed { thread, at: Instant::now() });
        self.count.store(table.len(), Ordering::Release);
    }

    /// The open file is closed.
    pub(crate) fn forget(&self, handle: u64) {
        self.take(handle);
    }

    /// Whose wish a change is that this thread has asked for through this open file.
    pub(crate) async fn wish(&self, handle: Option<u64>, thread: u32, change: &SetAttr) -> Wish {
        let Some(handle) = handle.filter(|_| is_size_alone(change)) else { return Wish::Programs };
        // The kernel's comes first.
        let has_failed = self.take(handle).is_some_and(|failed| failed.thread == thread && failed.is_new());
        // Also a write that never came here may have failed, for its buffer.
        let cutter = process::cutter(thread, if has_failed { process::LOOKS_MAX } else { LOOKS_IF_NONE_FAILED }).await;
        match cutter {
            Cutter::Submits => Wish::Kernels,
            Cutter::Unclear if has_failed => Wish::Unclear,
            Cutter::Unclear | Cutter::Truncates => Wish::Programs,
        }
    }

    fn take(&self, handle: u64) -> Option<Failed> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut table = self.table();
        let failed = table.remove(&handle);
        self.count.store(table.len(), Ordering::Release);
        failed
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Failed>> {
        self.by_handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That is all that the kernel changes by itself.
fn is_size_alone(change: &SetAttr) -> bool {
    let SetAttr { size, kill_suid_sgid, kill_sgid, .. } = *change;
    size.is_some() && *change == SetAttr { size, kill_suid_sgid, kill_sgid, ..SetAttr::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(size: u64) -> SetAttr {
        SetAttr { size: Some(size), kill_suid_sgid: true, ..SetAttr::default() }
    }

    fn wish(failed: &FailedWrites, handle: Option<u64>, thread: u32, change: &SetAttr) -> Wish {
        let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
        ring.run(failed.wish(handle, thread, change))
    }

    /// Of thread 0 nothing can be seen.
    #[test]
    fn a_cut_that_nobody_may_have_asked_for_is_known_by_its_thread_and_open_file() {
        let failed = FailedWrites::default();
        let then = |handle, thread, change: &SetAttr| {
            failed.add(7, 0);
            wish(&failed, handle, thread, change)
        };
        assert_eq!(then(Some(7), 0, &cut(0)), Wish::Unclear);
        assert_eq!(wish(&failed, Some(7), 0, &cut(0)), Wish::Programs, "it asks again");
        for (handle, thread) in [(Some(7), u32::MAX), (Some(8), 0), (None, 0)] {
            assert_eq!(then(handle, thread, &cut(0)), Wish::Programs);
        }
        assert_eq!(then(Some(7), 0, &SetAttr { mode: Some(0o644), ..cut(0) }), Wish::Programs);
        failed.add(7, 0);
        failed.forget(7);
        assert_eq!(wish(&failed, Some(7), 0, &cut(0)), Wish::Programs);
        let long_ago = Instant::now().checked_sub(2 * CUT_WITHIN).expect("the machine runs for longer");
        failed.table().insert(7, Failed { thread: 0, at: long_ago });
        failed.count.store(1, Ordering::Release);
        assert_eq!(wish(&failed, Some(7), 0, &cut(0)), Wish::Programs);
    }
}
