//! Who names some storage groups, and so would miss them: also files that have no object there yet.

use std::collections::BTreeSet;
use std::fmt;

use types::id::{GroupId, InodeId};
use wire::v1::meta::ScanRecord;

use super::collect::scan_shard;
use crate::data::{DataError, DataPlane};

#[derive(Debug, Default)]
pub(crate) struct Users {
    files: u64,
    /// One of the files.
    example: Option<InodeId>,
    /// Objects of removed files that wait for their deletion, where that can come.
    deletions: u64,
    /// Records that cannot be read: of any file.
    damaged: u64,
}

impl Users {
    /// All of `groups` in all shards. No shard gives a group to another file meanwhile where the command's map has it that
    /// the group takes none: those that have not heard of that map yet are waited for.
    pub(crate) async fn find(data: &DataPlane<'_>, groups: &BTreeSet<GroupId>) -> Result<Self, DataError> {
        let mut users = Self::default();
        // What nobody can delete would be waited for in vain; with the group it goes anyhow.
        let served: BTreeSet<GroupId> =
            groups.iter().copied().filter(|&group| data.map().away(group).is_none()).collect();
        for &shard in data.map().shards.keys() {
            data.catch_up(shard).await?;
        }
        for &shard in data.map().shards.keys() {
            scan_shard(data, shard, |records| {
                records.iter().for_each(|record| users.take(record, groups, &served));
            })
            .await?;
        }
        Ok(users)
    }

    fn take(&mut self, record: &ScanRecord, groups: &BTreeSet<GroupId>, served: &BTreeSet<GroupId>) {
        if let Some(found) = &record.inode
            && let Some(layout) = &found.reply.layout
            && layout.groups.iter().any(|group| groups.contains(group))
        {
            self.files += 1;
            self.example.get_or_insert(found.reply.attr.inode);
        }
        if record.deletion.as_ref().is_some_and(|deletion| served.contains(&deletion.group)) {
            self.deletions += 1;
        }
        self.damaged += u64::from(record.damage.is_some());
    }

    pub(crate) fn is_none(&self) -> bool {
        self.files == 0 && self.deletions == 0 && self.damaged == 0
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, example, deletions, damaged } = self;
        match example {
            Some(inode) => write!(f, "{files} files lie on it or may grow onto it, such as inode {inode}"),
            None if *deletions > 0 => write!(f, "{deletions} objects of removed files are still to be deleted there"),
            None => {
                write!(f, "{damaged} records of the metadata cannot be read and may be of files there; fsck names them")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::codec::Bytes;
    use wire::v1::meta::{ScanDamage, ScanDeletion};

    use super::*;

    #[test]
    fn deletions_are_waited_for_where_they_can_come() {
        let groups = BTreeSet::from([GroupId(1), GroupId(2)]);
        let deletion = |group| ScanRecord {
            inode: None,
            edge: None,
            deletion: Some(ScanDeletion { inode: InodeId(9), stripe: 0, group: GroupId(group) }),
            contents: None,
            damage: None,
        };
        let mut users = Users::default();
        for group in [2, 3] {
            users.take(&deletion(group), &groups, &BTreeSet::from([GroupId(1)]));
        }
        assert!(users.is_none(), "{users}");
        users.take(&deletion(1), &groups, &BTreeSet::from([GroupId(1)]));
        assert!(!users.is_none());
    }

    #[test]
    fn what_cannot_be_read_may_be_of_any_file() {
        let damage = ScanDamage { inode: InodeId(9), is_inode: true, what: Bytes::default() };
        let record = ScanRecord { inode: None, edge: None, deletion: None, contents: None, damage: Some(damage) };
        let mut users = Users::default();
        users.take(&record, &BTreeSet::from([GroupId(1)]), &BTreeSet::from([GroupId(1)]));
        assert!(!users.is_none());
        assert!(users.to_string().starts_with("1 records"), "{users}");
    }
}
