//! Time passes: who has not been heard of is probably offline, then offline.

use types::id::NodeId;

use super::Membership;
use crate::event::{Answer, Moment};
use crate::map::NodeState;

impl Membership {
    pub(super) fn tick(&mut self, now: Moment) -> Answer {
        let changes: Vec<(NodeId, NodeState)> = self
            .map
            .nodes
            .values()
            .map(|node| (node.id, self.state_at(node.id, node.state, now)))
            .filter(|(id, state)| self.map.nodes.get(id).is_some_and(|node| node.state != *state))
            .collect();
        for (id, state) in changes {
            if let Some(node) = self.node_mut(id) {
                node.state = state;
            }
        }
        Answer::Done
    }

    /// Silence makes a state worse; only a heartbeat makes it better.
    fn state_at(&self, id: NodeId, state: NodeState, now: Moment) -> NodeState {
        let last_heard = self.presence.get(&id).map_or(self.started, |presence| presence.last_heard);
        let silence = now.ms_since(last_heard);
        if state == NodeState::Offline || silence >= self.rules.offline_after_ms {
            NodeState::Offline
        } else if state == NodeState::ProbablyOffline || silence >= self.rules.offline_after_ms / 2 {
            NodeState::ProbablyOffline
        } else {
            NodeState::Online
        }
    }
}
