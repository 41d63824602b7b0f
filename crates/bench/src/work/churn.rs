//! Create, close and unlink of empty files, each process in a directory of its own.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Files;
use super::gate::{Gate, Tally, together};
use crate::job::Measured;

/// Of so many operations one looks at what it made.
const SAMPLE: u64 = 64;

/// One operation is all three calls.
pub(crate) fn run(files: &Files, seconds: f64) -> Result<Vec<Measured>> {
    let dir = |number: usize| files.place.join(format!("churn-{number}"));
    let work = |number: usize, gate: &mut Gate<'_>| {
        fs::create_dir_all(dir(number))?;
        let handle = File::open(dir(number))?;
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut operations: u64 = 0;
        while Instant::now() < end {
            let name = CString::new(format!("new-{operations:08}"))?;
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
        ensure!(fs::read_dir(dir(number))?.next().is_none(), "something is left of what was unlinked");
        Ok(())
    };
    Ok(vec![together("churn", files.processes, &files.watch, work, check)?])
}

fn create(dir: &File, name: &CString) -> io::Result<File> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the name lives through the call; a descriptor that it answers is ours alone.
    unsafe {
        match libc::openat(dir.as_raw_fd(), name.as_ptr(), flags, 0o644) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

fn unlink(dir: &File, name: &CString) -> io::Result<()> {
    // SAFETY: the name lives through the call.
    match unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
