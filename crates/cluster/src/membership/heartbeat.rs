//! A node says that it lives, and how its targets are.

use types::id::{NodeId, TargetId};

use super::{Membership, Reported};
use crate::capacity::Limits;
use crate::event::{Answer, Heartbeat, Moment, Report};
use crate::map::{NodeState, ServiceKind, TargetState};
use crate::refusal::Refusal;

/// Reports in a row that make a target bad: one lost disk request is no lost disk.
const REPORTS_TO_FAIL: u32 = 2;
/// Reports in a row that make it good again.
const REPORTS_TO_RECOVER: u32 = 3;

impl Membership {
    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Moment) -> Result<Answer, Refusal> {
        let id = heartbeat.node;
        if !self.map.nodes.contains_key(&id) {
            return Err(Refusal::NodeForgotten { id });
        }
        let presence = self.presence.get_mut(&id).ok_or(Refusal::NotRegistered { id })?;
        if presence.incarnation != heartbeat.incarnation {
            return Err(Refusal::Superseded { id });
        }
        presence.last_heard = now;
        if self.map.nodes.get(&id).is_some_and(|node| node.state != NodeState::Online)
            && let Some(node) = self.node_mut(id)
        {
            node.state = NodeState::Online;
        }
        for (target, report) in &heartbeat.targets {
            self.report(id, *target, *report);
        }
        Ok(Answer::Done)
    }

    /// A report on a target that the node does not own says nothing.
    fn report(&mut self, node: NodeId, id: TargetId, report: Report) {
        let Some(target) = self.map.targets.get(&id).filter(|target| target.node == node).cloned() else { return };
        let class = self.limits(target.kind).class(target.class, &report.capacity);
        if class != target.class
            && let Some(target) = self.target_mut(id)
        {
            target.class = class;
        }
        let (contrary, heard) = self.reports.get(&id).map_or((0, 0), |before| (before.contrary, before.heard));
        let contrary = if report.failing == (target.state == TargetState::Bad) { 0 } else { contrary + 1 };
        self.reports.insert(id, Reported { report, contrary, heard: heard.saturating_add(1) });
        if !self.pinned.contains_key(&id) {
            self.judge(id, target.state, report.failing, contrary);
        }
    }

    fn judge(&mut self, id: TargetId, state: TargetState, failing: bool, contrary: u32) {
        let becomes = match state {
            TargetState::Good | TargetState::NeedsResync if failing && contrary >= REPORTS_TO_FAIL => TargetState::Bad,
            TargetState::Bad if !failing && contrary >= REPORTS_TO_RECOVER => TargetState::Good,
            TargetState::Good | TargetState::NeedsResync | TargetState::Bad => return,
        };
        self.change_target_state(id, becomes);
    }

    pub(super) fn change_target_state(&mut self, id: TargetId, state: TargetState) {
        if let Some(target) = self.target_mut(id) {
            target.state = state;
        }
        if let Some(reported) = self.reports.get_mut(&id) {
            (reported.contrary, reported.heard) = (0, 0);
        }
        self.raise_generations(id);
    }

    pub(super) fn limits(&self, kind: ServiceKind) -> &Limits {
        match kind {
            ServiceKind::Metadata => &self.rules.metadata,
            ServiceKind::Storage => &self.rules.storage,
        }
    }
}
