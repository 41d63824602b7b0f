//! `stat` of files by name, each process in a directory of its own.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Files;
use super::calls::stat;
use super::gate::{Tally, together};
use super::pattern::Random;
use crate::job::Measured;

/// Per process.
const FILES: usize = 500;

pub(crate) fn run(files: &Files, seconds: f64) -> Result<Vec<Measured>> {
    let work = |number: usize, gate: &mut super::gate::Gate<'_>| {
        let dir = files.place.join(format!("stat-{number}"));
        let names = prepare(&dir)?;
        let handle = File::open(&dir)?;
        let mut random = Random::new(number as u64);
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut operations = 0;
        while std::time::Instant::now() < end {
            let (name, inode) = &names[random.below(FILES as u64) as usize];
            let found = stat(&handle, name).with_context(|| format!("stat of {name:?}"))?;
            ensure!(
                found.st_ino == *inode && found.st_mode & libc::S_IFMT == libc::S_IFREG,
                "{name:?} is another file"
            );
            operations += 1;
        }
        Ok((Tally { operations, bytes: 0 }, ()))
    };
    Ok(vec![together("stat", files.processes, &files.watch, work, |_, ()| Ok(()))?])
}

/// Names with their inode numbers.
fn prepare(dir: &std::path::Path) -> Result<Vec<(CString, u64)>> {
    fs::create_dir_all(dir)?;
    let one = |index: usize| {
        let name = format!("file-{index:04}");
        let file = fs::OpenOptions::new().create(true).append(true).open(dir.join(&name))?;
        Ok((CString::new(name)?, file.metadata()?.ino()))
    };
    (0..FILES).map(one).collect::<Result<_>>().with_context(|| format!("cannot prepare {}", dir.display()))
}
