//! Whether bytes move on a connection of which nothing whole comes: over a slow link a long frame takes its time, and its
//! end is what else counts as a sign of life. Pure; what the kernel has counted and the time come in.

use std::time::{Duration, Instant};

use ring::op::TcpSigns;

/// Fewer bytes between two looks are no movement: to be asked whether one lives is acknowledged by the kernel of a process
/// that is stopped, too.
const MOVES_MIN: u64 = 4 << 10;

/// Whether bytes move on one connection.
#[derive(Debug)]
pub(crate) struct Flow {
    acknowledged: u64,
    received: u64,
    /// When a look saw that they had moved.
    moved: Option<Instant>,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self { acknowledged: 0, received: 0, moved: None }
    }

    /// For how long nothing has moved, as far as the looks tell; the longest time for sockets that count nothing.
    pub(crate) fn still(&mut self, now: Instant, signs: Option<&TcpSigns>) -> Duration {
        if let Some(&TcpSigns { acknowledged, received, .. }) = signs {
            let moves = |before: u64, after: u64| after.saturating_sub(before) >= MOVES_MIN;
            if moves(self.acknowledged, acknowledged) || moves(self.received, received) {
                self.moved = Some(now);
            }
            (self.acknowledged, self.received) = (acknowledged, received);
        }
        self.moved.map_or(Duration::MAX, |moved| now.saturating_duration_since(moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(acknowledged: u64, received: u64) -> TcpSigns {
        let (since_acknowledged, round_trip, variance) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        TcpSigns { unacknowledged: true, since_acknowledged, round_trip, variance, acknowledged, received }
    }

    #[test]
    fn bytes_either_way_are_movement_and_pings_are_not() {
        let (begin, mut flow) = (Instant::now(), Flow::new());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(flow.still(at(0), Some(&signs(300, 200))), Duration::MAX);
        assert_eq!(flow.still(at(4), Some(&signs(9000, 200))), Duration::ZERO, "what is written");
        assert_eq!(flow.still(at(8), Some(&signs(9000, 50_000))), Duration::ZERO, "what is read");
        for second in 9..60 {
            let still = flow.still(at(second), Some(&signs(9000 + 100 * second, 50_000)));
            assert_eq!(still, Duration::from_secs(second - 8), "pings alone");
        }
        assert_eq!(flow.still(at(60), Some(&signs(40_000, 50_000))), Duration::ZERO);
    }

    #[test]
    fn sockets_that_count_nothing_tell_nothing() {
        assert_eq!(Flow::new().still(Instant::now(), None), Duration::MAX);
    }
}
