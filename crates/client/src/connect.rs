//! From an address and a key to a client that can serve.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conf::Fatal;
use control::{Agent, AgentConfig, Update};
use net::{ClusterKey, Identity};
use tracing::error;
use types::id::ShardId;

use crate::config::Config;
use crate::shared::Shared;

/// Where the cluster is and how it knows that we belong to it.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `host:port` of mgmtd.
    pub management: String,
    pub key_file: PathBuf,
    /// How long to wait for the cluster to be there at the start.
    pub patience: Duration,
}

/// A registered client. Dropping it ends its heartbeat, so it lives as long as the threads that use `shared`.
pub struct Connected {
    pub shared: Arc<Shared>,
    agent: Agent,
}

impl Connected {
    /// UUID of the cluster.
    #[must_use]
    pub fn cluster(&self) -> String {
        self.agent.cluster()
    }
}

/// Registers with mgmtd and waits until the namespace has a shard and a storage group.
///
/// # Errors
/// Where the key cannot be read, nobody answers in time, or the cluster refuses; each with what to do.
pub fn connect(cluster: &Cluster, config: Config) -> Result<Connected, Fatal> {
    let key = ClusterKey::from_file(&cluster.key_file).map_err(|error| Fatal::usage(error.to_string()))?;
    let identity = Identity::new(key, format!("client {}", config.description));
    let agent_config = AgentConfig { management: cluster.management.clone(), identity: identity.clone(), rails: None };
    // The agent runs before there is a shared state to tell: what it learns until then is in its view.
    let shared: Arc<OnceLock<Arc<Shared>>> = Arc::default();
    let told = Arc::clone(&shared);
    let on_update = Box::new(move |update| match update {
        Update::View(view) => {
            if let Some(shared) = told.get() {
                shared.update_map(view.map);
            }
        }
        Update::Refused(why) => error!("mgmtd refuses this client: {}", why.message),
    });
    let failed = |error| Fatal::failed(format!("cannot start the control thread: {error}"));
    let agent = Agent::start_client(agent_config, &config.description, on_update).map_err(failed)?;
    let session = agent.session(Some(cluster.patience))?;
    let map = agent.wait_view(Some(cluster.patience), |view| {
        let has_storage = view.map.pools.values().any(|pool| !pool.groups.is_empty());
        (has_storage && view.map.route_shard(ShardId(0)).is_some()).then(|| Arc::clone(&view.map))
    })?;
    let identity = Identity { cluster: map.cluster.clone(), incarnation: session.0, ..identity };
    let made = shared.get_or_init(|| Shared::new(config, session, identity, map)).clone();
    // A map that came between the wait and the line above was told to nobody.
    made.update_map(agent.view().map);
    Ok(Connected { shared: made, agent })
}
