//! Going over the objects of storage targets: each lane verifies its own; here they are told to begin, asked, and added up.

use conf::Fatal;
use serde::Serialize;
use types::id::TargetId;
use wire::v1::scrub::{ScrubCorrupt, ScrubRun, ScrubStart, ScrubStatus, ScrubStop};

use crate::data::{DataError, DataPlane, lanes};
use crate::paths;
use crate::runs::{Reached, Silent, Started, next_run_number, silent};
use crate::targets::{Choice, Place, places};

/// How the latest run goes, or went, on all targets.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubReport {
    pub run: u64,
    /// So many targets were to take part.
    pub take_part: usize,
    pub targets: Vec<ScrubTarget>,
    /// Targets that do not answer.
    pub silent: Vec<Silent>,
    /// Targets that know nothing of it, where it is not known whether it was begun there.
    pub unaware: Vec<Unaware>,
    /// What those of them tell that know of an earlier run: it may go on there, or have found something.
    pub earlier: Vec<ScrubTarget>,
    /// Blocks that are corrupt or cannot be read, on all targets, also those that an earlier run has found.
    pub corrupt: u64,
    /// The first of those, file by file; none where they were not asked for.
    pub named: Vec<CorruptBlock>,
}

/// It was not asked to take part in the run, or its service was started again since.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unaware {
    pub target: TargetId,
    pub node: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ScrubTarget {
    /// The run that it tells of.
    pub run: u64,
    pub target: TargetId,
    pub node: String,
    pub state: ScrubState,
    /// Why it failed; else empty.
    pub message: String,
    pub elapsed_ms: u64,
    /// What there was when it began; 0 while it is being counted.
    pub objects_total: u64,
    pub bytes_total: u64,
    /// What was gone over.
    pub objects: u64,
    pub bytes: u64,
    /// Blocks that had no checksum to trust, for an innocent reason, and have one now.
    pub adopted: u64,
    pub corrupt: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubState {
    Running,
    Finished,
    Stopped,
    Failed,
    /// A part of its service knows nothing of the run (any more): it was started again.
    Lost,
}

/// A block of 4 KiB that cannot be read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct CorruptBlock {
    /// From the root of the file system; `None` where no name leads to the file, or its shard does not answer.
    pub file: Option<String>,
    /// Hexadecimal.
    pub inode: String,
    pub stripe: u32,
    /// In the object, in bytes.
    pub offset: u64,
    pub target: TargetId,
    pub node: String,
    /// The object's file on its node.
    pub path: String,
    /// The disk does not give it; otherwise its checksum does not match.
    pub unreadable: bool,
}

impl ScrubReport {
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.targets.iter().chain(&self.earlier).any(|target| target.state == ScrubState::Running)
    }

    /// So many targets took part and know nothing of it any more. One that was deleted since is none of them.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.take_part.saturating_sub(self.targets.len() + self.silent.len()).min(self.unaware.len())
    }

    /// All that takes part was gone over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.lost() == 0
            && self.silent.is_empty()
            && self.targets.iter().all(|target| target.state == ScrubState::Finished)
    }

    /// All is well up to now: nothing is corrupt, and what was not gone over yet is being gone over.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let goes_well = |target: &ScrubTarget| matches!(target.state, ScrubState::Running | ScrubState::Finished);
        self.corrupt == 0 && self.lost() == 0 && self.silent.is_empty() && self.targets.iter().all(goes_well)
    }
}

/// Begins a run on the chosen targets. `rate`: bytes a second of each target; 0: as many as it can.
pub(crate) async fn start(data: &DataPlane<'_>, rate: u64, choice: &Choice) -> anyhow::Result<Started> {
    let places = choice.of(data.map())?;
    let known = places_with_runs(data, &places).await;
    refuse_occupied(&known)?;
    let newest = known.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flatten().flatten();
    let run = newest.map(|run| run.run.saturating_add(1)).max().unwrap_or(0).max(next_run_number());
    let targets = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let mut started = Started { run, targets: Vec::new(), silent: Vec::new() };
    for (place, answer) in &known {
        let runs = match answer {
            Ok(runs) => runs,
            Err(reason) => {
                started.silent.push(silent(place, reason.clone()));
                continue;
            }
        };
        let lanes = runs.len();
        let share = if rate == 0 { 0 } else { (rate / lanes.max(1) as u64).max(1) };
        match start_lanes(data, place, lanes, &ScrubStart { run, rate: share, targets }).await {
            Ok(None) => started.targets.push(place.target),
            Ok(Some(why)) => {
                stop(data, run).await;
                return Err(Fatal::failed(format!("{}: {why}; the others were stopped again", place.name())).into());
            }
            // The others have begun.
            Err(error) => started.silent.push(silent(place, error.to_string())),
        }
    }
    match started.silent.first().filter(|_| started.targets.is_empty()) {
        Some(first) => {
            Err(Fatal::failed(format!("no target answers: target {}: {}", first.target, first.reason)).into())
        }
        None => Ok(started),
    }
}

/// Before anything is begun, since that would end what the others tell of their last run.
fn refuse_occupied(known: &Answers) -> Result<(), Fatal> {
    let is_running = |lanes: &Lanes| lanes.iter().flatten().any(|run| run.running);
    match known.iter().find(|(_, answer)| answer.as_ref().is_ok_and(is_running)) {
        Some((place, _)) => Err(Fatal::failed(format!(
            "{}: a scrub is under way there: wait for its end (--status), or stop it with --stop; nothing was begun",
            place.name()
        ))),
        None => Ok(()),
    }
}

/// Begins it on one target. Answers why it was refused, where it was.
async fn start_lanes(
    data: &DataPlane<'_>,
    place: &Place,
    lanes: usize,
    start: &ScrubStart,
) -> Result<Option<String>, DataError> {
    for lane in 0..lanes {
        let reply = data.lane(place.group, lane, start).await?;
        if !reply.refused.0.is_empty() {
            return Ok(Some(String::from_utf8_lossy(&reply.refused.0).into_owned()));
        }
    }
    Ok(None)
}

/// How a run goes, or went: the one that was `begun`, on its targets, or the latest on all that know of it. `names` the corrupt
/// blocks, for which directories are read.
pub(crate) async fn progress(
    data: &DataPlane<'_>,
    begun: Option<&Started>,
    names: bool,
) -> anyhow::Result<ScrubReport> {
    let mut places = places(data.map());
    if let Some(begun) = begun {
        places.retain(|place| begun.targets.contains(&place.target) || is_silent(begun, place));
    }
    let answers = places_with_runs(data, &places).await;
    let all = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flatten().flatten();
    let Some(run) = begun.map(|begun| begun.run).or_else(|| all.map(|run| run.run).max()) else {
        return Err(unknown(&answers).into());
    };
    let (mut report, blocks) = gather(run, answers, begun.is_some());
    if !names {
        return Ok(report);
    }
    let paths = paths::of(data, blocks.iter().map(|(_, block)| block.object.inode).collect()).await;
    for (place, block) in blocks {
        report.named.push(CorruptBlock {
            file: paths.get(&block.object.inode).cloned(),
            inode: block.object.inode.to_string(),
            stripe: block.object.stripe,
            offset: block.offset,
            target: place.target,
            node: place.alias.clone(),
            path: String::from_utf8_lossy(&block.path.0).into_owned(),
            unreadable: block.unreadable,
        });
    }
    report.named.sort();
    Ok(report)
}

/// Why there is no run to tell of.
fn unknown(answers: &Answers) -> Fatal {
    match answers.iter().find_map(|(_, answer)| answer.as_ref().err()) {
        Some(first) => Fatal::failed(format!("no target that answers knows of a scrub; {first}")),
        None => Fatal::usage(
            "there was no scrub since the storage services were started: begin one with `weft scrub --all`",
        ),
    }
}

/// It is to take part, but did not hear of it.
fn is_silent(begun: &Started, place: &Place) -> bool {
    begun.silent.iter().any(|silent| silent.target == place.target)
}

/// What the targets say of `run`, without the names of files, and the corrupt blocks that they know. Where all of them `take
/// part`, one that knows nothing of it has lost it; else it tells of its last one.
fn gather(run: u64, answers: Answers, take_part: bool) -> (ScrubReport, Vec<(Place, ScrubCorrupt)>) {
    let mut report = ScrubReport {
        run,
        take_part: 0,
        targets: Vec::new(),
        silent: Vec::new(),
        unaware: Vec::new(),
        earlier: Vec::new(),
        corrupt: 0,
        named: Vec::new(),
    };
    let mut blocks = Vec::new();
    for (place, answer) in answers {
        let lanes = match answer {
            Ok(lanes) => lanes,
            Err(reason) => {
                report.silent.push(silent(&place, reason));
                continue;
            }
        };
        let (mut told, mut of_run) = (run, lanes);
        if !take_part && of_run.iter().flatten().all(|found| found.run != run) {
            report.unaware.push(Unaware { target: place.target, node: place.alias.clone() });
            // Of each lane its last one, whichever that is: what it has found is there.
            let Some(last) = of_run.iter().flatten().map(|found| found.run).max() else { continue };
            told = last;
        } else {
            of_run = of_run.into_iter().map(|lane| lane.filter(|found| found.run == run)).collect();
        }
        let target = sum_up(told, &place, &of_run);
        report.corrupt += target.corrupt;
        if told == run {
            let take_part = of_run.iter().flatten().map(|run| run.targets as usize).max();
            report.take_part = report.take_part.max(take_part.unwrap_or(0));
            report.targets.push(target);
        } else {
            report.earlier.push(target);
        }
        let named = of_run.into_iter().flatten().flat_map(|run| run.named);
        blocks.extend(named.map(|block| (place.clone(), block)));
    }
    (report, blocks)
}

/// Ends the run of this number everywhere; 0: whichever there is.
pub(crate) async fn stop(data: &DataPlane<'_>, run: u64) -> Reached {
    let mut reached = Reached::default();
    for (place, answer) in places_with_runs(data, &places(data.map())).await {
        let lanes = match answer {
            Ok(lanes) => lanes,
            Err(reason) => {
                reached.silent.push(silent(&place, reason));
                continue;
            }
        };
        let under_way = lanes.iter().flatten().any(|found| found.running && (run == 0 || found.run == run));
        if !under_way {
            continue;
        }
        let mut outcome = Ok(());
        for lane in 0..lanes.len() {
            outcome = outcome.and(data.lane(place.group, lane, &ScrubStop { run }).await.map(drop));
        }
        match outcome {
            Ok(()) => reached.targets.push(place.target),
            Err(error) => reached.silent.push(silent(&place, error.to_string())),
        }
    }
    reached
}

type Lanes = Vec<Option<ScrubRun>>;
type Answers = Vec<(Place, Result<Lanes, String>)>;

/// The last run of each lane. Who is known to be away is not waited for.
async fn places_with_runs(data: &DataPlane<'_>, places: &[Place]) -> Answers {
    let mut answers = Vec::new();
    for place in places {
        let answer = if place.online {
            ask_lanes(data, place).await.map_err(|error| error.to_string())
        } else {
            Err(format!("{} is offline: start its storage service", place.name()))
        };
        answers.push((place.clone(), answer));
    }
    answers
}

async fn ask_lanes(data: &DataPlane<'_>, place: &Place) -> Result<Lanes, DataError> {
    let mut runs = Vec::new();
    for lane in 0..lanes(data.map(), place.group)? {
        runs.push(data.lane(place.group, lane, &ScrubStatus {}).await?.run);
    }
    Ok(runs)
}

/// One target from its lanes, as they tell of `run`.
fn sum_up(run: u64, place: &Place, lanes: &[Option<ScrubRun>]) -> ScrubTarget {
    let runs: Vec<&ScrubRun> = lanes.iter().flatten().collect();
    let sum = |of: fn(&ScrubRun) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
    let failure = runs.iter().find(|run| !run.failure.0.is_empty());
    let state = match () {
        () if runs.iter().any(|run| run.running) => ScrubState::Running,
        () if failure.is_some() => ScrubState::Failed,
        () if runs.is_empty() || runs.len() < lanes.len() => ScrubState::Lost,
        () if runs.iter().any(|run| run.stopped) => ScrubState::Stopped,
        () => ScrubState::Finished,
    };
    ScrubTarget {
        run,
        target: place.target,
        node: place.alias.clone(),
        state,
        message: failure.map(|run| String::from_utf8_lossy(&run.failure.0).into_owned()).unwrap_or_default(),
        elapsed_ms: runs.iter().map(|run| run.elapsed_ms).max().unwrap_or(0),
        objects_total: sum(|run| run.objects_total),
        bytes_total: sum(|run| run.bytes_total),
        objects: sum(|run| run.objects),
        bytes: sum(|run| run.bytes),
        adopted: sum(|run| run.adopted),
        corrupt: sum(|run| run.corrupt),
    }
}

#[cfg(test)]
mod tests {
    use types::id::{GroupId, NodeId};
    use wire::codec::Bytes;

    use super::*;

    fn place(target: u32) -> Place {
        let (target, group, node) = (TargetId(target), GroupId(target), NodeId(target));
        Place { target, group, node, alias: format!("s{target}"), pool: "default".to_owned(), online: true }
    }

    /// One that has ended in order.
    fn finished(run: u64) -> Option<ScrubRun> {
        let failure = Bytes(Vec::new());
        let (objects_total, bytes_total, objects, bytes) = (1, 4096, 1, 4096);
        let (rate, elapsed_ms, adopted, corrupt, named) = (0, 1, 0, 0, Vec::new());
        Some(ScrubRun {
            run,
            rate,
            targets: 2,
            running: false,
            stopped: false,
            failure,
            elapsed_ms,
            objects_total,
            bytes_total,
            objects,
            bytes,
            adopted,
            corrupt,
            named,
        })
    }

    #[test]
    fn who_has_forgotten_a_run_has_not_been_gone_over() {
        let answers = || vec![(place(1), Ok(vec![finished(7), finished(7)])), (place(2), Ok(vec![finished(6), None]))];
        let (report, _) = gather(7, answers(), true);
        let states: Vec<ScrubState> = report.targets.iter().map(|target| target.state).collect();
        assert_eq!(states, [ScrubState::Finished, ScrubState::Lost]);
        assert!(!report.is_complete() && !report.is_well());

        // Where nobody that answers knows of a run, there may have been one.
        let none = unknown(&vec![(place(1), Ok(vec![None])), (place(2), Ok(vec![None]))]);
        let away = unknown(&vec![(place(1), Ok(vec![None])), (place(2), Err("s2 is offline".to_owned()))]);
        assert_eq!((none.code, away.code, away.message.contains("s2 is offline")), (2, 1, true), "{}", away.message);

        // Where nobody says that it was begun there, it is named; whether one is missing, the others know.
        let (report, _) = gather(7, answers(), false);
        assert_eq!(
            (report.targets.len(), &*report.unaware),
            (1, &[Unaware { target: TargetId(2), node: "s2".into() }][..])
        );
        assert_eq!((report.lost(), report.is_complete(), report.is_well()), (1, false, false));
        let all = [answers(), vec![(place(3), Ok(vec![finished(7), finished(7)]))]].concat();
        let (report, _) = gather(7, all, false);
        assert_eq!((report.unaware.len(), report.lost()), (1, 0), "another one takes no part");
        assert!(report.is_complete() && report.is_well());
    }

    #[test]
    fn what_an_earlier_run_does_and_has_found_on_other_targets_is_told() {
        let lane = |run, change: fn(&mut ScrubRun)| {
            let mut lane = finished(run).map(|run| ScrubRun { targets: 1, ..run });
            lane.iter_mut().for_each(change);
            lane
        };
        // Also where only a part of it knows of it.
        let found = vec![lane(7, |run| run.corrupt = 2), None, lane(6, |run| run.corrupt = 9)];
        let answers = vec![(place(1), Ok(found)), (place(2), Ok(vec![lane(8, |_| {})]))];
        let (report, _) = gather(8, answers.clone(), false);
        assert_eq!(
            (report.corrupt, report.is_well(), report.is_complete(), report.is_running()),
            (11, false, true, false)
        );
        let told = |targets: &[ScrubTarget]| targets.iter().map(|one| (one.target.0, one.run)).collect::<Vec<_>>();
        assert_eq!((told(&report.targets), told(&report.earlier)), (vec![(2, 8)], vec![(1, 7)]));
        assert_eq!((report.unaware.len(), report.lost()), (1, 0));
        let (report, _) = gather(8, answers, true);
        assert_eq!((report.earlier.len(), report.corrupt), (0, 0), "of one that was begun nothing else is asked");

        // One that was refused and stopped again, beside the one that was in its way.
        let answers = vec![
            (place(1), Ok(vec![lane(9, |run| run.stopped = true)])),
            (place(3), Ok(vec![lane(8, |run| run.running = true)])),
        ];
        let (report, _) = gather(9, answers.clone(), false);
        assert_eq!((report.is_running(), told(&report.earlier)), (true, vec![(3, 8)]));
        let refused = refuse_occupied(&answers).expect_err("target 3 is busy");
        assert!(refused.message.contains("target 3") && refused.message.contains("nothing was begun"), "{refused}");
        assert_eq!(refuse_occupied(&answers[..1].to_vec()), Ok(()));
    }

    #[test]
    fn only_what_ended_in_order_is_complete() {
        let change = |change: fn(&mut ScrubRun)| {
            finished(7).map(|run| {
                let mut run = ScrubRun { targets: 1, ..run };
                change(&mut run);
                run
            })
        };
        for (lanes, well) in [
            (Ok(vec![change(|run| run.running = true)]), true),
            (Ok(vec![change(|run| run.stopped = true)]), false),
            (Ok(vec![change(|run| run.failure = Bytes(b"why".to_vec()))]), false),
            (Ok(vec![finished(7), None]), false),
            (Ok(Vec::new()), false),
            (Err("away".to_owned()), false),
        ] {
            let (report, _) = gather(7, vec![(place(1), lanes.clone())], true);
            assert_eq!((report.is_complete(), report.is_well()), (false, well), "{lanes:?}");
        }
    }
}
