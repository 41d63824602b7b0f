//! Which process is a node. Time passes: who has not been heard of is probably offline, then offline.

use std::collections::VecDeque;

use types::id::NodeId;

use super::{Membership, Presence};
use crate::event::{Answer, Moment};
use crate::map::NodeState;
use crate::refusal::Refusal;

/// Processes of a node that are remembered after others have taken their place.
const SUPERSEDED_MAX: usize = 64;

impl Membership {
    /// Two processes may have one identity, where a directory was copied or its disk moved while the first was cut off.
    /// Incarnations are compared for equality alone: not every service's clock can be relied on to order them. While nobody
    /// else is heard of, a number that comes again is taken.
    pub(super) fn check_not_superseded(&self, id: NodeId, incarnation: u64, now: Moment) -> Result<(), Refusal> {
        let holds_place = |presence: &&Presence| now.ms_since(presence.last_heard) < self.rules.offline_after_ms;
        let holder = self.presence.get(&id).filter(holds_place);
        if holder.is_some_and(|presence| presence.superseded.contains(&incarnation)) {
            return Err(Refusal::Superseded { id });
        }
        Ok(())
    }

    /// The process of `incarnation` is the one that is node `id` from now on.
    pub(super) fn take_place(&mut self, id: NodeId, incarnation: u64, now: Moment) {
        let mut superseded = VecDeque::new();
        if let Some(before) = self.presence.remove(&id) {
            superseded = before.superseded;
            superseded.retain(|&other| other != incarnation);
            if before.incarnation != incarnation {
                superseded.push_back(before.incarnation);
            }
            if superseded.len() > SUPERSEDED_MAX {
                superseded.pop_front();
            }
        }
        self.presence.insert(id, Presence { incarnation, last_heard: now, superseded });
    }

    /// Ticks come a few times per heartbeat, of a time at which whoever spoke was heard. Where they did not, this service stood
    /// still: its process was stopped, its disk hung, or it had too much to do. That is nobody's silence. Who has been heard
    /// since the time of the tick is not taken for silent either.
    pub(super) fn tick(&mut self, now: Moment) -> Answer {
        let stood_still = now.ms_since(self.ticked).saturating_sub(self.rules.heartbeat_ms());
        self.ticked = now;
        let later = |moment: Moment| Moment(moment.0.saturating_add(stood_still.min(now.ms_since(moment))));
        self.started = later(self.started);
        for presence in self.presence.values_mut() {
            presence.last_heard = later(presence.last_heard);
        }
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
