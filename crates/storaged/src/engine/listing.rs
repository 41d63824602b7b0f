//! Walks the folders of a target in a stable order. Blocks: runs on a helper thread.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;

use super::folders::{Folder, parse_file_name};
use super::{Page, Share, Stored};

/// Up to `count` objects of the share after `after`: by folder, then by inode and stripe.
pub(super) fn list(root: &Path, after: Option<ObjectId>, count: usize, share: Share) -> Result<Page, Errno> {
    let mut objects = Vec::new();
    let first = after.map(Folder::of);
    for outer in folder_numbers(root)? {
        if first.is_some_and(|first| u16::from(outer) < first.0 >> 8) {
            continue;
        }
        let outer_path = root.join(format!("{outer:02x}"));
        for inner in folder_numbers(&outer_path)? {
            let folder = Folder(u16::from(outer) << 8 | u16::from(inner));
            if first.is_some_and(|first| folder < first) {
                continue;
            }
            let begin = after.filter(|_| first == Some(folder));
            if list_folder(&root.join(folder.path()), begin, count, share, &mut objects)? {
                return Ok(Page { objects, end: false });
            }
        }
    }
    Ok(Page { objects, end: true })
}

/// True where `objects` became full and more may follow.
fn list_folder(
    path: &Path,
    after: Option<ObjectId>,
    count: usize,
    share: Share,
    objects: &mut Vec<(ObjectId, Stored)>,
) -> Result<bool, Errno> {
    let mut names = Vec::new();
    for entry in absent_as_empty(fs::read_dir(path))?.into_iter().flatten() {
        let object = entry?.file_name().to_str().and_then(parse_file_name);
        names.extend(object.filter(|&object| share.owns(object) && after.is_none_or(|after| object > after)));
    }
    names.sort_unstable();
    for object in names {
        if objects.len() >= count {
            return Ok(true);
        }
        // Removed since the folder was read: no longer an object.
        let Some(metadata) = absent_as_empty(fs::symlink_metadata(path.join(super::folders::file_name(object))))?
        else {
            continue;
        };
        objects.push((object, stored(&metadata)));
    }
    Ok(false)
}

fn stored(metadata: &fs::Metadata) -> Stored {
    Stored {
        size: metadata.len(),
        blocks: metadata.blocks(),
        mtime: Timestamp::from_parts(metadata.mtime(), metadata.mtime_nsec() as u32),
    }
}

/// The two-digit folders in a directory, in order.
fn folder_numbers(path: &Path) -> Result<Vec<u8>, Errno> {
    let mut numbers = Vec::new();
    for entry in absent_as_empty(fs::read_dir(path))?.into_iter().flatten() {
        let name = entry?.file_name();
        let number = name.to_str().filter(|name| name.len() == 2).and_then(|name| u8::from_str_radix(name, 16).ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn absent_as_empty<T>(result: io::Result<T>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
