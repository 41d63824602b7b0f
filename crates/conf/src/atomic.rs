//! Small files that are either old or new after a crash, never between.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces `path` by `content`: on disk when this returns.
///
/// # Errors
/// Where the directory cannot be written; the old file is whole then.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = beside(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_dir(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Makes the names in `dir` durable.
///
/// # Errors
/// Where the disk refuses.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The name under which the new content is written first.
#[must_use]
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".new");
    path.with_file_name(name)
}
