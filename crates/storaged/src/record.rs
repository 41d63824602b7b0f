//! Small files in a target's directory that are written at each start. They are replaced in whole, as by
//! [`conf::atomic::write`], and what is replaced stays beside them as room for the next time: a disk without a free block or
//! inode is no obstacle, since users can delete nothing while its service does not start.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use conf::Fatal;
use conf::atomic::{beside, sync_dir};
use serde::Serialize;

/// Writes `record` to `dir/name`: on disk when this returns.
///
/// # Errors
/// Where the directory cannot be written; the old record is whole then.
pub(crate) fn write(dir: &Path, name: &str, note: &str, record: &impl Serialize) -> Result<(), Fatal> {
    let text = toml::to_string(record).map_err(|error| Fatal::failed(error.to_string()))?;
    replace(dir, name, format!("# {note}\n{text}").as_bytes())
        .map_err(|error| Fatal::unusable(format!("{} cannot be written: {error}", dir.join(name).display()), &error))
}

fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    let room = beside(&path);
    // Whoever was killed before this, or whom the disk refused it, has left the disk with the room under the record's name.
    sync_dir(dir)?;
    fill(&room, content)?;
    // Neither at the first time, nor on file systems that cannot.
    if exchange(&room, &path).is_err() {
        fs::rename(&room, &path)?;
        // Where there is no room now, there may be before it is needed.
        let _ = fill(&room, content);
    }
    sync_dir(dir)
}

/// Writes over what is there: its blocks are replaced, and no new ones needed.
fn fill(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(content, 0)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (CString::new(one.as_os_str().as_bytes())?, CString::new(other.as_os_str().as_bytes())?);
    let here = libc::AT_FDCWD;
    // SAFETY: both names end in zero and live through the call.
    let done = unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), libc::RENAME_EXCHANGE) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_is_replaced_is_the_room_for_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let replace = |content: &str| {
            super::replace(dir.path(), "file", content.as_bytes()).expect("replaced");
            assert_eq!(fs::read_to_string(&path).expect("there"), content);
            let mut inodes = [&path, &beside(&path)].map(|path| fs::metadata(path).expect("there").ino());
            inodes.sort_unstable();
            inodes
        };
        // As after a backup was restored.
        fs::write(&path, "alone").expect("written");
        let first = replace("a longer content");
        assert_eq!(replace("short"), first, "the same two files");
        assert_eq!(replace("one more"), first);
        fs::remove_file(&path).expect("removed");
        replace("made anew, with room again");
    }
}
