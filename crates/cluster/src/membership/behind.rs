//! A store that was restored from a backup is older than the cluster: it would give ids out again that others have.

use super::Membership;
use crate::event::{Registration, TargetRegistration};
use crate::record::Key;
use crate::refusal::Refusal;

/// Sessions that may have been given out since the backup was made, and more.
const SESSIONS_SKIPPED: u64 = 1 << 32;

impl Membership {
    /// Whether `registration` proves that. Then no id that it names, and no session of that time, is given out again; what
    /// is skipped is remembered, so that all who have an id of that time are told the same, however often they ask.
    pub(super) fn fallen_behind(&mut self, registration: &Registration) -> Option<Refusal> {
        let mut next = self.next.clone();
        let node = registration.id.filter(|id| match self.map.nodes.get(id) {
            Some(node) => node.uuid != registration.uuid,
            None => id.0 >= next.node || next.skipped_nodes.contains(id.0),
        });
        if let Some(id) = node {
            let end = next.node.max(id.0.saturating_add(1));
            next.skipped_nodes.add(next.node, end);
            next.node = end;
        }
        let mut proof = node.map(|id| format!("node {id}"));
        for TargetRegistration { id, uuid, path, .. } in &registration.targets {
            let Some(id) = *id else { continue };
            let is_strange = match self.map.targets.get(&id) {
                Some(target) => target.uuid != *uuid,
                None => id.0 >= next.target || next.skipped_targets.contains(id.0),
            };
            if is_strange {
                let end = next.target.max(id.0.saturating_add(1));
                next.skipped_targets.add(next.target, end);
                next.target = end;
                // Each target came with a group of its own, of which nobody tells.
                next.group = next.group.max(next.target);
                proof.get_or_insert_with(|| format!("target {id} ({path})"));
            }
        }
        // An id that came again tells of no number, but of the time since the backup all the same.
        if next != self.next || (proof.is_some() && !next.skipped_sessions) {
            next.session = next.session.saturating_add(SESSIONS_SKIPPED);
            next.skipped_sessions = true;
            self.next = next;
            self.touched.insert(Key::Next);
        }
        proof.map(|what| Refusal::StoreIsOld { what })
    }
}
