//! How much memory processes have.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Proportional set size in bytes: pages that several processes share are counted in parts. 0 where it is gone.
#[must_use]
pub fn pss(pid: i32) -> u64 {
    field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default(), "Pss:")
}

/// Resident set size in bytes. 0 where it is gone.
#[must_use]
pub fn rss(pid: i32) -> u64 {
    field(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmRSS:")
}

/// Runs `work`, and answers the largest resident set of each process meanwhile, in bytes.
///
/// # Panics
/// With `work`.
pub fn highest_during(pids: &[(String, i32)], work: impl FnOnce()) -> Vec<u64> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut highest = vec![0; pids.len()];
            while !done.load(Ordering::Acquire) {
                highest.iter_mut().zip(pids).for_each(|(high, (_, pid))| *high = rss(*pid).max(*high));
                thread::sleep(Duration::from_millis(20));
            }
            highest
        });
        // Also where the work panics, the sampler must end.
        let outcome = catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        let highest = sampler.join().expect("it only looks");
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
        highest
    })
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: u64 = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    kib << 10
}
