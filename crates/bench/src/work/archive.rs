//! `tar -c`, `grep -r` and `rm -rf` of the tree that [`unpack`](super::unpack) has left; one operation is one file.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::unpack::place;
use super::{Files, git, tree};
use crate::job::Measured;

/// Into a pipe: `tar` reads no contents where its output is the null device.
pub(crate) fn pack(files: &Files, original: &Path) -> Result<Measured> {
    let expected = tree::compare(original, original, u64::MAX)?;
    let work = |number: usize, gate: &mut Gate<'_>| {
        gate.pass();
        let mut tar = Command::new("tar");
        tar.args(["-cf", "-", "-C"]).arg(place(files, number)).arg(".");
        let mut child = tar.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run tar")?;
        let packed = count(child.stdout.take().context("no output")?)?;
        ensure!(child.wait()?.success(), "tar failed");
        Ok((Tally { operations: tree::FILES as u64, bytes: expected.bytes }, packed))
    };
    together("pack", files.processes, &files.watch, work, |_, packed: u64| {
        let most = expected.bytes + expected.files * 4096 + (1 << 20);
        ensure!((expected.bytes..most).contains(&packed), "{packed} bytes packed, the files have {}", expected.bytes);
        Ok(())
    })
}

/// Again and again for so long; the first time is not measured.
pub(crate) fn grep(files: &Files, seconds: f64, original: &Path) -> Result<Measured> {
    let work = |number: usize, gate: &mut Gate<'_>| {
        let dir = place(files, number);
        git::grep(&dir, original)?;
        let end = gate.pass() + Duration::from_secs_f64(seconds);
        let mut operations = 0;
        while Instant::now() < end {
            git::grep(&dir, original)?;
            operations += tree::FILES as u64;
        }
        Ok((Tally { operations, bytes: 0 }, ()))
    };
    together("grep", files.processes, &files.watch, work, |_, ()| Ok(()))
}

pub(crate) fn remove(files: &Files) -> Result<Measured> {
    let work = |number: usize, gate: &mut Gate<'_>| {
        gate.pass();
        git::output(Command::new("rm").arg("-rf").arg(place(files, number)))?;
        Ok((Tally { operations: tree::FILES as u64, bytes: 0 }, ()))
    };
    together("remove", files.processes, &files.watch, work, |number, ()| {
        ensure!(!place(files, number).exists(), "{} is still there", place(files, number).display());
        Ok(())
    })
}

fn count(mut from: impl Read) -> Result<u64> {
    let (mut buffer, mut total) = (vec![0; 1 << 18], 0);
    loop {
        let len = from.read(&mut buffer)?;
        total += len as u64;
        if len == 0 {
            return Ok(total);
        }
    }
}
