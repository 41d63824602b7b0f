//! kill -9 of services and the mount under load: nothing that was acknowledged is lost, and no application sees an error
//! while servers come back. `WEFT_TEST_KILLS=100` for a run by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::load::{Control, Worker, workers};

const WORKERS: u64 = 3;
/// Calls for each kill: with fewer, little could have been lost.
const LOAD_MIN: u64 = 20;
/// No call takes so long while servers come back.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn nothing_acknowledged_is_lost_when_processes_are_killed() {
    lose_nothing(Shape { storage: 2, targets: 2, ..Shape::default() });
}

/// With 8 shards most directories are in another one than their parents.
#[test]
fn nothing_acknowledged_is_lost_over_many_shards() {
    lose_nothing(Shape { metadata: 2, shards: 4, storage: 1, targets: 2 });
}

fn lose_nothing(shape: Shape) {
    let kills = scale("WEFT_TEST_KILLS", 6);
    let seed = seed();
    let cluster = Cluster::of(shape);
    let root = cluster.folder("load");
    // Small chunks, so that files lie on several targets.
    cluster.weft(&["entry", "set", "/load", "--chunk-size", "16KiB"]).expect_ok();
    let mut dice = Dice::new(seed);
    let names = cluster.names();
    let mut order: Vec<String> = Vec::new();
    let (mut acknowledged, mut longest) = (0, Duration::ZERO);
    let mut team = workers(&root, WORKERS, seed).unwrap();
    let begin = Instant::now();
    for round in 0..kills.div_ceil(10) {
        let control = Control::default();
        let kills_of_round = kills.min((round + 1) * 10) - round * 10;
        thread::scope(|scope| {
            let threads: Vec<_> = team.iter_mut().map(|worker| scope.spawn(|| worker.run(&control))).collect();
            for _ in 0..kills_of_round {
                if order.is_empty() {
                    order = names.clone();
                }
                let name = order.swap_remove(dice.index(order.len()));
                thread::sleep(Duration::from_millis(dice.roll(1200)));
                if threads.iter().any(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                kill(&cluster, &name, &control);
            }
            // What a killed mount was leased the others wait for: there is load again after that.
            let deadline = Instant::now() + LONGEST;
            while control.acknowledged.load(Ordering::Relaxed) <= kills_of_round * LOAD_MIN
                && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(100));
            }
            thread::sleep(Duration::from_millis(500));
            control.stop.store(true, Ordering::Relaxed);
            for worker in threads {
                longest = longest.max(finish(worker));
            }
        });
        acknowledged += control.acknowledged.load(Ordering::Relaxed);
        verify(&cluster, &team);
    }
    println!("{kills} kills in {:.1?}, {acknowledged} calls, longest {longest:.1?}", begin.elapsed());
    assert!(longest < LONGEST, "a call took {longest:?}");
    assert!(acknowledged > kills * LOAD_MIN, "hardly any load: {acknowledged} calls");
}

/// The longest time of one call.
fn finish(worker: thread::ScopedJoinHandle<'_, Result<Duration, String>>) -> Duration {
    worker.join().unwrap().unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for it to be back before anything else happens to it; the load goes on meanwhile.
fn kill(cluster: &Cluster, name: &str, control: &Control) {
    if name == "mount" {
        control.mount_goes();
    }
    println!("killing {name}");
    let old = cluster.kill(name);
    if name == "mount" {
        cluster.wait_for_another(name, old);
        cluster.wait_for_mount();
        control.mount_is_back();
    }
}

fn verify(cluster: &Cluster, team: &[Worker]) {
    for worker in team {
        worker.verify().unwrap_or_else(|error| panic!("{error}"));
    }
    cluster.assert_sound();
}

#[test]
fn a_restarted_cluster_has_all_its_data() {
    let cluster = Cluster::start();
    let root = cluster.folder("load");
    let mut team = workers(&root, 2, seed()).unwrap();
    for _ in 0..2 {
        let control = Control::default();
        thread::scope(|scope| {
            let threads: Vec<_> = team.iter_mut().map(|worker| scope.spawn(|| worker.run(&control))).collect();
            thread::sleep(Duration::from_millis(700));
            control.stop.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|worker| assert!(finish(worker) < LONGEST));
        });
        cluster.down().expect_ok();
        assert!(cluster.pids().is_empty(), "{:?}", cluster.pids());
        cluster.up().expect_ok();
        verify(&cluster, &team);
    }
}

#[test]
fn killing_everything_at_once_loses_nothing() {
    let cluster = Cluster::start();
    let root = cluster.folder("load");
    let mut team = workers(&root, 2, seed()).unwrap();
    let control = Control::default();
    thread::scope(|scope| {
        let threads: Vec<_> = team.iter_mut().map(|worker| scope.spawn(|| worker.run(&control))).collect();
        thread::sleep(Duration::from_millis(1000));
        control.mount_goes();
        for (_, pid) in cluster.pids() {
            harness::process::signal(pid, libc::SIGKILL);
        }
        harness::wait::until("the end of all", Duration::from_secs(20), || cluster.pids().is_empty().then_some(()));
        cluster.up().expect_ok();
        control.mount_is_back();
        thread::sleep(Duration::from_millis(500));
        control.stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|worker| assert!(finish(worker) < LONGEST));
    });
    verify(&cluster, &team);
}

#[test]
fn the_last_close_of_a_removed_file_after_a_restart_is_no_trouble() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[5; 100_000]).unwrap();
    fs::remove_file(&path).unwrap();
    let old = cluster.kill("metad-1");
    cluster.wait_for_another("metad-1", old);
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut content).unwrap();
    assert!(content == [5; 100_000]);
    // As it is told to the shard, which no longer takes this client's word for the size.
    drop(file);
    cluster.assert_sound();
    assert!(!cluster.log("mount").contains("could not"), "{}", cluster.log("mount"));
}
