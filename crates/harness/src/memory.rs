//! How much memory processes have.

use std::fs;

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

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: u64 = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    kib << 10
}
