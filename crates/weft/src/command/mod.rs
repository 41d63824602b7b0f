//! One file per command: its flags, and what it does with them. What several need of the terminal is in `interrupts`.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod df;
pub(crate) mod down;
pub(crate) mod endpoint;
pub(crate) mod entry;
pub(crate) mod fsck;
pub(crate) mod interrupts;
pub(crate) mod io500;
pub(crate) mod log_level;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod netbench;
pub(crate) mod node;
pub(crate) mod pool;
pub(crate) mod scrub;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod storagebench;
pub(crate) mod supervise;
pub(crate) mod target;
pub(crate) mod umount;
pub(crate) mod up;

use std::path::{Path, PathBuf};

use admin::Admin;
use anyhow::anyhow;
use cluster::map::ServiceKind;
use serde::Serialize;

use crate::failure::Failure;
use crate::locate::{Cluster, Selection};
use crate::output::patiently;

/// The cluster that the command is about; `path` may say which.
fn connect(selection: &Selection, path: Option<&Path>) -> Result<Admin, Failure> {
    connect_to(&selection.find(path)?)
}

fn connect_to(cluster: &Cluster) -> Result<Admin, Failure> {
    let what = format!("waiting for mgmtd at {}", cluster.mgmtd);
    match patiently(&what, || Admin::connect(&cluster.mgmtd, &cluster.key_file)) {
        Ok(admin) => Ok(admin),
        Err(error) => match &cluster.dir {
            Some(dir) if !dir.is_running()? => {
                let dir = dir.root().display();
                Err(anyhow!("the cluster in {dir} is not running: start it with `weft up --dir {dir}`").into())
            }
            Some(_) | None => Err(error.into()),
        },
    }
}

/// This program, also where its file has been replaced since it was started.
pub(crate) fn this_program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// What this process and its children make is for their user alone: names and contents of others' files are in it.
fn keep_files_private() {
    // SAFETY: umask cannot fail and touches no memory.
    unsafe { libc::umask(0o077) };
}

/// Enough for what few hosts will ever have: hundreds of threads that ask a thousand others each.
const DESCRIPTORS: usize = 1 << 18;

/// Lets this process have many descriptors, as far as it may. Each thread of a mount has a connection of its own to each
/// thread of a service that it asks, and the limit that shells and systemd set at first, for the sake of programs that use
/// `select`, is 1024.
fn allow_many_descriptors() {
    // Where the kernel does not say how many there are, they are as many as before.
    let _ = ::net::places::raise_descriptors(DESCRIPTORS);
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
