//! Large files from one end to the other, in steps: each process has its own, or all have one.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::gate::{Gate, PROCESSES_MAX, Tally, together};
use super::pattern::{BLOCK, Pages, check, stamp};
use super::way::Way;
use super::{Files, drop_caches};
use crate::job::Measured;
use crate::store::{Store, in_kept_store};

/// For the services to come to rest after what is not measured; and how many CPUs they use then.
const REST: Duration = Duration::from_secs(2);
const IDLE: f64 = 0.05;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// Over all processes.
    pub(crate) bytes: u64,
    /// Bytes of one operation.
    pub(crate) step: usize,
    pub(crate) way: Way,
    /// All processes work on one file, whose steps are theirs in turns.
    pub(crate) shared: bool,
    /// The files stay from round to round, and are written over: a disk that is memory has to find new memory for new ones,
    /// which is no part of what such rows compare.
    pub(crate) kept: bool,
    /// In the marks of what is written over: what an earlier round has left there is found to be wrong.
    #[serde(default)]
    pub(crate) round: u32,
}

impl Stream {
    /// Through the page cache, each process in a file of its own.
    pub(crate) fn buffered(bytes: u64, step: usize) -> Self {
        Self { bytes, step, way: Way::Buffered, shared: false, kept: false, round: 0 }
    }

    /// One operation is one step. `write` ends with an fsync; `read` finds all caches cold.
    pub(crate) fn run(&self, files: &Files) -> Result<Vec<Measured>> {
        if self.kept && !self.is_there(files)? {
            self.remove(files)?;
            self.write_all(files)?;
            files.watch.settle_within(REST, IDLE);
        }
        let stream = Self { round: if self.kept { now_s() } else { 0 }, ..self.clone() };
        let written = stream.write_files(files)?;
        drop_caches()?;
        let read = stream.read_files(files)?;
        if !self.kept {
            self.remove(files)?;
        }
        Ok(vec![written, read])
    }

    pub(crate) fn write_files(&self, files: &Files) -> Result<Measured> {
        if !self.kept {
            self.remove(files)?;
        }
        self.write_all(files)
    }

    fn write_all(&self, files: &Files) -> Result<Measured> {
        let steps = self.steps(files)?;
        let place = self.way.place(files)?;
        let write = |number: usize, gate: &mut Gate<'_>| {
            in_kept_store! {
                &place, self.way.is_direct(), store => self.write(store, (number, files.processes), steps, gate)
            }
        };
        together("write", files.processes, &files.watch, write, |_, _| Ok(()))
    }

    /// Reads the files that [`Self::write_files`] has written.
    pub(crate) fn read_files(&self, files: &Files) -> Result<Measured> {
        let steps = self.steps(files)?;
        let place = self.way.place(files)?;
        let read = |number: usize, gate: &mut Gate<'_>| {
            in_kept_store! {
                &place, self.way.is_direct(), store => self.read(store, (number, files.processes), steps, gate)
            }
        };
        together("read", files.processes, &files.watch, read, |_, _| Ok(()))
    }

    /// Whether all of an earlier round is there. Others may have left files of other sizes.
    fn is_there(&self, files: &Files) -> Result<bool> {
        let len = self.steps(files)? * self.step as u64 * if self.shared { files.processes as u64 } else { 1 };
        let path = |number| files.place.join(self.name(number));
        Ok((0..files.processes).all(|number| fs::metadata(path(number)).is_ok_and(|found| found.len() == len)))
    }

    /// What is there of an earlier round; of those who keep their files, also with more processes.
    fn remove(&self, files: &Files) -> Result<()> {
        for number in 0..if self.kept { PROCESSES_MAX } else { files.processes } {
            match fs::remove_file(files.place.join(self.name(number))) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).context("cannot remove what was written");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn name(&self, number: usize) -> String {
        if self.shared { "sequential-shared".to_owned() } else { format!("sequential-{number}") }
    }

    fn mark(&self, number: usize) -> usize {
        number | (self.round as usize) << 32
    }

    /// Of each process.
    fn steps(&self, files: &Files) -> Result<u64> {
        let steps = self.bytes / self.step as u64 / files.processes as u64;
        ensure!(steps > 0, "too few bytes");
        Ok(steps)
    }

    fn offset(&self, (number, processes): (usize, usize), index: u64) -> u64 {
        let place = if self.shared { index * processes as u64 + number as u64 } else { index };
        place * self.step as u64
    }

    fn write<S: Store>(&self, store: &mut S, who: (usize, usize), steps: u64, gate: &mut Gate<'_>) -> Result<Tally> {
        let (len, name) = (self.step, self.name(who.0));
        let mut filling = store.filling(Pages::noise(len.next_multiple_of(BLOCK), who.0 as u64), len);
        let file = store.open_to_write(&name).with_context(|| format!("cannot make {name}"))?;
        gate.pass();
        for index in 0..steps {
            let offset = self.offset(who, index);
            stamp(&mut filling, self.mark(who.0), offset);
            let written = store.write_filling(&file, filling, offset);
            filling = written.with_context(|| format!("write of {name} at {offset}"))?;
        }
        store.sync(&file).with_context(|| format!("fsync of {name}"))?;
        store.close(file).with_context(|| format!("close of {name}"))?;
        Ok(Tally { operations: steps, bytes: steps * len as u64 })
    }

    fn read<S: Store>(&self, store: &mut S, who: (usize, usize), steps: u64, gate: &mut Gate<'_>) -> Result<Tally> {
        let (len, name) = (self.step, self.name(who.0));
        let mut pages = Pages::noise(len.next_multiple_of(BLOCK), who.0 as u64);
        let buffer = &mut pages.bytes_mut()[..len];
        let whole = steps * len as u64 * if self.shared { who.1 as u64 } else { 1 };
        ensure!(store.size(&name)? == whole, "{name} has another size than was written");
        let file = store.open_to_read(&name).with_context(|| format!("cannot open {name}"))?;
        gate.pass();
        for index in 0..steps {
            let offset = self.offset(who, index);
            let look = |bytes: &[u8], at| check(bytes, self.mark(who.0), at);
            let read = store.read_in_place(&file, buffer, offset, look);
            let read = read.with_context(|| format!("read of {name} at {offset}"))?;
            ensure!(read == len, "{name} has {read} bytes at {offset}, where {len} were written");
        }
        store.close(file).with_context(|| format!("close of {name}"))?;
        Ok(Tally { operations: steps, bytes: steps * len as u64 })
    }
}

fn now_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cpu::Watch;
    use crate::work::Work;

    #[test]
    fn records_of_all_processes_cover_the_shared_file() {
        let stream = Stream { shared: true, ..Stream::buffered(15 * 47_008, 47_008) };
        let offsets = (0..3).flat_map(|number| (0..5).map(move |index| (number, index)));
        let offsets: BTreeSet<u64> = offsets.map(|(number, index)| stream.offset((number, 3), index)).collect();
        assert_eq!(offsets, (0..15).map(|place| place * 47_008).collect());
        let own = Stream { shared: false, ..stream };
        assert_eq!((own.offset((2, 3), 4), own.name(2)), (4 * 47_008, "sequential-2".to_owned()));
    }
    #[test]
    fn files_that_are_kept_stay_unless_they_are_of_another_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().to_owned();
        let stream = Stream { kept: true, ..Stream::buffered(4 * 8192, 4096) };
        let work = Work::Sequential(stream.clone());
        let files = Files { work, place, processes: 4, watch: Watch::default() };
        assert!(!stream.is_there(&files).expect("whole steps"));
        for number in 0..4 {
            fs::write(folder.path().join(stream.name(number)), [0; 8192]).expect("written");
        }
        assert!(stream.is_there(&files).expect("whole steps"));
        let alone = Files { processes: 1, ..files.clone() };
        assert!(!stream.is_there(&alone).expect("whole steps"), "one process has all bytes in its file");
        stream.remove(&alone).expect("removed");
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0, "also those of the other three");
    }
}
