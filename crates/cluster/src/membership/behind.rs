//! A store that was restored from a backup is older than the cluster: it would give ids out again that others have.

use super::Membership;
use crate::event::{Registration, TargetRegistration};
use crate::record::Key;
use crate::refusal::Refusal;

/// Sessions that may have been given out since the backup was made, and more.
const SESSIONS_SKIPPED: u64 = 1 << 32;

impl Membership {
    /// Whether `registration` proves that. Then no id that it names, and no session of that time, is given out again.
    pub(super) fn fallen_behind(&mut self, registration: &Registration) -> Option<Refusal> {
        let mut next = self.next.clone();
        let node = registration.id.filter(|id| {
            let other = self.map.nodes.get(id).is_some_and(|node| node.uuid != registration.uuid);
            other || id.0 >= self.next.node
        });
        if let Some(id) = node {
            next.node = next.node.max(id.0.saturating_add(1));
        }
        let mut proof = node.map(|id| format!("node {id}"));
        for TargetRegistration { id, uuid, path, .. } in &registration.targets {
            let Some(id) = *id else { continue };
            let other = self.map.targets.get(&id).is_some_and(|target| target.uuid != *uuid);
            if other || id.0 >= self.next.target {
                next.target = next.target.max(id.0.saturating_add(1));
                // Each target came with a group of its own, of which nobody tells.
                next.group = next.group.max(next.target);
                proof.get_or_insert_with(|| format!("target {id} ({path})"));
            }
        }
        if next != self.next {
            next.session = next.session.saturating_add(SESSIONS_SKIPPED);
            self.next = next;
            self.touched.insert(Key::Next);
        }
        proof.map(|what| Refusal::StoreIsOld { what })
    }
}
