//! `weft bench --peers`: the same work on Weft and whatever else is installed; and that nothing of it is left behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::run::{Ended, run};
use harness::{binary, process, wait};
use serde_json::Value;

/// A few peers, one row, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn bench(at: &Path) -> Command {
    let mut bench = Command::new(binary::weft());
    bench.args(["--json", "bench", "--quick", "--dir"]).arg(at);
    bench
}

fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

fn is_bare(path: &Path) -> bool {
    fs::read_dir(path).unwrap().next().is_none()
}

/// The figure of a peer in the only row.
fn value<'a>(report: &'a Value, kind: &str) -> &'a Value {
    assert_eq!(report["rows"].as_array().unwrap().len(), 1, "{report}");
    &report["rows"][0]["figures"][kind]
}

#[test]
fn those_that_are_installed_do_the_same_work() {
    let at = tempfile::tempdir().unwrap();
    let saved = tempfile::NamedTempFile::new().unwrap();
    let mut command = bench(at.path());
    // Those that need no servers of others; the passthrough is not there in every place.
    command.args(["--peers=weft,passthrough", "--only", "cold stat x1", "--rounds", "2", "--save"]).arg(saved.path());
    let ended = run(&mut command, LIMIT);
    let report = report(&ended.clone().expect_ok());
    let present: Vec<&str> =
        report["peers"].as_array().unwrap().iter().map(|peer| peer["kind"].as_str().unwrap()).collect();
    assert_eq!(present[..2], ["local", "weft"], "{ended}");
    for kind in &present {
        let figure = value(&report, kind);
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{ended}");
        assert!(figure["cpu_us"]["machine"].as_f64().unwrap() > 0.0 || *kind == "local", "{ended}");
        assert_eq!(figure["cpu_us"]["client"].is_f64(), *kind != "local", "{ended}");
        assert_eq!(figure["ratio"].is_f64(), *kind != "local", "{ended}");
        assert_eq!(figure["series"].as_array().unwrap().len(), 2, "{ended}");
    }
    let left_out = report["notes"].as_array().unwrap().len();
    assert_eq!(present.len() + left_out, 3, "who is not there is named: {ended}");
    let on_disk: Value = serde_json::from_slice(&fs::read(saved.path()).unwrap()).unwrap();
    assert_eq!(on_disk["rows"], report["rows"]);
    assert!(is_bare(at.path()), "{ended}");
}

/// Programs of that name that only complain.
fn broken(dir: &Path, programs: &[&str]) {
    for program in programs {
        let file = dir.join(program);
        fs::write(&file, "#!/bin/sh\necho no luck today; exit 7\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn one_that_does_not_start_fails_alone() {
    let (at, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    broken(programs.path(), &["juicefs", "redis-server"]);
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let ended = run(bench(at.path()).args(["--peers=juicefs", "--only", "mkdir"]).env("PATH", path), LIMIT);
    assert_eq!(ended.code, Some(1), "{ended}");
    let report = report(&ended);
    assert!(value(&report, "local")["value"].as_f64().unwrap() > 0.0, "{ended}");
    assert!(value(&report, "juicefs").is_null(), "{ended}");
    let failure = report["failures"][0].as_str().unwrap();
    assert!(failure.starts_with("JuiceFS did not start: redis-server ended (exit status: 7)"), "{ended}");
    assert!(failure.contains("no luck today"), "{ended}");
    assert!(is_bare(at.path()), "{ended}");
}

#[test]
fn one_that_is_not_installed_is_left_out() {
    let at = tempfile::tempdir().unwrap();
    let mut command = bench(at.path());
    let ended =
        run(command.args(["--peers=juicefs", "--only", "mkdir"]).env("PATH", "/nonexistent"), LIMIT).expect_ok();
    let report = report(&ended);
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.starts_with("JuiceFS is left out: no juicefs") && note.contains("redis-server"), "{ended}");
    assert!(value(&report, "local")["value"].as_f64().unwrap() > 0.0, "{ended}");
    assert!(is_bare(at.path()), "{ended}");
}

/// Processes that were told of the folder.
fn working_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    pids.filter_map(|file| fs::read(file).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(folder))
        .collect()
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let at = tempfile::tempdir().unwrap();
    let mut command = bench(at.path());
    command.args(["--peers=weft", "--rounds", "99", "--only", "mkdir"]);
    command.process_group(0).stderr(Stdio::piped()).stdout(Stdio::null());
    process::default_signals(&mut command);
    let child = command.spawn().unwrap();
    // A mount of the cluster shows the directory that the work is done in.
    wait::until("work on the mount", LIMIT, || {
        let folder = fs::read_dir(at.path()).ok()?.next()?.ok()?.path();
        fs::read_dir(folder.join("weft/mnt-cold")).ok()?.next().map(drop)
    });
    process::signal(child.id() as i32, libc::SIGINT);
    let ended = wait::within("its end", Duration::from_secs(60), move || child.wait_with_output().unwrap());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(is_bare(at.path()), "{said}");
    let left = working_in(at.path());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn wrong_options_are_told() {
    for (words, code) in [("--peers=nobody", 2), ("--peers --only no-such-row", 2), ("--peers --rounds 0", 2)] {
        let ended = run(Command::new(binary::weft()).arg("bench").args(words.split(' ')), LIMIT);
        assert_eq!(ended.code, Some(code), "{ended}");
    }
    let ended = run(Command::new(binary::weft()).args(["bench", "--peers", "--list"]), LIMIT).expect_ok();
    assert!(ended.stdout.contains("cold git status, files/s"), "{ended}");
}
