//! Trees of files: made from a seed, and compared.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::dice::Dice;

/// Everything that two copies of a tree must agree on, by path: what `tar` and `rsync -a` keep.
///
/// # Errors
/// The file system's.
pub fn picture(root: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let mut lines = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let line = describe(&root.join(&path))?;
            if entry.file_type()?.is_dir() {
                open.push(path.clone());
            }
            assert!(lines.insert(path.clone(), line).is_none(), "{} is listed twice", path.display());
        }
    }
    Ok(lines)
}

/// # Panics
/// Where two trees differ, naming the first place.
pub fn assert_same(copy: &Path, original: &Path) {
    let both = [copy, original].map(|root| picture(root).unwrap_or_else(|error| panic!("{}: {error}", root.display())));
    for path in both[0].keys().chain(both[1].keys()) {
        assert_eq!(both[0].get(path), both[1].get(path), "{} in {}", path.display(), copy.display());
    }
}

fn describe(path: &Path) -> io::Result<String> {
    let meta = fs::symlink_metadata(path)?;
    let what = if meta.is_symlink() {
        format!("to {:?}", fs::read_link(path)?)
    } else if meta.is_file() {
        let content = fs::read(path)?;
        format!("{} bytes, sum {:x}, mtime {}.{:09}", meta.len(), sum(&content), meta.mtime(), meta.mtime_nsec())
    } else {
        String::new()
    };
    Ok(format!("mode {:o}, owner {}:{}, {what}", meta.mode(), meta.uid(), meta.gid()))
}

/// FNV-1a: short, and different for what differs.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// `files` files of all sizes up to some hundred KiB, some links, in folders.
///
/// # Errors
/// The file system's.
pub fn make(root: &Path, files: usize, dice: &mut Dice) -> io::Result<()> {
    for number in 0..files {
        let folder = root.join(format!("folder-{}/{}", dice.roll(7), dice.roll(5)));
        fs::create_dir_all(&folder)?;
        let most = *dice.pick(&[0, 100, 5_000, 70_000, 700_000]);
        let len = dice.index(most + 1);
        fs::write(folder.join(format!("file {number}")), dice.bytes(len))?;
        if dice.roll(10) == 0 {
            symlink(format!("../file {number}"), folder.join(format!("link {number}")))?;
        }
    }
    Ok(())
}
