//! Log files of supervised processes: bounded, and read again when something failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// A log is set aside when it is larger, in bytes. With the one set aside, a process's logs take at most twice this.
const LOG_MAX: u64 = 16 << 20;
/// How often the sizes of logs are looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Bytes read from the end of a log to find its last lines.
const TAIL_MAX: u64 = 32 << 10;

/// Opens `path` for appending, setting a large one aside first.
pub(crate) fn open(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    if let Err(error) = bound(path) {
        // Whoever wants to say something now needs it more than what was said before.
        tracing::warn!("{error:#}");
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

/// Empties a log that grew too large, keeping a copy of its end. A process that appends to it needs not know; what it writes
/// between copy and truncation is lost. So is all of it where there is no room for the copy: it would go on taking the disk.
pub(crate) fn bound(path: &Path) -> Result<()> {
    if path.metadata().is_ok_and(|metadata| metadata.len() > LOG_MAX) {
        let copied = copy_end(path, &aside(path));
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
        copied.with_context(|| format!("cannot copy {}, which is emptied all the same", path.display()))?;
    }
    Ok(())
}

fn copy_end(from: &Path, to: &Path) -> io::Result<()> {
    let copy = || {
        let mut log = File::open(from)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
        io::copy(&mut log.take(LOG_MAX), &mut File::create(to)?)
    };
    // Half a copy is of no use, and takes room.
    copy().map(drop).inspect_err(|_| drop(fs::remove_file(to)))
}

/// What this process says goes there.
pub(crate) fn is_written_by_us(path: &Path) -> bool {
    let ours = io::stderr().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    let place = |found: &fs::Metadata| (found.dev(), found.ino());
    matches!((ours, path.metadata()), (Ok(ours), Ok(there)) if place(&ours) == place(&there))
}

/// The last `count` lines that were written after byte `from`; none where the file cannot be read.
pub(crate) fn tail(path: &Path, from: u64, count: usize) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // A log shorter than `from` was set aside since: all of it is new.
        let from = if from > length { 0 } else { from };
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL_MAX))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|&line| line.to_owned()).collect()
}

fn aside(path: &Path) -> std::path::PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_large_log_is_set_aside_and_its_writer_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.log");
        let mut writer = open(&path).expect("writable");
        // As after a while in which nobody looked.
        for round in [&b"begin"[..], b"middle", b"end\n"] {
            writer.write_all(&vec![b'x'; LOG_MAX as usize / 2]).expect("writable");
            writer.write_all(round).expect("writable");
        }
        bound(&path).expect("it can be copied");
        writer.write_all(b"after\n").expect("writable");
        assert_eq!(tail(&path, 0, 5), ["after"]);
        let kept = fs::read(folder.path().join("x.log.1")).expect("set aside");
        assert_eq!(kept.len() as u64, LOG_MAX);
        assert!(kept.ends_with(b"xend\n"));
        assert_eq!(fs::metadata(&path).expect("there").len(), 6);
    }

    #[test]
    fn a_log_that_was_large_before_is_set_aside_within_its_bounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.log");
        File::create(&path).and_then(|file| file.set_len(3 * LOG_MAX)).expect("writable");
        assert_eq!(open(&path).and_then(|file| Ok(file.metadata()?.len())).expect("writable"), 0);
        assert_eq!(fs::metadata(folder.path().join("x.log.1")).expect("set aside").len(), LOG_MAX);
    }

    #[test]
    fn a_large_log_is_emptied_also_where_there_is_no_room_for_a_copy() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
        std::os::unix::fs::symlink("/dev/full", &old).expect("linkable");
        File::create(&path).and_then(|file| file.set_len(LOG_MAX + 1)).expect("writable");
        let error = format!("{:#}", bound(&path).expect_err("there is no room"));
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(fs::metadata(&path).expect("there").len(), 0);
        assert!(old.symlink_metadata().is_err(), "half a copy is left");
    }

    #[test]
    fn tail_gives_the_last_lines_of_this_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.log");
        fs::write(&path, "old\none\n\ntwo\nthree\n").expect("writable");
        assert_eq!(tail(&path, 4, 2), ["two", "three"]);
        assert_eq!(tail(&path, 4, 9), ["one", "two", "three"]);
        assert_eq!(tail(&path, 1000, 1), ["three"]);
        assert!(tail(&folder.path().join("none"), 0, 1).is_empty());
    }
}
