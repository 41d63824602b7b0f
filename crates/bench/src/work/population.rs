//! Very many small files or directories, as mdtest has them: made, looked at, read, renamed, removed. Each process works in
//! a directory of its own, or all in one.
//!
//! Each step is a measurement of its own, so that caches can be dropped in between. A step that makes something goes on
//! for a time and then until every process has made as many as the one that made most; the others do each one once.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Files;
use super::calls::{create, mkdir, open, rename, stat, unlink};
use super::gate::{Gate, Tally, together};
use super::pattern::content;
use super::scan::lines;
use super::small::stamp;
use crate::job::Measured;

/// Of a file that is not empty.
const BYTES: usize = 4096;
/// Of so many that were made one is looked at.
const SAMPLE: usize = 64;

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Population {
    pub(crate) step: Step,
    /// All in one directory.
    pub(crate) shared: bool,
    /// Of each process: the most that are made; of the other steps how many were.
    pub(crate) count: u64,
    /// How long things are made, or looked at again.
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Create and close.
    Create,
    /// Create, write and close.
    Write,
    /// Create, write, fsync and close.
    WriteSynced,
    Mkdir,
    /// Of empty files, each once.
    Stat,
    /// Of empty files, again and again until the time is over.
    StatAgain,
    /// `ls -l` of the directory, in one process.
    List,
    /// Open, read and close of files that were written.
    Read,
    Rename,
    /// Of what was renamed where `renamed`.
    Unlink {
        renamed: bool,
    },
}

/// What a process works with.
struct Worker {
    dir: PathBuf,
    handle: File,
    number: usize,
    step: Step,
    content: Vec<u8>,
    buffer: Vec<u8>,
}

impl Population {
    pub(crate) fn run(&self, files: &Files) -> Result<Measured> {
        match self.step {
            Step::Create | Step::Write | Step::WriteSynced | Step::Mkdir => self.make(files),
            Step::List => self.list(files),
            Step::Stat | Step::StatAgain | Step::Read | Step::Rename | Step::Unlink { .. } => self.visit(files),
        }
    }

    fn dir(&self, files: &Files, number: usize) -> PathBuf {
        files.place.join(if self.shared { "shared".to_owned() } else { format!("own-{number}") })
    }

    fn worker(&self, files: &Files, number: usize) -> Result<Worker> {
        let dir = self.dir(files, number);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let handle = File::open(&dir)?;
        let (step, content) = (self.step, content(number as u64, BYTES));
        // One byte more than there should be.
        Ok(Worker { dir, handle, number, step, content, buffer: vec![0; BYTES + 1] })
    }

    fn make(&self, files: &Files) -> Result<Measured> {
        let work = |number: usize, gate: &mut Gate<'_>| {
            let mut worker = self.worker(files, number)?;
            let end = gate.pass() + Duration::from_secs_f64(self.seconds);
            let mut made = 0;
            while made < self.count && Instant::now() < end {
                worker.make(made)?;
                made += 1;
            }
            let most = gate.wear_out(made);
            (made..most).try_for_each(|index| worker.make(index))?;
            Ok((Tally { operations: most, bytes: most * worker.bytes() }, (worker, most)))
        };
        let check = |_: usize, (worker, made): (Worker, u64)| {
            (0..made).step_by(SAMPLE).try_for_each(|index| worker.check_made(index))
        };
        together("make", files.processes, &files.watch, work, check)
    }

    fn visit(&self, files: &Files) -> Result<Measured> {
        ensure!(self.count > 0, "nothing was made");
        let work = |number: usize, gate: &mut Gate<'_>| {
            let mut worker = self.worker(files, number)?;
            let end = gate.pass() + Duration::from_secs_f64(self.seconds);
            let mut operations = 0;
            while operations < self.count || (self.step == Step::StatAgain && Instant::now() < end) {
                worker.visit(operations % self.count)?;
                operations += 1;
            }
            Ok((Tally { operations, bytes: operations * worker.bytes() }, worker))
        };
        let check = |_: usize, worker: Worker| worker.check_left(self.count);
        together("visit", files.processes, &files.watch, work, check)
    }

    fn list(&self, files: &Files) -> Result<Measured> {
        let dir = self.dir(files, 0);
        let work = |_: usize, gate: &mut Gate<'_>| {
            gate.pass();
            let mut list = Command::new("ls");
            Ok((Tally { operations: self.count, bytes: 0 }, lines(list.arg("-l").arg(&dir).env("LC_ALL", "C"))?))
        };
        together("list", 1, &files.watch, work, |_, found: u64| {
            // The sum above.
            ensure!(found == self.count + 1, "{found} lines for {} files", self.count);
            Ok(())
        })
    }
}

impl Worker {
    /// Of one operation.
    fn bytes(&self) -> u64 {
        if matches!(self.step, Step::Write | Step::WriteSynced | Step::Read) { BYTES as u64 } else { 0 }
    }

    /// What process `number` makes as its `index`th, and calls so at last where `renamed`.
    fn name(&self, index: u64, renamed: bool) -> Result<CString> {
        let prefix = if renamed { "new" } else { "file" };
        Ok(CString::new(format!("{prefix}-{}-{index:08}", self.number))?)
    }

    fn make(&mut self, index: u64) -> Result<()> {
        let name = self.name(index, false)?;
        if self.step == Step::Mkdir {
            return mkdir(&self.handle, &name).with_context(|| format!("mkdir of {name:?}"));
        }
        let mut file = create(&self.handle, &name).with_context(|| format!("create of {name:?}"))?;
        if self.step != Step::Create {
            stamp(&mut self.content, index);
            file.write_all(&self.content).with_context(|| format!("write of {name:?}"))?;
        }
        if self.step == Step::WriteSynced {
            file.sync_all().with_context(|| format!("fsync of {name:?}"))?;
        }
        Ok(())
    }

    fn check_made(&self, index: u64) -> Result<()> {
        let name = self.name(index, false)?;
        let found = stat(&self.handle, &name).with_context(|| format!("stat of {name:?}"))?;
        let kind = if self.step == Step::Mkdir { libc::S_IFDIR } else { libc::S_IFREG };
        ensure!(found.st_mode & libc::S_IFMT == kind, "{name:?} is something else than was made");
        let size = u64::try_from(found.st_size).unwrap_or(0);
        ensure!(kind == libc::S_IFDIR || size == self.bytes(), "{name:?} has {size} bytes, not {}", self.bytes());
        Ok(())
    }

    fn visit(&mut self, index: u64) -> Result<()> {
        let name = self.name(index, self.step == Step::Unlink { renamed: true })?;
        match self.step {
            Step::Read => self.read(&name, index).with_context(|| format!("read of {name:?}")),
            Step::Rename => {
                let new = self.name(index, true)?;
                rename(&self.handle, &name, &new).with_context(|| format!("rename of {name:?}"))
            }
            Step::Unlink { .. } => unlink(&self.handle, &name).with_context(|| format!("unlink of {name:?}")),
            _ => {
                let found = stat(&self.handle, &name).with_context(|| format!("stat of {name:?}"))?;
                let empty = found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_size == 0;
                ensure!(empty, "{name:?} is no empty file");
                Ok(())
            }
        }
    }

    fn read(&mut self, name: &CString, index: u64) -> Result<()> {
        stamp(&mut self.content, index);
        let mut file = open(&self.handle, name)?;
        let len = file.read(&mut self.buffer)?;
        ensure!(self.buffer[..len] == self.content, "not the bytes that were written");
        Ok(())
    }

    /// Whether names are as they should be where the step changes them. In a shared directory others may still be at work.
    fn check_left(&self, count: u64) -> Result<()> {
        let expected = match self.step {
            Step::Rename => count,
            Step::Unlink { .. } => 0,
            _ => return Ok(()),
        };
        let (old, new) = (count_named(&self.dir, self.number, "file")?, count_named(&self.dir, self.number, "new")?);
        ensure!(old == 0, "{old} old names are left in {}", self.dir.display());
        ensure!(new == expected, "{new} new names in {}, and not {expected}", self.dir.display());
        Ok(())
    }
}

fn count_named(dir: &Path, number: usize, prefix: &str) -> Result<u64> {
    let prefix = format!("{prefix}-{number}-");
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        count += u64::from(entry?.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    }
    Ok(count)
}
