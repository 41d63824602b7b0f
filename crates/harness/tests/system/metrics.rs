//! What the services tell of themselves: every metric that has a name is served by somebody, and each service shows what
//! moves with its work, and what went wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::{metrics, ports, wait};
use net::handshake::{HandshakeError, Initiator, drive_blocking};
use net::{ClusterKey, Identity};
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

/// What each service has to show of its work, as lines begin; the values of all have to have moved.
const MOVED: &[(&str, &[&str])] = &[
    (
        "mgmtd",
        &[
            r#"weft_request_seconds_count{service="mgmtd",op="heartbeat"}"#,
            r#"weft_request_seconds_count{service="mgmtd",op="create_pool"}"#,
            "weft_batch_requests_count",
            "weft_sync_seconds_count",
            "weft_heartbeats_total",
            "weft_map_subscribers",
            r#"weft_nodes{service="mgmtd",state="online"}"#,
            r#"weft_targets{service="mgmtd",state="good"}"#,
        ],
    ),
    (
        "metad-1",
        &[
            r#"weft_request_seconds_count{service="metad",op="Create"}"#,
            r#"weft_request_seconds_count{service="metad",op="Rmdir"}"#,
            "weft_batch_requests_count",
            "weft_commit_seconds_count",
            "weft_sync_seconds_count",
            "weft_sessions",
            "weft_open_inodes",
            "weft_target_total_bytes",
            "weft_target_free_bytes",
        ],
    ),
    (
        "storaged-1",
        &[
            r#"weft_request_seconds_count{service="storaged",op="Read"}"#,
            r#"weft_request_seconds_count{service="storaged",op="Write"}"#,
            r#"weft_request_seconds_count{service="storaged",op="Sync"}"#,
            "weft_batch_requests_count",
            "weft_sync_seconds_count",
            "weft_read_bytes_total",
            "weft_written_bytes_total",
            r#"weft_past_cache_bytes_total{service="storaged",way="written"}"#,
            "weft_target_total_bytes",
            "weft_target_free_bytes",
        ],
    ),
    (
        "mount",
        &[
            r#"weft_fuse_seconds_count{service="mount",op="create"}"#,
            r#"weft_fuse_seconds_count{service="mount",op="write"}"#,
            "weft_client_retries_total",
            CONTENTS,
        ],
    ),
];

const CONTENTS: &str = r#"weft_kept_bytes{service="mount",what="contents"}"#;

/// What every service shows, and that has moved.
const MOVED_EVERYWHERE: &[&str] =
    &["weft_connections{", "weft_sent_bytes_total", "weft_received_bytes_total", "weft_map_epoch"];

/// Whether anybody waits is a matter of the moment: that it is shown.
const SHOWN: &[(&str, &[&str])] = &[
    ("mgmtd", &[r#"weft_queue_depth{service="mgmtd",queue="events"}"#, "weft_requests_in_flight"]),
    (
        "metad-1",
        &[
            r#"weft_queue_depth{service="metad",queue="requests"}"#,
            r#"weft_queue_depth{service="metad",queue="sync"}"#,
            r#"weft_queue_depth{service="metad",queue="leases"}"#,
            r#"weft_queue_depth{service="metad",queue="locks"}"#,
            r#"weft_queue_depth{service="metad",queue="transactions"}"#,
        ],
    ),
    (
        "storaged-1",
        &[
            r#"weft_queue_depth{service="storaged",queue="order"}"#,
            r#"weft_queue_depth{service="storaged",queue="memory"}"#,
            "weft_requests_in_flight",
        ],
    ),
    (
        "mount",
        &[
            "weft_requests_in_flight",
            r#"weft_kept_bytes{service="mount",what="ahead"}"#,
            r#"weft_kept_bytes{service="mount",what="unwritten"}"#,
        ],
    ),
];

/// Starts it again with what sends long writes past the page cache.
fn cluster() -> Cluster {
    let cluster = Cluster::start();
    cluster.down().expect_ok();
    let file = cluster.dir().join("storaged-1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let changed = text.replace("#write_in_place = \"1MiB\"", "write_in_place = \"64KiB\"");
    assert_ne!(changed, text);
    fs::write(&file, changed).unwrap();
    cluster.up().expect_ok();
    cluster
}

/// Everything that moves something, but for errors.
fn work(cluster: &Cluster) {
    let file = cluster.path("f");
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap().len(), 3_000_000);
    cluster.weft(&["pool", "create", "fast"]).expect_ok();
    let old = cluster.kill("storaged-1");
    fs::write(cluster.path("g"), vec![7; 3_000_000]).unwrap();
    cluster.wait_for_another("storaged-1", old);
    fs::write(cluster.path("h"), vec![7; 3_000_000]).unwrap();
    fs::File::open(cluster.path("h")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(cluster.path("h")).unwrap().len(), 3_000_000);
}

#[test]
fn every_service_counts_what_it_does() {
    let cluster = cluster();
    work(&cluster);
    fs::create_dir_all(cluster.path("full/of")).unwrap();
    assert!(fs::remove_dir(cluster.path("full")).is_err());
    fs::write(cluster.path("small"), vec![7; 30_000]).unwrap();
    let held = fs::File::open(cluster.path("f")).unwrap();
    let all = wait::until("metad has looked around, a heartbeat has come, and the mount keeps something", SOON, || {
        assert_eq!(fs::read(cluster.path("small")).unwrap().len(), 30_000);
        let all = scrape(&cluster);
        let now = [("metad-1", "weft_open_inodes"), ("mgmtd", "weft_heartbeats_total"), ("mount", CONTENTS)];
        now.iter().all(|(service, start)| sum(of(&all, service), start) > 0.0).then_some(all)
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

    for (service, lines) in MOVED {
        let text = of(&all, service);
        for start in lines.iter().chain(MOVED_EVERYWHERE) {
            assert!(sum(text, start) > 0.0, "{service} has not counted {start}: {text}");
        }
    }
    for (service, lines) in SHOWN {
        let text = of(&all, service);
        for start in *lines {
            assert!(text.lines().any(|line| line.starts_with(start)), "{service} does not show {start}: {text}");
        }
    }
}

/// Which errors are counted where.
const ERRORS: &[(&str, &str)] = &[
    ("mgmtd", r#"weft_request_errors_total{service="mgmtd",op="create_pool","#),
    ("mgmtd", r#"weft_connections_refused_total{service="mgmtd",reason="key"}"#),
    ("mgmtd", r#"weft_connections_refused_total{service="mgmtd",reason="foreign"}"#),
    ("metad-1", r#"weft_request_errors_total{service="metad",op="Rmdir",error="ENOTEMPTY"}"#),
    ("metad-1", r#"weft_connections_refused_total{service="metad",reason="key"}"#),
    ("metad-1", r#"weft_connections_refused_total{service="metad",reason="foreign"}"#),
    ("storaged-1", r#"weft_request_errors_total{service="storaged",op="Read",error="EIO"}"#),
    ("storaged-1", r#"weft_connections_refused_total{service="storaged",reason="key"}"#),
    ("storaged-1", r#"weft_connections_refused_total{service="storaged",reason="foreign"}"#),
    ("mount", r#"weft_request_errors_total{service="mount",op="rmdir",error="ENOTEMPTY"}"#),
];

/// Changes a byte of one of its objects where it lies.
fn corrupt(cluster: &Cluster, name: &str) {
    let info = cluster.json(&["entry", "info", name]);
    let place = info["stripes"][0]["place"].as_str().unwrap();
    let object = fs::File::options().read(true).write(true).open(place).unwrap();
    let mut byte = [0];
    object.read_exact_at(&mut byte, 5000).unwrap();
    object.write_all_at(&[byte[0] ^ 1], 5000).unwrap();
}

#[test]
fn errors_and_refusals_are_counted_by_who_met_them() {
    let mut cluster = Cluster::start();
    fs::write(cluster.path("f"), vec![7; 300_000]).unwrap();
    fs::File::open(cluster.path("f")).unwrap().sync_all().unwrap();
    fs::create_dir_all(cluster.path("full/of")).unwrap();
    let fresh = cluster.mount_again(&[]);
    let before = scrape(&cluster);

    assert!(fs::remove_dir(cluster.path("full")).is_err());
    corrupt(&cluster, "/f");
    assert!(fs::read(fresh.point.join("f")).is_err());
    assert_eq!(cluster.weft(&["pool", "create", "default"]).code, Some(2));
    let key = ClusterKey::generate().unwrap();
    for (name, address) in ports::of_services(&cluster) {
        let mut stranger = TcpStream::connect(&address).unwrap();
        stranger.set_read_timeout(Some(SOON)).unwrap();
        let identity = Identity::new(key.clone(), name.clone());
        let error = drive_blocking(&mut Initiator::new(&identity), &mut stranger).unwrap_err();
        assert!(matches!(error, HandshakeError::Key), "{name}: {error}");
        let mut other = TcpStream::connect(&address).unwrap();
        other.set_read_timeout(Some(SOON)).unwrap();
        other.write_all(&[b'?'; 4096]).unwrap();
        // It hangs up on who does not speak its language.
        let _ = other.read_to_end(&mut Vec::new());
    }

    let after = scrape(&cluster);
    for (service, start) in ERRORS {
        let (before, after) = (sum(of(&before, service), start), sum(of(&after, service), start));
        assert!(after > before, "{service}: {start} was {before} and is {after}");
    }
}

/// What a mount keeps in memory comes and goes.
#[test]
fn a_mount_tells_what_it_keeps() {
    let cluster = Cluster::start();
    let endpoint = cluster.json(&["log-level", cluster.mount_point().to_str().unwrap()]);
    let endpoint = endpoint["endpoint"].as_str().unwrap().to_owned();
    let kept = |what: &str| metrics::sum_of(&endpoint, "weft_kept_bytes", &[what]);
    let path = cluster.path("f");
    fs::write(&path, vec![7; 3_000_000]).unwrap();
    assert_eq!(kept("contents"), 0.0);

    fs::write(cluster.path("small"), vec![7; 30_000]).unwrap();
    wait::until("a small file is kept", SOON, || {
        assert_eq!(fs::read(cluster.path("small")).unwrap().len(), 30_000);
        (kept("contents") == 30_000.0).then_some(())
    });
    fs::remove_file(cluster.path("small")).unwrap();

    wait::until("what follows is read ahead", SOON, || {
        let file = fs::File::open(&path).unwrap();
        let mut piece = [0; 4096];
        (0..200).for_each(|at| file.read_exact_at(&mut piece, at * 4096).unwrap());
        (kept("ahead") > 0.0).then_some(())
    });

    let file = fs::File::options().write(true).open(&path).unwrap();
    wait::until("a write is kept back", SOON, || {
        (0..8).for_each(|at| file.write_all_at(&[8; 4096], at * 4096).unwrap());
        (kept("unwritten") > 0.0).then_some(())
    });
    file.sync_all().unwrap();
    assert_eq!(kept("unwritten"), 0.0, "all of it is written");
    drop(file);
    assert_eq!(kept("ahead"), 0.0, "nobody reads any more, and it was changed");
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
