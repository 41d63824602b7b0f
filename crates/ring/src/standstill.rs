//! How long this machine has slept. The clock that programs measure time by stands still meanwhile.

use std::time::Duration;

/// Since its start, but for what two clocks that are read one after the other may differ.
#[must_use]
pub fn asleep() -> Duration {
    clock(libc::CLOCK_BOOTTIME).saturating_sub(clock(libc::CLOCK_MONOTONIC))
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec. Both clocks are there in all kernels that have FUSE.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
