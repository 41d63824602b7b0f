//! Small files: opened and read again and again, or made.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Files;
use super::calls::{create, open};
use super::gate::{Gate, Tally, together};
use super::pattern::{Random, content};
use crate::job::Measured;

/// Bytes of one, as in the harder half of IO500's mdtest.
pub(crate) const BYTES: usize = 3_901;
/// That a process reads.
const HOT: usize = 500;
/// Of so many files that were made one is read back.
const SAMPLE: usize = 64;

/// Open, read and close; one operation is all three. Each process has files of its own, which it has read once before.
pub(crate) fn read(files: &Files, seconds: f64) -> Result<Vec<Measured>> {
    let work = |number: usize, gate: &mut Gate<'_>| {
        let dir = files.place.join(format!("small-{number}"));
        let hot = prepare(&dir)?;
        let handle = File::open(&dir)?;
        let mut random = Random::new(number as u64);
        // One more than there should be.
        let mut buffer = vec![0; BYTES + 1];
        let mut read_one = |index: usize| -> Result<()> {
            let (name, expected) = &hot[index];
            let mut file = open(&handle, name).with_context(|| format!("open of {name:?}"))?;
            let len = file.read(&mut buffer)?;
            ensure!(buffer[..len] == *expected, "{name:?} has not the bytes that were written");
            Ok(())
        };
        (0..HOT).try_for_each(&mut read_one)?;
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut operations: u64 = 0;
        while Instant::now() < end {
            read_one(random.below(HOT as u64) as usize)?;
            operations += 1;
        }
        Ok((Tally { operations, bytes: operations * BYTES as u64 }, ()))
    };
    Ok(vec![together("read", files.processes, &files.watch, work, |_, ()| Ok(()))?])
}

/// Names and contents.
fn prepare(dir: &Path) -> Result<Vec<(CString, Vec<u8>)>> {
    let whole = fs::read_dir(dir).is_ok_and(|entries| entries.count() == HOT);
    fs::create_dir_all(dir)?;
    let one = |index: usize| {
        let (name, bytes) = (format!("file-{index:04}"), content(index as u64, BYTES));
        if !whole {
            fs::write(dir.join(&name), &bytes)?;
        }
        Ok((CString::new(name)?, bytes))
    };
    (0..HOT).map(one).collect::<Result<_>>().with_context(|| format!("cannot prepare {}", dir.display()))
}

/// Create, write (where there are bytes to write) and close; one operation is all of them. Each process has a directory
/// of its own, which is new.
pub(crate) fn make(files: &Files, seconds: f64, bytes: usize) -> Result<Vec<Measured>> {
    let dir = |number: usize| files.place.join(format!("make-{number}"));
    let work = |number: usize, gate: &mut Gate<'_>| {
        fs::create_dir(dir(number)).with_context(|| format!("cannot make {}", dir(number).display()))?;
        let handle = File::open(dir(number))?;
        let mut filling = content(number as u64, bytes);
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut made: usize = 0;
        while Instant::now() < end {
            let name = CString::new(file_name(made))?;
            let mut file = create(&handle, &name).with_context(|| format!("create of {name:?}"))?;
            if bytes > 0 {
                stamp(&mut filling, made as u64);
                file.write_all(&filling).with_context(|| format!("write of {name:?}"))?;
            }
            drop(file);
            made += 1;
        }
        Ok((Tally { operations: made as u64, bytes: (made * bytes) as u64 }, made))
    };
    let check = |number: usize, made: usize| {
        let found = fs::read_dir(dir(number))?.count();
        ensure!(found == made, "{found} files where {made} were made");
        let mut expected = content(number as u64, bytes);
        for index in (0..made).step_by(SAMPLE) {
            stamp(&mut expected, index as u64);
            let name = file_name(index);
            ensure!(fs::read(dir(number).join(&name))? == expected, "{name} has not the bytes that were written");
        }
        fs::remove_dir_all(dir(number)).context("cannot remove what was made")
    };
    Ok(vec![together("make", files.processes, &files.watch, work, check)?])
}

fn file_name(index: usize) -> String {
    format!("file-{index:08}")
}

/// Tells which file it is; nothing where there is no room.
pub(crate) fn stamp(content: &mut [u8], index: u64) {
    if let Some(head) = content.first_chunk_mut() {
        *head = index.to_le_bytes();
    }
}
