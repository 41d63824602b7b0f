//! Direct reads of 4 KiB at random places by one process, while another writes one stream.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, each_apart};
use super::pattern::{BLOCK, Pages, check, stamp};
use super::way::Way;
use super::{Files, drop_caches, random};
use crate::job::Measured;
use crate::store::posix::Posix;

/// Bytes of a write.
const STEP: usize = 1 << 20;
/// Bytes per second of the stream at most: the same load on every file system that can bear it.
const RATE: f64 = 256e6;
/// Phases, in the order of the numbers of their processes.
const PHASES: [&str; 2] = ["mixed read", "mixed write"];
const READER: usize = 0;
const WRITER: usize = 1;

/// `mixed read` and `mixed write`: operations with their times, and bytes of the stream. This goes over a file of
/// `stream` bytes again and again, with an fsync each time, so that the disk writes while others read from it.
pub(crate) fn run(files: &Files, seconds: f64, bytes: u64, stream: u64) -> Result<Vec<Measured>> {
    ensure!(files.processes == PHASES.len(), "one reads, one writes");
    let blocks = bytes / BLOCK as u64;
    random::prepare(files, READER, blocks)?;
    drop_caches()?;
    let path = files.place.join("mixed-stream");
    let work = |number: usize, gate: &mut Gate<'_>| {
        if number == WRITER {
            return write(&path, stream / STEP as u64, seconds, gate);
        }
        let mut times = Vec::new();
        let store = &mut Posix::open(&files.place, Way::Direct.is_direct());
        let tally = random::read_for(store, READER, blocks, seconds, gate, |took| times.push(took))?;
        gate.tell_p99(p99(times).context("nothing was read")?);
        Ok(Tally { bytes: 0, ..tally })
    };
    let work = |number: usize, gate: &mut Gate<'_>| Ok((work(number, gate)?, ()));
    let measured = each_apart(&PHASES, &files.watch, work, |number, ()| match number {
        WRITER => read_back(&path),
        _ => Ok(()),
    })?;
    fs::remove_file(path).context("cannot remove what was written")?;
    Ok(measured)
}

fn write(path: &PathBuf, steps: u64, seconds: f64, gate: &mut Gate<'_>) -> Result<Tally> {
    let mut buffer = Pages::noise(STEP, WRITER as u64);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path).context("cannot make a stream")?;
    let begin = gate.pass();
    let mut written = 0;
    while begin.elapsed().as_secs_f64() < seconds {
        let due = Duration::from_secs_f64((written * STEP as u64) as f64 / RATE);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        let offset = written % steps * STEP as u64;
        stamp(buffer.bytes_mut(), WRITER, offset);
        file.write_all_at(buffer.bytes(), offset)?;
        written += 1;
        if written.is_multiple_of(steps) {
            file.sync_all()?;
        }
    }
    Ok(Tally { operations: 0, bytes: written * STEP as u64 })
}

fn read_back(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    let mut buffer = Pages::noise(STEP, 0);
    let len = file.metadata()?.len();
    ensure!(len > 0, "the stream has written nothing");
    for offset in (0..len).step_by(STEP) {
        file.read_exact_at(buffer.bytes_mut(), offset)?;
        check(buffer.bytes(), WRITER, offset)?;
    }
    Ok(())
}

/// What 99 % took at most.
fn p99(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get((times.len() * 99).div_ceil(100).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_may_be_slower() {
        let times = |count: u64| (1..=count).rev().map(Duration::from_millis).collect();
        assert_eq!(p99(times(100)), Some(Duration::from_millis(99)));
        assert_eq!(p99(times(1_000)), Some(Duration::from_millis(990)));
        assert_eq!(p99(times(10)), Some(Duration::from_millis(10)));
        assert_eq!(p99(times(0)), None);
    }
}
