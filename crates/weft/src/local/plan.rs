//! Which processes a local cluster consists of.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Result, anyhow};

use super::dir::{ClusterDir, Spec};

/// Name of the mount's process.
pub(crate) const MOUNT: &str = "mount";

/// Ports that the kernel does not hand out by itself, so that a cluster that is down keeps its own.
const PORTS: std::ops::Range<u16> = 7600..7900;

/// One process that the supervisor keeps running: `weft ARGS`.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) args: Vec<OsString>,
    /// Where it mounts, if it is the mount.
    pub(crate) mount: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Mgmtd,
    Metad,
    Storaged,
    Mount,
}

/// The processes of the cluster, in the order of their start.
pub(crate) fn processes(dir: &ClusterDir, spec: &Spec) -> Vec<Process> {
    let service = |role: Role, name: String| {
        let command = role.command();
        let args = vec![command.into(), "--config".into(), dir.config_file(&name).into_os_string()];
        Process { name, role, args, mount: None }
    };
    let mut processes = vec![service(Role::Mgmtd, "mgmtd".to_owned())];
    processes.extend(metadata_names(spec).map(|name| service(Role::Metad, name)));
    processes.extend(storage_names(spec).map(|name| service(Role::Storaged, name)));
    let mut args: Vec<OsString> = ["mount", "--foreground", "--dir"].map(OsString::from).to_vec();
    args.extend([dir.root().as_os_str().to_owned(), spec.mount.clone().into_os_string()]);
    processes.push(Process { name: MOUNT.to_owned(), role: Role::Mount, args, mount: Some(spec.mount.clone()) });
    processes
}

pub(crate) fn metadata_names(spec: &Spec) -> impl Iterator<Item = String> + use<> {
    (1..=spec.metadata).map(|number| format!("metad-{number}"))
}

pub(crate) fn storage_names(spec: &Spec) -> impl Iterator<Item = String> + use<> {
    (1..=spec.storage).map(|number| format!("storaged-{number}"))
}

pub(crate) fn mgmtd_address(spec: &Spec) -> String {
    format!("127.0.0.1:{}", spec.mgmtd_port)
}

/// A port that nobody listens on now, sought from a place that differs from process to process.
pub(crate) fn free_port() -> Result<u16> {
    let count = PORTS.len() as u32;
    let start = std::process::id() % count;
    let mut candidates = (0..count).map(|step| PORTS.start + ((start + step) % count) as u16);
    let free = candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| anyhow!("no free port from {} to {}", PORTS.start, PORTS.end - 1))
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Role::Mgmtd => "mgmtd",
            Role::Metad => "metad",
            Role::Storaged => "storaged",
            Role::Mount => "mount",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_order() {
        let spec = Spec { mgmtd_port: 7600, metadata: 1, storage: 2, targets: 4, mount: "/m".into() };
        let dir = ClusterDir::at(std::path::Path::new("/d")).expect("absolute");
        let processes = processes(&dir, &spec);
        let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["mgmtd", "metad-1", "storaged-1", "storaged-2", "mount"]);
        assert_eq!(processes[1].args, ["metad", "--config", "/d/metad-1.toml"]);
        assert_eq!(processes[4].mount.as_deref(), Some(std::path::Path::new("/m")));
    }

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free_port().expect("some port is free");
        TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    }
}
