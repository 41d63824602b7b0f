//! `weft bench net` over rails whose rate is known.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::binary;
use harness::cluster::{Cluster, Shape};
use harness::hosts::Hosts;
use harness::run::{self, Ended};
use harness::{metrics, process, wait};
use serde_json::Value;

/// Of each rail. So slow that the programs have CPU enough for it also on a machine that others use.
const RATE: &str = "80mbit";
/// The same in bytes per second.
const RAIL: f64 = 10e6;
/// Each figure is to be that of its rail in one of so many.
const TRIES: usize = 10;
const SOON: Duration = Duration::from_secs(60);
/// Bytes that nothing but a measurement of writes or reads moves.
const MUCH: u64 = 20_000_000;

fn bench(hosts: &Hosts, words: &str) -> (Value, Ended) {
    let words: Vec<&str> = ["bench", "net", "--json"].into_iter().chain(words.split(' ')).collect();
    let ended = hosts.weft_on_cluster(&words);
    (serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}")), ended)
}

fn rate(row: &Value, load: &str) -> f64 {
    row[load]["bytes_per_second"].as_f64().unwrap_or_else(|| panic!("no {load}: {row}"))
}

/// Measures until each figure has once been such a share of the rails of its row: not all need be so at the same time, since
/// who has no CPU for a moment is slower.
///
/// Of frames of 1,514 bytes 1,448 are payload: 95.6 %. What a bucket holds at the beginning comes on top.
fn reach(rails: &[f64], shares: RangeInclusive<f64>, mut measure: impl FnMut() -> Vec<Value>) {
    let mut reached = vec![[false; 2]; rails.len()];
    for _ in 0..TRIES {
        let rows = measure();
        assert_eq!(rows.len(), rails.len(), "{rows:?}");
        for ((row, rails), reached) in rows.iter().zip(rails).zip(&mut reached) {
            for (load, reached) in ["write", "read"].into_iter().zip(reached) {
                let share = rate(row, load) / (rails * RAIL);
                println!("{} from {}: {load} {share:.3} of {rails} rails", row["way"], row["from"]);
                *reached |= shares.contains(&share);
            }
        }
        if reached.iter().flatten().all(|&reached| reached) {
            return;
        }
    }
    panic!("not all are figures of the rails: {reached:?}");
}

#[test]
fn figures_are_those_of_the_rails_and_stored_data_stays() {
    let hosts = Hosts::start(2, RATE);
    let stored: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(hosts.file("stored"), &stored).unwrap();
    reach(&[1.0, 1.0, 2.0], 0.91..=0.98, || {
        let (report, ended) = bench(&hosts, "--seconds 2 --size 128KiB --depth 8");
        assert_eq!(ended.code, Some(0), "{ended}");
        let rows = report["rows"].as_array().unwrap();
        let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
        assert_eq!(ways, ["c0 10.77.0.2 > 10.77.0.1", "c1 10.77.1.2 > 10.77.1.1", "all rails"]);
        for row in rows {
            assert!(row["round_trip"]["p50_us"].as_f64().unwrap() > 0.0 && row["from"] == "this host");
        }
        rows.clone()
    });
    assert_eq!(fs::read(hosts.file("stored")).unwrap(), stored);
}

#[test]
fn a_server_that_dies_in_the_midst_is_named() {
    let hosts = Hosts::start(1, "400mbit");
    let before = hosts.carried(0);
    let (report, ended) = thread::scope(|scope| {
        let measuring = scope.spawn(|| bench(&hosts, "--seconds 50"));
        wait::until("the bench has begun to write", SOON, || (hosts.carried(0) > before + MUCH).then_some(()));
        process::kill(hosts.service("storaged"));
        measuring.join().unwrap()
    });
    assert_eq!(ended.code, Some(1), "{ended}");
    let failure = report["rows"][0]["failure"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(failure.contains("10.77.0.1:") && failure.contains("connection lost"), "{failure}");
    assert!(ended.took < Duration::from_secs(50), "it ended when the server did");
}

#[test]
fn servers_measure_each_other() {
    let mut hosts = Hosts::start(1, RATE);
    hosts.add_storage();
    reach(&[1.0, 1.0], 0.7..=0.99, || {
        let (report, ended) = bench(&hosts, "--servers --seconds 2 --size 128KiB --depth 8");
        assert_eq!(ended.code, Some(0), "{ended}");
        let rows = report["rows"].as_array().unwrap();
        let pairs: Vec<_> =
            rows.iter().map(|row| (row["from"].as_str().unwrap(), row["to"].as_str().unwrap())).collect();
        assert_eq!(pairs, [("storaged", "storaged-2"), ("storaged-2", "storaged")]);
        rows.clone()
    });
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
    let received = || metrics::sum(&cluster, "storage", "weft_received_bytes_total", &[]) as u64;
    let before = received();
    wait::until("it writes", SOON, || (received() > before + MUCH).then_some(()));
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
