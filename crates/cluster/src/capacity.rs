//! How full the targets are. Changes too often to be part of the map: it travels beside it, without an epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::id::TargetId;

use crate::map::CapacityClass;

/// What the file system of one target says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Capacity {
    pub total_bytes: u64,
    /// What an unprivileged process may still use.
    pub free_bytes: u64,
    /// 0 where the file system makes inodes as it needs them.
    pub total_inodes: u64,
    pub free_inodes: u64,
}

/// The last report of each target that has made one.
pub type Capacities = BTreeMap<TargetId, Capacity>;

/// When a target counts as low, and when as nearly full: below either bound of the pair that is smaller, so that
/// absolute figures made for large disks leave small ones usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub low: Limit,
    pub emergency: Limit,
    /// A class is left only when there is this much more free than its limit, in percent of the limit: a target at the
    /// edge does not change the map at every report.
    pub recover_percent: u8,
}

/// The smaller of the two counts; inodes by percent alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub bytes: u64,
    /// Of the total, 0 to 100.
    pub percent: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            low: Limit { bytes: 64 << 30, percent: 10 },
            emergency: Limit { bytes: 4 << 30, percent: 2 },
            recover_percent: 20,
        }
    }
}

impl Limits {
    /// The class of a target that was `before` and now reports `capacity`.
    #[must_use]
    pub fn class(&self, before: CapacityClass, capacity: &Capacity) -> CapacityClass {
        if self.within(self.emergency, before >= CapacityClass::Emergency, capacity) {
            CapacityClass::Emergency
        } else if self.within(self.low, before >= CapacityClass::Low, capacity) {
            CapacityClass::Low
        } else {
            CapacityClass::Normal
        }
    }

    fn within(&self, limit: Limit, already: bool, capacity: &Capacity) -> bool {
        let bytes = limit.bytes.min(percent_of(capacity.total_bytes, limit.percent));
        let inodes = percent_of(capacity.total_inodes, limit.percent);
        let widen =
            |bound: u64| if already { bound.saturating_add(percent_of(bound, self.recover_percent)) } else { bound };
        capacity.free_bytes < widen(bytes) || capacity.free_inodes < widen(inodes)
    }
}

fn percent_of(total: u64, percent: u8) -> u64 {
    // In 128 bits, so that no total overflows.
    u64::try_from(u128::from(total) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(free_bytes: u64) -> Capacity {
        Capacity { total_bytes: 1 << 40, free_bytes, total_inodes: 0, free_inodes: 0 }
    }

    #[test]
    fn classes_fall_at_the_limit_and_recover_above_it() {
        let limits = Limits::default();
        let mut class = CapacityClass::Normal;
        let mut walk = |free_gib: u64| {
            class = limits.class(class, &bytes(free_gib << 30));
            class
        };
        assert_eq!(walk(64), CapacityClass::Normal);
        assert_eq!(walk(63), CapacityClass::Low);
        assert_eq!(walk(70), CapacityClass::Low, "recovers only 20 % above the limit");
        assert_eq!(walk(77), CapacityClass::Normal);
        assert_eq!(walk(3), CapacityClass::Emergency);
        assert_eq!(walk(4), CapacityClass::Emergency);
        assert_eq!(walk(5), CapacityClass::Low);
    }

    #[test]
    fn a_small_disk_is_measured_in_percent_and_inodes_count_too() {
        let limits = Limits::default();
        let small = Capacity { total_bytes: 1 << 30, free_bytes: 512 << 20, total_inodes: 1000, free_inodes: 500 };
        assert_eq!(limits.class(CapacityClass::Normal, &small), CapacityClass::Normal);
        assert_eq!(limits.class(CapacityClass::Normal, &Capacity { free_inodes: 50, ..small }), CapacityClass::Low);
        assert_eq!(
            limits.class(CapacityClass::Normal, &Capacity { free_inodes: 0, ..small }),
            CapacityClass::Emergency
        );
        assert_eq!(
            limits.class(CapacityClass::Normal, &Capacity { free_bytes: 1 << 20, ..small }),
            CapacityClass::Emergency
        );
    }
}
