//! Targets and nodes that go for good: first nothing new may come to them, then nothing may be left that needs them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::map::{ClusterMap, ServiceKind, Target, TargetState};
use conf::Fatal;
use control::{Client, ControlError};
use types::id::{GroupId, NodeId, TargetId};

use crate::admin::Admin;
use crate::fsck::Users;

/// Longest wait for a target's word that it is empty: some heartbeats.
const WORD_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
pub(crate) enum Doomed {
    Target(TargetId),
    Node(NodeId),
}

impl Doomed {
    fn targets(self, map: &ClusterMap) -> impl Iterator<Item = &Target> {
        map.targets.values().filter(move |target| match self {
            Self::Target(id) => target.id == id,
            Self::Node(id) => target.node == id,
        })
    }

    fn groups(self, map: &ClusterMap) -> BTreeSet<GroupId> {
        let targets: BTreeSet<TargetId> = self.targets(map).map(|target| target.id).collect();
        let concerned = |members: &[TargetId]| members.iter().any(|member| targets.contains(member));
        map.groups.values().filter(|group| concerned(&group.members)).map(|group| group.id).collect()
    }

    async fn ask(self, client: &Client, really: bool) -> Result<Vec<String>, ControlError> {
        match self {
            Self::Target(id) => client.delete_target(id, really).await,
            Self::Node(id) => client.delete_node(id, really).await,
        }
    }
}

impl Admin {
    /// Whoever is in the way at first sight is found before anything is changed.
    pub(crate) fn delete(&self, doomed: Doomed, really: bool) -> Result<Vec<String>> {
        let lines = self.ask(doomed.ask(self.client(), false))?;
        self.check_unused(doomed)?;
        if !really {
            return Ok(lines);
        }
        let taken_out = self.take_out(doomed)?;
        self.check_unused(doomed).and_then(|()| self.delete_when_heard(doomed)).or_else(|why| {
            let mut put_back = taken_out.into_iter().map(|target| self.set_target_state(target, TargetState::Good));
            put_back.try_for_each(|done| done).with_context(|| format!("{why:#}; and it stays set bad"))?;
            Err(why)
        })
    }

    /// From here on no new file gets them. Answers those that were good before.
    fn take_out(&self, doomed: Doomed) -> Result<Vec<TargetId>> {
        let view = self.view()?;
        let good = |target: &&Target| target.kind == ServiceKind::Storage && target.state == TargetState::Good;
        let targets: Vec<TargetId> = doomed.targets(&view.map).filter(good).map(|target| target.id).collect();
        targets.iter().try_for_each(|&target| self.set_target_state(target, TargetState::Bad))?;
        Ok(targets)
    }

    fn check_unused(&self, doomed: Doomed) -> Result<()> {
        let users = self.on_data(async |data| Users::find(data, &doomed.groups(data.map())).await)?;
        let what = match doomed {
            Doomed::Target(id) => format!("target {id}"),
            Doomed::Node(id) => format!("node {id}"),
        };
        ensure!(users.is_none(), Fatal::usage(format!("{what} is in use: {users}")));
        Ok(())
    }

    fn delete_when_heard(&self, doomed: Doomed) -> Result<Vec<String>> {
        let deadline = Instant::now() + WORD_MAX;
        loop {
            match self.block_on(doomed.ask(self.client(), true)) {
                Err(ControlError::NotHeard(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                outcome => return Ok(outcome.map_err(Fatal::from)?),
            }
        }
    }
}
