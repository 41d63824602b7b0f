//! A program's calls through two mounts in turns, beside the same calls on a local file system: all answers, and all that is
//! seen afterwards, are the same (`beside_local.py`). `WEFT_TEST_ROUNDS=100 WEFT_TEST_SEED=n` for a run by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::dice::scale;
use harness::loop_disk::LoopDisk;
use harness::run::run;

const STEPS: &str = "1500";

/// Whatever leads to a directory.
fn let_through(path: &Path) {
    for folder in path.ancestors() {
        let mut permissions = fs::metadata(folder).unwrap().permissions();
        if permissions.mode() & 0o011 != 0o011 {
            permissions.set_mode(permissions.mode() | 0o011);
            fs::set_permissions(folder, permissions).unwrap();
        }
    }
}

#[test]
fn two_mounts_in_turns_are_one_local_file_system() {
    let mut cluster = Cluster::of(Shape { metadata: 2, targets: 2, ..Shape::default() });
    let here = cluster.folder("beside");
    let there = cluster.mount_again(&[]).point.join("beside");
    let aside = tempfile::tempdir().unwrap();
    let disk = LoopDisk::mount(&aside.path().join("local"), 512);
    // Some calls are made by users other than root.
    [disk.point(), &here, &there].into_iter().for_each(let_through);
    // The same calls each time, but by hand.
    let (rounds, first) = (scale("WEFT_TEST_ROUNDS", 5), scale("WEFT_TEST_SEED", 1));
    for seed in first..first + rounds {
        let folder = format!("seed-{seed}");
        let [local, here, there] = [disk.point(), &here, &there].map(|root| root.join(&folder));
        [&local, &here].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let mounts = format!("{},{}", here.display(), there.display());
        let mut command = Command::new("python3");
        command.arg(harness::checkout::file("tests/beside_local.py")).arg(&local).arg(mounts);
        run(command.args([&seed.to_string(), STEPS]), Duration::from_secs(300)).expect_ok();
        [&local, &here].into_iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
    println!("{rounds} rounds from seed {first}");
    cluster.assert_sound();
}
