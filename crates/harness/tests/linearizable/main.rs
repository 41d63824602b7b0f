//! Four mounts of one cluster at the same names, contents and locks: all that they see could have come from one machine
//! that does one thing after another. Also while services are killed and mounts stand still, and while connections are reset.
//!
//! What is checked are single calls of the kernel on names in directories, and calls on open files; the walk along a path
//! is no one thing on any file system. `WEFT_TEST_OPERATIONS` says how many calls each mount makes in each arena.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod contents;
mod lives;
mod locks;
mod names;

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::linear::{Call, Thing, check};
use harness::process;
use harness::reset::Resets;

const CLIENTS: usize = 4;
/// Calls of each client until all wait for each other and begin anew.
const CALLS_OF_ROUND: u64 = 40;
/// A mount stands still for no longer: its session goes on.
const STANDSTILL_MS: u64 = 600;
const PAUSE_MS: u64 = 700;
/// A service's connections are reset for no longer: far shorter than its answers are waited for.
const CUT_MS: u64 = 400;
/// How often all is done until anything has happened to it.
const PASSES_MAX: u64 = 20;

/// A directory whose entries are spread over all shards.
const SPLIT: &str = "split";

/// What the clients meet at.
trait Arena: Thing {
    /// Of one client: what it works with.
    type Hands: Send;

    /// A fresh one, named by `round`, through each of the mounts. The first two directories are in different shards.
    fn prepare(floor: &Floor, round: u64) -> (Self, Vec<Self::Hands>);

    /// Calls the kernel once for something, and says what came of it.
    fn act(hands: &mut Self::Hands, dice: &mut Dice) -> Self::Operation;
}

/// What happens meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// Services are killed and mounts stopped.
    Processes,
    /// Connections are reset.
    Connections,
}

/// A cluster with four mounts.
struct Floor {
    cluster: Cluster,
    mounts: Vec<PathBuf>,
    /// Of mounts that may be stopped.
    pids: Vec<i32>,
    trouble: Trouble,
}

impl Floor {
    fn new(trouble: Trouble) -> Self {
        let mut cluster = Cluster::of(Shape { metadata: 2, shards: 2, storage: 2, targets: 2 });
        // What goes through UNIX sockets and shared memory cannot be reset.
        let flags: &[&str] = match trouble {
            Trouble::Connections => &["--local-sockets=false", "--share-memory=false"],
            Trouble::None | Trouble::Processes => &[],
        };
        let seconds: Vec<_> = (0..CLIENTS).map(|_| cluster.mount_again(flags)).collect();
        let mounts = seconds.iter().map(|second| second.point.clone()).collect();
        let pids = seconds.iter().map(|second| second.pid).collect();
        // In shards of different services.
        for (folder, shard) in ["one", "two"].into_iter().zip([0, 2]) {
            cluster.weft(&["entry", "set", "/", "--placement", &format!("shard:{shard}")]).expect_ok();
            cluster.folder(folder);
            cluster.weft(&["entry", "set", &format!("/{folder}"), "--chunk-size", "16KiB"]).expect_ok();
        }
        cluster.folder(SPLIT);
        cluster.weft(&["entry", "set", &format!("/{SPLIT}"), "--split", "4"]).expect_ok();
        Self { cluster, mounts, pids, trouble }
    }

    /// All clients at work in fresh arenas, until each has made its calls. Each pass has arenas of its own.
    fn run<A: Arena>(&self, seed: u64, pass: u64)
    where
        A::Operation: Send + Clone,
    {
        let rounds = scale("WEFT_TEST_OPERATIONS", 400).div_ceil(CALLS_OF_ROUND);
        for round in pass * rounds..(pass + 1) * rounds {
            let (arena, mut hands) = A::prepare(self, round);
            let barrier = Barrier::new(CLIENTS);
            let history: Vec<Vec<Call<A::Operation>>> = thread::scope(|scope| {
                let mut clients = Vec::new();
                for (client, hands) in hands.iter_mut().enumerate() {
                    let (barrier, dice) = (&barrier, Dice::new(seed + round * CLIENTS as u64 + client as u64));
                    clients.push(scope.spawn(move || play::<A>(hands, dice, barrier)));
                }
                clients.into_iter().map(|client| client.join().unwrap()).collect()
            });
            check(&arena, &history).unwrap_or_else(|why| panic!("round {round} of seed {seed}: {why}"));
        }
    }

    /// Resets the connections of one service after the other until it is told to end. Counts what that did in `effects`.
    fn cut(&self, mut dice: Dice, end: &AtomicBool, effects: &AtomicU64) {
        let resets = Resets::new();
        while !end.load(Ordering::Relaxed) {
            let name = *dice.pick(&["metad-1", "metad-2", "storaged-1", "storaged-2"]);
            let pid = self.cluster.pid(name).unwrap();
            resets.cut(pid, Duration::from_millis(dice.roll(CUT_MS)));
            effects.store(resets.hits(), Ordering::Relaxed);
            thread::sleep(Duration::from_millis(dice.roll(PAUSE_MS)));
        }
    }

    /// Kills services and stops mounts, one after the other, until it is told to end.
    fn kill(&self, mut dice: Dice, end: &AtomicBool, effects: &AtomicU64) {
        while !end.load(Ordering::Relaxed) {
            match *dice.pick(&["metad-1", "metad-2", "storaged-1", "storaged-2", "mount"]) {
                "mount" => {
                    let pid = *dice.pick(&self.pids);
                    // Not `process::stop`: a thread may be inside the kernel, waiting for what waits for this mount.
                    process::signal(pid, libc::SIGSTOP);
                    thread::sleep(Duration::from_millis(dice.roll(STANDSTILL_MS)));
                    process::signal(pid, libc::SIGCONT);
                }
                name => {
                    let killed = self.cluster.kill(name);
                    self.cluster.wait_for_another(name, killed);
                    effects.fetch_add(1, Ordering::Relaxed);
                }
            }
            thread::sleep(Duration::from_millis(dice.roll(PAUSE_MS)));
        }
    }
}

fn play<A: Arena>(hands: &mut A::Hands, mut dice: Dice, barrier: &Barrier) -> Vec<Call<A::Operation>> {
    barrier.wait();
    let call = |_| {
        let began = Instant::now();
        let operation = A::act(hands, &mut dice);
        Call { began, ended: Instant::now(), operation }
    };
    (0..CALLS_OF_ROUND).map(call).collect()
}

/// The errno, where that is one that an operation may be answered with here.
fn errno<T: Debug>(result: io::Result<T>, fine: &[i32]) -> Result<T, i32> {
    result
        .map_err(|error| error.raw_os_error().filter(|errno| fine.contains(errno)).unwrap_or_else(|| panic!("{error}")))
}

#[test]
fn what_four_mounts_see_is_one_file_system() {
    let (floor, seed) = (Floor::new(Trouble::None), seed());
    floor.run::<names::Names>(seed, 0);
    floor.run::<contents::Contents>(seed, 0);
    floor.run::<locks::Locks>(seed, 0);
    floor.run::<lives::Lives>(seed, 0);
    floor.cluster.assert_sound();
}

#[test]
fn what_four_mounts_see_is_one_file_system_though_services_are_killed() {
    in_trouble(Trouble::Processes, Floor::kill);
}

#[test]
fn what_four_mounts_see_is_one_file_system_though_connections_are_reset() {
    in_trouble(Trouble::Connections, Floor::cut);
}

fn in_trouble(trouble: Trouble, make: fn(&Floor, Dice, &AtomicBool, &AtomicU64)) {
    let (floor, seed) = (Floor::new(trouble), seed());
    let (end, effects) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| make(&floor, Dice::new(seed), &end, &effects));
        // Ends the trouble also where a check fails.
        let _ends = Ends(&end);
        for pass in 0..PASSES_MAX {
            floor.run::<names::Names>(seed, pass);
            floor.run::<contents::Contents>(seed, pass);
            floor.run::<locks::Locks>(seed, pass);
            floor.run::<lives::Lives>(seed, pass);
            // One pass may be over before anything happens to it.
            if effects.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
    });
    assert!(effects.load(Ordering::Relaxed) > 0, "nothing happened to them");
    floor.cluster.assert_sound();
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
