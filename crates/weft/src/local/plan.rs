//! Which processes a local cluster consists of.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};

use super::dir::{ClusterDir, LOOPBACK, Spec};

/// Name of the management service's process.
pub(crate) const MGMTD: &str = "mgmtd";

/// Name of the mount's process.
pub(crate) const MOUNT: &str = "mount";

/// How the names of the storage services' processes begin.
pub(crate) const STORAGE: &str = "storaged-";

/// Ports that the kernel does not hand out by itself, so that a cluster that is down keeps its own; many, so that
/// clusters of one machine seldom choose the same.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// One process that the supervisor keeps running: `weft ARGS`.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) args: Vec<OsString>,
    /// What it mounts, if it is the mount.
    pub(crate) mount: Option<Mounting>,
}

/// A mount point, and the address of the mgmtd whose cluster is mounted there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounting {
    pub(crate) point: PathBuf,
    pub(crate) mgmtd: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Mgmtd,
    Metad,
    Storaged,
    Mount,
}

/// The processes of the cluster, in the order of their start. A service that was there before finds what it has more now made
/// into its targets (`grow::prepare`): were it allowed to begin them, it would also begin anew what it has lost.
pub(crate) fn processes(dir: &ClusterDir, spec: &Spec) -> Vec<Process> {
    let service = |role: Role, name: String, new: bool| {
        let mut args = vec![role.command().into(), "--config".into(), dir.config_file(&name).into_os_string()];
        if new {
            args.push("--init".into());
        }
        Process { name, role, args, mount: None }
    };
    let made = spec.made;
    let mut processes = vec![service(Role::Mgmtd, MGMTD.to_owned(), made.metadata == 0)];
    let metadata = metadata_names(spec).zip(1..);
    processes.extend(metadata.map(|(name, number)| service(Role::Metad, name, number > made.metadata)));
    let storage = storage_names(spec).zip(1..);
    processes.extend(storage.map(|(name, number)| service(Role::Storaged, name, number > made.storage)));
    let mut args: Vec<OsString> = ["mount", "--foreground", "--dir"].map(OsString::from).to_vec();
    args.extend([dir.root().as_os_str().to_owned(), spec.mount.clone().into_os_string()]);
    let mount = Some(Mounting { point: spec.mount.clone(), mgmtd: mgmtd_address(spec) });
    processes.push(Process { name: MOUNT.to_owned(), role: Role::Mount, args, mount });
    processes
}

pub(crate) fn metadata_names(spec: &Spec) -> impl Iterator<Item = String> + use<> {
    (1..=spec.metadata).map(|number| format!("metad-{number}"))
}

pub(crate) fn storage_names(spec: &Spec) -> impl Iterator<Item = String> + use<> {
    (1..=spec.storage).map(|number| format!("{STORAGE}{number}"))
}

pub(crate) fn mgmtd_address(spec: &Spec) -> String {
    SocketAddr::new(spec.address, spec.mgmtd_port).to_string()
}

pub(crate) fn mgmtd_metrics_address(spec: &Spec) -> String {
    format!("127.0.0.1:{}", spec.mgmtd_metrics_port)
}

/// Whether nobody listens on the port now.
pub(crate) fn is_free(address: IpAddr, port: u16) -> bool {
    // Of an address that is not there the service that needs it tells.
    TcpListener::bind((address, port)).map_or_else(|error| error.kind() == ErrorKind::AddrNotAvailable, |_| true)
}

/// An address with a port as [`free_ports`] gives them, on the loopback interface or where `own` says: not one that
/// somebody has put there with a meaning.
pub(crate) fn is_of_our_choice(address: &str, own: IpAddr) -> bool {
    let parsed = address.parse().ok();
    parsed.is_some_and(|at: SocketAddr| PORTS.contains(&at.port()) && (at.ip() == LOOPBACK || at.ip() == own))
}

/// Two ports that nobody listens on now, sought from a place that differs from time to time.
pub(crate) fn free_ports() -> Result<(u16, u16)> {
    let count = PORTS.len() as u32;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let start = (std::process::id() ^ now) % count;
    let candidates = (0..count).map(|step| PORTS.start + ((start + step) % count) as u16);
    let mut free = candidates.filter(|port| is_free(LOOPBACK, *port));
    match (free.next(), free.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(anyhow!("no two free ports from {} to {}", PORTS.start, PORTS.end - 1)),
    }
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
    use crate::local::dir::Made;

    fn plan(made: Made) -> Vec<Process> {
        let mount = "/m".into();
        let spec = Spec {
            address: LOOPBACK,
            mgmtd_port: 7600,
            mgmtd_metrics_port: 7601,
            metadata: 1,
            shards: 2,
            storage: 2,
            targets: 4,
            mount,
            made,
        };
        processes(&ClusterDir::at(std::path::Path::new("/d")).expect("absolute"), &spec)
    }

    #[test]
    fn names_and_order() {
        let processes = plan(Made { metadata: 1, shards: 2, storage: 2, targets: 4 });
        let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["mgmtd", "metad-1", "storaged-1", "storaged-2", "mount"]);
        assert_eq!(processes[1].args, ["metad", "--config", "/d/metad-1.toml"]);
        assert_eq!(processes[4].mount, Some(Mounting { point: "/m".into(), mgmtd: "127.0.0.1:7600".to_owned() }));
    }

    #[test]
    fn only_what_never_came_up_may_begin_empty() {
        let may_begin = |made| -> Vec<bool> {
            plan(made).iter().map(|process| process.args.iter().any(|arg| arg == "--init")).collect()
        };
        assert_eq!(may_begin(Made::default()), [true, true, true, true, false]);
        assert_eq!(may_begin(Made { metadata: 1, shards: 2, storage: 2, targets: 4 }), [false; 5]);
        assert_eq!(
            may_begin(Made { metadata: 1, shards: 2, storage: 1, targets: 4 }),
            [false, false, false, true, false]
        );
        assert_eq!(may_begin(Made { metadata: 1, shards: 1, storage: 2, targets: 2 }), [false; 5]);
    }

    #[test]
    fn a_port_that_a_user_chose_is_told_from_ours() {
        let (ours, _) = free_ports().expect("some ports are free");
        assert!(is_of_our_choice(&format!("127.0.0.1:{ours}"), LOOPBACK));
        for theirs in ["127.0.0.1:9400", "0.0.0.0:20000", "10.1.2.3:20000", "host:20000", "127.0.0.1:x"] {
            assert!(!is_of_our_choice(theirs, LOOPBACK), "{theirs}");
        }
        let own = [10, 1, 2, 3].into();
        assert!(is_of_our_choice("127.0.0.1:20000", own) && is_of_our_choice("10.1.2.3:20000", own));
    }

    #[test]
    fn free_ports_can_be_bound() {
        let (first, second) = free_ports().expect("some ports are free");
        assert!(is_free(LOOPBACK, first) && is_free(LOOPBACK, second));
        let listeners = [first, second].map(|port| TcpListener::bind(("127.0.0.1", port)));
        assert!(!is_free(LOOPBACK, first));
        assert!(listeners.iter().all(Result::is_ok));
    }
}
