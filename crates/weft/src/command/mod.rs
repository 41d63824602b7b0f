//! One file per command: its flags, and what it does with them.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod df;
pub(crate) mod down;
pub(crate) mod entry;
pub(crate) mod fsck;
pub(crate) mod log_level;
pub(crate) mod mount;
pub(crate) mod node;
pub(crate) mod pool;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod supervise;
pub(crate) mod target;
pub(crate) mod umount;
pub(crate) mod up;

use std::path::Path;

use admin::Admin;
use cluster::map::ServiceKind;
use serde::Serialize;

use crate::failure::Failure;
use crate::locate::Selection;

/// The cluster that the command is about; `path` may say which.
fn connect(selection: &Selection, path: Option<&Path>) -> Result<Admin, Failure> {
    let cluster = selection.find(path)?;
    Ok(Admin::connect(&cluster.mgmtd, &cluster.key_file)?)
}

/// The service that runs targets of this kind.
fn service_kind(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Metadata => "metadata",
        ServiceKind::Storage => "storage",
    }
}

/// A state as JSON and people write it alike.
fn word<T: Serialize>(state: &T) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => "?".to_owned(),
    }
}
