//! `weft bench net` over rails whose rate is known.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::binary;
use harness::cluster::{Cluster, Shape};
use harness::hosts::Hosts;
use harness::process;
use harness::run::{self, Ended};
use harness::wait;
use serde_json::Value;

/// Bytes per second of a rail of 160 Mbit/s.
const RAIL: f64 = 20e6;
/// The best of so many: others use this machine too.
const TRIES: usize = 3;

fn bench(hosts: &Hosts, words: &str) -> (Value, Ended) {
    let words: Vec<&str> = ["bench", "net", "--json"].into_iter().chain(words.split(' ')).collect();
    let ended = hosts.weft_on_cluster(&words);
    (serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}")), ended)
}

fn rate(row: &Value, load: &str) -> f64 {
    row[load]["bytes_per_second"].as_f64().unwrap_or_else(|| panic!("no {load}: {row}"))
}

/// Of frames of 1,514 bytes 1,448 are payload: 95.6 %. What a bucket holds at the beginning comes on top.
fn is_rate_of(rails: f64, found: f64) -> bool {
    (0.91 * rails * RAIL..=0.98 * rails * RAIL).contains(&found)
}

#[test]
fn figures_are_those_of_the_rails_and_stored_data_stays() {
    let hosts = Hosts::start(2, "160mbit");
    let stored: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(hosts.file("stored"), &stored).unwrap();
    let mut last = Value::Null;
    for attempt in 1..=TRIES {
        let (report, ended) = bench(&hosts, "--seconds 2 --size 128KiB --depth 8");
        assert_eq!(ended.code, Some(0), "{ended}");
        let rows = report["rows"].as_array().unwrap();
        let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
        assert_eq!(ways, ["c0 10.77.0.2 > 10.77.0.1", "c1 10.77.1.2 > 10.77.1.1", "all rails"]);
        for row in rows {
            println!("{}: write {:.0}, read {:.0}", row["way"], rate(row, "write"), rate(row, "read"));
            assert!(row["round_trip"]["p50_us"].as_f64().unwrap() > 0.0 && row["from"] == "this host");
        }
        let good = |row: &Value, rails: f64| ["write", "read"].iter().all(|load| is_rate_of(rails, rate(row, load)));
        if good(&rows[0], 1.0) && good(&rows[1], 1.0) && good(&rows[2], 2.0) {
            assert_eq!(fs::read(hosts.file("stored")).unwrap(), stored);
            return;
        }
        println!("try {attempt} of {TRIES} was not as the rails are");
        last = report;
    }
    panic!("figures are not those of the rails: {last}");
}

#[test]
fn a_server_that_dies_in_the_midst_is_named() {
    let hosts = Hosts::start(1, "400mbit");
    let begin = Instant::now();
    let (report, ended) = thread::scope(|scope| {
        let measuring = scope.spawn(|| bench(&hosts, "--seconds 30"));
        thread::sleep(Duration::from_secs(3));
        process::kill(hosts.service("storaged"));
        measuring.join().unwrap()
    });
    assert_eq!(ended.code, Some(1), "{ended}");
    let failure = report["rows"][0]["failure"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(failure.contains("10.77.0.1:") && failure.contains("connection lost"), "{failure}");
    assert!(begin.elapsed() < Duration::from_secs(25), "it ended when the server did");
}

#[test]
fn servers_measure_each_other() {
    let mut hosts = Hosts::start(1, "160mbit");
    hosts.add_storage();
    let (report, ended) = bench(&hosts, "--servers --seconds 1 --size 128KiB --depth 8");
    assert_eq!(ended.code, Some(0), "{ended}");
    let rows = report["rows"].as_array().unwrap();
    let pairs: Vec<_> = rows.iter().map(|row| (row["from"].as_str().unwrap(), row["to"].as_str().unwrap())).collect();
    assert_eq!(pairs, [("storaged", "storaged-2"), ("storaged-2", "storaged")]);
    for row in rows {
        for load in ["write", "read"] {
            let found = rate(row, load);
            println!("{} to {}: {load} {found:.0}", row["from"], row["to"]);
            assert!((0.7 * RAIL..=0.99 * RAIL).contains(&found), "{load}: {row}");
        }
    }
}

/// Else a node would go on by itself for hours, and refuse every other run.
#[test]
fn a_run_among_servers_ends_with_its_command() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    let mut command = Command::new(binary::weft());
    command.args(["bench", "net", "--servers", "--seconds", "3600", "--dir"]).arg(cluster.dir());
    process::default_signals(&mut command);
    let mut long = command.stdout(Stdio::null()).spawn().unwrap();
    let short = || cluster.weft(&["bench", "net", "--servers", "--seconds", "1"]);
    // Its pings are over then, and its writes have begun.
    thread::sleep(Duration::from_secs(3));
    let refused = short();
    assert!(refused.code == Some(1) && refused.stdout.contains("busy"), "{refused}");
    process::signal(i32::try_from(long.id()).unwrap(), libc::SIGINT);
    assert_eq!(run::wait(&mut long, Duration::from_secs(20)), Some(run::Code(Some(1))));
    wait::until("the node is free again", Duration::from_secs(10), || (short().code == Some(0)).then_some(()));
}

#[test]
fn within_a_host_and_with_wrong_words() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    let report = cluster.json(&["bench", "net", "--seconds", "1"]);
    let rows = report["rows"].as_array().unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row["to"].as_str().unwrap(), row["way"].as_str().unwrap())).collect();
    let here = "within the host";
    assert_eq!(shown, [("storaged-1", here), ("storaged-2", here), ("all nodes", "all rails")]);
    assert!(rows.iter().all(|row| rate(row, "write") > 0.0 && rate(row, "read") > 0.0));
    let text = cluster.weft(&["bench", "net", "--servers", "--seconds", "1"]).expect_ok().stdout;
    assert!(text.contains("storaged-1") && text.contains("WRITE MB/S"), "{text}");
    for words in
        [&["--nodes", "nobody"][..], &["--size", "9MiB"], &["--depth", "0"], &["--servers", "--nodes", "storaged-1"]]
    {
        let ended = cluster.weft(&[&["bench", "net"], words].concat());
        assert_eq!(ended.code, Some(2), "{ended}");
    }
}
