//! Large files from one end to the other, in steps; each process has its own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::pattern::{Pages, check, stamp};
use super::{Files, drop_caches};
use crate::job::Measured;

/// One operation is one step. `write` ends with an fsync; `read` finds all caches cold.
pub(crate) fn run(files: &Files, bytes: u64, step: usize) -> Result<Vec<Measured>> {
    let path = |number: usize| files.place.join(format!("sequential-{number}"));
    let steps = bytes / step as u64 / files.processes as u64;
    ensure!(steps > 0, "too few bytes");
    let write = |number: usize, gate: &mut Gate<'_>| write(number, path(number), step, steps, gate);
    let written = together("write", files.processes, &files.watch, write, |_, ()| Ok(()))?;
    drop_caches()?;
    let read = |number: usize, gate: &mut Gate<'_>| read(number, path(number), step, steps, gate);
    let read = together("read", files.processes, &files.watch, read, |number, ()| {
        fs::remove_file(path(number)).context("cannot remove what was written")
    })?;
    Ok(vec![written, read])
}

fn write(number: usize, path: PathBuf, len: usize, steps: u64, gate: &mut Gate<'_>) -> Result<(Tally, ())> {
    let mut buffer = Pages::noise(len, number as u64);
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    gate.pass();
    for step in 0..steps {
        let offset = step * len as u64;
        stamp(buffer.bytes_mut(), number, offset);
        file.write_all_at(buffer.bytes(), offset)?;
    }
    file.sync_all()?;
    Ok((Tally { operations: steps, bytes: steps * len as u64 }, ()))
}

fn read(number: usize, path: PathBuf, len: usize, steps: u64, gate: &mut Gate<'_>) -> Result<(Tally, ())> {
    let mut buffer = Pages::noise(len, number as u64);
    let file = File::open(&path)?;
    ensure!(file.metadata()?.len() == steps * len as u64, "{} has another size than was written", path.display());
    gate.pass();
    for step in 0..steps {
        let offset = step * len as u64;
        file.read_exact_at(buffer.bytes_mut(), offset)?;
        check(buffer.bytes(), number, offset)?;
    }
    Ok((Tally { operations: steps, bytes: steps * len as u64 }, ()))
}
