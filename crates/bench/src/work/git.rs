//! What people do with a tree of sources that git keeps.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::gate::{Gate, Tally, together};
use super::{Files, tree};
use crate::job::Measured;

/// Of so many files one is compared byte by byte.
const SAMPLE: u64 = 17;

/// Makes the bare repository `at` with everything in `tree` as its one commit, in one pack.
pub(crate) fn make_repository(at: &Path, tree: &Path) -> Result<()> {
    output(git(None).args(["init", "--quiet", "--bare"]).arg(at))?;
    let in_it = || {
        let mut git = git(None);
        git.arg("--git-dir").arg(at).arg("--work-tree").arg(tree);
        git
    };
    output(in_it().args(["add", "--all"]))?;
    output(in_it().args(["commit", "--quiet", "--message", "everything"]))?;
    output(in_it().args(["repack", "-q", "-a", "-d"])).map(drop)
}

/// `git clone` of a repository on the local file system, then `rm -rf` of the clone; one operation is one file of the
/// tree. Nothing is synced at the end, as neither of them does.
pub(crate) fn clone_and_remove(files: &Files, repository: &Path, original: &Path) -> Result<Vec<Measured>> {
    let cloned = clone_once(files, repository, original)?;
    let removing = |number: usize, gate: &mut Gate<'_>| {
        gate.pass();
        output(Command::new("rm").arg("-rf").arg(place(files, number)))?;
        Ok((Tally { operations: cloned.operations, bytes: cloned.bytes }, ()))
    };
    let removed = together("remove", files.processes, &files.watch, removing, |number, ()| {
        ensure!(!place(files, number).exists(), "{} is still there", place(files, number).display());
        Ok(())
    })?;
    Ok(vec![cloned, removed])
}

/// `git clone`, whose clone stays.
pub(crate) fn clone_once(files: &Files, repository: &Path, original: &Path) -> Result<Measured> {
    // In the page cache, whoever comes first.
    tree::compare(repository, repository, 1)?;
    let expected = tree::compare(original, original, 1)?;
    let cloning = |number: usize, gate: &mut Gate<'_>| {
        gate.pass();
        output(&mut clone(repository, &place(files, number)))?;
        Ok((Tally { operations: tree::FILES as u64, bytes: expected.bytes }, ()))
    };
    together("clone", files.processes, &files.watch, cloning, |number, ()| {
        let found = tree::compare(&place(files, number), original, SAMPLE)?;
        ensure!(found == expected, "cloned {found:?}, committed {expected:?}");
        Ok(())
    })
}

/// `git status` of what [`clone_once`] has left; one operation is one file of the tree.
pub(crate) fn status_once(files: &Files) -> Result<Measured> {
    let work = |number: usize, gate: &mut Gate<'_>| {
        gate.pass();
        status(&place(files, number))?;
        Ok((Tally { operations: tree::FILES as u64, bytes: 0 }, ()))
    };
    together("status", files.processes, &files.watch, work, |_, ()| Ok(()))
}

/// Of the clone of a process.
fn place(files: &Files, number: usize) -> PathBuf {
    files.place.join(format!("clone-{number}"))
}

fn status(dir: &Path) -> Result<()> {
    let found = output(git(Some(dir)).args(["status", "--porcelain"]))?;
    ensure!(found.is_empty(), "nothing was changed, and git status says {found:?}");
    Ok(())
}

/// `grep -r` in a tree like `original` for what is in one file of it alone.
pub(crate) fn grep(dir: &Path, original: &Path) -> Result<()> {
    let content = fs::read_to_string(original.join(tree::name(0)))?;
    let needle = content.lines().next().context("an empty file")?;
    let mut grep = Command::new("grep");
    grep.args(["-rlF", "--exclude-dir=.git", needle]).arg(dir).env("LC_ALL", "C");
    let found = output(&mut grep)?;
    ensure!(found.trim_end() == dir.join(tree::name(0)).to_string_lossy(), "grep found {found:?}");
    Ok(())
}

/// `grep -r` for what is in one file, then `git status`, again and again in a clone that both have gone through before;
/// one operation is one file of the tree.
pub(crate) fn look_again(files: &Files, seconds: f64, repository: &Path, original: &Path) -> Result<Vec<Measured>> {
    let dir = |number: usize| files.place.join(format!("held-{number}"));
    let grep = |number: usize| grep(&dir(number), original);
    let status = |number: usize| status(&dir(number));
    let again = |phase: &str, look: &dyn Fn(usize) -> Result<()>| {
        let work = |number: usize, gate: &mut Gate<'_>| {
            if !dir(number).join(".git").exists() {
                output(&mut clone(repository, &dir(number)))?;
            }
            look(number)?;
            let end = gate.pass() + Duration::from_secs_f64(seconds);
            let mut operations = 0;
            while Instant::now() < end {
                look(number)?;
                operations += tree::FILES as u64;
            }
            Ok((Tally { operations, bytes: 0 }, ()))
        };
        together(phase, files.processes, &files.watch, work, |_, ()| Ok(()))
    };
    Ok(vec![again("grep", &grep)?, again("status", &status)?])
}

fn clone(repository: &Path, to: &Path) -> Command {
    let mut git = git(None);
    // All bytes are written, where the repository is on the same file system too.
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(repository).arg(to);
    git
}

/// Git that knows nothing of who runs it, and begins nothing in the background.
fn git(dir: Option<&Path>) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "bench").env(format!("GIT_{who}_EMAIL"), "bench@localhost");
    }
    if let Some(dir) = dir {
        git.arg("-C").arg(dir);
    }
    for setting in ["gc.auto=0", "maintenance.auto=false", "init.defaultBranch=main"] {
        git.args(["-c", setting]);
    }
    git
}

/// What `command` prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not installed"),
        Err(error) => bail!("cannot run {name}: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {} ({})", text.trim(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_said() {
        let error = output(&mut Command::new("weft-no-such-program")).expect_err("nobody has this");
        assert_eq!(error.to_string(), "weft-no-such-program is not installed");
    }

    #[test]
    fn a_repository_has_the_tree_and_a_change_is_seen() {
        let dir = tempfile::tempdir().expect("a folder");
        let (tree, repository, copy) =
            (dir.path().join("tree"), dir.path().join("repository"), dir.path().join("copy"));
        fs::create_dir_all(tree.join("part")).expect("a folder");
        fs::write(tree.join("part/file"), "something").expect("a file");
        make_repository(&repository, &tree).expect("a repository");
        output(&mut clone(&repository, &copy)).expect("a clone");
        assert_eq!(tree::compare(&copy, &tree, 1).expect("the same"), tree::compare(&tree, &tree, 1).expect("itself"));
        fs::write(copy.join("part/file"), "some other thing").expect("a file");
        let status = output(git(Some(&copy)).args(["status", "--porcelain"])).expect("a status");
        assert_eq!(status, " M part/file\n");
    }
}
