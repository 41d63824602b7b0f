//! Names, pools and states that people set.

use types::id::{GroupId, NodeId, PoolId, SessionId, TargetId};

use super::Membership;
use crate::event::Answer;
use crate::map::{Pool, ServiceKind, TargetState};
use crate::record::Key;
use crate::refusal::Refusal;

const NAME_MAX: usize = 64;

impl Membership {
    pub(super) fn set_alias(&mut self, id: NodeId, alias: String) -> Result<Answer, Refusal> {
        let node = self.map.nodes.get(&id).ok_or(Refusal::NoNode(id))?;
        self.check_alias(&alias, Some(id))?;
        if node.alias != alias
            && let Some(node) = self.node_mut(id)
        {
            node.alias = alias;
        }
        Ok(Answer::Done)
    }

    pub(super) fn check_alias(&self, alias: &str, except: Option<NodeId>) -> Result<(), Refusal> {
        check_name(alias)?;
        match self.map.nodes.values().find(|node| node.alias == alias && Some(node.id) != except) {
            Some(holder) => Err(Refusal::AliasTaken { alias: alias.to_owned(), holder: holder.id }),
            None => Ok(()),
        }
    }

    pub(super) fn create_pool(&mut self, name: String) -> Result<Answer, Refusal> {
        check_name(&name)?;
        if self.map.pools.values().any(|pool| pool.name == name) {
            return Err(Refusal::PoolExists { name });
        }
        let id = PoolId(self.next.pool);
        self.next.pool += 1;
        self.touched.extend([Key::Next, Key::Pool(id)]);
        self.map.pools.insert(id, Pool { id, name, groups: Vec::new() });
        Ok(Answer::Pool(id))
    }

    pub(super) fn remove_pool(&mut self, id: PoolId) -> Result<Answer, Refusal> {
        let pool = self.map.pools.get(&id).ok_or(Refusal::NoPool(id))?;
        if id == PoolId::DEFAULT {
            return Err(Refusal::DefaultPool);
        }
        if !pool.groups.is_empty() {
            return Err(Refusal::PoolInUse { name: pool.name.clone(), count: pool.groups.len() });
        }
        self.touched.insert(Key::Pool(id));
        self.map.pools.remove(&id);
        Ok(Answer::Done)
    }

    pub(super) fn assign_pool(&mut self, group: GroupId, to: PoolId) -> Result<Answer, Refusal> {
        let kind = self.map.groups.get(&group).ok_or(Refusal::NoGroup(group))?.kind;
        if kind != ServiceKind::Storage {
            return Err(Refusal::NotStorage { group });
        }
        if self.map.pools.get(&to).ok_or(Refusal::NoPool(to))?.groups.contains(&group) {
            return Ok(Answer::Done);
        }
        self.leave_pools(group);
        let pool = self.pool_mut(to).expect("looked up above");
        pool.groups.push(group);
        pool.groups.sort_unstable();
        Ok(Answer::Done)
    }

    pub(super) fn leave_pools(&mut self, group: GroupId) {
        let holders: Vec<PoolId> =
            self.map.pools.values().filter(|pool| pool.groups.contains(&group)).map(|pool| pool.id).collect();
        for id in holders {
            if let Some(pool) = self.pool_mut(id) {
                pool.groups.retain(|&member| member != group);
            }
        }
    }

    pub(super) fn set_target_state(&mut self, id: TargetId, state: TargetState) -> Result<Answer, Refusal> {
        let current = self.map.targets.get(&id).ok_or(Refusal::NoTarget(id))?.state;
        let was_reported = if state == TargetState::Good { self.unpin(id) } else { self.pin(id, None) };
        if state != current {
            self.change_target_state(id, state);
        }
        Ok(Answer::StateSet { was_reported })
    }

    pub(super) fn release_target_state(&mut self, id: TargetId) -> Result<Answer, Refusal> {
        if !self.map.targets.contains_key(&id) {
            return Err(Refusal::NoTarget(id));
        }
        Ok(Answer::StateSet { was_reported: self.unpin(id) })
    }

    /// Answers whether it was not pinned.
    pub(super) fn pin(&mut self, id: TargetId, deletion: Option<SessionId>) -> bool {
        let before = self.pinned.insert(id, deletion);
        if before != Some(deletion) {
            self.touched.insert(Key::Pinned(id));
        }
        before.is_none()
    }

    /// Answers whether it was not pinned.
    pub(super) fn unpin(&mut self, id: TargetId) -> bool {
        let before = self.pinned.remove(&id);
        if before.is_some() {
            self.touched.insert(Key::Pinned(id));
        }
        before.is_none()
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let fits = (1..=NAME_MAX).contains(&name.len());
    if fits && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        Ok(())
    } else {
        Err(Refusal::BadName { name: name.to_owned() })
    }
}
