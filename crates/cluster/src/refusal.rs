//! Why an event changed nothing.

use thiserror::Error;
use types::id::{GroupId, NodeId, PoolId, TargetId};

use crate::map::ServiceKind;

/// The event was refused and nothing has changed. Each text is one line for people.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    #[error("this node belongs to cluster {theirs}, this is cluster {ours}")]
    WrongCluster { ours: String, theirs: String },
    #[error("node {uuid} is registered as a {known} service and cannot become a {asked} service")]
    KindChanged { uuid: String, known: ServiceKind, asked: ServiceKind },
    #[error("the alias {alias} belongs to node {holder}: choose another one")]
    AliasTaken { alias: String, holder: NodeId },
    #[error("{name:?} is no valid name: use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'")]
    BadName { name: String },
    #[error(
        "node {id} is not known here: if the management service has lost its store, restore the newest backup of it; if the node \
         was deleted, it can register anew with an empty directory"
    )]
    NodeForgotten { id: NodeId },
    #[error(
        "target {id} ({path}) is not known here: if the management service has lost its store, restore the newest backup of it; \
         if the target was deleted, an empty directory can take its place"
    )]
    TargetForgotten { id: TargetId, path: String },
    #[error(
        "{what} has an id that the management service has not given out: its store is older than the cluster; restore the newest \
         backup of it, and leave the directory as it is, which holds what was stored"
    )]
    StoreIsOld { what: String },
    #[error("target {target} belongs to node {owner}: a target cannot move between nodes yet")]
    TargetElsewhere { target: TargetId, owner: NodeId },
    #[error("target {uuid} is there twice: was its directory copied?")]
    TargetTwice { uuid: String },
    #[error("a registration must say {what}")]
    Incomplete { what: &'static str },
    /// The node registers again and goes on.
    #[error("node {id} has not registered since the management service started")]
    NotRegistered { id: NodeId },
    #[error(
        "another process has registered as node {id}: was its directory copied? This one must stop; where it is the only one, \
         start it again when the other has not been heard of for a while"
    )]
    Superseded { id: NodeId },
    #[error("there is no node {0}")]
    NoNode(NodeId),
    #[error("there is no target {0}")]
    NoTarget(TargetId),
    #[error("there is no group {0}")]
    NoGroup(GroupId),
    #[error("there is no pool {0}")]
    NoPool(PoolId),
    #[error("there is a pool {name} already")]
    PoolExists { name: String },
    #[error("group {group} holds metadata: pools hold storage groups")]
    NotStorage { group: GroupId },
    #[error("the default pool cannot be removed")]
    DefaultPool,
    #[error("pool {name} still has {count} groups: assign them to another pool first")]
    PoolInUse { name: String, count: usize },
    #[error("target {target} runs shard {shard} of the namespace and cannot be deleted")]
    RunsShard { target: TargetId, shard: u16 },
    #[error(
        "target {target} is not known to be empty: what was deleted there goes within some seconds, with its service running; \
         its files are to be moved away first"
    )]
    NotEmpty { target: TargetId },
    #[error("target {target} takes new files, or may again when it recovers: set it bad first")]
    TakesFiles { target: TargetId },
    #[error("somebody else has set the state of target {target} since it was taken out for its deletion")]
    SetSince { target: TargetId },
    /// It will be heard of soon.
    #[error("target {target} has not told yet whether it is empty")]
    NotHeard { target: TargetId },
    #[error("node {node} is running: stop it first")]
    StillRunning { node: NodeId },
}

impl Refusal {
    /// Trying again without a change by people gives the same answer.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::NotRegistered { .. } | Self::NotHeard { .. })
    }
}
