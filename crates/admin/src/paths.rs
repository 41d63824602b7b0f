//! Paths of files of which only the inodes are known.

use std::collections::{BTreeMap, BTreeSet};

use types::error::Errno;
use types::id::InodeId;
use types::name_hash::TIE_BITS;
use types::time::AccessTimes;
use wire::v1::meta::{EntryInfo, Parts, ReadDir};

use crate::data::{DataError, DataPlane};

/// Directories above each other that are followed at most: deeper paths do not fit any system call.
const DEPTH_MAX: usize = 4096;
/// Entries of one page.
const PAGE: u32 = 4096;

/// Where something is: its directory, and its name there.
type Links = BTreeMap<InodeId, (InodeId, String)>;

/// From the root of the file system; those are missing to which no name leads, or whose shards do not answer. A name can only
/// be found by looking through its directory, which is done once for all that are in it.
pub(crate) async fn of(data: &DataPlane<'_>, inodes: BTreeSet<InodeId>) -> BTreeMap<InodeId, String> {
    let mut links = Links::new();
    let mut level = inodes.clone();
    for _ in 0..DEPTH_MAX {
        let mut directories = BTreeMap::<InodeId, BTreeSet<InodeId>>::new();
        for inode in level {
            if let Ok(Some(parent)) = data.shard(inode.home(), &EntryInfo { inode }).await.map(|reply| reply.parent) {
                directories.entry(parent).or_default().insert(inode);
            }
        }
        for (&directory, children) in &directories {
            // What was found before an error is as good.
            let _ = names_in(data, directory, children, &mut links).await;
        }
        level = directories.into_keys().filter(|at| *at != InodeId::ROOT && !links.contains_key(at)).collect();
        if level.is_empty() {
            break;
        }
    }
    inodes.into_iter().filter_map(|inode| Some((inode, path(&links, inode)?))).collect()
}

fn path(links: &Links, inode: InodeId) -> Option<String> {
    let mut names = Vec::new();
    let mut at = inode;
    while at != InodeId::ROOT {
        if names.len() >= DEPTH_MAX {
            return None;
        }
        let (parent, name) = links.get(&at)?;
        names.push(name.as_str());
        at = *parent;
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}

/// Of a directory that is split, its parts have the names, and it those that have not gone to them yet.
async fn names_in(
    data: &DataPlane<'_>,
    directory: InodeId,
    children: &BTreeSet<InodeId>,
    links: &mut Links,
) -> Result<(), DataError> {
    let mut search = Search { directory, left: children.clone(), links };
    match search.through(data, directory, 0).await {
        Err(DataError::Errno { errno: Errno::EREMOTE, .. }) => {}
        outcome => return outcome,
    }
    let parts = Parts { inode: directory, lists: false, accesses: AccessTimes::Noatime };
    let split = data.shard(directory.home(), &parts).await?;
    for part in split.parts {
        search.through(data, part, 0).await?;
    }
    if split.cursor == 0 { Ok(()) } else { search.through(data, directory, split.cursor << TIE_BITS).await }
}

struct Search<'a> {
    directory: InodeId,
    left: BTreeSet<InodeId>,
    links: &'a mut Links,
}

impl Search<'_> {
    async fn through(&mut self, data: &DataPlane<'_>, list: InodeId, mut cookie: u64) -> Result<(), DataError> {
        while !self.left.is_empty() {
            let accesses = AccessTimes::Noatime;
            let request = ReadDir { inode: list, cookie, count: PAGE, attributes: false, accesses };
            let page = data.shard(list.home(), &request).await?;
            let Some(last) = page.entries.last().map(|last| last.cookie) else { return Ok(()) };
            for entry in page.entries {
                if self.left.remove(&entry.inode) {
                    let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                    self.links.insert(entry.inode, (self.directory, name));
                }
            }
            if page.end {
                return Ok(());
            }
            cookie = last;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_long_as_all_its_names_are_known() {
        let id = InodeId;
        let links = Links::from([
            (id(10), (InodeId::ROOT, "a".to_owned())),
            (id(11), (id(10), "b".to_owned())),
            (id(13), (id(12), "c".to_owned())),
            // Renamed meanwhile, each into the other.
            (id(20), (id(21), "x".to_owned())),
            (id(21), (id(20), "y".to_owned())),
        ]);
        assert_eq!(path(&links, id(11)).as_deref(), Some("/a/b"));
        assert_eq!(path(&links, InodeId::ROOT).as_deref(), Some("/"));
        assert_eq!((path(&links, id(13)), path(&links, id(20))), (None, None));
    }
}
