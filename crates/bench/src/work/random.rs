//! Reads and writes of 4 KiB at random places past all caches, each process in a file of its own.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::pattern::{BLOCK, Pages, Random, check, stamp};
use super::way::Way;
use super::{Files, drop_caches};
use crate::job::Measured;
use crate::store::{Store, in_kept_store, in_store};

/// Of the writes one in so many is read back at the end.
const SAMPLE: u64 = 64;

/// The phase of writes that are on the disk before the next one begins.
pub(crate) const SYNCED: &str = "synced write";

/// `read` and `write`, and [`SYNCED`] if that is wanted, in files that are there whole before.
pub(crate) fn run(files: &Files, seconds: f64, bytes: u64, way: &Way, synced: bool) -> Result<Vec<Measured>> {
    prepare_files(files, bytes)?;
    drop_caches()?;
    let mut measured = vec![read_files(files, seconds, bytes, way)?];
    let writes: &[bool] = if synced { &[false, true] } else { &[false] };
    for &synced in writes {
        drop_caches()?;
        measured.push(write_files(files, seconds, bytes, way, synced)?);
    }
    Ok(measured)
}

/// Makes the files, `bytes` over all processes, where they are not there whole.
pub(crate) fn prepare_files(files: &Files, bytes: u64) -> Result<()> {
    let blocks = blocks(files, bytes)?;
    (0..files.processes).try_for_each(|number| prepare(files, number, blocks))
}

pub(crate) fn read_files(files: &Files, seconds: f64, bytes: u64, way: &Way) -> Result<Measured> {
    let (blocks, place) = (blocks(files, bytes)?, way.place(files)?);
    let read = |number: usize, gate: &mut Gate<'_>| {
        in_kept_store! {
            &place, way.is_direct(), store => read(store, number, blocks, seconds, gate)
        }
    };
    together("read", files.processes, &files.watch, read, |_, _| Ok(()))
}

/// `synced`: with an `fdatasync` after each write, as part of the operation. An `fsync` would have the local file system commit
/// the time of each write too, and be an easier yardstick.
pub(crate) fn write_files(files: &Files, seconds: f64, bytes: u64, way: &Way, synced: bool) -> Result<Measured> {
    let (blocks, place) = (blocks(files, bytes)?, way.place(files)?);
    let write = |number: usize, gate: &mut Gate<'_>| {
        let ((tally, samples), core) =
            in_kept_store!(&place, way.is_direct(), store => write(store, number, blocks, seconds, synced, gate))?;
        Ok((tally, (samples, core)))
    };
    together(if synced { SYNCED } else { "write" }, files.processes, &files.watch, write, |number, (samples, core)| {
        drop(core);
        in_store!(&place, way.is_direct(), store => read_back(store, number, blocks, samples))
    })
}

/// Of the file of a process. Files of other lengths are for other rows.
fn name(number: usize, blocks: u64) -> String {
    format!("random-{blocks}-{number}")
}

/// Of each process.
fn blocks(files: &Files, bytes: u64) -> Result<u64> {
    let blocks = bytes / BLOCK as u64 / files.processes as u64;
    ensure!(blocks > 0, "too few bytes");
    Ok(blocks)
}

/// Makes the file of process `number` where it is not there whole.
pub(super) fn prepare(files: &Files, number: usize, blocks: u64) -> Result<()> {
    const STEP: usize = 1 << 20;
    let (path, len) = (files.place.join(name(number, blocks)), blocks * BLOCK as u64);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
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

/// Reads for so long; `took` hears how long each read took.
pub(super) fn read_for<S: Store>(
    store: &mut S,
    number: usize,
    blocks: u64,
    seconds: f64,
    gate: &mut Gate<'_>,
    mut took: impl FnMut(Duration),
) -> Result<Tally> {
    let name = name(number, blocks);
    let file = store.open_to_read(&name).with_context(|| format!("cannot open {name}"))?;
    let mut buffer = Pages::noise(BLOCK, 0);
    let mut random = Random::new(number as u64);
    let mut begin = gate.pass();
    let end = begin + Duration::from_secs_f64(seconds);
    let mut operations: u64 = 0;
    while begin < end {
        let offset = random.below(blocks) * BLOCK as u64;
        let read = store.read_at(&file, buffer.bytes_mut(), offset);
        ensure!(read.with_context(|| format!("read of {name} at {offset}"))? == BLOCK, "{name} ends at {offset}");
        check(buffer.bytes(), number, offset)?;
        operations += 1;
        let now = Instant::now();
        took(now - begin);
        begin = now;
    }
    Ok(Tally { operations, bytes: operations * BLOCK as u64 })
}

fn read<S: Store>(store: &mut S, number: usize, blocks: u64, seconds: f64, gate: &mut Gate<'_>) -> Result<Tally> {
    read_for(store, number, blocks, seconds, gate, |_| {})
}

/// Offsets, and the mark that was written there last.
type Samples = BTreeMap<u64, u64>;

/// Where in a block the mark of a write stands, behind the stamp.
const MARK: std::ops::Range<usize> = 16..24;

fn write<S: Store>(
    store: &mut S,
    number: usize,
    blocks: u64,
    seconds: f64,
    synced: bool,
    gate: &mut Gate<'_>,
) -> Result<(Tally, Samples)> {
    let name = name(number, blocks);
    let file = store.open_to_write(&name).with_context(|| format!("cannot open {name}"))?;
    let mut samples = Samples::new();
    let mut buffer = Pages::noise(BLOCK, number as u64);
    let mut random = Random::new(!(number as u64));
    let end = gate.pass() + Duration::from_secs_f64(seconds);
    let mut operations: u64 = 0;
    while Instant::now() < end {
        let offset = random.below(blocks) * BLOCK as u64;
        stamp(buffer.bytes_mut(), number, offset);
        buffer.bytes_mut()[MARK].copy_from_slice(&operations.to_le_bytes());
        store.write_at(&file, buffer.bytes(), offset).with_context(|| format!("write of {name} at {offset}"))?;
        if synced {
            store.sync_data(&file).with_context(|| format!("fdatasync of {name}"))?;
        }
        if operations.is_multiple_of(SAMPLE) || samples.contains_key(&offset) {
            samples.insert(offset, operations);
        }
        operations += 1;
    }
    store.close(file).with_context(|| format!("close of {name}"))?;
    Ok((Tally { operations, bytes: operations * BLOCK as u64 }, samples))
}

fn read_back<S: Store>(store: &mut S, number: usize, blocks: u64, samples: Samples) -> Result<()> {
    let file = store.open_to_read(&name(number, blocks))?;
    let mut buffer = Pages::noise(BLOCK, 0);
    for (offset, mark) in samples {
        ensure!(store.read_at(&file, buffer.bytes_mut(), offset)? == BLOCK, "file {number} ends at {offset}");
        check(buffer.bytes(), number, offset)?;
        ensure!(buffer.bytes()[MARK] == mark.to_le_bytes(), "a write of file {number} at {offset} is lost");
    }
    Ok(store.close(file)?)
}
