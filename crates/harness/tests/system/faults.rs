//! Disks that are full or gone, keys and directories that are not the right ones: one clear line, the right exit code, and
//! no damage.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod directories;
mod dying_disks;
mod full_disks;
mod management;
mod ports;
mod strangers;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::binary;
use harness::cluster::Cluster;
use harness::run::{Ended, run};

const SOON: Duration = Duration::from_secs(60);

/// Refused as something that the user has to change: exit code 2, and one line that has all of `words`.
#[track_caller]
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(2), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("weft: ")).collect();
    assert_eq!(lines.len(), 1, "one line: {ended}");
    for word in words {
        assert!(lines[0].contains(word), "no {word:?} in {:?}", lines[0]);
    }
}

/// A service in the foreground, which is expected to end by itself.
fn service(kind: &str, config: &Path, flags: &[&str]) -> Ended {
    run(Command::new(binary::weft()).arg(kind).arg("--config").arg(config).args(flags), SOON)
}

/// A cluster that was up once, with a file in it, and is down.
fn cluster_with_data() -> Cluster {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.down().expect_ok();
    cluster
}

fn assert_data_is_there(cluster: &Cluster) {
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
}

fn config_of(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.dir().join(format!("{name}.toml"))
}

fn set(config: &Path, key: &str, value: &str) {
    let text = fs::read_to_string(config).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start_matches('#').starts_with(&format!("{key} =")));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(config, format!("{text}{key} = \"{value}\"\n")).unwrap();
}

fn mgmtd_of(cluster: &Cluster) -> String {
    cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned()
}

/// Writes so many MiB, and syncs them.
fn fill(path: &Path, mib: u64) -> io::Result<()> {
    let file = File::options().create(true).truncate(true).write(true).open(path)?;
    (0..mib).try_for_each(|at| file.write_all_at(&[7; 1 << 20], at << 20))?;
    file.sync_all()
}

/// A new folder whose files lie on one storage target alone, the one in this directory.
fn folder_on(cluster: &Cluster, name: &str, target: &Path) -> PathBuf {
    let targets = cluster.json(&["target", "list"]);
    let found = targets.as_array().unwrap().iter().find(|one| one["path"].as_str() == target.to_str());
    let group = found.unwrap_or_else(|| panic!("no {}: {targets}", target.display()))["group"].to_string();
    cluster.weft(&["pool", "create", name]).expect_ok();
    cluster.weft(&["pool", "assign", name, &group]).expect_ok();
    let folder = cluster.folder(name);
    let set = ["entry", "set", folder.to_str().unwrap(), "--pool", name, "--stripe-count", "1"];
    cluster.weft_alone(&set).expect_ok();
    folder
}

/// What `weft target list` says of the target in this directory.
fn state_of(cluster: &Cluster, target: &Path) -> String {
    let targets = cluster.json(&["target", "list"]);
    let found = targets.as_array().unwrap().iter().find(|one| one["path"].as_str() == target.to_str());
    found.unwrap()["state"].as_str().unwrap().to_owned()
}
