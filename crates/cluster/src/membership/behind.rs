//! A store that was restored from a backup is older than the cluster: it would give ids out again that others have, and
//! make maps that are taken for old ones.

use super::Membership;
use crate::event::{Answer, Registration, Seen, TargetRegistration};
use crate::record::{Key, NextIds};
use crate::refusal::Refusal;

/// Sessions that may have been given out since the backup was made, and more.
const SESSIONS_SKIPPED: u64 = 1 << 32;

/// No cluster comes to numbers beyond these. What somebody tells of them is passed over, so that a wild number leaves enough
/// for ever: at a thousand changes per second, epochs for thousands of years.
const EPOCH_MAX: u64 = 1 << 48;
const SESSION_MAX: u64 = 1 << 60;
const ID_MAX: u32 = 1 << 30;
const SHARD_MAX: u32 = 1 << 15;

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
            next.skip_nodes(id.0.saturating_add(1));
        }
        let mut proof = node.map(|id| format!("node {id}"));
        for TargetRegistration { id, uuid, path, .. } in &registration.targets {
            let Some(id) = *id else { continue };
            let is_strange = match self.map.targets.get(&id) {
                Some(target) => target.uuid != *uuid,
                None => id.0 >= next.target || next.skipped_targets.contains(id.0),
            };
            if is_strange {
                let before = next.target;
                next.skip_targets(id.0.saturating_add(1));
                // Each target came with a group of its own, and perhaps a shard, of which nobody tells.
                next.group = next.group.max(next.target);
                next.shard = raised(next.shard, next.shard + (next.target - before), SHARD_MAX);
                proof.get_or_insert_with(|| format!("target {id} ({path})"));
            }
        }
        // An id that came again tells of no number, but of the time since the backup all the same.
        if next != self.next || (proof.is_some() && !next.skipped_sessions) {
            self.skip_to(next);
        }
        proof.map(|what| Refusal::StoreIsOld { what })
    }

    /// Goes on above all that somebody has seen: who knows a newer map passes over ours, and takes what gets a number again
    /// for what had it before.
    pub(super) fn surpass(&mut self, seen: &Seen) -> Answer {
        let mut next = self.next.clone();
        next.skip_nodes(seen.nodes);
        next.skip_targets(seen.targets);
        next.group = raised(next.group, seen.groups, ID_MAX);
        next.pool = raised(next.pool, seen.pools, ID_MAX);
        next.shard = raised(next.shard, seen.shards, SHARD_MAX);
        if seen.sessions <= SESSION_MAX {
            next.session = next.session.max(seen.sessions);
        }
        let is_newer = seen.epoch > self.map.epoch && seen.epoch.0 <= EPOCH_MAX;
        if is_newer {
            self.map.epoch = seen.epoch;
            self.touched.insert(Key::Epoch);
        }
        if is_newer || next != self.next {
            self.skip_to(next);
        }
        Answer::Done
    }

    /// No session below `first` is given out from now on: for a number that every start has larger, like the time of day, since
    /// nobody may be there who could tell of those that the store does not know. The next one persists it.
    pub fn begin_sessions_at(&mut self, first: u64) {
        if first <= SESSION_MAX {
            self.next.session = self.next.session.max(first);
        }
    }

    fn skip_to(&mut self, mut next: NextIds) {
        next.session = next.session.saturating_add(SESSIONS_SKIPPED);
        next.skipped_sessions = true;
        self.next = next;
        self.touched.insert(Key::Next);
    }
}

impl NextIds {
    fn skip_nodes(&mut self, end: u32) {
        let end = raised(self.node, end, ID_MAX);
        self.skipped_nodes.add(self.node, end);
        self.node = end;
    }

    fn skip_targets(&mut self, end: u32) {
        let end = raised(self.target, end, ID_MAX);
        self.skipped_targets.add(self.target, end);
        self.target = end;
    }
}

/// `next` or what was `told` of it.
fn raised(next: u32, told: u32, max: u32) -> u32 {
    if told <= max { next.max(told) } else { next }
}
