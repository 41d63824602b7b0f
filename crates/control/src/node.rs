//! What a service is told, and what it is asked.

use std::time::Duration;

use cluster::event::Report;
use types::id::{NodeId, TargetId};

/// What mgmtd answers to a registration. Ids and cluster belong into the identity at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// UUID of the cluster.
    pub cluster: String,
    pub node: NodeId,
    pub alias: String,
    /// In the order of the registration.
    pub targets: Vec<TargetId>,
    /// How often to send heartbeats.
    pub heartbeat: Duration,
    /// A node is offline when it has not been heard of for so long.
    pub offline_after: Duration,
}

/// What mgmtd has deleted, or would.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// One per thing.
    pub lines: Vec<String>,
    /// How often mgmtd hears of targets; zero from one that does not tell yet.
    pub heartbeat: Duration,
}

/// One report per target of the registration, in its order. Asked for at each heartbeat.
pub type Reporter = Box<dyn FnMut() -> Vec<Report> + Send>;
