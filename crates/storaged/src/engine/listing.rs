//! Walks the folders of a target in a stable order. Blocks: runs on a helper thread.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;

use super::folders::{Folder, file_name, parse_file_name};
use super::{LaneShare, Page, Stored};

/// Up to `count` objects of the share after `after`: by folder, then by inode and stripe. What the disk does not give of
/// the folders takes nothing else away.
///
/// # Errors
/// Those of reading `root` itself, also where it is not there.
pub(super) fn list(root: &Path, after: Option<ObjectId>, count: usize, share: LaneShare) -> Result<Page, Errno> {
    let (outer, failed) = folder_numbers(fs::read_dir(root)?);
    let mut walk = Walk { after, count, share, objects: Vec::new(), failed };
    let end = !outer.into_iter().any(|outer| walk.outer_folder(root, outer, |path| fs::symlink_metadata(path)));
    Ok(Page { objects: walk.objects, end, failed: walk.failed })
}

/// One page in the making.
struct Walk {
    after: Option<ObjectId>,
    count: usize,
    share: LaneShare,
    objects: Vec<(ObjectId, Stored)>,
    failed: Option<Errno>,
}

impl Walk {
    /// True where the page became full and more may follow.
    fn outer_folder(&mut self, root: &Path, outer: u8, lstat: impl Fn(&Path) -> io::Result<fs::Metadata>) -> bool {
        let first = self.after.map(Folder::of);
        if first.is_some_and(|first| u16::from(outer) < first.0 >> 8) {
            return false;
        }
        let Some(entries) = self.given(fs::read_dir(root.join(format!("{outer:02x}")))) else { return false };
        let (numbers, failed) = folder_numbers(entries);
        self.failed = failed.or(self.failed);
        let folders = numbers.into_iter().map(|inner| Folder(u16::from(outer) << 8 | u16::from(inner)));
        folders
            .filter(|&folder| first.is_none_or(|first| folder >= first))
            .any(|folder| self.folder(&root.join(folder.path()), first == Some(folder), &lstat))
    }

    /// `is_first`: what it has up to `after` was listed before.
    fn folder(&mut self, path: &Path, is_first: bool, lstat: impl Fn(&Path) -> io::Result<fs::Metadata>) -> bool {
        let begin = self.after.filter(|_| is_first);
        let Some(entries) = self.given(fs::read_dir(path)) else { return false };
        let mut names = Vec::new();
        for entry in entries {
            let Some(entry) = self.given(entry) else { continue };
            let object = entry.file_name().to_str().and_then(parse_file_name);
            let share = self.share;
            names.extend(object.filter(|&object| share.owns(object) && begin.is_none_or(|begin| object > begin)));
        }
        names.sort_unstable();
        for object in names {
            if self.objects.len() >= self.count {
                return true;
            }
            let stored = match lstat(&path.join(file_name(object))) {
                Ok(metadata) => stored(&metadata),
                // Removed since the folder was read: no longer an object.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // It is there by its name, which is all that the disk gives.
                Err(error) => {
                    self.failed = Some(error.into());
                    Stored { size: 0, blocks: 0, mtime: Timestamp(0) }
                }
            };
            self.objects.push((object, stored));
        }
        false
    }

    /// What is not there need not be; anything else is noted.
    fn given<T>(&mut self, outcome: io::Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.failed = Some(error.into());
                }
                None
            }
        }
    }
}

fn stored(metadata: &fs::Metadata) -> Stored {
    Stored {
        size: metadata.len(),
        blocks: metadata.blocks(),
        mtime: Timestamp::from_parts(metadata.mtime(), metadata.mtime_nsec() as u32),
    }
}

/// The two-digit folders in a directory, in order, and why not all of it could be read.
fn folder_numbers(entries: fs::ReadDir) -> (Vec<u8>, Option<Errno>) {
    let (mut numbers, mut failed) = (Vec::new(), None);
    for entry in entries {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                let name = name.to_str().filter(|name| name.len() == 2);
                numbers.extend(name.and_then(|name| u8::from_str_radix(name, 16).ok()));
            }
            Err(error) => failed = Some(error.into()),
        }
    }
    numbers.sort_unstable();
    (numbers, failed)
}

#[cfg(test)]
mod tests {
    use types::id::InodeId;

    use super::*;
    use crate::engine::folders;

    const ALL: LaneShare = LaneShare { lane: 0, lanes: 1 };

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), stripe: 0 }
    }

    fn make(root: &Path, object: ObjectId) -> std::path::PathBuf {
        let path = root.join(folders::path(object).to_str().expect("plain"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, "x").expect("written");
        path
    }

    #[test]
    fn what_is_not_there_is_not_empty() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(list(&dir.path().join("objects"), None, 10, ALL).expect_err("missing"), Errno::ENOENT);
        let page = list(dir.path(), None, 10, ALL).expect("there");
        assert!(page.objects.is_empty() && page.end && page.failed.is_none());
    }

    #[test]
    fn an_inode_that_the_disk_does_not_give_takes_no_others_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths: Vec<_> = (0..5).map(|inode| make(dir.path(), object(inode))).collect();
        let mut walk = Walk { after: None, count: 10, share: ALL, objects: Vec::new(), failed: None };
        let lstat = |path: &Path| {
            if path == paths[2] { Err(io::Error::from_raw_os_error(libc::EIO)) } else { fs::symlink_metadata(path) }
        };
        assert!(!walk.outer_folder(dir.path(), (Folder::of(object(0)).0 >> 8) as u8, lstat));
        let sizes: Vec<_> = walk.objects.iter().map(|(object, stored)| (object.inode.0, stored.size)).collect();
        assert_eq!(sizes, [(0, 1), (1, 1), (2, 0), (3, 1), (4, 1)]);
        assert_eq!(walk.failed, Some(Errno::EIO));
    }

    #[test]
    fn a_folder_that_cannot_be_read_takes_no_others_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects: Vec<_> = (0..20).map(|n| object(n << 12)).collect();
        let mut folders: Vec<_> = objects.iter().map(|&object| make(dir.path(), object)).collect();
        // In place of a folder, what is none: root may read everything else.
        let spoilt = folders.swap_remove(7);
        let folder = spoilt.parent().expect("a folder");
        fs::remove_dir_all(folder).expect("removed");
        fs::write(folder, "").expect("written");
        let page = list(dir.path(), None, 100, ALL).expect("listed");
        assert_eq!((page.objects.len(), page.end, page.failed), (19, true, Some(Errno::ENOTDIR)));
    }
}
