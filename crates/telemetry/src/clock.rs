//! The wall clock, which may be set back: for times that people see, and for numbers that differ from one start to the
//! next.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use types::time::Timestamp;

/// The time that goes into inodes.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX))
}

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> u64 {
    u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX)
}

/// Nothing, where the clock is before that.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
