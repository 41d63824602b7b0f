//! `weft bench io500`: its phases on any file system, what it finds wrong, and that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::cluster::Cluster;
use harness::run::{Ended, LONG, run};
use harness::{binary, process, wait};
use serde_json::Value;

const SMALL: &str = "--processes 3 --seconds 1 --size 48MiB --files 150 --warm";

fn io500(words: &str) -> Ended {
    run(Command::new(binary::weft()).args(["bench", "io500"]).args(words.split(' ')), LONG)
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

fn is_bare(path: &Path) -> bool {
    fs::read_dir(path).unwrap().next().is_none()
}

/// All phases are there, made what they should, and give the score by IO500's arithmetic.
fn assert_whole(report: &Value) {
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 13, "{report}");
    let values = |group: &str| -> Vec<f64> {
        phases.iter().filter(|phase| phase["group"] == group).map(|phase| phase["value"].as_f64().unwrap()).collect()
    };
    let mean = |values: &[f64]| values.iter().product::<f64>().powf(1.0 / values.len() as f64);
    let (bandwidth, metadata) = (mean(&values("bandwidth")), mean(&values("metadata")));
    assert_eq!((values("bandwidth").len(), values("metadata").len()), (4, 8));
    let score = report["score"].as_f64().unwrap();
    assert!(score > 0.0 && (score / (bandwidth * metadata).sqrt() - 1.0).abs() < 1e-6, "{report}");
    let operations = |name: &str| phases.iter().find(|phase| phase["name"] == name).unwrap()["operations"].as_u64();
    for one in ["mdtest-easy", "mdtest-hard"] {
        let made = operations(&format!("{one}-write")).unwrap();
        assert!(made > 0 && made.is_multiple_of(3), "all processes make the same number: {made}");
        assert_eq!(operations(&format!("{one}-stat")), Some(made));
        assert_eq!(operations(&format!("{one}-delete")), Some(made));
    }
    assert_eq!(operations("ior-hard-read"), operations("ior-hard-write"));
    assert_eq!(report["long_enough"], false);
}

#[test]
fn all_phases_run_on_a_local_file_system() {
    let folder = tempfile::tempdir().unwrap();
    assert_whole(&report(&io500(&format!("--json {SMALL} --path {}", folder.path().display()))));
    assert!(is_bare(folder.path()));
    let text = io500(&format!("{SMALL} --path {}", folder.path().display())).expect_ok().stdout;
    assert!(text.contains("score ") && text.contains("needs 300 s"), "{text}");
}

#[test]
fn all_phases_run_through_a_mount_and_through_client_cores() {
    let cluster = Cluster::start();
    assert_whole(&report(&io500(&format!("--json {SMALL} --path {}", cluster.mount_point().display()))));
    assert_whole(&report(&io500(&format!("--json {SMALL} --core --dir {}", cluster.dir().display()))));
    assert!(is_bare(&cluster.mount_point()));
    cluster.weft(&["fsck"]).expect_ok();
}

/// The folder of a run in `at`.
fn folder_in(at: &Path) -> Option<PathBuf> {
    fs::read_dir(at).unwrap().next().map(|entry| entry.unwrap().path())
}

#[test]
fn wrong_bytes_are_found_and_named() {
    let at = tempfile::tempdir().unwrap();
    let child = Command::new(binary::weft())
        .args(["bench", "io500", "--processes", "2", "--seconds", "1", "--size", "64MiB", "--warm", "--path"])
        .arg(at.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let victim = wait::until("the second phase", LONG, || {
        let folder = folder_in(at.path())?;
        // What the first phase wrote is whole when the second one makes files.
        fs::read_dir(folder.join("mdtest-easy/0")).ok()?.next()?.ok()?;
        Some(folder.join("ior-easy/ior_file_easy.00000001"))
    });
    OpenOptions::new().write(true).open(victim).unwrap().write_all_at(&[0; 4096], 3 << 20).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("ior-easy-read") && said.contains("ior_file_easy.00000001"), "{said}");
    assert!(said.contains("wrong bytes at 3145728"), "{said}");
    assert!(is_bare(at.path()));
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let at = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary::weft());
    command.args(["bench", "io500", "--seconds", "60", "--size", "64MiB", "--warm", "--path"]).arg(at.path());
    command.process_group(0).stderr(Stdio::piped()).stdout(Stdio::null());
    process::default_signals(&mut command);
    let child = command.spawn().unwrap();
    wait::until("files", LONG, || fs::read_dir(folder_in(at.path())?.join("mdtest-easy/3")).ok()?.next().map(drop));
    process::signal(child.id() as i32, libc::SIGINT);
    let ended = wait::within("its end", Duration::from_secs(60), move || child.wait_with_output().unwrap());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(is_bare(at.path()), "{said}");
}

#[test]
fn wrong_options_are_the_users_mistake() {
    let small = ["--path / --size 4MiB", "--path / --size 0", "--path / --size 100MiB --processes 64"];
    let wrong = ["", "--path /nonexistent/x", "--path / --core", "--path / --processes 0", "--path / --seconds x"];
    for words in wrong.into_iter().chain(small) {
        let words = ["bench", "io500"].into_iter().chain(words.split(' ').filter(|word| !word.is_empty()));
        let ended = run(Command::new(binary::weft()).args(words), LONG);
        assert_eq!(ended.code, Some(2), "{ended}");
    }
}
