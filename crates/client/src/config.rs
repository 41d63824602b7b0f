//! What a client process may choose.

use std::time::Duration;

/// Settings of the client core.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long an operation waits for a server that does not answer before it fails with `EIO`.
    pub retry_timeout: Duration,
    /// For people: host name and mount point.
    pub description: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { retry_timeout: Duration::from_secs(60), description: "client".into() }
    }
}
