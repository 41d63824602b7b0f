//! A tree like that of some program's sources: many small files, few large ones, the same each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::pattern::Random;

pub(crate) const FILES: usize = 5_000;
const FILES_PER_DIRECTORY: usize = 12;

/// Makes the tree in `dir/tree` and its archive `dir/tree.tar`.
pub(crate) fn make(dir: &Path) -> Result<()> {
    let tree = dir.join("tree");
    let mut random = Random::new(5_000);
    for index in 0..FILES {
        let path = tree.join(name(index));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content(&mut random)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let status = Command::new("tar").arg("-cf").arg(dir.join("tree.tar")).arg("-C").arg(&tree).arg(".").status();
    ensure!(status.context("cannot run tar")?.success(), "tar cannot make an archive");
    Ok(())
}

/// Three levels of directories.
pub(crate) fn name(index: usize) -> PathBuf {
    let directory = index / FILES_PER_DIRECTORY;
    format!("part-{:02}/module-{:02}/source-{index:04}.rs", directory / 20, directory % 20).into()
}

/// Half of them below 5 KiB, a mean of about 11 KiB, the largest 512 KiB.
fn content(random: &mut Random) -> Vec<u8> {
    let tail = if random.below(8) == 0 { random.below(5) } else { 0 };
    let bits = 9 + random.below(4) + random.below(3) + tail;
    let len = (1_usize << bits) + random.below(1 << bits) as usize;
    let line = b"fn example(input: &[u8]) -> Result<Vec<u8>, Error> { parse(input).map(render) }\n";
    let mut content = format!("// {:016x}\n", random.next()).into_bytes();
    content.extend(line.iter().copied().cycle().take(len.saturating_sub(content.len())));
    content
}

/// Files and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Counts what is under `dir`, but for what git keeps there, and compares every `sample`-th file with its original under
/// `original`.
///
/// # Errors
/// Where a file is not as its original.
pub(crate) fn compare(dir: &Path, original: &Path, sample: u64) -> Result<Count> {
    let mut count = Count::default();
    let mut open = vec![PathBuf::new()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(dir.join(&at))? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                if entry.file_name() != ".git" {
                    open.push(path);
                }
                continue;
            }
            if count.files.is_multiple_of(sample) {
                let same = fs::read(dir.join(&path))? == fs::read(original.join(&path))?;
                ensure!(same, "{} is not as it was packed", path.display());
            }
            count.files += 1;
            count.bytes += entry.metadata()?.len();
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_like_itself_and_a_change_is_seen() {
        let dir = tempfile::tempdir().expect("a folder");
        make(dir.path()).expect("a tree");
        let tree = dir.path().join("tree");
        let count = compare(&tree, &tree, 1).expect("the same");
        assert_eq!(count.files as usize, FILES);
        let mean = count.bytes / count.files;
        assert!((4 << 10..20 << 10).contains(&mean), "{mean} bytes in a file");
        fs::create_dir_all(dir.path().join("other/part-00/module-00")).expect("a folder");
        fs::write(dir.path().join("other/part-00/module-00/source-0000.rs"), "other").expect("a file");
        assert!(compare(&dir.path().join("other"), &tree, 1).is_err());
    }
}
