//! Nodes and targets that go for good. Their ids are never given out again.
//!
//! A file keeps the groups that it was given when it was made, though it may have no object on them yet. So a target is
//! first set bad, which gives it no new file. Whoever does that asks all shards then whether a file names its group (the
//! shards alone know), and only after that for the deletion.

use types::id::{NodeId, TargetId};

use super::Membership;
use crate::event::Answer;
use crate::map::{NodeState, TargetState};
use crate::record::Key;
use crate::refusal::Refusal;

/// Reports until one is certain to be from after the state was set: the first may have been on its way.
const REPORTS_TO_BELIEVE: u32 = 2;

impl Membership {
    pub(super) fn delete_target(&mut self, id: TargetId, really: bool) -> Result<Answer, Refusal> {
        self.check_deletable(id, really)?;
        let lines = self.deletion_of(id);
        if really {
            self.remove_target(id);
        }
        Ok(Answer::Deleted(lines))
    }

    pub(super) fn delete_node(&mut self, id: NodeId, really: bool) -> Result<Answer, Refusal> {
        let node = self.map.nodes.get(&id).ok_or(Refusal::NoNode(id))?;
        let mut lines = vec![format!("node {id} ({})", node.alias)];
        if node.state != NodeState::Offline {
            return Err(Refusal::StillRunning { node: id });
        }
        let owned = self.map.targets.values().filter(|target| target.node == id);
        let targets: Vec<TargetId> = owned.map(|target| target.id).collect();
        for &target in &targets {
            self.check_deletable(target, really)?;
            lines.extend(self.deletion_of(target));
        }
        if really {
            targets.into_iter().for_each(|target| self.remove_target(target));
            self.touched.insert(Key::Node(id));
            self.map.nodes.remove(&id);
            self.presence.remove(&id);
        }
        Ok(Answer::Deleted(lines))
    }

    fn check_deletable(&self, id: TargetId, really: bool) -> Result<(), Refusal> {
        let target = self.map.targets.get(&id).ok_or(Refusal::NoTarget(id))?;
        let groups = self.groups_of(id);
        if let Some((shard, _)) = self.map.shards.iter().find(|(_, group)| groups.contains(group)) {
            return Err(Refusal::RunsShard { target: id, shard: shard.0 });
        }
        // One that is bad because its node says so may be good again at any time.
        if really && (target.state == TargetState::Good || !self.pinned.contains(&id)) {
            return Err(Refusal::TakesFiles { target: id });
        }
        // Of one that is gone, or that its node runs without, nobody knows what it holds: what no file names, nobody misses.
        if self.map.is_away(target) {
            return Ok(());
        }
        match self.reports.get(&id) {
            // Silence is no proof of emptiness, nor of anything else: since a restart its node may not have registered yet.
            None => Err(Refusal::NotHeard { target: id }),
            Some(reported) if really && reported.heard < REPORTS_TO_BELIEVE => Err(Refusal::NotHeard { target: id }),
            Some(reported) if reported.report.empty => Ok(()),
            Some(_) => Err(Refusal::NotEmpty { target: id }),
        }
    }

    fn deletion_of(&self, id: TargetId) -> Vec<String> {
        let mut lines: Vec<String> =
            self.map.targets.get(&id).map(|target| format!("target {id} ({})", target.path)).into_iter().collect();
        lines.extend(self.groups_of(id).into_iter().map(|group| format!("group {group}")));
        lines
    }

    fn remove_target(&mut self, id: TargetId) {
        for group in self.groups_of(id) {
            self.leave_pools(group);
            self.touched.extend([Key::Group(group), Key::Next]);
            // Groups have one member in this release, so the group goes with it.
            self.map.groups.remove(&group);
            // All who still have to do with it hear that it is gone for good.
            self.next.deleted_groups.insert(group);
            self.map.deleted_groups.insert(group);
        }
        self.touched.insert(Key::Target(id));
        self.map.targets.remove(&id);
        self.reports.remove(&id);
        if self.pinned.remove(&id) {
            self.touched.insert(Key::Pinned(id));
        }
    }
}
