//! What the services tell of themselves: every metric that has a name is served by somebody, and moves with the work.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::wait;
use telemetry::names;

const SOON: Duration = Duration::from_secs(30);

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{address}{path}: {answer}");
    answer
}

/// Of all lines of `text` that begin with `start`, the sum of their values.
fn sum(text: &str, start: &str) -> f64 {
    text.lines()
        .filter(|line| line.starts_with(start))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The metrics of each service, by its name.
fn scrape(cluster: &Cluster) -> Vec<(String, String)> {
    let status = cluster.json(&["status"]);
    let nodes = status["nodes"].as_array().unwrap();
    let mut endpoints: Vec<(String, String)> = nodes
        .iter()
        .map(|node| (node["alias"].as_str().unwrap().to_owned(), node["metrics"].as_str().unwrap().to_owned()))
        .collect();
    let level = |of: &str| cluster.json(&["log-level", of])["endpoint"].as_str().unwrap().to_owned();
    endpoints.push(("mgmtd".to_owned(), level("mgmtd")));
    endpoints.push(("mount".to_owned(), level(cluster.mount_point().to_str().unwrap())));
    endpoints.into_iter().map(|(name, address)| (name, get(&address, "/metrics"))).collect()
}

fn of<'a>(all: &'a [(String, String)], name: &str) -> &'a str {
    &all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no metrics of {name}")).1
}

#[test]
fn every_service_counts_what_it_does() {
    let cluster = Cluster::start();
    let file = cluster.path("f");
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap().len(), 3_000_000);
    assert!(fs::read(cluster.path("none")).is_err());
    fs::create_dir_all(cluster.path("full/of")).unwrap();
    assert!(fs::remove_dir(cluster.path("full")).is_err());
    let old = cluster.kill("storaged-1");
    fs::write(cluster.path("g"), vec![7; 3_000_000]).unwrap();
    cluster.wait_for_another("storaged-1", old);
    let held = fs::File::open(&file).unwrap();
    let all = wait::until("metad has looked around, and a heartbeat has come", SOON, || {
        let all = scrape(&cluster);
        let looked = sum(of(&all, "metad-1"), "weft_open_inodes") > 0.0;
        (looked && sum(of(&all, "mgmtd"), "weft_heartbeats_total") > 0.0).then_some(all)
    });
    drop(held);

    let served: BTreeSet<&str> = all
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let missing: Vec<&str> = names::ALL.iter().map(|def| def.name).filter(|name| !served.contains(name)).collect();
    assert!(missing.is_empty(), "nobody serves {missing:?}");

    let counted = |service: &str, start: &str| {
        let text = of(&all, service);
        assert!(sum(text, start) > 0.0, "{service} has not counted {start}: {text}");
    };
    for service in ["metad-1", "storaged-1", "mgmtd"] {
        counted(service, "weft_request_seconds_count{");
    }
    counted("metad-1", "weft_request_seconds_count{service=\"metad\",op=\"Create\"}");
    counted("metad-1", "weft_batch_requests_count");
    counted("metad-1", "weft_commit_seconds_count");
    counted("metad-1", "weft_request_errors_total");
    counted("metad-1", "weft_sessions");
    counted("storaged-1", "weft_written_bytes_total");
    counted("mount", "weft_fuse_seconds_count");
    counted("mount", "weft_request_errors_total");
    counted("mount", "weft_client_retries_total");
    counted("metad-1", "weft_connections{");
    counted("storaged-1", "weft_connections{");
    for service in ["metad-1", "storaged-1", "mount"] {
        counted(service, "weft_sent_bytes_total");
        counted(service, "weft_received_bytes_total");
    }
    counted("mgmtd", "weft_nodes{service=\"mgmtd\",state=\"online\"}");
    counted("mgmtd", "weft_heartbeats_total");
}

#[test]
fn log_levels_change_while_a_service_runs() {
    let cluster = Cluster::start();
    for service in ["mgmtd", "metad-1", "storaged-1", cluster.mount_point().to_str().unwrap()] {
        let before = cluster.json(&["log-level", service])["level"].clone();
        cluster.weft(&["log-level", service, "debug"]).expect_ok();
        assert_eq!(cluster.json(&["log-level", service])["level"], "debug", "{service}");
        let wrong = cluster.weft(&["log-level", service, "much"]);
        assert!(wrong.code != Some(0) && wrong.stderr.contains("much"), "{wrong}");
        cluster.weft(&["log-level", service, before.as_str().unwrap()]).expect_ok();
        assert_eq!(cluster.json(&["log-level", service])["level"], before, "{service}");
    }
    fs::write(cluster.path("f"), b"x").unwrap();
}
