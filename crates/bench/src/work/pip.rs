//! `pip install` of a package of many files, without a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::gate::{Gate, Tally, together};
use super::{Files, git, tree};
use crate::job::Measured;

/// The package, and the directory of its files.
const PACKAGE: &str = "weft_bench_tree";
/// Of so many files one is compared byte by byte.
const SAMPLE: u64 = 17;

/// Makes a wheel in `dir`, which is made, of the files in `tree`, and answers its path.
pub(crate) fn make_wheel(dir: &Path, tree: &Path) -> Result<PathBuf> {
    let info = format!("{PACKAGE}-1.0.dist-info");
    let (files, facts) = (dir.join(PACKAGE), dir.join(&info));
    fs::create_dir_all(&facts)?;
    git::output(Command::new("cp").arg("-r").arg(tree).arg(&files))?;
    fs::write(facts.join("METADATA"), format!("Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n"))?;
    fs::write(facts.join("WHEEL"), "Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: true\nTag: py3-none-any\n")?;
    let mut record: String = ["METADATA", "WHEEL", "RECORD"].map(|name| format!("{info}/{name},,\n")).concat();
    for index in 0..tree::FILES {
        record += &format!("{PACKAGE}/{},,\n", tree::name(index).display());
    }
    fs::write(facts.join("RECORD"), record)?;
    let wheel = format!("{PACKAGE}-1.0-py3-none-any.whl");
    git::output(python().args(["-m", "zipfile", "-c", &wheel, PACKAGE, &info]).current_dir(dir))?;
    fs::remove_dir_all(&files)?;
    Ok(dir.join(wheel))
}

/// One operation is one file of the tree. Nothing is synced at the end, as `pip` doesn't. What was installed is removed.
pub(crate) fn run(files: &Files, wheel: &Path, original: &Path) -> Result<Vec<Measured>> {
    let place = |number: usize| files.place.join(format!("pip-{number}"));
    let expected = tree::compare(original, original, u64::MAX)?;
    // In the page cache, and pip's own files too, whoever comes first.
    fs::read(wheel).context("cannot read the wheel")?;
    git::output(pip().arg("--version"))?;
    let work = |number: usize, gate: &mut Gate<'_>| {
        fs::create_dir(place(number))?;
        let mut install = pip();
        install.args(["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]);
        install.args(["--disable-pip-version-check", "--root-user-action=ignore", "--prefix"]);
        install.arg(place(number)).arg(wheel);
        gate.pass();
        git::output(&mut install)?;
        Ok((Tally { operations: expected.files, bytes: expected.bytes }, ()))
    };
    let installed = together("install", files.processes, &files.watch, work, |number, ()| {
        let at = find(&place(number))?.with_context(|| format!("pip has not installed {PACKAGE}"))?;
        let found = tree::compare(&at, original, SAMPLE)?;
        ensure!(found == expected, "installed {found:?}, packed {expected:?}");
        Ok(())
    })?;
    for number in 0..files.processes {
        fs::remove_dir_all(place(number)).context("cannot remove what was installed")?;
    }
    Ok(vec![installed])
}

fn python() -> Command {
    let mut python = Command::new("python3");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PIP_")) {
        python.env_remove(name);
    }
    python.env("PIP_CONFIG_FILE", "/dev/null");
    python
}

fn pip() -> Command {
    let mut pip = python();
    pip.args(["-m", "pip"]);
    pip
}

/// The package's directory, some levels below: where exactly is an affair of each distribution.
fn find(dir: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == PACKAGE {
            return Ok(Some(entry.path()));
        }
        if entry.file_type()?.is_dir()
            && let Some(found) = find(&entry.path())?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
