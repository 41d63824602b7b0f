//! Programs that go through very many files, with cold caches.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::gate::{Gate, Tally, together};
use super::{Files, drop_caches};
use crate::cpu::Watch;
use crate::job::Measured;

/// What goes through them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// `find` of all.
    Find,
    /// `ls -l` of the one directory.
    List,
    /// `du -s` of all.
    Usage,
}

/// Empty files in directories beside one another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) directories: u64,
    /// In each.
    pub(crate) files: u64,
}

/// That make the files.
const MAKERS: usize = 8;

/// One operation is one file. They are made in `made_at`, which another mount may show as the place, and stay there.
pub(crate) fn run(files: &Files, program: Program, shape: Shape, made_at: &Path) -> Result<Vec<Measured>> {
    ensure!(program != Program::List || shape.directories == 1, "a list is of one directory");
    shape.make(made_at)?;
    drop_caches()?;
    files.watch.settle();
    let top = files.place.join(shape.name());
    let work = |_: usize, gate: &mut Gate<'_>| {
        gate.pass();
        let lines = lines(&mut program.command(&top))?;
        Ok((Tally { operations: shape.directories * shape.files, bytes: 0 }, lines))
    };
    let check = |_: usize, found: u64| {
        let expected = program.lines(shape);
        ensure!(found == expected, "{found} lines where {expected} are right");
        Ok(())
    };
    Ok(vec![together("scan", 1, &files.watch, work, check)?])
}

impl Program {
    fn command(self, top: &Path) -> Command {
        let words: &[&str] = match self {
            Program::Find => &["find"],
            Program::List => &["ls", "-l"],
            Program::Usage => &["du", "-s"],
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LC_ALL", "C");
        match self {
            Program::List => command.arg(top.join(directory(0))),
            Program::Find | Program::Usage => command.arg(top),
        };
        command
    }

    /// What it prints.
    fn lines(self, shape: Shape) -> u64 {
        match self {
            // The directories too, and the top.
            Program::Find => shape.directories * (shape.files + 1) + 1,
            // The sum above.
            Program::List => shape.files + 1,
            Program::Usage => 1,
        }
    }
}

impl Shape {
    fn name(self) -> String {
        format!("scan-{}x{}", self.directories, self.files)
    }

    /// As many files.
    pub(crate) fn in_one_directory(self) -> Self {
        Self { directories: 1, files: self.directories * self.files }
    }

    /// Where they are not there yet.
    pub(crate) fn make(self, at: &Path) -> Result<()> {
        let whole = at.join(self.name() + "-whole");
        if whole.exists() {
            return Ok(());
        }
        let top = at.join(self.name());
        for index in 0..self.directories {
            fs::create_dir_all(top.join(directory(index)))?;
        }
        let count = self.directories * self.files;
        let share = |number: usize| count * number as u64 / MAKERS as u64;
        let work = |number: usize, gate: &mut Gate<'_>| {
            gate.pass();
            for index in share(number)..share(number + 1) {
                let path: PathBuf = top.join(directory(index / self.files)).join(format!("file-{index:06}"));
                File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
            }
            Ok((Tally::default(), ()))
        };
        together("make", MAKERS, &Watch::default(), work, |_, ()| Ok(()))?;
        File::create_new(whole)?;
        Ok(())
    }
}

fn directory(index: u64) -> String {
    format!("part-{index:04}")
}

/// How many lines `command` prints.
pub(crate) fn lines(command: &mut Command) -> Result<u64> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot run {name}: {error}"))?;
    let mut output = child.stdout.take().context("no output")?;
    let (mut buffer, mut lines) = (vec![0; 1 << 16], 0);
    loop {
        let len = output.read(&mut buffer)?;
        lines += buffer[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        if len == 0 {
            break;
        }
    }
    ensure!(child.wait()?.success(), "{name} failed");
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_print_a_line_for_each() {
        let dir = tempfile::tempdir().expect("a folder");
        let shape = Shape { directories: 1, files: 3 };
        let inner = dir.path().join(shape.name()).join(directory(0));
        fs::create_dir_all(&inner).expect("a folder");
        for index in 0..3 {
            File::create_new(inner.join(format!("file-{index}"))).expect("a file");
        }
        for program in [Program::Find, Program::List, Program::Usage] {
            let found = lines(&mut program.command(&dir.path().join(shape.name()))).expect("it runs");
            assert_eq!(found, program.lines(shape), "{program:?}");
        }
        fs::remove_file(inner.join("file-0")).expect("it is there");
        let found = lines(&mut Program::Find.command(&dir.path().join(shape.name()))).expect("it runs");
        assert_eq!(found, Program::Find.lines(shape) - 1);
    }
}
