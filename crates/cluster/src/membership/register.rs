//! A service starts: known things keep their ids, new ones get theirs.

use std::collections::BTreeSet;

use types::id::{Generation, GroupId, NodeId, PoolId, ShardId, TargetId};

use super::{Membership, Reported};
use crate::event::{Answer, Moment, Registered, Registration, Report, TargetRegistration};
use crate::map::{CapacityClass, Group, Node, NodeState, ServiceKind, Target, TargetState};
use crate::record::Key;
use crate::refusal::Refusal;

impl Membership {
    pub(super) fn register(&mut self, registration: Registration, now: Moment) -> Result<Answer, Refusal> {
        self.check_cluster(&registration)?;
        if let Some(refusal) = self.fallen_behind(&registration) {
            return Ok(Answer::Refused(refusal));
        }
        // All other refusals come before the first change.
        self.check(&registration, now)?;
        let known = self.node_by_uuid(&registration.uuid);
        let id = known.unwrap_or_else(|| self.next_node());
        let alias = self.alias_for(known, &registration);
        let node = Node {
            id,
            uuid: registration.uuid,
            kind: registration.kind,
            alias: alias.clone(),
            state: NodeState::Online,
            rails: registration.rails,
            metrics: registration.metrics,
        };
        if self.map.nodes.get(&id) != Some(&node) {
            self.put_node(node);
        }
        let targets: Vec<TargetId> =
            registration.targets.iter().map(|target| self.register_target(id, registration.kind, target)).collect();
        self.withdraw_absent(id, &targets);
        self.take_place(id, registration.incarnation, now);
        Ok(Answer::Registered(Registered { node: id, alias, targets }))
    }

    fn check_cluster(&self, registration: &Registration) -> Result<(), Refusal> {
        let ours = &self.map.cluster;
        if registration.cluster.is_empty() || registration.cluster == *ours {
            return Ok(());
        }
        Err(Refusal::WrongCluster { ours: ours.clone(), theirs: registration.cluster.clone() })
    }

    fn check(&self, registration: &Registration, now: Moment) -> Result<(), Refusal> {
        if registration.uuid.is_empty() {
            return Err(Refusal::Incomplete { what: "the node's uuid" });
        }
        if registration.rails.is_empty() {
            return Err(Refusal::Incomplete { what: "at least one address" });
        }
        match self.node_by_uuid(&registration.uuid).and_then(|id| self.map.nodes.get(&id)) {
            Some(node) if node.kind != registration.kind => {
                let uuid = node.uuid.clone();
                return Err(Refusal::KindChanged { uuid, known: node.kind, asked: registration.kind });
            }
            Some(node) => self.check_not_superseded(node.id, registration.incarnation, now)?,
            None => self.check_new_node(registration)?,
        }
        self.check_targets(registration)
    }

    fn check_new_node(&self, registration: &Registration) -> Result<(), Refusal> {
        if let Some(id) = registration.id {
            return Err(Refusal::NodeForgotten { id });
        }
        if registration.alias.is_empty() { Ok(()) } else { self.check_alias(&registration.alias, None) }
    }

    fn check_targets(&self, registration: &Registration) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        for target in &registration.targets {
            if target.uuid.is_empty() || target.ports.is_empty() {
                return Err(Refusal::Incomplete { what: "each target's uuid and ports" });
            }
            if !seen.insert(&target.uuid) {
                return Err(Refusal::TargetTwice { uuid: target.uuid.clone() });
            }
            let known = self.target_by_uuid(&target.uuid);
            match (known, target.id) {
                (Some(known), _) => self.check_owner(known, &registration.uuid)?,
                (None, Some(id)) => return Err(Refusal::TargetForgotten { id, path: target.path.clone() }),
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn check_owner(&self, target: &Target, node_uuid: &str) -> Result<(), Refusal> {
        match self.map.nodes.get(&target.node) {
            Some(owner) if owner.uuid == node_uuid => Ok(()),
            _ => Err(Refusal::TargetElsewhere { target: target.id, owner: target.node }),
        }
    }

    /// A known node keeps its name; a new one gets the one it asked for, or `storage-3`.
    fn alias_for(&self, known: Option<NodeId>, registration: &Registration) -> String {
        if let Some(node) = known.and_then(|id| self.map.nodes.get(&id)) {
            return node.alias.clone();
        }
        if !registration.alias.is_empty() {
            return registration.alias.clone();
        }
        let mut number = self.map.nodes.values().filter(|node| node.kind == registration.kind).count() + 1;
        loop {
            let alias = format!("{}-{number}", registration.kind);
            if self.check_alias(&alias, None).is_ok() {
                return alias;
            }
            number += 1;
        }
    }

    fn register_target(&mut self, node: NodeId, kind: ServiceKind, asked: &TargetRegistration) -> TargetId {
        let known = self.target_by_uuid(&asked.uuid).cloned();
        let is_new = known.is_none();
        let before = known.clone().unwrap_or_else(|| Target {
            id: self.next_target(),
            uuid: asked.uuid.clone(),
            node,
            kind,
            state: TargetState::Good,
            class: CapacityClass::Normal,
            ports: Vec::new(),
            path: String::new(),
        });
        let class = self.limits(kind).class(before.class, &asked.report.capacity);
        let after = Target { ports: asked.ports.clone(), path: asked.path.clone(), class, ..before };
        let id = after.id;
        if known.as_ref() != Some(&after) {
            self.put_target(after);
        }
        if is_new {
            self.make_group(id, kind);
        }
        if kind == ServiceKind::Metadata {
            self.give_shard(id);
        }
        let report = Report { failing: false, ..asked.report };
        self.reports.insert(id, Reported { report, contrary: 0, heard: 0 });
        id
    }

    /// A new target becomes a group of one.
    fn make_group(&mut self, target: TargetId, kind: ServiceKind) {
        let id = self.next_group();
        self.put_group(Group { id, kind, generation: Generation(1), members: vec![target] });
        if kind == ServiceKind::Storage {
            let pool = self.pool_mut(PoolId::DEFAULT).expect("the default pool cannot be removed");
            pool.groups.push(id);
        }
    }

    /// Every metadata group runs a shard; the first one shard 0, which has the root of the namespace. One without any, where
    /// all numbers are used up, stands by.
    fn give_shard(&mut self, target: TargetId) {
        for group in self.groups_of(target) {
            if self.map.shards.values().any(|known| *known == group) {
                continue;
            }
            if let Ok(number) = u16::try_from(self.next.shard) {
                self.next.shard += 1;
                self.touched.extend([Key::Next, Key::Shard(ShardId(number))]);
                self.map.shards.insert(ShardId(number), group);
            }
        }
    }

    /// A target whose disk the node did not find cannot be reached, but keeps its place. It is bad, until its node has it again
    /// and reports so.
    fn withdraw_absent(&mut self, node: NodeId, present: &[TargetId]) {
        let owned = self.map.targets.values().filter(|target| target.node == node && !target.ports.is_empty());
        let absent = owned.filter(|target| !present.contains(&target.id)).map(|target| (target.id, target.state));
        for (id, state) in absent.collect::<Vec<_>>() {
            if let Some(target) = self.target_mut(id) {
                target.ports.clear();
            }
            self.reports.remove(&id);
            if state != TargetState::Bad && !self.pinned.contains_key(&id) {
                self.change_target_state(id, TargetState::Bad);
            }
        }
    }

    fn node_by_uuid(&self, uuid: &str) -> Option<NodeId> {
        self.map.nodes.values().find(|node| node.uuid == uuid).map(|node| node.id)
    }

    fn target_by_uuid(&self, uuid: &str) -> Option<&Target> {
        self.map.targets.values().find(|target| target.uuid == uuid)
    }

    fn next_node(&mut self) -> NodeId {
        self.touched.insert(Key::Next);
        self.next.node += 1;
        NodeId(self.next.node - 1)
    }

    fn next_target(&mut self) -> TargetId {
        self.touched.insert(Key::Next);
        self.next.target += 1;
        TargetId(self.next.target - 1)
    }

    fn next_group(&mut self) -> GroupId {
        self.touched.insert(Key::Next);
        self.next.group += 1;
        GroupId(self.next.group - 1)
    }
}
