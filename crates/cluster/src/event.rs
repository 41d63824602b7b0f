//! Everything that can happen to the membership, and what comes of it.

use serde::{Deserialize, Serialize};
use types::id::{Epoch, GroupId, NodeId, PoolId, SessionId, TargetId};

use crate::capacity::Capacity;
use crate::map::{ClusterMap, Rail, ServiceKind, TargetState};
use crate::refusal::Refusal;

/// Milliseconds on a clock that never goes back; where it begins does not matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// Milliseconds from `earlier` to this, 0 if it is later.
    #[must_use]
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    RegisterNode(Registration),
    Heartbeat(Heartbeat),
    /// Time has passed. Wanted a few times per heartbeat interval.
    Tick,
    RegisterClient,
    /// Somebody knows the cluster from before.
    Seen(Seen),
    Admin(Admin),
}

/// The newest map that somebody has seen: its epoch, and what follows its highest number of each kind; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub epoch: Epoch,
    pub nodes: u32,
    pub targets: u32,
    pub groups: u32,
    pub pools: u32,
    pub shards: u32,
    /// Of a client: what follows its own session.
    pub sessions: u64,
}

impl Seen {
    #[must_use]
    pub fn of(map: &ClusterMap) -> Self {
        let after = |last: Option<u32>| last.map_or(0, |last| last.saturating_add(1));
        Self {
            epoch: map.epoch,
            nodes: after(map.nodes.last_key_value().map(|(id, _)| id.0)),
            targets: after(map.targets.last_key_value().map(|(id, _)| id.0)),
            groups: after(map.groups.last_key_value().map(|(id, _)| id.0)),
            pools: after(map.pools.last_key_value().map(|(id, _)| id.0)),
            shards: after(map.shards.last_key_value().map(|(id, _)| id.0.into())),
            sessions: 0,
        }
    }
}

/// A service has started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// UUID of the cluster in its identity; empty at its first start.
    pub cluster: String,
    pub uuid: String,
    pub kind: ServiceKind,
    /// The id in its identity; `None` at its first start.
    pub id: Option<NodeId>,
    /// Name for a new node; empty: one is made. A known node keeps the name that it has.
    pub alias: String,
    /// Different at each start, as good as always; the one that the data plane's handshake tells, too.
    pub incarnation: u64,
    /// Where it can be reached, best first; at least one.
    pub rails: Vec<Rail>,
    /// `host:port` of the metrics endpoint; empty when it has none.
    pub metrics: String,
    pub targets: Vec<TargetRegistration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetRegistration {
    pub uuid: String,
    /// The id in its identity; `None` at its first start.
    pub id: Option<TargetId>,
    pub path: String,
    /// Of its lanes in order, or of its shard's thread.
    pub ports: Vec<u16>,
    /// As of now, where it is on its way to mgmtd.
    pub report: Report,
}

/// A registered service is alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    pub node: NodeId,
    pub incarnation: u64,
    pub targets: Vec<(TargetId, Report)>,
}

/// What a node says of one of its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub capacity: Capacity,
    /// Its disk fails: it cannot serve what it holds.
    pub failing: bool,
    /// It holds nothing: no object, no inode beside the root directory.
    pub empty: bool,
}

/// What an administrator asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admin {
    SetAlias {
        node: NodeId,
        alias: String,
    },
    CreatePool {
        name: String,
    },
    RemovePool {
        pool: PoolId,
    },
    /// Moves a storage group into a pool, out of the one where it was.
    AssignPool {
        group: GroupId,
        pool: PoolId,
    },
    /// `Good` also gives the state back to the node's own reports.
    SetTargetState {
        target: TargetId,
        state: TargetState,
    },
    /// Gives the state back to the node's own reports, and leaves it as it is until they change it.
    ReleaseTargetState {
        target: TargetId,
    },
    /// For a deletion: from here on it takes no new files, whatever its node reports.
    TakeOut {
        target: TargetId,
        deletion: SessionId,
    },
    /// After a deletion that came to nothing: to `state`, or (`None`) to what the node's own reports say; only where nobody
    /// else has set it since.
    PutBack {
        target: TargetId,
        state: Option<TargetState>,
        deletion: SessionId,
    },
    /// Without `really`, only answers what it would do. With a `deletion`, only what that has taken out, and nobody has set
    /// since.
    DeleteTarget {
        target: TargetId,
        really: bool,
        deletion: Option<SessionId>,
    },
    DeleteNode {
        node: NodeId,
        really: bool,
        deletion: Option<SessionId>,
    },
}

/// What the one who caused the event is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Registered(Registered),
    Session(SessionId),
    Pool(PoolId),
    /// Whether the node's own reports decided on the target's state until now.
    StateSet {
        was_reported: bool,
    },
    /// One line per thing that was deleted, or would be.
    Deleted(Vec<String>),
    /// It was refused, and what that has taught has to be persisted all the same.
    Refused(Refusal),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registered {
    pub node: NodeId,
    pub alias: String,
    /// In the order of the registration.
    pub targets: Vec<TargetId>,
}

/// What the shell has to do, in this order: persist, publish, answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effects {
    /// Durable, all or nothing, before anything else: value, or `None` to delete the key.
    pub records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The map is another one now: send it to all who watch.
    pub publish: bool,
    pub answer: Answer,
}
