//! Direct reads and writes of 4 KiB at random places, each process in a file of its own.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::pattern::{BLOCK, Pages, Random, check, stamp};
use super::{Files, drop_caches};
use crate::job::Measured;

/// Of the writes one in so many is read back at the end.
const SAMPLE: u64 = 64;

/// `read` and `write`, in files that are there whole before.
pub(crate) fn run(files: &Files, seconds: f64, bytes: u64) -> Result<Vec<Measured>> {
    prepare_files(files, bytes)?;
    drop_caches()?;
    let read = read_files(files, seconds, bytes)?;
    drop_caches()?;
    Ok(vec![read, write_files(files, seconds, bytes, false)?])
}

/// Makes the files, `bytes` over all processes, where they are not there whole.
pub(crate) fn prepare_files(files: &Files, bytes: u64) -> Result<()> {
    let blocks = blocks(files, bytes)?;
    (0..files.processes).try_for_each(|number| prepare(&path(files, number), number, blocks))
}

pub(crate) fn read_files(files: &Files, seconds: f64, bytes: u64) -> Result<Measured> {
    let blocks = blocks(files, bytes)?;
    let read = |number: usize, gate: &mut Gate<'_>| read(number, path(files, number), blocks, seconds, gate);
    together("read", files.processes, &files.watch, read, |_, ()| Ok(()))
}

/// `synced`: with an fsync after each write, which is part of the operation.
pub(crate) fn write_files(files: &Files, seconds: f64, bytes: u64, synced: bool) -> Result<Measured> {
    let blocks = blocks(files, bytes)?;
    let write = |number: usize, gate: &mut Gate<'_>| {
        let written = Written { file: open_direct(&path(files, number))?, number, samples: Default::default() };
        write(written, blocks, seconds, synced, gate)
    };
    together("write", files.processes, &files.watch, write, read_back)
}

fn path(files: &Files, number: usize) -> PathBuf {
    files.place.join(format!("random-{number}"))
}

/// Of each process.
fn blocks(files: &Files, bytes: u64) -> Result<u64> {
    let blocks = bytes / BLOCK as u64 / files.processes as u64;
    ensure!(blocks > 0, "too few bytes");
    Ok(blocks)
}

fn prepare(path: &Path, number: usize, blocks: u64) -> Result<()> {
    const STEP: usize = 1 << 20;
    let len = blocks * BLOCK as u64;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    if file.metadata()?.len() == len {
        return Ok(());
    }
    let mut buffer = Pages::noise(STEP, number as u64);
    for offset in (0..len).step_by(STEP) {
        stamp(buffer.bytes_mut(), number, offset);
        let part = STEP.min((len - offset) as usize);
        file.write_all_at(&buffer.bytes()[..part], offset)?;
    }
    Ok(file.sync_all()?)
}

fn open_direct(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    file.with_context(|| format!("cannot open {} for direct access", path.display()))
}

fn read(number: usize, path: PathBuf, blocks: u64, seconds: f64, gate: &mut Gate<'_>) -> Result<(Tally, ())> {
    let file = open_direct(&path)?;
    let mut buffer = Pages::noise(BLOCK, 0);
    let mut random = Random::new(number as u64);
    let end = gate.pass() + Duration::from_secs_f64(seconds);
    let mut operations: u64 = 0;
    while Instant::now() < end {
        let offset = random.below(blocks) * BLOCK as u64;
        file.read_exact_at(buffer.bytes_mut(), offset)?;
        check(buffer.bytes(), number, offset)?;
        operations += 1;
    }
    Ok((Tally { operations, bytes: operations * BLOCK as u64 }, ()))
}

/// What was written, to be read back.
struct Written {
    file: File,
    number: usize,
    /// Offsets, and the mark that was written there last.
    samples: std::collections::BTreeMap<u64, u64>,
}

/// Where in a block the mark of a write stands, behind the stamp.
const MARK: std::ops::Range<usize> = 16..24;

fn write(
    mut written: Written,
    blocks: u64,
    seconds: f64,
    synced: bool,
    gate: &mut Gate<'_>,
) -> Result<(Tally, Written)> {
    let number = written.number;
    let mut buffer = Pages::noise(BLOCK, number as u64);
    let mut random = Random::new(!(number as u64));
    let end = gate.pass() + Duration::from_secs_f64(seconds);
    let mut operations: u64 = 0;
    while Instant::now() < end {
        let offset = random.below(blocks) * BLOCK as u64;
        stamp(buffer.bytes_mut(), number, offset);
        buffer.bytes_mut()[MARK].copy_from_slice(&operations.to_le_bytes());
        written.file.write_all_at(buffer.bytes(), offset)?;
        if synced {
            written.file.sync_all()?;
        }
        if operations.is_multiple_of(SAMPLE) || written.samples.contains_key(&offset) {
            written.samples.insert(offset, operations);
        }
        operations += 1;
    }
    Ok((Tally { operations, bytes: operations * BLOCK as u64 }, written))
}

fn read_back(_: usize, written: Written) -> Result<()> {
    let mut buffer = Pages::noise(BLOCK, 0);
    for (offset, mark) in written.samples {
        written.file.read_exact_at(buffer.bytes_mut(), offset)?;
        check(buffer.bytes(), written.number, offset)?;
        ensure!(buffer.bytes()[MARK] == mark.to_le_bytes(), "a write of file {} at {offset} is lost", written.number);
    }
    Ok(())
}
