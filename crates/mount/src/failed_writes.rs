//! Writes that have failed, and what the kernel asks for then.
//!
//! Of a write that its program does not wait for (io_uring, libaio), that fails and would have made the file longer, the kernel
//! takes back what there may be of it: it has the file cut where it believes its end to be (`fuse_do_truncate` in Linux's
//! `fs/fuse/file.c`). It believes what this mount has told it last, and other mounts may have written behind that since.
//! Nothing tells such a request from a program's `ftruncate` but what its thread is at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::attr::SetAttr;

use crate::process;

/// The last one of each open file, of those after which the kernel has asked for nothing yet.
#[derive(Default)]
pub(crate) struct FailedWrites {
    by_handle: Mutex<BTreeMap<u64, Failed>>,
    count: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Failed {
    thread: u32,
    end: u64,
}

impl FailedWrites {
    /// A write through this open file has failed, or a part of one, that would have reached to `end`.
    pub(crate) fn add(&self, handle: u64, thread: u32, end: u64) {
        let mut table = self.table();
        let before = table.get(&handle).filter(|before| before.thread == thread).map_or(0, |before| before.end);
        table.insert(handle, Failed { thread, end: end.max(before) });
        self.count.store(table.len(), Ordering::Release);
    }

    /// The open file is closed.
    pub(crate) fn forget(&self, handle: u64) {
        self.take(handle);
    }

    /// The kernel takes back what there may be of a failed write of this thread, by a change that it has asked for through this
    /// open file.
    pub(crate) async fn are_taken_back(&self, handle: Option<u64>, thread: u32, change: &SetAttr) -> bool {
        let Some((handle, size)) = handle.zip(size_alone(change)) else { return false };
        // The kernel's comes first.
        let Some(failed) = self.take(handle).filter(|failed| failed.thread == thread) else { return false };
        match process::truncates(thread).await {
            Some(truncates) => !truncates,
            // A program can ask again for what is left out here; what is cut is lost.
            None => size < failed.end,
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

/// The size that is all the kernel changes by itself.
fn size_alone(change: &SetAttr) -> Option<u64> {
    let SetAttr { size, kill_suid_sgid, kill_sgid, .. } = *change;
    let alone = SetAttr { size, kill_suid_sgid, kill_sgid, ..SetAttr::default() };
    size.filter(|_| *change == alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(size: u64) -> SetAttr {
        SetAttr { size: Some(size), kill_suid_sgid: true, ..SetAttr::default() }
    }

    fn asked(failed: &FailedWrites, handle: Option<u64>, thread: u32, change: &SetAttr) -> bool {
        let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
        ring.run(failed.are_taken_back(handle, thread, change))
    }

    /// Of thread 0 nothing can be seen; this one is in no `ftruncate`.
    #[test]
    fn a_cut_that_nobody_asked_for_is_known_by_its_thread_and_open_file() {
        // SAFETY: a system call without arguments.
        let this = unsafe { libc::gettid() } as u32;
        let failed = FailedWrites::default();
        let then = |handle, thread, change: &SetAttr| {
            failed.add(7, 0, 4096);
            asked(&failed, handle, thread, change)
        };
        assert!(then(Some(7), 0, &cut(0)));
        assert!(!asked(&failed, Some(7), 0, &cut(0)), "the second is a program's");
        assert!(!then(Some(7), 0, &cut(4096)), "the kernel knows a shorter file");
        assert!(!then(Some(7), this, &cut(0)) && !then(Some(8), 0, &cut(0)) && !then(None, 0, &cut(0)));
        assert!(!then(Some(7), 0, &SetAttr { mode: Some(0o644), ..cut(0) }));
        [4096, 100].into_iter().for_each(|end| failed.add(7, 0, end));
        assert!(asked(&failed, Some(7), 0, &cut(200)), "both were parts of it");
        failed.add(7, 0, 4096);
        failed.forget(7);
        assert!(!asked(&failed, Some(7), 0, &cut(0)));
    }

    #[test]
    fn a_thread_that_can_be_seen_tells_by_its_call() {
        let failed = FailedWrites::default();
        let (told, tells) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            // SAFETY: a system call without arguments.
            told.send(unsafe { libc::gettid() } as u32).expect("the test listens");
            stopped.recv().expect_err("nothing is sent");
        });
        let thread = tells.recv().expect("it runs");
        failed.add(7, thread, 100);
        assert!(asked(&failed, Some(7), thread, &cut(4096)), "whatever the size");
        drop(stop);
        waits.join().expect("it ends");
    }
}
