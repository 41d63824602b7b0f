//! Nodes and targets that go for good. Their ids are never given out again.
//!
//! A file keeps the groups that it was given when it was made, though it may have no object on them yet. So a target is
//! first taken out, which gives it no new file. Whoever does that asks all shards then whether a file names its group (the
//! shards alone know), and only after that for the deletion. What the shards have said holds as long as the target is bad, and
//! the scan may take long: who else sets its state meanwhile, be it to bad again, ends that.

use types::id::{NodeId, SessionId, TargetId};

use super::Membership;
use crate::event::Answer;
use crate::map::{NodeState, ServiceKind, TargetState};
use crate::record::Key;
use crate::refusal::Refusal;

/// Reports until one is certain to be from after the state was set: the first may have been on its way.
const REPORTS_TO_BELIEVE: u32 = 2;

impl Membership {
    pub(super) fn take_out(&mut self, id: TargetId, deletion: SessionId) -> Result<Answer, Refusal> {
        let state = self.map.targets.get(&id).ok_or(Refusal::NoTarget(id))?.state;
        let was_reported = self.pin(id, Some(deletion));
        if state != TargetState::Bad {
            self.change_target_state(id, TargetState::Bad);
        }
        Ok(Answer::StateSet { was_reported })
    }

    pub(super) fn put_back(
        &mut self,
        id: TargetId,
        state: Option<TargetState>,
        deletion: SessionId,
    ) -> Result<Answer, Refusal> {
        let current = self.map.targets.get(&id).ok_or(Refusal::NoTarget(id))?.state;
        match self.pinned.get(&id) {
            Some(&by) if by == Some(deletion) => match state {
                Some(state) => self.set_target_state(id, state),
                None => self.release_target_state(id),
            },
            // It was never taken out, or is back: its node's reports decide, or it is what it is to become.
            None => Ok(Answer::StateSet { was_reported: true }),
            Some(_) if state == Some(current) => Ok(Answer::StateSet { was_reported: false }),
            Some(_) => Err(Refusal::SetSince { target: id }),
        }
    }

    pub(super) fn delete_target(
        &mut self,
        id: TargetId,
        really: bool,
        deletion: Option<SessionId>,
    ) -> Result<Answer, Refusal> {
        self.check_deletable(id, really, deletion)?;
        let lines = self.deletion_of(id);
        if really {
            self.remove_target(id);
        }
        Ok(Answer::Deleted(lines))
    }

    pub(super) fn delete_node(
        &mut self,
        id: NodeId,
        really: bool,
        deletion: Option<SessionId>,
    ) -> Result<Answer, Refusal> {
        let node = self.map.nodes.get(&id).ok_or(Refusal::NoNode(id))?;
        let mut lines = vec![format!("node {id} ({})", node.alias)];
        if node.state != NodeState::Offline {
            return Err(Refusal::StillRunning { node: id });
        }
        let owned = self.map.targets.values().filter(|target| target.node == id);
        let targets: Vec<TargetId> = owned.map(|target| target.id).collect();
        for &target in &targets {
            self.check_deletable(target, really, deletion)?;
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

    fn check_deletable(&self, id: TargetId, really: bool, deletion: Option<SessionId>) -> Result<(), Refusal> {
        let target = self.map.targets.get(&id).ok_or(Refusal::NoTarget(id))?;
        let groups = self.groups_of(id);
        if let Some((shard, _)) = self.map.shards.iter().find(|(_, group)| groups.contains(group)) {
            return Err(Refusal::RunsShard { target: id, shard: shard.0 });
        }
        // One that is bad because its node says so may be good again at any time.
        let pin = self.pinned.get(&id);
        if really && (target.state == TargetState::Good || pin.is_none()) {
            return Err(Refusal::TakesFiles { target: id });
        }
        // It may have been good since the shards were asked. Those of metadata, which no file names, are not taken out.
        if really && target.kind == ServiceKind::Storage && deletion.is_some() && pin != Some(&deletion) {
            return Err(Refusal::SetSince { target: id });
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
        self.unpin(id);
    }
}
