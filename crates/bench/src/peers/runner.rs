//! Starts the peers, and lets them do the work in turns.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use conf::Fatal;
use conf::file_system::statvfs;

use super::kind::Kind;
use super::mounted;
use super::peer::Peer;
use super::plan::{GROUPS, Group, Needs, Row, Scale, Sources, Step, Task};
use super::process::{ask, find_program};
use super::report::{Line, Participant, Report};
use crate::Options;
use crate::cpu::Watch;
use crate::folder::Folder;
use crate::interrupt;
use crate::job::{Hung, Job, Measured, Program};
use crate::runner::progress;
use crate::work::{Files, Part, Work, drop_caches, git, tree};

/// What there is beside large files, and what peers leave free: they refuse to write to a disk that is nearly full.
const SPARE_BYTES: u64 = 4 << 30;

/// Of one step; the longest take a minute or two.
const PATIENCE: Duration = Duration::from_secs(600);

/// One that runs, with what there is to know of it.
struct Runner {
    kind: Kind,
    peer: Peer,
    /// Of its processes, since it was mounted last.
    watch: Watch,
    root: PathBuf,
}

/// What was measured of each row, by peer and round.
type Results = BTreeMap<&'static str, BTreeMap<Kind, Vec<Measured>>>;

/// What is done of a group.
type Planned = (&'static Group, &'static [Step]);

/// Measures, and answers the table. A peer that is not installed is left out; one that fails is so in the rows concerned.
///
/// # Errors
/// Where there is no place to measure, no row of the wanted name, the caller is not root, or a signal came.
pub fn run(options: &Options) -> Result<Report> {
    let wanted =
        |row: &Row| options.only.is_empty() || options.only.iter().any(|part| row.name.contains(part.as_str()));
    let plan: Vec<Planned> = GROUPS.iter().map(|group| (group, group.steps_for(wanted))).collect();
    let plan: Vec<_> = plan.into_iter().filter(|(_, steps)| !steps.is_empty()).collect();
    if plan.is_empty() {
        return Err(Fatal::usage(format!("no row has {:?} in its name: see --peers --list", options.only)).into());
    }
    let rows: Vec<Row> = plan.iter().flat_map(|(group, _)| group.rows()).filter(wanted).collect();
    let mut report = Report::begin(options);
    let installed = installed(options, &mut report);
    report.notes.extend(installed.iter().flat_map(|kind| {
        let cannot = |row: &Row| Some(format!("{} takes no part in {}: {}", kind.title(), row.name, kind.cannot(row)?));
        rows.iter().filter_map(cannot)
    }));
    if options.list {
        report.peers = installed.into_iter().map(|kind| Participant { kind, version: version(kind, None) }).collect();
        report.rows = rows.into_iter().map(|row| Line::new(row, &BTreeMap::new())).collect();
        return Ok(report);
    }
    // SAFETY: a system call without memory that cannot fail.
    ensure!(unsafe { libc::geteuid() } == 0, "needs root: it mounts file systems, and drops the page cache");
    interrupt::catch()?;
    let mut field = Field::new(options)?;
    field.ensure_space(&plan, &installed, options.rounds())?;
    let outcome = field.start(&installed, &mut report).and_then(|()| {
        let mut results = Results::new();
        for round in 1..=options.rounds() {
            for &(group, steps) in &plan {
                field.group((group, steps), round, &mut results, &mut report.failures)?;
                report.rows = lines(&rows, &results);
                if let Some(file) = &options.save {
                    // After each group: what was measured is not lost if the next one never ends.
                    report.save(file)?;
                }
            }
        }
        Ok(())
    });
    progress("stopping all of them");
    let cleared = field.clear();
    progress("");
    match (outcome, cleared) {
        (Ok(()), cleared) => cleared.map(|()| report),
        (Err(error), cleared) => {
            if let Err(left) = cleared {
                let _ = writeln!(std::io::stderr(), "{left:#}");
            }
            Err(error)
        }
    }
}

/// Notes who is not.
fn installed(options: &Options, report: &mut Report) -> Vec<Kind> {
    let chosen = options.peers.clone().unwrap_or_default();
    let is_chosen = |kind: &Kind| chosen.is_empty() || *kind == Kind::Local || chosen.contains(kind);
    let mut installed = Vec::new();
    for kind in Kind::ALL.into_iter().filter(is_chosen) {
        match kind.find() {
            Ok(()) => installed.push(kind),
            Err(missing) => report.notes.push(format!("{} is left out: {missing}", kind.title())),
        }
    }
    installed
}

fn lines(rows: &[Row], results: &Results) -> Vec<Line> {
    let none = BTreeMap::new();
    rows.iter().map(|&row| Line::new(row, results.get(row.name).unwrap_or(&none))).collect()
}

/// What the peer's own programs say, in a line.
fn version(kind: Kind, place: Option<&Path>) -> String {
    if kind == Kind::Local {
        return place.and_then(mounted::type_of).unwrap_or_default();
    }
    let one = |&(program, argument): &(&str, &str)| {
        let said = ask(Command::new(find_program(program)?).arg(argument), Duration::from_secs(10)).ok()?;
        Some(said.lines().next()?.trim().to_owned())
    };
    kind.versions().iter().filter_map(one).collect::<Vec<_>>().join("; ")
}

/// Everything that is there for one run.
struct Field {
    program: Program,
    weft: PathBuf,
    scale: Scale,
    sources: Option<Sources>,
    runners: Vec<Runner>,
    /// CPUs that all of them use with nothing to do.
    idle: f64,
    // Behind the runners: it is removed after they have ended.
    folder: Folder,
}

impl Field {
    fn new(options: &Options) -> Result<Self> {
        let dir = std::path::absolute(&options.dir)?.canonicalize();
        let dir = dir.with_context(|| format!("no directory {}", options.dir.display()))?;
        let weft = match &options.weft {
            Some(weft) => std::path::absolute(weft)?,
            None => std::env::current_exe()?,
        };
        Ok(Self {
            program: Program::this()?,
            weft,
            scale: if options.quick { Scale::QUICK } else { Scale::FULL },
            sources: None,
            runners: Vec::new(),
            idle: 0.0,
            folder: Folder::new_in(&dir)?,
        })
    }

    /// A peer that finds its disk full half-way would cost the whole run.
    fn ensure_space(&self, plan: &[Planned], kinds: &[Kind], rounds: u32) -> Result<()> {
        let kept: u64 = kinds.iter().map(|kind| kind.copies_kept()).sum();
        let bytes = plan.iter().map(|(group, steps)| group.bytes(steps, self.scale));
        // Of what is removed at once, two copies may be there for a moment.
        let needed = SPARE_BYTES + 2 * bytes.clone().max().unwrap_or(0) + kept * bytes.sum::<u64>() * u64::from(rounds);
        let free = free_bytes(self.folder.path())?;
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        ensure!(
            free >= needed,
            "{:.1} GiB are free, {:.1} are needed (some peers keep what is removed): give another place with --dir, or \
             fewer rounds",
            gib(free),
            gib(needed)
        );
        Ok(())
    }

    /// Those that do not start have a column of failures.
    fn start(&mut self, kinds: &[Kind], report: &mut Report) -> Result<()> {
        let folder = self.folder.path().to_owned();
        for &kind in kinds {
            interrupt::check()?;
            progress(&format!("starting {}", kind.title()));
            report.peers.push(Participant { kind, version: version(kind, Some(&folder)) });
            let started = Peer::start(kind, &self.weft, &folder.join(kind.title().to_lowercase()));
            let runner = started.and_then(|mut peer| {
                let (root, watch) = peer.renew()?;
                Ok(Runner { kind, peer, watch, root })
            });
            match runner {
                Ok(runner) => self.runners.push(runner),
                Err(error) => report.failures.push(format!("{} did not start: {error:#}", kind.title())),
            }
        }
        interrupt::check()?;
        self.idle = self.everyone().idle();
        Ok(())
    }

    /// All peers do `steps`, one after the other; in every second round the last one first. One that hangs is stopped.
    ///
    /// # Errors
    /// Where a signal came. What else goes wrong is noted among `failures`.
    fn group(
        &mut self,
        (group, steps): Planned,
        round: u32,
        results: &mut Results,
        failures: &mut Vec<String>,
    ) -> Result<()> {
        let mut kinds: Vec<Kind> = self.runners.iter().map(|runner| runner.kind).collect();
        if round.is_multiple_of(2) {
            kinds.reverse();
        }
        for kind in kinds {
            let Some(index) = self.runners.iter().position(|runner| runner.kind == kind) else { continue };
            let failed = self.turn(index, (group, steps), round, results);
            interrupt::check()?;
            let hangs = failed.iter().any(|(_, error)| error.is::<Hung>());
            let told = |error: &anyhow::Error| format!("{error:#}").replace('\n', "; ");
            failures.extend(failed.iter().map(|(what, error)| format!("{}, {what}: {}", kind.title(), told(error))));
            if hangs {
                failures.push(format!("{} has no figures from here on", kind.title()));
                drop(self.runners.remove(index));
            }
        }
        Ok(())
    }

    /// One peer does `steps`, up to the first that fails: the next ones would find nothing to work with. Answers what
    /// failed.
    fn turn(
        &mut self,
        index: usize,
        (group, steps): Planned,
        round: u32,
        results: &mut Results,
    ) -> Vec<(&'static str, anyhow::Error)> {
        let kind = self.runners[index].kind;
        let place = match self.begin(index, &format!("{}-{round}", group.name)) {
            Ok(place) => place,
            Err(error) => return vec![(group.name, error)],
        };
        let mut failed = Vec::new();
        let mut made = 0;
        for step in steps.iter().filter(|step| step.row.is_none_or(|row| kind.cannot(&row).is_none())) {
            let what = step.row.map_or(group.name, |row| row.name);
            progress(&format!("{what}: {}, round {round}", kind.title()));
            match (self.step(index, group, step, &place, made), step.row) {
                (Ok(Some(measured)), Some(row)) => {
                    if made == 0 {
                        made = measured.operations / group.processes as u64;
                    }
                    results.entry(row.name).or_default().entry(kind).or_default().push(measured);
                }
                (Ok(_), _) => {}
                (Err(error), _) => {
                    failed.push((what, error));
                    break;
                }
            }
        }
        // What hangs is not asked for more.
        if !failed.iter().any(|(_, error)| error.is::<Hung>())
            && let Err(error) = self.part(index, group, &place, Part::End)
        {
            failed.push((group.name, error));
        }
        failed
    }

    /// A fresh directory on a mount that has seen nothing, while nobody has anything left to do.
    fn begin(&mut self, index: usize, name: &str) -> Result<PathBuf> {
        self.renew(index)?;
        let place = self.runners[index].root.join(name);
        let files =
            Files { work: Work::Part(Part::Begin), place: place.clone(), processes: 1, watch: Watch::default() };
        self.program.measure_within(PATIENCE, &Job::Files(files))?;
        Ok(place)
    }

    fn renew(&mut self, index: usize) -> Result<()> {
        let runner = &mut self.runners[index];
        (runner.root, runner.watch) = runner.peer.renew().context("cannot mount it again")?;
        drop_caches()?;
        self.everyone().settle_to(self.idle);
        Ok(())
    }

    /// All processes of all peers.
    fn everyone(&self) -> Watch {
        Watch(self.runners.iter().flat_map(|runner| runner.watch.0.iter().copied()).collect())
    }

    fn step(&mut self, index: usize, group: &Group, step: &Step, place: &Path, made: u64) -> Result<Option<Measured>> {
        if step.cold {
            self.renew(index)?;
        }
        let needs =
            Needs { scale: self.scale, processes: group.processes as u64, made, sources: self.sources(group.name)? };
        let work = match (step.work)(&needs) {
            Task::Part(part) => Work::Part(part),
            Task::Scan(program, shape) => Work::Scan { program, shape, made_at: place.into() },
        };
        self.measure(index, group, place, work)
    }

    fn part(&mut self, index: usize, group: &Group, place: &Path, part: Part) -> Result<()> {
        self.measure(index, group, place, Work::Part(part)).map(drop)
    }

    fn measure(&self, index: usize, group: &Group, place: &Path, work: Work) -> Result<Option<Measured>> {
        // Programs that a peer starts for a moment may be gone since it was mounted.
        let watch = self.runners[index].watch.living();
        let files = Files { work, place: place.into(), processes: group.processes, watch };
        Ok(self.program.measure_within(PATIENCE, &Job::Files(files))?.into_iter().next())
    }

    /// Made when the first group needs them.
    fn sources(&mut self, group: &str) -> Result<Sources> {
        if !matches!(group, "archive" | "git") {
            return Ok(Sources::default());
        }
        if let Some(sources) = &self.sources {
            return Ok(sources.clone());
        }
        let dir = self.folder.path().join("sources");
        std::fs::create_dir_all(&dir)?;
        tree::make(&dir)?;
        let (archive, tree, repository) = (dir.join("tree.tar"), dir.join("tree"), dir.join("repository.git"));
        git::make_repository(&repository, &tree).context("cannot make a repository")?;
        Ok(self.sources.insert(Sources { archive, tree, repository }).clone())
    }

    /// Stops all, and removes the folder where nothing is mounted in it any more.
    fn clear(mut self) -> Result<()> {
        self.runners.clear();
        self.folder.remove()
    }
}

fn free_bytes(path: &Path) -> Result<u64> {
    let found = statvfs(path).context("cannot tell how much space is free")?;
    Ok(found.f_bavail * found.f_frsize)
}
