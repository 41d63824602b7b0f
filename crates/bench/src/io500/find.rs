//! `find -name '*01*' -size 3901c` over everything that was made, by all processes together.

use anyhow::{Context, Result, ensure};

use super::mdtest;
use super::step::{self, Step};
use crate::job::Measured;
use crate::store::Store;
use crate::work::gate::{Gate, Tally};
use crate::work::small::BYTES;

/// What names must have in them.
const PATTERN: &str = "01";

/// Operations are the entries that were looked at, bytes those of the files that were found. Directories are dealt to
/// the processes as they come for more; each is read by one of them from its beginning to its end.
pub(crate) fn find<S: Store>(store: &mut S, gate: &mut Gate<'_>) -> Result<Tally> {
    gate.pass();
    let mut leaves = Vec::new();
    // Few entries: each process reads them for itself, one of them counts them.
    let mut upper = 0;
    for directory in ["", mdtest::EASY] {
        let entries = store.list(directory).with_context(|| format!("cannot list {directory:?}"))?;
        upper += entries.len() as u64;
        let inner = entries.into_iter().filter(|entry| entry.is_directory && entry.name != mdtest::EASY);
        leaves.extend(inner.map(|entry| join(directory, &entry.name)));
    }
    // The largest one first: whoever gets it reads it alone.
    leaves.sort_by_key(|leaf| (leaf != mdtest::HARD, leaf.clone()));
    let mut tally = Tally::default();
    loop {
        let ticket = gate.ticket();
        if ticket == 0 {
            tally.operations += upper;
        }
        let Some(directory) = usize::try_from(ticket).ok().and_then(|ticket| leaves.get(ticket)) else { break };
        for entry in store.list(directory).with_context(|| format!("cannot list {directory}"))? {
            tally.operations += 1;
            if !entry.name.contains(PATTERN) {
                continue;
            }
            let path = join(directory, &entry.name);
            let size = store.size(&path).with_context(|| format!("stat of {path}"))?;
            if size == BYTES as u64 {
                tally.bytes += size;
            }
        }
    }
    Ok(tally)
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// # Errors
/// Where not all entries were seen, or not all files found that should be.
pub(crate) fn check(step: &Step, measured: &Measured) -> Result<()> {
    let (processes, counts) = (step.processes as u64, step.counts);
    let directories = step::directories(step.processes).len() as u64 - 1;
    let files = processes * (counts.easy_files + counts.hard_files + 1) + 1;
    let entries = measured.operations;
    ensure!(entries == directories + files, "find saw {entries} entries of {}", directories + files);
    let names = (0..step.processes).flat_map(|owner| (0..counts.hard_files).map(move |index| (owner, index)));
    let expected = names.filter(|&(owner, index)| mdtest::name(owner, index).contains(PATTERN)).count();
    let found = measured.bytes / BYTES as u64;
    ensure!(found == expected as u64, "find found {found} files of {expected}");
    Ok(())
}
