//! Who a process is to the ones that it connects with.

use crate::key::ClusterKey;

/// What one side brings to every handshake.
#[derive(Clone, Debug)]
pub struct Identity {
    pub key: ClusterKey,
    /// UUID of the cluster; empty where it is not known yet (first start, or a client that takes what it finds).
    pub cluster: String,
    /// For the other side's logs: what it is, such as `client host1:/mnt` or `storaged 4`.
    pub name: String,
    /// Of a service, changes at each of its starts; of a client, its session. 0 where it has none yet.
    pub incarnation: u64,
    /// Of a service, its UUID, by which the cluster map knows it as a node: whoever meets it at the address of another one
    /// sees that. Empty where it has none.
    pub node: String,
}

impl Identity {
    /// Of a process that knows no cluster yet, is no node of one, and has no incarnation.
    #[must_use]
    pub fn new(key: ClusterKey, name: impl Into<String>) -> Self {
        Self { key, cluster: String::new(), name: name.into(), incarnation: 0, node: String::new() }
    }
}
