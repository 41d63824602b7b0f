//! Going over the objects of storage targets: each lane verifies its own; here they are told to begin, asked, and added up.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use conf::Fatal;
use serde::Serialize;
use types::id::{InodeId, TargetId};
use types::time::AccessTimes;
use wire::v1::meta::{self, ReadDir};
use wire::v1::scrub::{ScrubRun, ScrubStart, ScrubStatus, ScrubStop};

use crate::data::{DataError, DataPlane};
use crate::storagebench::choice::places;
use crate::storagebench::member::Place;
use crate::storagebench::{Choice, Reached, Silent, Started, silent};

/// How the latest run goes, or went, on all targets.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubReport {
    pub run: u64,
    pub targets: Vec<ScrubTarget>,
    /// Targets that do not answer.
    pub silent: Vec<Silent>,
    /// Blocks that are corrupt or cannot be read, on all targets.
    pub corrupt: u64,
    /// The first of those, file by file.
    pub named: Vec<CorruptBlock>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ScrubTarget {
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
        self.targets.iter().any(|target| target.state == ScrubState::Running)
    }
}

/// Begins a run on the chosen targets. `rate`: bytes a second of each target; 0: as many as it can.
pub(crate) async fn start(data: &DataPlane<'_>, rate: u64, choice: &Choice) -> anyhow::Result<Started> {
    let places = choice.of(data.map())?;
    let known = places_with_runs(data, &places).await;
    let newest = known.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flatten().flatten();
    let run = newest.map(|run| run.run.saturating_add(1)).max().unwrap_or(0).max(now_ms());
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
        for lane in 0..lanes {
            let reply = data.lane(place.group, lane, &ScrubStart { run, rate: share }).await?;
            if !reply.refused.0.is_empty() {
                stop(data, run).await;
                let why = String::from_utf8_lossy(&reply.refused.0).into_owned();
                return Err(Fatal::failed(format!("{}: {why}; the others were stopped again", place.name())).into());
            }
        }
        started.targets.push(place.target);
    }
    match started.silent.first().filter(|_| started.targets.is_empty()) {
        Some(first) => {
            Err(Fatal::failed(format!("no target answers: target {}: {}", first.target, first.reason)).into())
        }
        None => Ok(started),
    }
}

/// How the latest run goes, or went.
pub(crate) async fn latest(data: &DataPlane<'_>) -> anyhow::Result<ScrubReport> {
    let answers = places_with_runs(data, &places(data.map())).await;
    let all = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flatten().flatten();
    let Some(run) = all.map(|run| run.run).max() else {
        return Err(Fatal::usage(
            "there was no scrub since the storage services were started: begin one with `weft scrub --all`",
        )
        .into());
    };
    let mut report = ScrubReport { run, targets: Vec::new(), silent: Vec::new(), corrupt: 0, named: Vec::new() };
    let mut names = Names { data, known: BTreeMap::new() };
    for (place, answer) in answers {
        match answer {
            Ok(lanes) => {
                let of_run: Vec<Option<ScrubRun>> =
                    lanes.into_iter().map(|lane| lane.filter(|found| found.run == run)).collect();
                if of_run.iter().all(Option::is_none) {
                    continue;
                }
                let target = sum_up(&place, &of_run);
                report.corrupt += target.corrupt;
                report.targets.push(target);
                for block in of_run.into_iter().flatten().flat_map(|run| run.named) {
                    report.named.push(CorruptBlock {
                        file: names.path(block.object.inode).await,
                        inode: block.object.inode.to_string(),
                        stripe: block.object.stripe,
                        offset: block.offset,
                        target: place.target,
                        node: place.alias.clone(),
                        path: String::from_utf8_lossy(&block.path.0).into_owned(),
                        unreadable: block.unreadable,
                    });
                }
            }
            Err(reason) => report.silent.push(silent(&place, reason)),
        }
    }
    report.named.sort();
    Ok(report)
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

/// The last run of each lane. Who is known to be away is not waited for.
async fn places_with_runs(data: &DataPlane<'_>, places: &[Place]) -> Vec<(Place, Result<Lanes, String>)> {
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
    let lanes = data.map().targets.get(&place.target).map_or(0, |target| target.ports.len());
    let mut runs = Vec::new();
    for lane in 0..lanes {
        runs.push(data.lane(place.group, lane, &ScrubStatus {}).await?.run);
    }
    Ok(runs)
}

/// One target from its lanes.
fn sum_up(place: &Place, lanes: &[Option<ScrubRun>]) -> ScrubTarget {
    let runs: Vec<&ScrubRun> = lanes.iter().flatten().collect();
    let sum = |of: fn(&ScrubRun) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
    let failure = runs.iter().find(|run| !run.failure.0.is_empty());
    let state = match () {
        () if runs.iter().any(|run| run.running) => ScrubState::Running,
        () if failure.is_some() => ScrubState::Failed,
        () if runs.len() < lanes.len() => ScrubState::Lost,
        () if runs.iter().any(|run| run.stopped) => ScrubState::Stopped,
        () => ScrubState::Finished,
    };
    ScrubTarget {
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

/// Paths of files.
struct Names<'a> {
    data: &'a DataPlane<'a>,
    known: BTreeMap<InodeId, Option<String>>,
}

impl Names<'_> {
    /// The name of a file can only be found by looking through its directory.
    async fn path(&mut self, inode: InodeId) -> Option<String> {
        if let Some(known) = self.known.get(&inode) {
            return known.clone();
        }
        let path = climb(self.data, inode).await.ok().flatten();
        self.known.insert(inode, path.clone());
        path
    }
}

/// Directories above each other that are followed at most: deeper paths do not fit any system call.
const DEPTH_MAX: usize = 4096;

async fn climb(data: &DataPlane<'_>, inode: InodeId) -> Result<Option<String>, DataError> {
    let mut at = inode;
    let mut names = Vec::new();
    while at != InodeId::ROOT && names.len() < DEPTH_MAX {
        let reply = data.shard(at.home(), &meta::EntryInfo { inode: at }).await?;
        let Some(parent) = reply.parent else { return Ok(None) };
        let Some(name) = name_in(data, parent, at).await? else { return Ok(None) };
        names.push(name);
        at = parent;
    }
    names.reverse();
    Ok(Some(format!("/{}", names.join("/"))))
}

async fn name_in(data: &DataPlane<'_>, parent: InodeId, child: InodeId) -> Result<Option<String>, DataError> {
    let mut cookie = 0;
    loop {
        let accesses = AccessTimes::Noatime;
        let list = ReadDir { inode: parent, cookie, count: 4096, attributes: false, accesses };
        let page = data.shard(parent.home(), &list).await?;
        if let Some(found) = page.entries.iter().find(|entry| entry.inode == child) {
            return Ok(Some(String::from_utf8_lossy(found.name.as_bytes()).into_owned()));
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return Ok(None),
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
