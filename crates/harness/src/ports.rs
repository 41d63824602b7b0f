//! Where services listen.

use std::fs;

use crate::cluster::Cluster;

/// `host:port` of every port for the cluster's own protocols, with the name of its service: mgmtd has one, the others one
/// per thread. Ports of metrics are none of them.
///
/// # Panics
/// Where the cluster does not run.
#[must_use]
pub fn of_services(cluster: &Cluster) -> Vec<(String, String)> {
    let (status, nodes) = (cluster.json(&["status"]), cluster.json(&["node", "list"]));
    let mut found = vec![("mgmtd".to_owned(), status["mgmtd"].as_str().expect("its address").to_owned())];
    let nodes = nodes.as_array().expect("a list");
    let metrics: Vec<&str> = nodes.iter().filter_map(|node| node["metrics"].as_str()).collect();
    let is_of_metrics = |port: &u16| metrics.iter().any(|address| address.ends_with(&format!(":{port}")));
    let is_data = |name: &str| name.starts_with("metad") || name.starts_with("storaged");
    for (name, pid) in cluster.pids().into_iter().filter(|(name, _)| is_data(name)) {
        let ports: Vec<u16> = listening(pid).into_iter().filter(|port| !is_of_metrics(port)).collect();
        assert!(!ports.is_empty(), "{name} listens nowhere");
        found.extend(ports.into_iter().map(|port| (name.clone(), format!("127.0.0.1:{port}"))));
    }
    found
}

/// TCP ports that a process listens on.
pub(crate) fn listening(pid: i32) -> Vec<u16> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let of_it =
            fields.get(3) == Some(&"0A") && fields.get(9).is_some_and(|inode| sockets.iter().any(|s| s == inode));
        let port = fields.get(1).and_then(|address| address.rsplit(':').next())?;
        of_it.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(listening).collect()
}
