//! StorageBench over all targets: each storage service measures its own; here they are told to begin, asked, and compared.

mod member;
mod report;
#[cfg(test)]
mod samples;
mod stability;
mod statistics;
mod verdict;

use std::time::Duration;

use conf::Fatal;
use types::error::Errno;
use types::id::TargetId;
use wire::v1::bench::{BenchCleanup, BenchRun, BenchStart, BenchStatus, BenchStatusReply, BenchStop};
pub use wire::v1::bench::{BenchPlan, BenchSync};

use self::member::{Answer, Member};
pub use self::report::{Asked, Extreme, Latency, Report, State, Summary, TargetResult};
pub use self::verdict::{Suspect, Suspicion};
use crate::data::{DataError, DataPlane};
pub use crate::runs::{Reached, Silent, Started};
use crate::runs::{next_run_number, silent};
pub use crate::targets::Choice;
use crate::targets::{Place, places};

/// Between two questions whether files are gone.
const PAUSE: Duration = Duration::from_millis(50);

/// Begins a run on the chosen targets, or on none.
pub(crate) async fn start(data: &DataPlane<'_>, plan: &BenchPlan, choice: &Choice) -> anyhow::Result<Started> {
    plan.check().map_err(Fatal::usage)?;
    let places = choice.of(data.map())?;
    let targets: Vec<TargetId> = places.iter().map(|place| place.target).collect();
    let mut started = Started { run: next_run_number(), targets: Vec::new(), silent: Vec::new() };
    let mut ready = Vec::new();
    for place in places {
        match status(data, &place).await {
            Ok(reply) => match occupation(&reply) {
                None => {
                    // Later than all that are known, also where the clock of another host was ahead.
                    let known = reply.run.map_or(0, |run| run.run);
                    started.run = started.run.max(known.saturating_add(1));
                    ready.push(place);
                }
                Some(why) => return Err(Fatal::failed(format!("{}: {why}; nothing was begun", place.name())).into()),
            },
            Err(reason) => started.silent.push(silent(&place, reason)),
        }
    }
    let request = BenchStart { run: started.run, plan: plan.clone(), targets };
    for place in ready {
        match data.lane(place.group, 0, &request).await {
            Ok(reply) if reply.refused.0.is_empty() => started.targets.push(place.target),
            Ok(reply) => {
                stop(data, started.run).await;
                let why = String::from_utf8_lossy(&reply.refused.0).into_owned();
                return Err(Fatal::failed(format!("{}: {why}; the others were stopped again", place.name())).into());
            }
            Err(error) => started.silent.push(silent(&place, error.to_string())),
        }
    }
    match started.silent.first().filter(|_| started.targets.is_empty()) {
        Some(first) => {
            Err(Fatal::failed(format!("no target answers: target {}: {}", first.target, first.reason)).into())
        }
        None => Ok(started),
    }
}

/// How the latest run goes, or went.
pub(crate) async fn latest(data: &DataPlane<'_>) -> anyhow::Result<Report> {
    let mut answers = Vec::new();
    for place in places(data.map()) {
        let answer = status(data, &place).await;
        answers.push((place, answer));
    }
    let runs = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?.run.as_ref());
    let Some(latest) = runs.max_by_key(|run| run.run).cloned() else {
        let silent: Vec<&str> =
            answers.iter().filter_map(|(_, answer)| answer.as_ref().err()).map(String::as_str).collect();
        return Err(match silent.first() {
            Some(first) => Fatal::failed(format!("no target that answers knows of a run; {first}")).into(),
            None => {
                Fatal::usage("there was no run since the storage services were started: begin one with --write").into()
            }
        });
    };
    let BenchRun { run, plan, targets, .. } = latest;
    let members = answers.into_iter().filter(|(place, _)| targets.contains(&place.target));
    let members: Vec<Member> = members.map(|(place, answer)| member(run, place, answer)).collect();
    Ok(report::report(run, &plan, &members))
}

/// How this one goes, or went, whichever others there are.
pub(crate) async fn of(data: &DataPlane<'_>, started: &Started, plan: &BenchPlan) -> Report {
    let silent = |target: TargetId| started.silent.iter().any(|silent| silent.target == target);
    let mut members = Vec::new();
    for place in places(data.map()) {
        if started.targets.contains(&place.target) || silent(place.target) {
            let answer = status(data, &place).await;
            members.push(member(started.run, place, answer));
        }
    }
    report::report(started.run, plan, &members)
}

fn member(run: u64, place: Place, answer: Result<BenchStatusReply, String>) -> Member {
    let answer = match answer {
        Ok(reply) => match reply.run {
            Some(found) if found.run == run => Answer::Run(Box::new(found)),
            // Numbers rise, and one that is under way is not replaced.
            Some(found) if found.run > run => Answer::Replaced,
            Some(_) | None => Answer::Lost,
        },
        Err(reason) => Answer::Silent(reason),
    };
    Member { place, answer }
}

/// Ends the run of this number everywhere; 0: whichever there is.
pub(crate) async fn stop(data: &DataPlane<'_>, run: u64) -> Reached {
    let mut reached = Reached::default();
    for place in places(data.map()) {
        let under_way = match status(data, &place).await {
            Ok(reply) => reply.run.is_some_and(|found| found.phase.is_under_way() && (run == 0 || found.run == run)),
            Err(reason) => {
                reached.silent.push(silent(&place, reason));
                continue;
            }
        };
        if under_way {
            match data.lane(place.group, 0, &BenchStop { run }).await {
                Ok(_) => reached.targets.push(place.target),
                Err(error) => reached.silent.push(silent(&place, error.to_string())),
            }
        }
    }
    reached
}

/// Removes the files of earlier runs, and waits for it.
pub(crate) async fn clean(data: &DataPlane<'_>, choice: &Choice) -> anyhow::Result<Reached> {
    let places = choice.of(data.map())?;
    let mut reached = Reached::default();
    for place in &places {
        match clean_one(data, place).await {
            Ok(()) => reached.targets.push(place.target),
            Err(DataError::Errno { errno: Errno::EBUSY, .. }) => {
                let name = place.name();
                return Err(
                    Fatal::failed(format!("{name} is in a run: wait for its end, or stop it with --stop")).into()
                );
            }
            Err(error) => reached.silent.push(silent(place, error.to_string())),
        }
    }
    for place in places.iter().filter(|place| reached.targets.contains(&place.target)) {
        let status = loop {
            let status = data.lane(place.group, 0, &BenchStatus {}).await?;
            if !status.cleaning {
                break status;
            }
            ring::sleep(PAUSE).await;
        };
        reached.failed.extend(left_behind(&status).map(|reason| silent(place, reason)));
    }
    reached.targets.retain(|target| reached.failed.iter().all(|failed| failed.target != *target));
    Ok(reached)
}

/// What a cleaning that has ended could not remove.
fn left_behind(status: &BenchStatusReply) -> Option<String> {
    let kib = status.files.div_ceil(1024);
    (kib > 0).then(|| format!("{kib} KiB of files of runs could not be removed: look into the log of its service"))
}

async fn clean_one(data: &DataPlane<'_>, place: &Place) -> Result<(), DataError> {
    if !place.online {
        return Err(DataError::NoRoute(format!("{}, which is offline,", place.name())));
    }
    data.lane(place.group, 0, &BenchCleanup {}).await.map(drop)
}

/// Who is known to be away is not waited for.
async fn status(data: &DataPlane<'_>, place: &Place) -> Result<BenchStatusReply, String> {
    if !place.online {
        return Err(format!("{} is offline: start its storage service", place.name()));
    }
    data.lane(place.group, 0, &BenchStatus {}).await.map_err(|error| error.to_string())
}

fn occupation(reply: &BenchStatusReply) -> Option<String> {
    if reply.cleaning {
        return Some("the files of earlier runs are being removed: try again in a moment".to_owned());
    }
    let run = reply.run.as_ref().filter(|run| run.phase.is_under_way())?;
    let what = if run.plan.read { "read" } else { "write" };
    Some(format!("a {what} run is under way: wait for its end (--status), or stop it with --stop"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_on_a_target_is_no_restart_of_its_service() {
        let answer = |known: Option<u64>| {
            let run = known.map(|number| BenchRun { run: number, ..samples::run(1) });
            let place = samples::member(1, Answer::Lost).place;
            member(7, place, Ok(BenchStatusReply { cleaning: false, files: 0, run })).answer
        };
        assert!(matches!(answer(Some(7)), Answer::Run(_)));
        assert!(matches!(answer(Some(8)), Answer::Replaced));
        assert!(matches!(answer(Some(6)), Answer::Lost) && matches!(answer(None), Answer::Lost));
    }

    #[test]
    fn files_that_remain_after_a_cleaning_are_told() {
        let status = |files| BenchStatusReply { cleaning: false, files, run: None };
        assert_eq!(left_behind(&status(0)), None);
        assert!(left_behind(&status(4097)).is_some_and(|reason| reason.starts_with("5 KiB of files")));
    }
}
