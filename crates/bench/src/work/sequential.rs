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
    let written = write_files(files, bytes, step)?;
    drop_caches()?;
    let read = read_files(files, bytes, step)?;
    for number in 0..files.processes {
        fs::remove_file(path(files, number)).context("cannot remove what was written")?;
    }
    Ok(vec![written, read])
}

/// Writes a file of each process, `bytes` over all of them.
pub(crate) fn write_files(files: &Files, bytes: u64, step: usize) -> Result<Measured> {
    let steps = steps(files, bytes, step)?;
    let write = |number: usize, gate: &mut Gate<'_>| write(number, path(files, number), step, steps, gate);
    together("write", files.processes, &files.watch, write, |_, ()| Ok(()))
}

/// Reads the files that [`write_files`] has written with the same arguments.
pub(crate) fn read_files(files: &Files, bytes: u64, step: usize) -> Result<Measured> {
    let steps = steps(files, bytes, step)?;
    let read = |number: usize, gate: &mut Gate<'_>| read(number, path(files, number), step, steps, gate);
    together("read", files.processes, &files.watch, read, |_, ()| Ok(()))
}

fn path(files: &Files, number: usize) -> PathBuf {
    files.place.join(format!("sequential-{number}"))
}

/// Of each process.
fn steps(files: &Files, bytes: u64, step: usize) -> Result<u64> {
    let steps = bytes / step as u64 / files.processes as u64;
    ensure!(steps > 0, "too few bytes");
    Ok(steps)
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
