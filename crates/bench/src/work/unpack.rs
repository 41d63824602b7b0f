//! `tar -x` of a source tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::{Files, tree};
use crate::job::Measured;

/// Of so many files one is compared byte by byte.
const SAMPLE: u64 = 17;

/// One operation is one file. Nothing is synced at the end, as `tar` doesn't. What was unpacked is removed.
pub(crate) fn run(files: &Files, archive: &Path, original: &Path) -> Result<Vec<Measured>> {
    let unpacked = unpack(files, archive, original)?;
    for number in 0..files.processes {
        fs::remove_dir_all(place(files, number)).context("cannot remove what was unpacked")?;
    }
    Ok(vec![unpacked])
}

/// Where a process unpacks.
pub(crate) fn place(files: &Files, number: usize) -> PathBuf {
    files.place.join(format!("unpack-{number}"))
}

/// Unpacks the archive in each process, and leaves the trees there.
pub(crate) fn unpack(files: &Files, archive: &Path, original: &Path) -> Result<Measured> {
    // In the page cache, whoever comes first.
    let expected = tree::compare(original, original, u64::MAX)?;
    fs::read(archive).context("cannot read the archive")?;
    let dir = |number: usize| place(files, number);
    let work = |number: usize, gate: &mut Gate<'_>| {
        fs::create_dir(dir(number))?;
        gate.pass();
        let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir(number)).status();
        ensure!(status.context("cannot run tar")?.success(), "tar failed");
        Ok((Tally { operations: tree::FILES as u64, bytes: expected.bytes }, ()))
    };
    let check = |number: usize, ()| {
        let found = tree::compare(&dir(number), original, SAMPLE)?;
        ensure!(found == expected, "unpacked {found:?}, packed {expected:?}");
        Ok(())
    };
    together("unpack", files.processes, &files.watch, work, check)
}
