//! Services run where their settings say, and say clearly why where they cannot.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use harness::binary;
use harness::cluster::{Cluster, Shape};
use harness::run::{Ended, run};

const SOON: Duration = Duration::from_secs(60);
const FIRST_ZONE: &str = "/sys/devices/system/node/node0/cpulist";

fn set(cluster: &Cluster, service: &str, lines: &str) {
    let file = cluster.dir().join(format!("{service}.toml"));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{text}\n{lines}\n")).unwrap();
}

/// On which CPUs each thread may run, as the kernel lists them, by the thread's name.
fn places(pid: i32) -> BTreeMap<String, Vec<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        // One that ends meanwhile is nowhere.
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
        if let (Some(name), Some(cpus)) = (field("Name:"), field("Cpus_allowed_list:")) {
            places.entry(name).or_default().push(cpus);
        }
    }
    places
}

/// That the kernel gives memory of the first zone, if it can, to what the process itself has not decided about.
fn prefers_first_zone(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap().contains(" prefer:0 ")
}

#[test]
fn lanes_and_shards_are_bound_to_their_cpus_and_nothing_else_is() {
    let cluster = Cluster::of(Shape { targets: 1, shards: 2, ..Shape::default() });
    cluster.down().expect_ok();
    set(&cluster, "storaged-1", "lanes = 2\ncpus = [1, 0]\nport = 0");
    set(&cluster, "metad-1", "cpu = 0");
    cluster.up().expect_ok();
    cluster.wait_for_mount();
    // So that helpers and the kernel's workers are there.
    for number in 0..20 {
        let file = fs::File::create(cluster.path(&format!("file-{number}"))).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100_000], 0).unwrap();
        file.sync_all().unwrap();
    }
    cluster.assert_sound();
    let everywhere = places(std::process::id() as i32).into_values().next().unwrap().remove(0);
    let storage = places(cluster.pid("storaged-1").unwrap());
    assert_eq!((&storage["lane-0"][..], &storage["lane-1"][..]), (&["1".to_owned()][..], &["0".to_owned()][..]));
    // The kernel's own workers for a lane stay where it is bound, whatever they are told.
    let beside = storage.iter().filter(|(name, _)| !name.starts_with("lane-") && !name.starts_with("iou-"));
    assert!(beside.clone().count() >= 2 && storage.contains_key("helper"), "{storage:?}");
    assert!(beside.flat_map(|(_, cpus)| cpus).all(|cpus| *cpus == everywhere), "{storage:?}");
    let metadata = places(cluster.pid("metad-1").unwrap());
    let shards: Vec<&String> =
        metadata.iter().filter(|(name, _)| name.starts_with("shard")).flat_map(|(_, cpus)| cpus).collect();
    assert_eq!(shards, ["0", "1"], "{metadata:?}");
    cluster.down().expect_ok();
}

#[test]
fn a_numa_zone_is_where_all_threads_and_their_memory_are() {
    // A kernel that knows of no zones refuses, which the other test sees.
    let Ok(zone) = fs::read_to_string(FIRST_ZONE) else { return };
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    cluster.down().expect_ok();
    set(&cluster, "storaged-1", "numa_zone = 0");
    set(&cluster, "metad-1", "numa_zone = 0");
    cluster.up().expect_ok();
    cluster.wait_for_mount();
    fs::write(cluster.path("file"), vec![7; 3_000_000]).unwrap();
    for service in ["storaged-1", "metad-1"] {
        let pid = cluster.pid(service).unwrap();
        assert!(prefers_first_zone(pid), "{service} takes memory from anywhere");
        let places = places(pid);
        assert!(places.values().flatten().all(|cpus| cpus == zone.trim()), "{service}: {places:?}");
    }
    assert!(!prefers_first_zone(cluster.pid("mgmtd").unwrap()), "that one was not asked to");
    cluster.assert_sound();
    cluster.down().expect_ok();
}

/// Refused as something that the user has to change: exit code 2, and one line that begins so and has these words.
#[track_caller]
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(2), "{ended}");
    let line = ended.stderr.lines().find(|line| line.starts_with("weft: ")).unwrap_or_else(|| panic!("{ended}"));
    for word in words {
        assert!(line.contains(word), "no {word:?} in {line:?}");
    }
}

#[test]
fn a_place_that_is_not_there_is_refused_with_its_key() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    cluster.down().expect_ok();
    let start = |kind: &str, flags: &[&str]| {
        let config = cluster.dir().join(format!("{kind}-1.toml"));
        run(Command::new(binary::weft()).arg(kind).arg("--config").arg(config).args(flags), SOON)
    };
    let storage = |flags: &[&str]| start("storaged", flags);
    assert_refused(&storage(&["--lanes", "2", "--cpus", "0"]), &["cpus: ", "1 of them for 2 lanes"]);
    assert_refused(&storage(&["--cpus", "1000"]), &["cpus: ", "no CPU 1000 "]);
    assert_refused(&storage(&["--cpus", "70000"]), &["cpus: ", "no CPU 70000 "]);
    assert_refused(&storage(&["--numa-zone", "999"]), &["numa_zone: ", "no NUMA zone 999"]);
    assert_refused(&start("metad", &["--numa-zone", "999"]), &["numa_zone: ", "no NUMA zone 999"]);
    assert_refused(&start("metad", &["--cpu", "70000"]), &["cpu: ", "no CPU 70000 "]);
}
