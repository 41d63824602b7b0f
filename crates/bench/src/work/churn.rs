//! Create, close and unlink of empty files, each process in a directory of its own, or all in one.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Files;
use super::calls::{create, unlink};
use super::gate::{Gate, Tally, together};
use crate::job::Measured;

/// Of so many operations one looks at what it made.
const SAMPLE: u64 = 64;

/// One operation is all three calls.
pub(crate) fn run(files: &Files, seconds: f64, shared: bool) -> Result<Vec<Measured>> {
    let dir = |number: usize| match shared {
        true => files.place.join("churn-shared"),
        false => files.place.join(format!("churn-{number}")),
    };
    let work = |number: usize, gate: &mut Gate<'_>| {
        fs::create_dir_all(dir(number))?;
        let handle = File::open(dir(number))?;
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut operations: u64 = 0;
        while Instant::now() < end {
            let name = CString::new(format!("{}{operations:08}", prefix(number)))?;
            let file = create(&handle, &name).with_context(|| format!("create of {name:?}"))?;
            if operations.is_multiple_of(SAMPLE) {
                let made = file.metadata()?;
                ensure!(made.is_file() && made.nlink() == 1 && made.len() == 0, "{name:?} is not as it was made");
            }
            drop(file);
            unlink(&handle, &name).with_context(|| format!("unlink of {name:?}"))?;
            operations += 1;
        }
        Ok((Tally { operations, bytes: 0 }, ()))
    };
    let check = |number: usize, ()| {
        // In a shared directory others may still be at work.
        for entry in fs::read_dir(dir(number))? {
            let name = entry?.file_name();
            let own = name.as_encoded_bytes().starts_with(prefix(number).as_bytes());
            ensure!(!own, "{} is left of what was unlinked", name.display());
        }
        Ok(())
    };
    Ok(vec![together("churn", files.processes, &files.watch, work, check)?])
}

/// Of the names that a process makes.
fn prefix(number: usize) -> String {
    format!("new-{number}-")
}
