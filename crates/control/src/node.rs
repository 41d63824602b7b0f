//! What a service says of itself, and what it is told.

use std::time::Duration;

use cluster::event::Report;
use cluster::map::{Rail, ServiceKind};
use types::id::{NodeId, TargetId};

/// One starting service: what it knows from its identity and configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    pub uuid: String,
    pub kind: ServiceKind,
    /// From the identity; `None` at the first start.
    pub id: Option<NodeId>,
    /// Name for a new node; empty: mgmtd makes one.
    pub alias: String,
    /// Different at each start; the one that the data plane's handshake tells, too.
    pub incarnation: u64,
    /// Where it can be reached, best first; at least one.
    pub rails: Vec<Rail>,
    /// `host:port` of the metrics endpoint; empty when it has none.
    pub metrics: String,
    pub targets: Vec<TargetSpec>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetSpec {
    pub uuid: String,
    /// From the identity; `None` at the first start.
    pub id: Option<TargetId>,
    pub path: String,
    /// Of its lanes in order, or of its shard's thread.
    pub ports: Vec<u16>,
}

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

impl NodeSpec {
    /// Takes over what mgmtd has given, so that a later registration is recognised.
    pub(crate) fn learn(&mut self, registered: &Registered) {
        self.id = Some(registered.node);
        for (target, id) in self.targets.iter_mut().zip(&registered.targets) {
            target.id = Some(*id);
        }
    }
}

/// One report per target of a [`NodeSpec`], in its order. Asked for at each heartbeat.
pub type Reporter = Box<dyn FnMut() -> Vec<Report> + Send>;
