//! `weft bench io500`: the phases of IO500 on any directory, or through the client core alone, with IO500's score.
//!
//! Each phase is a process of its own that forks the processes of the workload (see `work::gate`): they start together,
//! and those that write go on until the slowest has done as much as the fastest had when the time was over
//! (*stonewalling* with wear-out). `docs/operating/io500.md` says what each phase does and how it differs from the
//! original.
//!
//! - [`phase`]: the phases, in order; [`step`]: one of them as a job.
//! - `crate::store`: the few operations that they need, as system calls or through the client core.
//! - [`ior`], [`mdtest`], [`find`]: what they do. [`score`]: what it is worth. [`report`]: the table.

mod find;
mod ior;
mod mdtest;
mod phase;
mod report;
mod score;
mod step;

use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use conf::Fatal;
use conf::units::Size;
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::job::{Job, Program};
use crate::runner::progress;
use crate::store::{self, Free, Place, Store, in_store};
use crate::work::drop_caches;
use crate::work::gate::PROCESSES_MAX;

pub use phase::Group;
pub use report::{PhaseResult, Report};
pub(crate) use step::Step;

use phase::{Counts, PHASES};
use step::Bounds;

/// Least seconds of the writing phases in a result that the IO500 list takes.
const SECONDS_OF_LIST: u32 = 300;
/// Each of the two writers of data may take this part of the free space at most, each of the two makers of files of the inodes.
const SHARE_OF_SPACE: u64 = 3;
/// And small files half of what these leave: names and directories want some of it.
const SHARE_OF_FILES: u64 = 2 * SHARE_OF_SPACE;
/// That a small file takes on a disk.
const BYTES_OF_FILE: u64 = 4096;

/// How much is done.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Processes that work at the same time, or client cores with --core
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=PROCESSES_MAX as i64))]
    pub processes: u32,
    /// Seconds that each writing phase goes on at least; a result that the IO500 list takes needs 300
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Most bytes of ior-easy, and of ior-hard; at most a third of the free space is taken
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    pub size: Size,
    /// Most files of each process in mdtest-easy, and in mdtest-hard; fewer where a third of the free inodes, or a sixth of
    /// the free space, is taken before
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Leave the page cache between phases as it is: what was just written is then read from memory
    #[arg(long)]
    pub warm: bool,
}

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A directory, by system calls.
    Directory(PathBuf),
    /// A cluster, through the client core.
    Core {
        /// `host:port` of mgmtd.
        management: String,
        key_file: PathBuf,
    },
}

impl Subject {
    /// A folder in it.
    fn place(&self, folder: &str) -> Result<Place> {
        Ok(match self.clone() {
            Subject::Directory(path) => Place::Directory(std::path::absolute(path)?.join(folder)),
            Subject::Core { management, key_file } => {
                let key_file = std::path::absolute(key_file)?;
                Place::Core { management, key_file, folder: folder.to_owned(), loopback: false }
            }
        })
    }
}

/// Runs all phases in a new folder, and removes it.
///
/// # Errors
/// `conf::Fatal` of a user's mistake where the directory is none; else where a phase fails or finds wrong contents, with
/// the file and the offset, or where a signal came.
pub fn run(options: &Options, subject: &Subject) -> Result<Report> {
    if let Subject::Directory(path) = subject
        && !path.is_dir()
    {
        return Err(Fatal::usage(format!("{} is not a directory: name one with --path", path.display())).into());
    }
    let (processes, least) = (options.processes, u64::from(options.processes) * ior::TRANSFER as u64);
    if options.size.0 < least {
        let message = format!("--size {}: {processes} processes need at least {}", options.size, Size(least));
        return Err(Fatal::usage(message).into());
    }
    interrupt::catch()?;
    let program = Program::this()?;
    let place = subject.place(&folder_name()?)?;
    let outcome = prepare(&place, options).and_then(|bounds| phases(&program, options, &place, bounds));
    progress("removing what was made");
    let removed = remove(&place).with_context(|| format!("cannot remove {place}: it is left behind"));
    progress("");
    match (outcome, removed) {
        (Ok(report), removed) => removed.map(|()| report),
        (Err(error), removed) => {
            if let Err(left) = removed {
                let _ = writeln!(std::io::stderr(), "{left:#}");
            }
            Err(error)
        }
    }
}

fn folder_name() -> Result<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(format!(".weft-io500-{}-{}", std::process::id(), since.as_millis()))
}

/// Makes the directories, and looks how much room there is.
fn prepare(place: &Place, options: &Options) -> Result<Bounds> {
    let free = in_store!(place, false, store => {
        for directory in step::directories(options.processes as usize) {
            store.make_directory(&directory).with_context(|| format!("cannot make {place}/{directory}"))?;
        }
        store.free().context("cannot tell how much space is free")?
    });
    bounds(options, free).with_context(|| format!("{place} is too full"))
}

/// Of each process. No disk is filled up, and no inodes are used up.
fn bounds(options: &Options, free: Free) -> Result<Bounds> {
    let processes = u64::from(options.processes);
    let bytes = options.size.0.min(free.bytes / SHARE_OF_SPACE) / processes;
    ensure!(bytes >= ior::TRANSFER as u64, "{} bytes are free: too few for {processes} processes", free.bytes);
    let inodes = free.inodes.map_or(u64::MAX, |inodes| inodes / SHARE_OF_SPACE);
    let files = inodes.min(free.bytes / SHARE_OF_FILES / BYTES_OF_FILE) / processes;
    ensure!(files > 0, "{inodes} files are a third of what can be made: too few for {processes} processes");
    Ok(Bounds { bytes, files: files.min(options.files) })
}

fn phases(program: &Program, options: &Options, place: &Place, bounds: Bounds) -> Result<Report> {
    let mut report = Report::begin(options, place);
    let mut counts = Counts::default();
    for (index, &phase) in PHASES.iter().enumerate() {
        interrupt::check()?;
        progress(&format!("{} ({} of {})", phase.name(), index + 1, PHASES.len()));
        if !options.warm
            && let Err(error) = drop_caches()
        {
            report.caches_stayed(&error);
        }
        let processes = options.processes as usize;
        let step = Step { phase, place: place.clone(), processes, seconds: options.seconds, bounds, counts };
        let measured = program.measure(&Job::Io500(step));
        interrupt::check()?;
        let measured = measured.with_context(|| format!("{} in {place}", phase.name()))?;
        let measured = measured.first().context("a phase measured nothing")?;
        counts.note(phase, measured.operations / u64::from(options.processes));
        report.add(phase, measured);
    }
    report.end();
    Ok(report)
}

fn remove(place: &Place) -> Result<()> {
    in_store!(place, false, store => store::remove_tree(store, "")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_space_nor_inodes_are_used_up() {
        let options = |files| Options { processes: 4, seconds: 1, size: Size(1 << 40), files, warm: true };
        let of = |files, free| bounds(&options(files), free).map(|bounds| (bounds.bytes, bounds.files)).ok();
        let (large, gib) = (1_000_000, 1 << 30);
        assert_eq!(of(large, Free::new(12 * gib, 60_000)), Some((gib, 5_000)), "a third of the inodes");
        assert_eq!(of(large, Free::new(12 * gib, 1 << 40)), Some((gib, 131_072)), "2 GiB of small files");
        assert_eq!(of(large, Free::new(12 * gib, 0)), Some((gib, 131_072)), "nobody counts inodes");
        assert_eq!(of(10, Free::new(12 * gib, 60_000)), Some((gib, 10)));
        assert_eq!(of(10, Free::new(12 * gib, 11)), None);
        assert_eq!(of(10, Free::new(1 << 20, 60_000)), None);
    }

    #[test]
    fn what_is_no_directory_is_the_users_mistake() {
        let options = Options { processes: 1, seconds: 1, size: Size(1 << 30), files: 10, warm: true };
        let error = run(&options, &Subject::Directory("/nonexistent/x".into())).expect_err("not there");
        assert_eq!(conf::exit_code(error.as_ref()), 2);
        assert!(error.to_string().contains("/nonexistent/x"), "{error}");
    }
}
