//! Which targets are not as the others of their pool, and why. Pure.
//!
//! Pools are judged apart, since they are made of different disks on purpose. What a target is compared with is the median
//! of its pool: up to half of the targets may be ill without it being moved much.

use std::collections::BTreeMap;

use serde::Serialize;
use types::id::TargetId;
use wire::v1::bench::{BenchPhase, BenchPlace, BenchRun};

use super::member::{Answer, Member, kib, seconds};
use super::stability;
use super::statistics::{deviation, median, percentile};

/// So many deviations below the median are no chance any more: the usual bound of the modified z-score.
const DEVIATIONS: f64 = 3.5;
/// Less than this below the median never counts, however alike the others are.
const SLOW_LEAST: f64 = 0.15;
/// More than this below the median always counts, however different the others are.
const SLOW_MOST: f64 = 0.5;
/// Shorter runs tell nothing about speed.
const SECONDS_MIN: f64 = 1.0;
/// A slowest percent so many times slower than that of the others is unsteady ...
const TAIL_FACTOR: f64 = 5.0;
/// ... unless it is short anyway, in nanoseconds.
const TAIL_LEAST: f64 = 20e6;
/// ... and of fewer blocks the slowest percent is a handful, which any of them may have had bad luck with.
const TAIL_BLOCKS: u64 = 500;
/// A file system with less of its space free is full.
const FREE_LEAST: f64 = 0.01;

/// What may be wrong with a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Suspicion {
    /// Errors, or no answer.
    Failing,
    /// Not set up as the others: full, another file system, on the root disk ...
    Misconfigured,
    Slow,
    /// Its speed changes over time more than that of the others.
    Unstable,
}

/// A target, and a reason to look at it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Suspect {
    pub target: TargetId,
    pub node: String,
    pub suspicion: Suspicion,
    /// For people.
    pub reason: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdict {
    pub(super) suspects: Vec<Suspect>,
    /// What the figures do not tell.
    pub(super) notes: Vec<String>,
}

impl Verdict {
    fn suspect(&mut self, member: &Member, suspicion: Suspicion, reason: String) {
        let (target, node) = (member.place.target, member.place.alias.clone());
        self.suspects.push(Suspect { target, node, suspicion, reason });
    }
}

/// On a run that has ended everywhere.
pub(super) fn judge(members: &[Member]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut pools: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in members {
        judge_alone(&mut verdict, member);
        pools.entry(&member.place.pool).or_default().push(member);
    }
    for (pool, members) in pools {
        judge_places(&mut verdict, pool, &members);
        judge_speeds(&mut verdict, pool, &members);
    }
    note_caches(&mut verdict, members);
    verdict.suspects.sort_by_key(|suspect| (suspect.target, suspect.suspicion));
    verdict
}

/// What is wrong whatever the others are like.
fn judge_alone(verdict: &mut Verdict, member: &Member) {
    let run = match &member.answer {
        Answer::Run(run) => run,
        Answer::Lost => {
            let reason =
                "its service was restarted since the run began, or never heard of it: look into its log".to_owned();
            return verdict.suspect(member, Suspicion::Failing, reason);
        }
        Answer::Replaced => {
            let note = format!("{} was measured again meanwhile by another run: it is not judged", member.place.name());
            return verdict.notes.push(note);
        }
        Answer::Silent(why) => return verdict.suspect(member, Suspicion::Failing, why.clone()),
    };
    let message = String::from_utf8_lossy(&run.message.0);
    match run.phase {
        BenchPhase::NoRoom => {
            let reason = format!("{}: {message}: make room, or give a smaller --size", fullness(&run.place));
            verdict.suspect(member, Suspicion::Misconfigured, reason);
        }
        BenchPhase::Failed if run.place.read_only => {
            verdict.suspect(member, Suspicion::Misconfigured, format!("{message}: mount it writable"));
        }
        BenchPhase::Failed => verdict.suspect(member, Suspicion::Failing, message.into_owned()),
        _ if is_full(&run.place) => verdict.suspect(member, Suspicion::Misconfigured, fullness(&run.place)),
        _ => {}
    }
}

fn is_full(place: &BenchPlace) -> bool {
    let little =
        place.free_bytes < place.reserve_bytes || (place.free_bytes as f64) < FREE_LEAST * place.total_bytes as f64;
    place.total_bytes > 0 && (little || (place.total_inodes > 0 && place.free_inodes == 0))
}

fn fullness(place: &BenchPlace) -> String {
    let (free, total) = (place.free_bytes >> 20, place.total_bytes >> 20);
    if place.total_inodes > 0 && place.free_inodes == 0 {
        return "its file system has no inodes left".to_owned();
    }
    let kept = place.reserve_bytes >> 20;
    if is_full(place) {
        format!("its disk is full: {free} of {total} MiB are free, and {kept} MiB are to stay so")
    } else {
        format!("too little of its disk is free: {free} of {total} MiB")
    }
}

/// The value of more than half of them, where there is one.
fn usual<T: Ord + Clone>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    let mut all = 0;
    for value in values {
        *counts.entry(value).or_default() += 1;
        all += 1;
    }
    counts.into_iter().find(|(_, count)| 2 * count > all).map(|(value, _)| value)
}

/// Where they lie, compared with each other.
fn judge_places(verdict: &mut Verdict, pool: &str, members: &[&Member]) {
    let places = members.iter().filter_map(|member| Some((*member, &member.run()?.place)));
    let places: Vec<(&Member, &BenchPlace)> = places.filter(|(_, place)| place.total_bytes > 0).collect();
    let count = places.len();
    let shares = |member: &Member, place: &BenchPlace| {
        let same =
            |(other, at): &&(&Member, &BenchPlace)| other.place.node == member.place.node && at.device == place.device;
        places.iter().filter(same).count() > 1
    };
    // Empty where the system does not tell.
    let told = places.iter().map(|(_, place)| place.file_system.0.as_slice()).filter(|name| !name.is_empty());
    let (file_system, is_told) = (usual(told.clone()), told.count() > 1);
    let on_root = usual(places.iter().map(|(_, place)| place.on_root));
    let shared = usual(places.iter().map(|(member, place)| shares(member, place)));
    if file_system.is_none() && is_told {
        verdict.notes.push(format!("the targets of pool {pool} lie on different file systems, none of them on most"));
    }
    for (member, place) in &places {
        let mut found = |reason: String| verdict.suspect(member, Suspicion::Misconfigured, reason);
        let (path, point) = (String::from_utf8_lossy(&place.path.0), String::from_utf8_lossy(&place.mount_point.0));
        let own = &place.file_system.0;
        if let Some(usual) = file_system.filter(|usual| !own.is_empty() && *usual != own.as_slice()) {
            let (own, usual) = (String::from_utf8_lossy(own), String::from_utf8_lossy(usual));
            found(format!(
                "{path} is on {own} (mounted on {point}), most of the {count} targets of pool {pool} on {usual}"
            ));
        }
        if place.on_root && on_root == Some(false) {
            found(format!("{path} is on the disk of /, unlike most targets of pool {pool}: is its own disk mounted?"));
        } else if shares(member, place) && shared == Some(false) {
            let reason = format!("{path} shares its disk (mounted on {point}) with another target of its node");
            found(format!("{reason}, unlike most of pool {pool}: is its own disk mounted?"));
        }
    }
    if shared == Some(true) && count > 1 {
        verdict
            .notes
            .push(format!("targets of pool {pool} share disks: they are measured at the same time, each its part"));
    }
}

fn judge_speeds(verdict: &mut Verdict, pool: &str, members: &[&Member]) {
    let measured = members.iter().filter_map(|member| Some((*member, member.rate()?)));
    let mut measured: Vec<(&Member, f64)> = measured.collect();
    let durations: Vec<f64> = measured.iter().filter_map(|(member, _)| member.run()).map(seconds).collect();
    // The slow ones take longest where all do the same amount of work.
    let Some(longest) = durations.into_iter().reduce(f64::max) else { return };
    if longest < SECONDS_MIN {
        let note = format!("pool {pool} was measured for {longest:.2} s: too short to judge its speed");
        verdict.notes.push(note + "; give a larger --size, or a --duration");
        return;
    }
    // Of one that was stopped when it had hardly begun, nothing can be said.
    let is_cut = |run: &BenchRun| run.phase == BenchPhase::Stopped && seconds(run) < SECONDS_MIN;
    measured.retain(|(member, _)| !member.run().is_some_and(is_cut));
    let slow = judge_rates(verdict, pool, &measured);
    let steady: Vec<&Member> =
        measured.iter().map(|(member, _)| *member).filter(|m| !slow.contains(&m.place.target)).collect();
    judge_tails(verdict, pool, &steady);
    for (target, reason) in stability::unstable(&steady) {
        if let Some(member) = steady.iter().find(|member| member.place.target == target) {
            verdict.suspect(member, Suspicion::Unstable, reason);
        }
    }
}

/// The slow ones.
fn judge_rates(verdict: &mut Verdict, pool: &str, measured: &[(&Member, f64)]) -> Vec<TargetId> {
    let rates: Vec<f64> = measured.iter().map(|(_, rate)| *rate).collect();
    let Some(center) = median(&rates) else { return Vec::new() };
    let allowed = (DEVIATIONS * deviation(&rates)).clamp(SLOW_LEAST * center, SLOW_MOST * center);
    let mut slow = Vec::new();
    for (member, rate) in measured.iter().filter(|(_, rate)| *rate < center - allowed) {
        let (own, usual, least) = (kib(*rate), kib(center), kib(center - allowed));
        let count = measured.len();
        let reason =
            format!("{own}; the median of the {count} targets of pool {pool} is {usual}, and {least} would do");
        verdict.suspect(member, Suspicion::Slow, reason);
        slow.push(member.place.target);
    }
    slow
}

/// Those of the usual speed whose slowest blocks take far longer than those of the others.
fn judge_tails(verdict: &mut Verdict, pool: &str, members: &[&Member]) {
    let tail = |member: &&Member| {
        let latencies = &member.run()?.latencies;
        let blocks: u64 = latencies.iter().map(|latency| latency.count).sum();
        percentile(latencies, 0.99).filter(|_| blocks >= TAIL_BLOCKS).map(|ns| ns as f64)
    };
    let tails: Vec<(&Member, f64)> = members.iter().filter_map(|member| Some((*member, tail(member)?))).collect();
    let Some(center) = median(&tails.iter().map(|(_, ns)| *ns).collect::<Vec<_>>()).filter(|_| tails.len() > 2) else {
        return;
    };
    for (member, ns) in tails.iter().filter(|(_, ns)| *ns > (TAIL_FACTOR * center).max(TAIL_LEAST)) {
        let (own, usual) = (ns / 1e6, center / 1e6);
        let reason = format!("1 % of its blocks took {own:.1} ms or more; in pool {pool} {usual:.1} ms is usual");
        verdict.suspect(member, Suspicion::Unstable, reason);
    }
}

fn note_caches(verdict: &mut Verdict, members: &[Member]) {
    let cached = |member: &&Member| member.run().is_some_and(|run| !run.direct && member.rate().is_some());
    let targets: Vec<String> = members.iter().filter(cached).map(|member| member.place.target.to_string()).collect();
    if !targets.is_empty() {
        let targets = targets.join(", ");
        let note = format!("targets {targets} were measured through the page cache: the figures are also the memory's");
        verdict.notes.push(note);
    }
}

#[cfg(test)]
mod tests;
