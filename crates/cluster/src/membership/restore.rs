//! Back from the persisted records after a restart.

use std::collections::BTreeSet;

use types::id::{GroupId, PoolId};

use super::{Membership, Rules};
use crate::event::Moment;
use crate::map::ServiceKind;
use crate::record::{ClusterRecord, Damaged, FORMAT, Key, decode};

impl Membership {
    /// The state that persisted `records` as they were, with nobody heard of yet: all nodes have the full time to
    /// report. `None` where there is no record at all, which is a store that was never used.
    ///
    /// # Errors
    /// Where records are missing, contradict each other, or come from a newer release.
    pub fn restore(
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
        rules: Rules,
        now: Moment,
    ) -> Result<Option<Self>, Damaged> {
        let mut restored = Self::blank("", rules, now);
        let mut seen = BTreeSet::new();
        for (bytes, value) in records {
            let key = Key::parse(&bytes).ok_or_else(|| Damaged(format!("an unknown key {bytes:02x?}")))?;
            restored.take_record(key, &value)?;
            seen.insert(key);
        }
        if seen.is_empty() {
            return Ok(None);
        }
        for needed in [Key::Cluster, Key::Epoch, Key::Next, Key::Pool(PoolId::DEFAULT)] {
            if !seen.contains(&needed) {
                return Err(Damaged(format!("record {needed:?} is missing")));
            }
        }
        restored.check_references()?;
        restored.check_ids()?;
        Ok(Some(restored))
    }

    fn take_record(&mut self, key: Key, value: &[u8]) -> Result<(), Damaged> {
        match key {
            Key::Cluster => {
                let record: ClusterRecord = decode(key, value)?;
                if record.format > FORMAT {
                    return Err(Damaged(format!("it has format {}, newer than this release", record.format)));
                }
                self.map.cluster = record.cluster;
            }
            Key::Epoch => self.map.epoch = decode(key, value)?,
            Key::Next => {
                self.next = decode(key, value)?;
                self.map.deleted_groups.clone_from(&self.next.deleted_groups);
            }
            Key::Node(id) => drop(self.map.nodes.insert(id, decode(key, value)?)),
            Key::Target(id) => drop(self.map.targets.insert(id, decode(key, value)?)),
            Key::Group(id) => drop(self.map.groups.insert(id, decode(key, value)?)),
            Key::Pool(id) => drop(self.map.pools.insert(id, decode(key, value)?)),
            Key::Shard(id) => drop(self.map.shards.insert(id, decode(key, value)?)),
            Key::Pinned(id) => drop(self.pinned.insert(id, decode(key, value)?)),
        }
        Ok(())
    }

    fn check_references(&self) -> Result<(), Damaged> {
        let map = &self.map;
        let group_is = |id: &GroupId, kind| map.groups.get(id).is_some_and(|group| group.kind == kind);
        let wrong = map
            .targets
            .values()
            .find(|target| !map.nodes.contains_key(&target.node))
            .map(|target| format!("target {} belongs to no node", target.id))
            .or_else(|| {
                let lost = |id| !map.targets.contains_key(id);
                let group =
                    map.groups.values().find(|group| group.members.is_empty() || group.members.iter().any(lost));
                group.map(|group| format!("group {} has no such targets", group.id))
            })
            .or_else(|| {
                let lost = |id: &GroupId| !group_is(id, ServiceKind::Storage);
                map.pools
                    .values()
                    .find(|pool| pool.groups.iter().any(lost))
                    .map(|pool| format!("pool {} has lost a group", pool.id))
            })
            .or_else(|| {
                let lost = map.shards.iter().find(|(_, group)| !group_is(group, ServiceKind::Metadata));
                lost.map(|(shard, _)| format!("shard {shard} has lost its group"))
            });
        wrong.map_or(Ok(()), |text| Err(Damaged(text)))
    }

    /// No id may come again.
    fn check_ids(&self) -> Result<(), Damaged> {
        let (map, next) = (&self.map, &self.next);
        // The first of all is 1, but of shards 0.
        let pairs = [
            (map.nodes.keys().next_back().map_or(0, |id| id.0), next.node),
            (map.targets.keys().next_back().map_or(0, |id| id.0), next.target),
            (map.groups.keys().next_back().map_or(0, |id| id.0), next.group),
            (map.pools.keys().next_back().map_or(0, |id| id.0), next.pool),
        ];
        let is_shard_known = map.shards.keys().next_back().is_none_or(|id| u32::from(id.0) < next.shard);
        if is_shard_known && pairs.iter().all(|(highest, next)| highest < next) {
            Ok(())
        } else {
            Err(Damaged("ids were given out that its counter does not know".to_owned()))
        }
    }
}
