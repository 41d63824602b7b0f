//! A client core of this process, for the workloads that go past the kernel.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use client::{Caller, Client, Cluster, Connected};
use types::cred::Credentials;

const PATIENCE: Duration = Duration::from_secs(10);

/// `management`: `host:port` of mgmtd.
///
/// # Errors
/// As [`client::connect`].
pub(crate) fn connect(management: &str, key_file: &Path) -> Result<Connected> {
    let cluster = Cluster { management: management.to_owned(), key_file: key_file.to_owned(), patience: PATIENCE };
    let config = client::config::Config { description: "weft bench".into(), ..Default::default() };
    Ok(client::connect(&cluster, config)?)
}

/// One client on one ring, both gone after `work`.
///
/// # Errors
/// Of connecting, and those of `work`.
pub(crate) fn with<T>(
    management: &str,
    key_file: &Path,
    work: impl AsyncFnOnce(&Rc<Client>) -> Result<T>,
) -> Result<T> {
    let connected = connect(management, key_file)?;
    let mut ring = ring::Ring::new(&ring::Config::default())?;
    ring.run(async {
        let client = Client::new(Arc::clone(&connected.shared));
        let done = work(&client).await;
        client.shutdown().await;
        done
    })
}

pub(crate) fn caller() -> Caller<'static> {
    Caller::patient(Credentials::default())
}
