//! The benchmark inside the storage services: it finds the targets that are ill, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::io_limit::IoLimit;
use harness::loop_disk::LoopDisk;
use harness::run::Ended;
use harness::wait;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(60);

fn bench(cluster: &Cluster, words: &str) -> Ended {
    let words: Vec<&str> = ["bench", "storage"].into_iter().chain(words.split(' ')).collect();
    cluster.weft(&words)
}

/// What `--status --json` says, and with which exit code.
fn status(cluster: &Cluster) -> (Value, Option<i32>) {
    let ended = bench(cluster, "--status --json");
    (serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}")), ended.code)
}

fn at_its_end(cluster: &Cluster) -> (Value, Option<i32>) {
    wait::until("the run ends", SOON, || {
        let (report, code) = status(cluster);
        (report["running"] == 0).then_some((report, code))
    })
}

fn path_of(cluster: &Cluster, number: u32) -> PathBuf {
    cluster.dir().join(format!("storaged-1/target-{number}"))
}

/// The number in each storage target's path, by its id.
fn numbers(cluster: &Cluster) -> BTreeMap<u64, u32> {
    let list = cluster.json(&["target", "list"]);
    let number = |target: &Value| {
        let path = target["path"].as_str()?;
        Some((target["id"].as_u64()?, path.rsplit_once("storaged-1/target-")?.1.parse().ok()?))
    };
    list.as_array().unwrap().iter().filter_map(number).collect()
}

/// The suspicions of each target, by the number in its path.
fn suspects(cluster: &Cluster, report: &Value) -> BTreeMap<u32, Vec<(String, String)>> {
    let numbers = numbers(cluster);
    let mut found: BTreeMap<u32, Vec<(String, String)>> = BTreeMap::new();
    for suspect in report["suspects"].as_array().unwrap() {
        let word = |key: &str| suspect[key].as_str().unwrap().to_owned();
        let number = numbers[&suspect["target"].as_u64().unwrap()];
        found.entry(number).or_default().push((word("suspicion"), word("reason")));
    }
    found
}

fn set_reserve(cluster: &Cluster) {
    let config = cluster.dir().join("storaged-1.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("#reserve = "), "{text}");
    fs::write(&config, text.replace("#reserve = ", "reserve = \"8MiB\" # ")).unwrap();
}

/// Until nothing fits any more.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    while file.write_all(&[7; 1 << 20]).and_then(|()| file.sync_data()).is_ok() {}
}

/// A run on the six targets; its length follows.
const ALL: &str = "--write --all-targets --block-size 256KiB --size 16MiB --threads 2 --duration";

/// One that lasts until it is stopped.
fn returns_at_once_and_is_under_way(cluster: &Cluster) {
    let begun = bench(cluster, &format!("{ALL} 1h"));
    assert!(begun.clone().expect_ok().stdout.contains("has begun on 6 targets"), "{begun}");
    let (report, code) = status(cluster);
    assert!(report["running"].as_u64().unwrap() >= 5 && code == Some(0), "{report}");
    let second = bench(cluster, "--write --target 2,3");
    assert!(second.code == Some(1) && second.stderr.contains("under way"), "{second}");
    bench(cluster, "--stop").expect_ok();
    at_its_end(cluster);
}

/// What a run says in which nothing is said of the targets that are well. One whose threads had no CPU for a while looks as if
/// it were ill: that is so in one run, and not in all.
fn judged(cluster: &Cluster) -> Value {
    let mut report = Value::Null;
    for _ in 0..3 {
        bench(cluster, &format!("{ALL} 3s")).expect_ok();
        let code;
        (report, code) = at_its_end(cluster);
        assert_eq!((code, &report["finished"]), (Some(1), &Value::from(6)), "{report:#}");
        let found = suspects(cluster, &report);
        if (1..=3).all(|number| !found.contains_key(&number)) {
            return report;
        }
    }
    panic!("one of 1 to 3 is suspected: {report:#}");
}

/// Each target on a disk of its own: 1 to 3 are well, 4 is slow, 5 is full, 6 has another file system.
#[test]
fn a_slow_a_full_and_a_strange_target_are_found_among_good_ones() {
    let cluster = Cluster::of(Shape { targets: 6, ..Shape::default() });
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.down().expect_ok();
    let mut disks: Vec<LoopDisk> = (1..=5).map(|number| LoopDisk::under(&path_of(&cluster, number), 96)).collect();
    disks.push(LoopDisk::xfs_under(&path_of(&cluster, 6), 320));
    set_reserve(&cluster);
    cluster.up().expect_ok();
    fill(&path_of(&cluster, 5).join("foreign"));
    let limit = IoLimit::new();
    for number in 1..=6 {
        limit.writes(&path_of(&cluster, number), if number == 4 { 2 * MIB } else { 16 * MIB });
    }
    limit.hold(cluster.pid("storaged-1").unwrap());

    returns_at_once_and_is_under_way(&cluster);
    let report = judged(&cluster);
    let found = suspects(&cluster, &report);
    let has = |number: u32, suspicion: &str, word: &str| {
        let reasons = found.get(&number).cloned().unwrap_or_default();
        assert!(reasons.iter().any(|(kind, reason)| kind == suspicion && reason.contains(word)), "{report:#}");
    };
    has(4, "slow", "the median of the 5 targets");
    has(5, "misconfigured", "its disk is full");
    has(6, "misconfigured", "on xfs");
    // The range, with whom it is of; and what people see.
    let numbers = numbers(&cluster);
    assert_eq!(numbers[&report["summary"]["minimum"]["target"].as_u64().unwrap()], 4);
    assert_eq!(report["summary"]["minimum"]["node_alias"], "storaged-1");
    let slow = report["summary"]["minimum"]["bytes_per_second"].as_f64().unwrap() / MIB as f64;
    assert!((1.0..3.0).contains(&slow), "{slow} MiB/s of 2");
    assert!(report["targets"].as_array().unwrap().iter().filter(|target| target["direct"] == true).count() >= 5);
    let seen = bench(&cluster, "--status --verbose");
    for word in
        ["Running:   0", "Finished:  6", "Aggregate: ", "slow: ", "misconfigured: ", "no-room", "reasons to look"]
    {
        assert!(seen.stdout.contains(word), "no {word:?}: {seen}");
    }

    // Its files are no objects.
    assert!(path_of(&cluster, 1).join("bench/thread-0001").exists());
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
    bench(&cluster, "--cleanup").expect_ok();
    assert!((1..=6).all(|number| !path_of(&cluster, number).join("bench").exists()));
    assert!(path_of(&cluster, 5).join("foreign").exists(), "what is not its own stays");
    cluster.down().expect_ok();
}

/// Others may measure other targets meanwhile.
#[test]
fn who_waits_for_a_run_is_told_of_that_one() {
    let cluster = Cluster::start();
    let ids: Vec<u64> = numbers(&cluster).into_keys().collect();
    let run = |target: u64, seconds: u32| {
        bench(&cluster, &format!("--write --size 16MiB --target {target} --duration {seconds}s --wait --json"))
    };
    let (long, short) = thread::scope(|scope| {
        let long = scope.spawn(|| run(ids[0], 8));
        wait::until("the first run begins", SOON, || {
            // Before it has, there is none to tell of.
            let told = bench(&cluster, "--status --json").stdout;
            serde_json::from_str(&told).is_ok_and(|report: Value| report["running"] == 1).then_some(())
        });
        let short = run(ids[1], 1);
        assert!(!long.is_finished(), "it waits for its own");
        (long.join().unwrap(), short)
    });
    for (ended, target, ms) in [(long, ids[0], 8000), (short, ids[1], 1000)] {
        let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        let measured: Vec<u64> =
            report["targets"].as_array().unwrap().iter().filter_map(|t| t["target"].as_u64()).collect();
        assert_eq!((measured, report["asked"]["duration_ms"].as_u64()), (vec![target], Some(ms)), "{report}");
    }
    cluster.assert_sound();
}

#[test]
fn a_run_can_be_stopped_and_leaves_nothing_where_it_was_killed() {
    let cluster = Cluster::start();
    let none = bench(&cluster, "--status");
    assert!(none.code == Some(2) && none.stderr.contains("--write"), "{none}");
    let refused = bench(&cluster, "--write --threads 0");
    assert!(refused.code == Some(2) && refused.stderr.contains("0 threads"), "{refused}");
    let long = "--read --random --node storaged-1 --block-size 4KiB --size 1MiB --threads 1 --duration 1h";
    bench(&cluster, long).expect_ok();
    let busy = bench(&cluster, "--cleanup");
    assert!(busy.code == Some(1) && busy.stderr.contains("--stop"), "{busy}");
    wait::until("it reads", SOON, || {
        let (report, _) = status(&cluster);
        report["targets"].as_array().unwrap().iter().all(|target| target["bytes"].as_u64() > Some(0)).then_some(())
    });
    bench(&cluster, "--stop").expect_ok();
    let (report, _) = at_its_end(&cluster);
    assert!(report["targets"].as_array().unwrap().iter().all(|target| target["state"] == "stopped"), "{report:#}");
    assert!(report["summary"]["latency"]["p99_us"].as_f64().unwrap() > 0.0, "{report:#}");

    // Killed in the middle: the next process gives the space back, and the run is missed by none.
    bench(&cluster, long).expect_ok();
    wait::until("it has files", SOON, || path_of(&cluster, 1).join("bench/thread-0000").exists().then_some(()));
    let killed = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", killed);
    wait::until("its files are gone", SOON, || (!path_of(&cluster, 1).join("bench").exists()).then_some(()));
    let short = bench(&cluster, "--write --block-size 64KiB --size 1MiB --threads 2 --wait");
    assert!(short.stdout.contains("Finished:  4") && short.stdout.contains("too short to judge"), "{short}");
    // What the service cannot remove is not said to be gone.
    let stuck = path_of(&cluster, 1).join("bench/thread-0099");
    fs::create_dir(&stuck).unwrap();
    let left = bench(&cluster, "--cleanup");
    assert!(left.code == Some(1) && left.stdout.contains("could not be removed"), "{left}");
    assert!(left.stdout.contains("on 3 targets any more"), "{left}");
    fs::remove_dir(stuck).unwrap();
    bench(&cluster, "--cleanup").expect_ok();
    cluster.assert_sound();
    // The command that was there before still is.
    let list = cluster.weft_alone(&["bench", "--list"]).expect_ok();
    assert!(list.stdout.contains("shard create"), "{list}");
}
