//! What is done to a file system, whatever is behind its directory.

pub(crate) mod archive;
pub(crate) mod calls;
pub(crate) mod churn;
pub(crate) mod gate;
pub(crate) mod git;
pub(crate) mod mixed;
pub(crate) mod pattern;
pub(crate) mod pip;
pub(crate) mod population;
pub(crate) mod random;
pub(crate) mod scan;
pub(crate) mod sequential;
pub(crate) mod small;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod unpack;
pub(crate) mod way;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use self::sequential::Stream;
use self::way::Way;
use crate::cpu::Watch;
use crate::job::Measured;

/// One workload on one directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Files {
    pub(crate) work: Work,
    /// A directory that exists. What the work leaves there, it uses again in the next round.
    pub(crate) place: PathBuf,
    pub(crate) processes: usize,
    pub(crate) watch: Watch,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// `stat` of files by name, for so many seconds.
    Stat { seconds: f64 },
    /// Create, close and unlink, for so many seconds; all processes in one directory, or each in its own.
    Churn { seconds: f64, shared: bool },
    /// Open, read and close of small files, for so many seconds.
    Read { seconds: f64 },
    /// Create, write and close of files of so many bytes, for so many seconds.
    Make { seconds: f64, bytes: usize },
    /// A program that goes through files which are made in another place than it looks at.
    Scan { program: scan::Program, shape: scan::Shape, made_at: PathBuf },
    /// `tar -x`.
    Unpack { archive: PathBuf, tree: PathBuf },
    /// `git clone` of a repository that has the tree, and `rm -rf` of it.
    Clone { repository: PathBuf, tree: PathBuf },
    /// `pip install` of a wheel that has the tree.
    Install { wheel: PathBuf, tree: PathBuf },
    /// `grep -r` and `git status`, again and again for so many seconds each, in a clone.
    LookAgain { seconds: f64, repository: PathBuf, tree: PathBuf },
    /// Whole files: written with fsync, then read with cold caches.
    Sequential(sequential::Stream),
    /// 4 KiB reads, then writes, then perhaps writes that are synced one by one, for so many seconds each; `bytes` over all
    /// processes.
    Random { seconds: f64, bytes: u64, way: way::Way, synced: bool },
    /// 4 KiB reads of a file while a stream of `stream` bytes is written, for so many seconds.
    Mixed { seconds: f64, bytes: u64, stream: u64 },
    /// A step of a longer work, between which caches are dropped.
    Part(Part),
}

/// What one measurement does of a longer work. It finds what the parts before have left in the same place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Makes the place; nothing is measured.
    Begin,
    /// Removes the place with all that is in it; nothing is measured.
    End,
    /// As [`Work::Sequential`], through the page cache.
    WriteFiles {
        bytes: u64,
        step: usize,
    },
    ReadFiles {
        bytes: u64,
        step: usize,
    },
    /// As [`Work::Random`] with `O_DIRECT`; nothing is measured.
    PrepareRandom {
        bytes: u64,
    },
    ReadRandom {
        seconds: f64,
        bytes: u64,
    },
    WriteRandom {
        seconds: f64,
        bytes: u64,
        synced: bool,
    },
    Population(population::Population),
    /// As [`Work::Scan`] needs them; nothing is measured.
    MakeShape {
        shape: scan::Shape,
    },
    Unpack {
        archive: PathBuf,
        tree: PathBuf,
    },
    Pack {
        tree: PathBuf,
    },
    Grep {
        seconds: f64,
        tree: PathBuf,
    },
    Remove,
    Clone {
        repository: PathBuf,
        tree: PathBuf,
    },
    Status,
}

impl Files {
    /// One figure for each phase of the work.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        match &self.work {
            Work::Stat { seconds } => stat::run(self, *seconds),
            Work::Churn { seconds, shared } => churn::run(self, *seconds, *shared),
            Work::Read { seconds } => small::read(self, *seconds),
            Work::Make { seconds, bytes } => small::make(self, *seconds, *bytes),
            Work::Scan { program, shape, made_at } => scan::run(self, *program, *shape, made_at),
            Work::Unpack { archive, tree } => unpack::run(self, archive, tree),
            Work::Clone { repository, tree } => git::clone_and_remove(self, repository, tree),
            Work::Install { wheel, tree } => pip::run(self, wheel, tree),
            Work::LookAgain { seconds, repository, tree } => git::look_again(self, *seconds, repository, tree),
            Work::Sequential(stream) => stream.run(self),
            Work::Random { seconds, bytes, way, synced } => random::run(self, *seconds, *bytes, way, *synced),
            Work::Mixed { seconds, bytes, stream } => mixed::run(self, *seconds, *bytes, *stream),
            Work::Part(part) => self.run_part(part).map(|measured| measured.into_iter().collect()),
        }
    }

    fn run_part(&self, part: &Part) -> Result<Option<Measured>> {
        let measured = match part {
            Part::Begin => return std::fs::create_dir_all(&self.place).map(|()| None).context("cannot begin"),
            Part::End => return std::fs::remove_dir_all(&self.place).map(|()| None).context("cannot clean up"),
            Part::PrepareRandom { bytes } => return random::prepare_files(self, *bytes).map(|()| None),
            Part::MakeShape { shape } => return shape.make(&self.place).map(|()| None),
            Part::WriteFiles { bytes, step } => Stream::buffered(*bytes, *step).write_files(self),
            Part::ReadFiles { bytes, step } => Stream::buffered(*bytes, *step).read_files(self),
            Part::ReadRandom { seconds, bytes } => random::read_files(self, *seconds, *bytes, &Way::Direct),
            Part::WriteRandom { seconds, bytes, synced } => {
                random::write_files(self, *seconds, *bytes, &Way::Direct, *synced)
            }
            Part::Population(population) => population.run(self),
            Part::Unpack { archive, tree } => unpack::unpack(self, archive, tree),
            Part::Pack { tree } => archive::pack(self, tree),
            Part::Grep { seconds, tree } => archive::grep(self, *seconds, tree),
            Part::Remove => archive::remove(self),
            Part::Clone { repository, tree } => git::clone_once(self, repository, tree),
            Part::Status => git::status_once(self),
        };
        measured.map(Some)
    }
}

/// Makes what was written last on the disk, and lets the kernel forget what it has cached, so that reads are cold.
pub(crate) fn drop_caches() -> Result<()> {
    // SAFETY: a system call without arguments that cannot fail.
    unsafe { libc::sync() };
    std::fs::write("/proc/sys/vm/drop_caches", "3\n").context("cannot drop the page cache (needs root)")
}
