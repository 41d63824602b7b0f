//! Small files: empty ones, each process in a directory of its own, or ones of 3,901 bytes, all in one directory.

use anyhow::{Context, Result, ensure};

use super::phase::Counts;
use super::step::Step;
use crate::store::Store;
use crate::work::gate::{Gate, Tally};
use crate::work::pattern::content;
use crate::work::small::{BYTES, stamp};

pub(crate) const EASY: &str = "mdtest-easy";
pub(crate) const HARD: &str = "mdtest-hard";

/// By how many processes further each phase works on other files than its own, as mdtest's `-N 1` has it.
const STAT_SHIFT: usize = 1;
const READ_SHIFT: usize = 2;
const DELETE_SHIFT: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Easy,
    Hard,
}

impl Kind {
    fn path(self, owner: usize, index: u64) -> String {
        match self {
            Kind::Easy => format!("{}/{}", own_directory(owner), name(owner, index)),
            Kind::Hard => format!("{HARD}/{}", name(owner, index)),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Kind::Easy => 0,
            Kind::Hard => BYTES,
        }
    }

    /// Of each process.
    fn count(self, counts: Counts) -> u64 {
        match self {
            Kind::Easy => counts.easy_files,
            Kind::Hard => counts.hard_files,
        }
    }
}

pub(crate) fn own_directory(owner: usize) -> String {
    format!("{EASY}/{owner}")
}

pub(crate) fn name(owner: usize, index: u64) -> String {
    format!("file.mdtest.{owner}.{index}")
}

fn contents(owner: usize) -> Vec<u8> {
    content(owner as u64, BYTES)
}

/// Create, write where there is something to write, close.
pub(crate) fn create<S: Store>(
    step: &Step,
    kind: Kind,
    store: &mut S,
    number: usize,
    gate: &mut Gate<'_>,
) -> Result<Tally> {
    let mut filling = contents(number);
    let begin = gate.pass();
    let count = step.stonewalled(gate, begin, step.bounds.files, |index| {
        let path = kind.path(number, index);
        let file = store.create(&path).with_context(|| format!("create of {path}"))?;
        if kind == Kind::Hard {
            stamp(&mut filling, index);
            store.write_at(&file, &filling, 0).with_context(|| format!("write of {path} at 0"))?;
        }
        store.close(file).with_context(|| format!("close of {path}"))
    })?;
    Ok(Tally { operations: count, bytes: count * kind.bytes() as u64 })
}

pub(crate) fn stat<S: Store>(
    step: &Step,
    kind: Kind,
    store: &mut S,
    number: usize,
    gate: &mut Gate<'_>,
) -> Result<Tally> {
    let owner = step.neighbour(number, STAT_SHIFT);
    let count = kind.count(step.counts);
    gate.pass();
    for index in 0..count {
        let path = kind.path(owner, index);
        let size = store.size(&path).with_context(|| format!("stat of {path}"))?;
        ensure!(size == kind.bytes() as u64, "{path} has {size} bytes, and not {}", kind.bytes());
    }
    Ok(Tally { operations: count, bytes: 0 })
}

/// Open, read, compare, close.
pub(crate) fn read<S: Store>(step: &Step, store: &mut S, number: usize, gate: &mut Gate<'_>) -> Result<Tally> {
    let owner = step.neighbour(number, READ_SHIFT);
    let count = step.counts.hard_files;
    let mut expected = contents(owner);
    // One more than there should be.
    let mut found = vec![0; BYTES + 1];
    gate.pass();
    for index in 0..count {
        let path = Kind::Hard.path(owner, index);
        let file = store.open_to_read(&path).with_context(|| format!("open of {path}"))?;
        let len = store.read_at(&file, &mut found, 0).with_context(|| format!("read of {path} at 0"))?;
        store.close(file).with_context(|| format!("close of {path}"))?;
        stamp(&mut expected, index);
        if found[..len] != expected {
            let same = found[..len].iter().zip(&expected).take_while(|(one, other)| one == other).count();
            anyhow::bail!("{path} has other bytes than were written, from {same} on ({len} in all)");
        }
    }
    Ok(Tally { operations: count, bytes: count * BYTES as u64 })
}

pub(crate) fn delete<S: Store>(
    step: &Step,
    kind: Kind,
    store: &mut S,
    number: usize,
    gate: &mut Gate<'_>,
) -> Result<Tally> {
    let owner = step.neighbour(number, DELETE_SHIFT);
    let count = kind.count(step.counts);
    gate.pass();
    for index in 0..count {
        let path = kind.path(owner, index);
        store.unlink(&path).with_context(|| format!("unlink of {path}"))?;
    }
    Ok(Tally { operations: count, bytes: 0 })
}

/// # Errors
/// Where something is left in a directory whose files were all deleted.
pub(crate) fn is_empty<S: Store>(store: &mut S, directory: &str) -> Result<()> {
    let left = store.list(directory).with_context(|| format!("cannot list {directory}"))?;
    match left.first() {
        None => Ok(()),
        Some(entry) => anyhow::bail!("{directory}/{} is still there after it was deleted", entry.name),
    }
}
