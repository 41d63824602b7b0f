//! Whose speed changes over time more than that of the others. Pure.

use types::id::TargetId;
use wire::v1::bench::BenchRun;

use super::member::Member;
use super::statistics::{deviation, median};

/// Blocks per thread that one interval has at least on average: with fewer, the rhythm of single blocks would be measured.
const BLOCKS_MIN: f64 = 8.0;
/// Intervals from which something may be said.
const INTERVALS_MIN: usize = 8;
/// An interval with less than this part of the median is a stall.
const STALL: f64 = 0.25;
/// What is no reason to look, by itself: deviation as a part of the median, and part of the intervals that are stalls.
const SPREAD_LEAST: f64 = 0.3;
const STALLS_LEAST: f64 = 0.05;
/// A target must be so many times worse than the median of the others.
const FACTOR: f64 = 2.5;

/// How even one target's course was.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Course {
    /// Deviation of the intervals as a part of their median.
    spread: f64,
    /// Part of the intervals that are stalls.
    stalls: f64,
    intervals: usize,
    /// Of the intervals looked at, in seconds.
    seconds: f64,
}

/// The unstable ones with the reasons.
pub(super) fn unstable(members: &[&Member]) -> Vec<(TargetId, String)> {
    let course = |member: &&Member| Some((member.place.target, course(member.run()?)?));
    let courses: Vec<(TargetId, Course)> = members.iter().filter_map(course).collect();
    let mut found = Vec::new();
    for (target, own) in &courses {
        let others = || courses.iter().filter(|(other, _)| other != target).map(|(_, course)| course);
        let usual = |of: fn(&Course) -> f64| median(&others().map(of).collect::<Vec<_>>());
        // A target alone has nobody to be compared with: it must be clearly bad.
        let bound = |usual: Option<f64>, least: f64| usual.map_or(2.0 * least, |usual| (FACTOR * usual).max(least));
        let seconds = own.seconds;
        if own.spread > bound(usual(|course| course.spread), SPREAD_LEAST) {
            let percent = own.spread * 100.0;
            found.push((*target, format!("its speed varied by {percent:.0} % from one {seconds:.1} s to the next")));
        } else if own.stalls * own.intervals as f64 >= 2.0
            && own.stalls > bound(usual(|course| course.stalls), STALLS_LEAST)
        {
            let (percent, all) = (own.stalls * 100.0, own.intervals);
            let slower = "less than a quarter of its usual speed";
            found.push((*target, format!("{slower} in {percent:.0} % of {all} intervals of {seconds:.1} s")));
        }
    }
    found
}

/// `None` where there is too little to say anything.
fn course(run: &BenchRun) -> Option<Course> {
    // The first interval has the start in it, and the last may be shorter.
    let samples = run.samples.get(1..run.samples.len().checked_sub(1)?)?;
    let mean = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
    let together = (BLOCKS_MIN * f64::from(run.plan.threads) / mean).ceil().max(1.0);
    if !together.is_finite() || together > samples.len() as f64 {
        return None;
    }
    let together = together as usize;
    let intervals: Vec<f64> = samples.chunks_exact(together).map(|chunk| chunk.iter().sum::<u64>() as f64).collect();
    let center = median(&intervals).filter(|center| *center > 0.0 && intervals.len() >= INTERVALS_MIN)?;
    let stalls = intervals.iter().filter(|blocks| **blocks < STALL * center).count();
    Some(Course {
        spread: deviation(&intervals) / center,
        stalls: stalls as f64 / intervals.len() as f64,
        intervals: intervals.len(),
        seconds: together as f64 * run.interval_ms as f64 / 1000.0,
    })
}
