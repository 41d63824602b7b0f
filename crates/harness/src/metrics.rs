//! What services count, asked as a monitoring system asks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;

const LIMIT: Duration = Duration::from_secs(10);

/// The sum of the metric `name` over all nodes of `kind` (such as `storage`), of its lines that have all of `labels`.
///
/// # Panics
/// Where a node does not answer.
#[must_use]
pub fn sum(cluster: &Cluster, kind: &str, name: &str, labels: &[&str]) -> f64 {
    let addresses = addresses(cluster, kind);
    assert!(!addresses.is_empty(), "no {kind}");
    addresses.values().map(|address| sum_of(address, name, labels)).sum()
}

/// Where each node of `kind` answers, by its alias.
#[must_use]
pub fn addresses(cluster: &Cluster, kind: &str) -> BTreeMap<String, String> {
    let nodes = cluster.json(&["node", "list"]);
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let of_kind = nodes.as_array().expect("a list of nodes").iter().filter(|node| node["kind"] == kind);
    of_kind.map(|node| (text(&node["alias"]), text(&node["metrics"]))).collect()
}

/// The same sum of the one node that answers at `address`.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn sum_of(address: &str, name: &str, labels: &[&str]) -> f64 {
    let text = get(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    let ours = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    let ours = ours.filter(|line| labels.iter().all(|label| line.contains(label)));
    ours.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value")).sum()
}

/// How many requests the nodes of `kind` have answered, by operation; none that is 0.
///
/// # Panics
/// Where a node does not answer.
#[must_use]
pub fn requests(cluster: &Cluster, kind: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for address in addresses(cluster, kind).values() {
        let text = get(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        for line in text.lines().filter_map(|line| line.strip_prefix("weft_request_seconds_count{")) {
            let operation =
                line.split_once("op=\"").and_then(|(_, rest)| rest.split_once('"')).expect("an operation").0;
            let count: u64 = line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a count");
            if count > 0 {
                *counts.entry(operation.to_owned()).or_default() += count;
            }
        }
    }
    counts
}

fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
