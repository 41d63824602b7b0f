//! Large files: each process its own in transfers of 2 MiB, or all one file in records that fit nothing.

use anyhow::{Context, Result, ensure};

use super::step::Step;
use crate::store::Store;
use crate::work::gate::{Gate, Tally};
use crate::work::pattern::{BLOCK, Pages, Random, check, stamp};

pub(crate) const EASY: &str = "ior-easy";
pub(crate) const HARD: &str = "ior-hard";
/// Bytes of a transfer in ior-easy.
pub(crate) const TRANSFER: usize = 2 << 20;
/// Bytes of a record in ior-hard: a multiple of nothing that a file system likes.
const RECORD: usize = 47_008;
/// What the marks in the shared file say instead of a process.
const SHARED: usize = 1 << 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Easy,
    Hard,
}

impl Shape {
    fn path(self, owner: usize) -> String {
        match self {
            Shape::Easy => format!("{EASY}/ior_file_easy.{owner:08}"),
            Shape::Hard => format!("{HARD}/file"),
        }
    }

    fn len(self) -> usize {
        match self {
            Shape::Easy => TRANSFER,
            Shape::Hard => RECORD,
        }
    }

    /// Which file the marks name.
    fn mark(self, owner: usize) -> usize {
        match self {
            Shape::Easy => owner,
            Shape::Hard => SHARED,
        }
    }

    /// Of transfer `index` of `owner`; in the shared file each segment has one record of each process.
    fn offset(self, owner: usize, processes: usize, index: u64) -> u64 {
        match self {
            Shape::Easy => index * TRANSFER as u64,
            Shape::Hard => (index * processes as u64 + owner as u64) * RECORD as u64,
        }
    }
}

/// With an fsync at the end, which counts.
pub(crate) fn write<S: Store>(
    step: &Step,
    shape: Shape,
    store: &mut S,
    number: usize,
    gate: &mut Gate<'_>,
) -> Result<Tally> {
    let (path, len) = (shape.path(number), shape.len());
    let mut pages = Pages::noise(len.next_multiple_of(BLOCK), number as u64);
    let buffer = &mut pages.bytes_mut()[..len];
    let begin = gate.pass();
    let file = store.open_to_write(&path).with_context(|| format!("cannot make {path}"))?;
    let count = step.stonewalled(gate, begin, (step.bounds.bytes / len as u64).max(1), |index| {
        let offset = shape.offset(number, step.processes, index);
        stamp(buffer, shape.mark(number), offset);
        store.write_at(&file, buffer, offset).with_context(|| format!("write of {path} at {offset}"))
    })?;
    store.sync(&file).with_context(|| format!("fsync of {path}"))?;
    store.close(file).with_context(|| format!("close of {path}"))?;
    Ok(Tally { operations: count, bytes: count * len as u64 })
}

/// What another process wrote.
pub(crate) fn read<S: Store>(
    step: &Step,
    shape: Shape,
    store: &mut S,
    number: usize,
    gate: &mut Gate<'_>,
) -> Result<Tally> {
    let owner = step.neighbour(number, 1);
    let count = match shape {
        Shape::Easy => step.counts.transfers,
        Shape::Hard => step.counts.records,
    };
    let (path, len) = (shape.path(owner), shape.len());
    let mut pages = Pages::noise(len.next_multiple_of(BLOCK), 0);
    let buffer = &mut pages.bytes_mut()[..len];
    gate.pass();
    let file = store.open_to_read(&path).with_context(|| format!("cannot open {path}"))?;
    for index in 0..count {
        let offset = shape.offset(owner, step.processes, index);
        read_whole(store, &file, buffer, offset, &path)?;
        check(buffer, shape.mark(owner), offset).with_context(|| format!("read of {path} at {offset}"))?;
    }
    store.close(file).with_context(|| format!("close of {path}"))?;
    Ok(Tally { operations: count, bytes: count * len as u64 })
}

/// Blocks of 4 KiB at random places of what a third process wrote, for as long as the writing phases went on.
pub(crate) fn read_random<S: Store>(step: &Step, store: &mut S, number: usize, gate: &mut Gate<'_>) -> Result<Tally> {
    let owner = step.neighbour(number, 2);
    let path = Shape::Easy.path(owner);
    let blocks = step.counts.transfers * (TRANSFER / BLOCK) as u64;
    ensure!(blocks > 0, "{path} is empty");
    let mut random = Random::new(number as u64);
    let mut pages = Pages::noise(BLOCK, 0);
    let begin = gate.pass();
    let file = store.open_to_read(&path).with_context(|| format!("cannot open {path}"))?;
    let count = step.stonewalled(gate, begin, u64::MAX, |_| {
        let offset = random.below(blocks) * BLOCK as u64;
        read_whole(store, &file, pages.bytes_mut(), offset, &path)?;
        check(pages.bytes(), owner, offset).with_context(|| format!("read of {path} at {offset}"))
    })?;
    store.close(file).with_context(|| format!("close of {path}"))?;
    Ok(Tally { operations: count, bytes: count * BLOCK as u64 })
}

fn read_whole<S: Store>(store: &mut S, file: &S::File, into: &mut [u8], offset: u64, path: &str) -> Result<()> {
    let read = store.read_at(file, into, offset).with_context(|| format!("read of {path} at {offset}"))?;
    ensure!(read == into.len(), "{path} has {read} bytes at {offset}, where {} were written", into.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn records_of_all_processes_cover_the_shared_file() {
        let offsets: BTreeSet<u64> =
            (0..3).flat_map(|owner| (0..5).map(move |index| Shape::Hard.offset(owner, 3, index))).collect();
        let expected: BTreeSet<u64> = (0..15).map(|place| place * 47_008).collect();
        assert_eq!(offsets, expected);
    }
}
