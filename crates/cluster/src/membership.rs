//! The membership state machine.

mod admin;
mod behind;
mod delete;
mod heartbeat;
mod presence;
mod register;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::id::{GroupId, NodeId, PoolId, SessionId, TargetId};

use crate::capacity::{Capacities, Limits};
use crate::event::{Admin, Answer, Effects, Event, Moment, Report};
use crate::map::{ClusterMap, Group, Node, Pool, Target};
use crate::record::{ClusterRecord, FORMAT, Key, NextIds, encode};
use crate::refusal::Refusal;

/// Who belongs to the cluster and in which state. Give every event to [`Membership::apply`] and carry out what it
/// returns, in the order that [`Effects`] says; if that fails, throw this away and [`Membership::restore`] it.
#[derive(Clone, Debug)]
pub struct Membership {
    rules: Rules,
    map: ClusterMap,
    next: NextIds,
    /// Targets whose state was set, by an administrator or for a deletion: reports do not change it.
    pinned: BTreeMap<TargetId, Option<SessionId>>,
    /// Nodes heard of since the start of this process. Not persisted.
    presence: BTreeMap<NodeId, Presence>,
    /// The last report of each target. Not persisted.
    reports: BTreeMap<TargetId, Reported>,
    /// When this process started: until a node is heard of, it counts as last seen then.
    started: Moment,
    /// The last tick.
    ticked: Moment,
    /// What the event in work has changed.
    touched: BTreeSet<Key>,
}

/// What the cluster has agreed on about time and space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A node is offline when it has not been heard of for so long, and probably offline after half of it.
    pub offline_after_ms: u64,
    pub storage: Limits,
    pub metadata: Limits,
}

impl Default for Rules {
    fn default() -> Self {
        Self { offline_after_ms: 10_000, storage: Limits::default(), metadata: Limits::default() }
    }
}

impl Rules {
    /// How often nodes send heartbeats: two may be lost before a node is probably offline.
    #[must_use]
    pub fn heartbeat_ms(&self) -> u64 {
        (self.offline_after_ms / 5).max(1)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Presence {
    incarnation: u64,
    last_heard: Moment,
    /// Processes that another one has taken the place of, the last ones last: they may not take it back while it is heard of.
    superseded: VecDeque<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reported {
    report: Report,
    /// Reports in a row that contradict the state in the map.
    contrary: u32,
    /// Reports since the target has this state, or has registered.
    heard: u32,
}

impl Membership {
    /// A new cluster, and what to persist of it.
    #[must_use]
    pub fn create(cluster: &str, rules: Rules, now: Moment) -> (Self, Effects) {
        let mut new = Self::blank(cluster, rules, now);
        let default = Pool { id: PoolId::DEFAULT, name: "default".to_owned(), groups: Vec::new() };
        new.map.pools.insert(default.id, default);
        new.touched = [Key::Cluster, Key::Next, Key::Pool(PoolId::DEFAULT)].into();
        let effects = new.commit(Answer::Done);
        (new, effects)
    }

    fn blank(cluster: &str, rules: Rules, now: Moment) -> Self {
        Self {
            rules,
            map: ClusterMap::empty(cluster.to_owned()),
            next: NextIds::first(),
            pinned: BTreeMap::new(),
            presence: BTreeMap::new(),
            reports: BTreeMap::new(),
            started: now,
            ticked: now,
            touched: BTreeSet::new(),
        }
    }

    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The last report of each target heard of since the start.
    #[must_use]
    pub fn capacities(&self) -> Capacities {
        self.reports.iter().map(|(&target, reported)| (target, reported.report.capacity)).collect()
    }

    /// Lets `event` happen at `now`.
    ///
    /// # Errors
    /// Where the event cannot be; nothing has changed then.
    pub fn apply(&mut self, event: Event, now: Moment) -> Result<Effects, Refusal> {
        debug_assert!(self.touched.is_empty(), "the last event was committed");
        let answer = match event {
            Event::RegisterNode(registration) => self.register(registration, now)?,
            Event::Heartbeat(heartbeat) => self.heartbeat(&heartbeat, now)?,
            Event::Tick => self.tick(now),
            Event::RegisterClient => self.register_client(),
            Event::Seen(seen) => self.surpass(&seen),
            Event::Admin(admin) => self.administer(admin)?,
        };
        Ok(self.commit(answer))
    }

    fn administer(&mut self, admin: Admin) -> Result<Answer, Refusal> {
        match admin {
            Admin::SetAlias { node, alias } => self.set_alias(node, alias),
            Admin::CreatePool { name } => self.create_pool(name),
            Admin::RemovePool { pool } => self.remove_pool(pool),
            Admin::AssignPool { group, pool } => self.assign_pool(group, pool),
            Admin::SetTargetState { target, state } => self.set_target_state(target, state),
            Admin::ReleaseTargetState { target } => self.release_target_state(target),
            Admin::TakeOut { target, deletion } => self.take_out(target, deletion),
            Admin::PutBack { target, state, deletion } => self.put_back(target, state, deletion),
            Admin::DeleteTarget { target, really, deletion } => self.delete_target(target, really, deletion),
            Admin::DeleteNode { node, really, deletion } => self.delete_node(node, really, deletion),
        }
    }

    fn register_client(&mut self) -> Answer {
        let session = SessionId(self.next.session);
        self.next.session += 1;
        self.touched.insert(Key::Next);
        Answer::Session(session)
    }

    /// Turns what was touched into records and a new epoch.
    fn commit(&mut self, answer: Answer) -> Effects {
        let mut touched = std::mem::take(&mut self.touched);
        let publish = touched.iter().any(|key| key.in_map());
        if publish {
            self.map.epoch.0 += 1;
            touched.insert(Key::Epoch);
        }
        let records = touched.into_iter().map(|key| (key.bytes(), self.value(key))).collect();
        Effects { records, publish, answer }
    }

    fn value(&self, key: Key) -> Option<Vec<u8>> {
        match key {
            Key::Cluster => Some(encode(&ClusterRecord { format: FORMAT, cluster: self.map.cluster.clone() })),
            Key::Epoch => Some(encode(&self.map.epoch)),
            Key::Next => Some(encode(&self.next)),
            Key::Node(id) => self.map.nodes.get(&id).map(encode),
            Key::Target(id) => self.map.targets.get(&id).map(encode),
            Key::Group(id) => self.map.groups.get(&id).map(encode),
            Key::Pool(id) => self.map.pools.get(&id).map(encode),
            Key::Shard(id) => self.map.shards.get(&id).map(encode),
            Key::Pinned(id) => self.pinned.get(&id).map(encode),
        }
    }

    // The only ways to change the map: what is asked for here is persisted.

    fn put_node(&mut self, node: Node) {
        self.touched.insert(Key::Node(node.id));
        self.map.nodes.insert(node.id, node);
    }

    fn put_target(&mut self, target: Target) {
        self.touched.insert(Key::Target(target.id));
        self.map.targets.insert(target.id, target);
    }

    fn put_group(&mut self, group: Group) {
        self.touched.insert(Key::Group(group.id));
        self.map.groups.insert(group.id, group);
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.touched.insert(Key::Node(id));
        self.map.nodes.get_mut(&id)
    }

    fn target_mut(&mut self, id: TargetId) -> Option<&mut Target> {
        self.touched.insert(Key::Target(id));
        self.map.targets.get_mut(&id)
    }

    fn pool_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.touched.insert(Key::Pool(id));
        self.map.pools.get_mut(&id)
    }

    /// The groups that `target` is a member of.
    fn groups_of(&self, target: TargetId) -> Vec<GroupId> {
        self.map.groups.values().filter(|group| group.members.contains(&target)).map(|group| group.id).collect()
    }

    /// A member's state has changed: requests that know the old one are refused from now on.
    fn raise_generations(&mut self, target: TargetId) {
        for id in self.groups_of(target) {
            self.touched.insert(Key::Group(id));
            if let Some(group) = self.map.groups.get_mut(&id) {
                group.generation.0 += 1;
            }
        }
    }
}
