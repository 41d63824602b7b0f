//! Which rails are called failed, and for how long that is believed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use telemetry::metrics::Gauge;

/// Whoever needs a rail tries it every minute at least. One that nobody has tried for so long is needed by nobody: its
/// peer is gone or has moved, or who asked for something has given up. Nothing would ever say that it works again.
const BELIEVED: Duration = Duration::from_secs(300);

/// By rail and peer: whether it is healthy, and when it failed last.
#[derive(Default)]
pub(super) struct Failed(Mutex<BTreeMap<[String; 2], (Gauge, Instant)>>);

impl Failed {
    /// Whether it was healthy until now.
    pub(super) fn failed(&self, rail: &[String; 2], healthy: &Gauge, now: Instant) -> bool {
        self.lock().insert(rail.clone(), (healthy.clone(), now));
        healthy.set(0) > 0
    }

    /// It was tried again, in vain. Others may know better meanwhile, so this says no more than the first time did.
    pub(super) fn still_fails(&self, rail: &[String; 2], healthy: &Gauge, now: Instant) {
        if self.lock().insert(rail.clone(), (healthy.clone(), now)).is_none() {
            healthy.set(0);
        }
    }

    /// Takes those back that nobody has tried for long.
    pub(super) fn forget(&self, now: Instant) {
        self.lock().retain(|_, (healthy, at)| {
            let is_believed = now.saturating_duration_since(*at) < BELIEVED;
            if !is_believed {
                healthy.set(1);
            }
            is_believed
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[String; 2], (Gauge, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_nobody_tries_any_more_is_not_called_failed_for_ever() {
        let (failed, healthy, begun) = (Failed::default(), Gauge::default(), Instant::now());
        let rail = ["10.0.0.1", "10.0.0.2"].map(str::to_owned);
        let after = |seconds| begun + Duration::from_secs(seconds);
        healthy.set(1);
        assert!(failed.failed(&rail, &healthy, begun));
        assert!(!failed.failed(&rail, &healthy, after(1)));
        for at in (60..3600).step_by(60) {
            failed.still_fails(&rail, &healthy, after(at));
            failed.forget(after(at + 59));
            assert_eq!(healthy.get(), 0, "somebody needs it");
        }
        // Another one that leads there works.
        healthy.set(1);
        failed.still_fails(&rail, &healthy, after(3600));
        assert_eq!(healthy.get(), 1);
        assert!(failed.failed(&rail, &healthy, after(3600)));
        failed.forget(after(3900));
        assert_eq!(healthy.get(), 1, "nobody needs it");
        failed.still_fails(&rail, &healthy, after(4000));
        assert_eq!(healthy.get(), 0, "now somebody does");
    }
}
