//! What is to be seen of services from outside: their states at mgmtd, and their logs for machines.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::cluster::Cluster;
use harness::{binary, process, syscall, wait};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);

fn state_of(cluster: &Cluster, alias: &str) -> String {
    let nodes = cluster.json(&["node", "list"]);
    let node = nodes.as_array().unwrap().iter().find(|node| node["alias"] == alias);
    node.unwrap_or_else(|| panic!("no {alias}: {nodes}"))["state"].as_str().unwrap().to_owned()
}

/// All states that a node goes through until it is in `last`.
fn states_until(cluster: &Cluster, alias: &str, last: &str) -> Vec<String> {
    let mut states: Vec<String> = Vec::new();
    wait::until(&format!("{alias} is {last}"), SOON, || {
        let state = state_of(cluster, alias);
        if states.last() != Some(&state) {
            states.push(state);
        }
        (states.last().map(String::as_str) == Some(last)).then_some(())
    });
    states
}

#[test]
fn a_node_that_is_not_heard_of_is_probably_offline_then_offline_and_then_online_again() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    for (name, other) in [("storaged-1", "metad-1"), ("metad-1", "storaged-1")] {
        assert_eq!(state_of(&cluster, name), "online");
        cluster.freeze_supervisor();
        let (old, killed) = (cluster.kill(name), Instant::now());
        assert_eq!(states_until(&cluster, name, "offline"), ["online", "probably-offline", "offline"]);
        // 10 s after its last heartbeat, which it sends every 2 s.
        let silent = killed.elapsed();
        assert!(silent > Duration::from_secs(7), "given up after {silent:?}");
        assert_eq!(state_of(&cluster, other), "online");
        cluster.resume();
        cluster.wait_for_another(name, old);
        states_until(&cluster, name, "online");
    }
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
}

/// Each line by itself, with what every log collector asks for.
fn assert_is_json(log: &str, what: &str) {
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{what}: {error}: {line}"));
        for key in ["timestamp", "level", "target"] {
            assert!(entry[key].is_string(), "{what} has no {key}: {line}");
        }
        assert!(entry["fields"].as_object().is_some_and(|fields| !fields.is_empty()), "{what} says nothing: {line}");
    }
}

#[test]
fn logs_in_json_are_json_line_by_line() {
    let mut cluster = Cluster::start();
    cluster.down().expect_ok();
    let services = ["mgmtd", "metad-1", "storaged-1"];
    for name in services {
        let config = cluster.dir().join(format!("{name}.toml"));
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("#log_format = \"text\""), "{text}");
        fs::write(&config, text.replace("#log_format = \"text\"", "log_format = \"json\"")).unwrap();
        // What it said before was text.
        fs::remove_file(cluster.dir().join(format!("log/{name}.log"))).unwrap();
    }
    cluster.up().expect_ok();
    let second = cluster.mount_again(&["--log-format", "json"]);
    for name in services {
        cluster.weft(&["log-level", name, "trace"]).expect_ok();
    }
    fs::write(cluster.path("a \"name\"\n"), vec![9; 2_000_000]).unwrap();
    fs::read(second.point.join("a \"name\"\n")).unwrap();
    fs::remove_file(cluster.path("a \"name\"\n")).unwrap();
    // Each warns of a stranger, whose bytes are no text.
    for (_, address) in harness::ports::of_services(&cluster) {
        TcpStream::connect(&address).unwrap().write_all(&[0xff; 4096]).unwrap();
    }
    for name in services {
        wait::until(&format!("{name} has warned"), SOON, || cluster.log(name).contains("\"WARN\"").then_some(()));
    }
    cluster.down().expect_ok();
    for name in services {
        let log = cluster.log(name);
        assert!(log.lines().count() > 10, "{name} has said next to nothing:\n{log}");
        assert_is_json(&log, name);
    }
    let log = fs::read_to_string(&second.log).unwrap();
    assert!(!log.is_empty(), "the mount has said nothing");
    assert_is_json(&log, "the mount");
}

/// Both wait for a disk that hangs: who opens a pipe waits for its writer.
#[test]
fn a_service_that_is_starting_outlives_a_sighup_and_ends_at_once_when_it_is_told_to() {
    let cluster = Cluster::start();
    cluster.down().expect_ok();
    for (name, kind, folder) in [("storaged-1", "storaged", "storaged-1/target-1"), ("metad-1", "metad", "metad-1")] {
        let identity = cluster.dir().join(folder).join("identity.toml");
        fs::remove_file(&identity).unwrap();
        syscall::mkfifo(&identity, 0o600).unwrap();
        let mut command = Command::new(binary::weft());
        command.arg(kind).arg("--config").arg(cluster.dir().join(format!("{name}.toml"))).current_dir(cluster.dir());
        process::default_signals(&mut command);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id() as i32;
        let hears = || process::hears(pid, libc::SIGHUP).then_some(());
        wait::until(&format!("{name} hears SIGHUP"), Duration::from_secs(60), hears);
        process::signal(pid, libc::SIGHUP);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(child.try_wait().unwrap(), None, "{name}");
        process::signal(pid, libc::SIGTERM);
        wait::until(&format!("{name} ends"), Duration::from_secs(60), || child.try_wait().unwrap());
    }
}
