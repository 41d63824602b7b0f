//! fio from four mounts at once, at random places with random lengths, while storage services are killed and come back: what
//! it reads is what it has written, on the mount that wrote it and on another one. `WEFT_TEST_KILLS=100` for a run by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::run::run;

const MOUNTS: usize = 4;
/// For one run of fio, while services come and go.
const PATIENCE: Duration = Duration::from_secs(240);

#[test]
fn no_byte_is_wrong_while_storage_services_are_killed() {
    let mut cluster = Cluster::of(Shape { storage: 2, targets: 2, ..Shape::default() });
    let folder = cluster.folder("verify");
    let mut folders = vec![folder];
    folders.extend((1..MOUNTS).map(|_| cluster.mount_again(&[]).point.join("verify")));
    let (kills, seed, stop) = (scale("WEFT_TEST_KILLS", 6), seed(), AtomicBool::new(false));
    let rounds: u64 = thread::scope(|scope| {
        let work = |mount| {
            let (folders, stop) = (&folders, &stop);
            scope.spawn(move || verify_again_and_again(folders, mount, seed, stop))
        };
        let works: Vec<_> = (0..MOUNTS).map(work).collect();
        let mut dice = Dice::new(seed);
        for _ in 0..kills {
            thread::sleep(Duration::from_millis(300 + dice.roll(1500)));
            let name = ["storaged-1", "storaged-2"][dice.index(2)];
            let pid = cluster.kill(name);
            cluster.wait_for_another(name, pid);
        }
        stop.store(true, Ordering::Relaxed);
        works.into_iter().map(|work| work.join().unwrap()).sum()
    });
    println!("{kills} kills, {rounds} rounds of fio");
    assert!(rounds >= MOUNTS as u64, "hardly anything was verified: {rounds} rounds");
    cluster.assert_sound();
}

/// Answers how often.
fn verify_again_and_again(folders: &[PathBuf], mount: usize, seed: u64, stop: &AtomicBool) -> u64 {
    let mut dice = Dice::new(seed ^ mount as u64);
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let job = Job { file: format!("file-{mount}"), seed: dice.roll(1 << 30), direct: dice.roll(2) };
        job.fio(&folders[mount], &["--do_verify=1", "--verify_backlog=16", "--fsync=32"]);
        job.fio(&folders[(mount + 1) % folders.len()], &["--verify_only"]);
        rounds += 1;
    }
    rounds
}

/// The same bytes at the same places for the same seed.
struct Job {
    file: String,
    seed: u64,
    direct: u64,
}

impl Job {
    fn fio(&self, folder: &Path, more: &[&str]) {
        let mut command = Command::new("fio");
        command.arg("--name=verify").arg(format!("--filename={}", folder.join(&self.file).display()));
        command.arg(format!("--randseed={}", self.seed)).arg(format!("--direct={}", self.direct)).args(more).args([
            "--rw=randwrite",
            "--bsrange=4k-300k",
            "--blockalign=4k",
            "--size=12M",
            "--ioengine=psync",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ]);
        let ended = run(&mut command, PATIENCE).expect_ok();
        assert!(!ended.stdout.contains("verify: bad") && !ended.stderr.contains("verify: bad"), "{ended}");
    }
}
