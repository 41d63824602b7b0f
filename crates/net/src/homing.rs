//! When to go back to a rail that was lost: pure, time comes in.
//!
//! Soon after it works again, so that load stays spread as it was meant to be. But each return costs what is under way a
//! repetition: from a rail that works and does not last, for later each time.
//!
//! And when to ask over another rail, where nothing comes over the one that is used.

use std::time::{Duration, Instant};

/// From a loss to the first attempt.
pub const PAUSE_MIN: Duration = Duration::from_millis(500);
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A return has lasted when the rail was not lost again for so long.
const LASTS: Duration = Duration::from_secs(60);
/// From a question without an outcome to the next one, at first.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(2);

/// When the connection to one peer is to go back to its own rail.
#[derive(Clone, Debug)]
pub struct Homing {
    pause: Duration,
    /// Since then another rail is used.
    away: Option<Instant>,
    returned: Option<Instant>,
}

impl Default for Homing {
    fn default() -> Self {
        Self { pause: PAUSE_MIN, away: None, returned: None }
    }
}

impl Homing {
    /// To be called again and again. True where the rail is to be tried.
    pub fn is_due(&mut self, now: Instant, is_away: bool) -> bool {
        if !is_away {
            self.away = None;
            return false;
        }
        let away = *self.away.get_or_insert_with(|| {
            if let Some(returned) = self.returned.take() {
                let lasted = now.saturating_duration_since(returned) >= LASTS;
                self.pause = if lasted { PAUSE_MIN } else { (self.pause * 2).min(PAUSE_MAX) };
            }
            now
        });
        now.saturating_duration_since(away) >= self.pause
    }

    /// The rail takes what is sent and brings nothing: that it can be connected says little.
    pub fn deaf(&mut self) {
        (self.pause, self.returned) = (PAUSE_MAX, None);
    }

    /// The rail was tried, and is used again.
    pub fn returned(&mut self, now: Instant) {
        self.returned = Some(now);
    }
}

/// When to ask over another rail whether the other side answers, and over which: soon again where that stayed open, for one
/// answer may be slow and one rail dead, but later each time, as to connect costs the other side something, too.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// Questions without an outcome.
    asked: u32,
    next: Option<Instant>,
}

impl Asking {
    /// To be called again and again; `is_mute`: nothing comes over the rail that is used. Where it is to be asked: over which
    /// of the other rails, the best of them being 0.
    pub fn is_due(&mut self, now: Instant, is_mute: bool) -> Option<usize> {
        if !is_mute {
            *self = Self::default();
            return None;
        }
        self.next.is_none_or(|next| next <= now).then_some(self.asked as usize)
    }

    /// It was asked, and is not known.
    pub fn asked(&mut self, now: Instant) {
        self.next = Some(now + ASK_AGAIN_MIN * (1 << self.asked.min(4)));
        self.asked += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// Looks every 100 ms from `now` on until the rail is to be tried; how long that took.
    fn tried_after(homing: &mut Homing, now: Instant) -> Duration {
        let steps = (0..10_000).find(|&step| homing.is_due(now + STEP * step, true));
        STEP * steps.expect("it is tried in the end")
    }

    #[test]
    fn a_rail_is_tried_soon_after_it_was_lost() {
        let (mut homing, now) = (Homing::default(), Instant::now());
        assert!(!homing.is_due(now, false));
        assert_eq!(tried_after(&mut homing, now), PAUSE_MIN);
        assert!(homing.is_due(now + STEP * 100, true), "and goes on being tried");
    }

    #[test]
    fn one_that_does_not_last_is_tried_later_each_time() {
        let (mut homing, mut now) = (Homing::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let after = tried_after(&mut homing, now);
            pauses.push(after.as_millis());
            now += after;
            homing.returned(now);
            assert!(!homing.is_due(now, false));
            now += STEP;
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    }

    #[test]
    fn one_that_is_deaf_is_tried_late() {
        let (mut homing, now) = (Homing::default(), Instant::now());
        homing.returned(now);
        assert!(!homing.is_due(now + STEP, false));
        homing.deaf();
        assert_eq!(tried_after(&mut homing, now + STEP), PAUSE_MAX);
        homing.returned(now + PAUSE_MAX);
        assert!(!homing.is_due(now + PAUSE_MAX, false));
        assert_eq!(tried_after(&mut homing, now + PAUSE_MAX + LASTS), PAUSE_MIN, "whole again");
    }

    #[test]
    fn what_stays_open_is_asked_over_the_next_rail_later_each_time() {
        let (mut asking, begun) = (Asking::default(), Instant::now());
        assert_eq!(asking.is_due(begun, false), None);
        let mut asked = Vec::new();
        for step in 0..300 {
            if let Some(rail) = asking.is_due(begun + STEP * step, true) {
                asked.push((step, rail));
                asking.asked(begun + STEP * step);
            }
        }
        assert_eq!(asked, [(0, 0), (20, 1), (60, 2), (140, 3)]);
        assert_eq!(asking.is_due(begun, false), None);
        assert_eq!(asking.is_due(begun, true), Some(0), "another time");
    }

    #[test]
    fn one_that_has_lasted_is_tried_soon_again() {
        let (mut homing, mut now) = (Homing::default(), Instant::now());
        for lasts in [Duration::from_secs(1), LASTS, LASTS] {
            now += tried_after(&mut homing, now);
            homing.returned(now);
            assert!(!homing.is_due(now, false));
            now += lasts;
        }
        assert_eq!(tried_after(&mut homing, now), PAUSE_MIN);
    }
}
