//! Locks of programs on two mounts, through everything that can happen to those who hold and who keep them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::process;
use harness::run::{self, shell};
use harness::wait;

const SOON: Duration = Duration::from_secs(60);

struct Pair {
    cluster: Cluster,
    second: PathBuf,
    second_pid: i32,
}

impl Pair {
    fn new() -> Self {
        Self::on(Cluster::start())
    }

    /// With sessions that end when they were not heard of for `seconds`.
    fn expiring_after(seconds: u32) -> Self {
        Self::on(Cluster::expiring_after(seconds))
    }

    fn on(mut cluster: Cluster) -> Self {
        let second = cluster.mount_again(&[]);
        Self { cluster, second: second.point, second_pid: second.pid }
    }

    fn python(&self, what: &str) -> Command {
        self.python_in(what, "")
    }

    /// In a directory of the two mounts.
    fn python_in(&self, what: &str, folder: &str) -> Command {
        python(what, &self.cluster.path(folder), &self.second.join(folder))
    }

    fn run(&self, what: &str) -> run::Ended {
        run::run(&mut self.python(what), run::LONG).expect_ok()
    }

    fn run_in(&self, what: &str, folder: &str) -> run::Ended {
        run::run(&mut self.python_in(what, folder), run::LONG).expect_ok()
    }

    fn holder(&self) -> Holder {
        self.holder_in("")
    }

    fn holder_in(&self, folder: &str) -> Holder {
        let mut holder = Holder::start(self.python_in("hold", folder));
        holder.says("held");
        holder
    }

    /// A process that says and is told things.
    fn start(&self, what: &str) -> Holder {
        Holder::start(self.python(what))
    }
}

fn python(what: &str, a: &Path, b: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(harness::checkout::file("tests/locks.py")).arg(what).arg(a).arg(b);
    command
}

/// A process that holds locks.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Holder {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }

    fn release(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
        self.says("free");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn locks_exclude_wait_end_and_detect_across_mounts() {
    let pair = Pair::new();
    for what in ["exclusion", "closing", "waiting", "interrupted", "deadlock", "open_files"] {
        pair.run(what);
    }
    pair.cluster.assert_sound();
}

#[test]
fn counters_under_flock_lose_nothing() {
    let pair = Pair::new();
    let (processes, rounds) = (3, 15);
    fs::write(pair.cluster.path("counter"), "0\n").unwrap();
    let script =
        format!("for i in $(seq {rounds}); do flock lock sh -c 'n=$(cat counter); echo $((n+1)) > counter'; done");
    thread::scope(|scope| {
        for mount in [pair.cluster.mount_point(), pair.second.clone()] {
            for _ in 0..processes {
                let (mount, script) = (mount.clone(), script.clone());
                scope.spawn(move || shell(&mount, &script).expect_ok());
            }
        }
    });
    let count: u32 = fs::read_to_string(pair.second.join("counter")).unwrap().trim().parse().unwrap();
    assert_eq!(count, 2 * processes * rounds);
}

#[test]
fn a_database_is_shared_by_two_mounts() {
    let pair = Pair::new();
    let (a, b) = (pair.cluster.mount_point(), pair.second.clone());
    let (writers, rows) = (4, 25);
    thread::scope(|scope| {
        for writer in 0..writers {
            let (here, there) = if writer % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let mut command = python("insert", here, there);
            command.env("ROWS", rows.to_string());
            scope.spawn(move || run::run(&mut command, run::LONG).expect_ok());
        }
    });
    let counts = pair.run("check").stdout;
    let counts: Vec<u32> = counts.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts, [writers * rows, writers * rows]);
}

#[test]
fn a_killed_metadata_service_gives_no_lock_away_and_loses_none() {
    let pair = Pair::new();
    let mut holder = pair.holder();
    pair.run("is_held");
    for round in 0..3 {
        // One waits for it all the time, one asks again and again.
        let mut waiter = (round == 2).then(|| pair.python("becomes_free").stdout(Stdio::piped()).spawn().unwrap());
        thread::sleep(Duration::from_millis(300));
        let killed = pair.cluster.kill("metad-1");
        pair.run("is_held");
        pair.cluster.wait_for_another("metad-1", killed);
        pair.run("is_held");
        if let Some(waiter) = &mut waiter {
            assert!(waiter.try_wait().unwrap().is_none(), "given what is held");
            holder.release();
            assert_eq!(run::wait(waiter, SOON), Some(run::Code(Some(0))));
        }
    }
    pair.run("is_free");
    pair.cluster.assert_sound();
}

/// More than one request can tell.
#[test]
fn a_mount_that_holds_many_locks_comes_back_to_a_restarted_service() {
    let pair = Pair::new();
    let mut holder = pair.start("hold_many");
    holder.says("held");
    let killed = pair.cluster.kill("metad-1");
    pair.cluster.wait_for_another("metad-1", killed);
    pair.run("are_held");
    holder.release();
    pair.cluster.assert_sound();
}

/// Whoever has a lock has it alone, whatever happens to the service meanwhile.
#[test]
fn counts_under_locks_lose_nothing_though_the_service_is_killed() {
    let pair = Pair::new();
    let (kinds, kills) = (["flock", "posix"], 4);
    for kind in kinds {
        fs::write(pair.cluster.path(&format!("count-{kind}")), "0\n").unwrap();
    }
    let (a, b) = (pair.cluster.mount_point(), pair.second.clone());
    thread::scope(|scope| {
        let counting = kinds.map(|kind| {
            [(&a, &b), (&b, &a), (&a, &b), (&b, &a)].map(|(here, there)| {
                let mut command = python("count", here, there);
                command.env("KIND", kind);
                scope.spawn(move || run::run(&mut command, run::LONG).expect_ok().stdout)
            })
        });
        let count = |kind: &str| -> u64 {
            fs::read_to_string(b.join(format!("count-{kind}"))).unwrap().trim().parse().unwrap()
        };
        let go_on = || {
            for (kind, before) in kinds.map(|kind| (kind, count(kind))) {
                wait::until(&format!("{kind} counts"), SOON, || (count(kind) >= before + 20).then_some(()));
            }
        };
        for _ in 0..kills {
            go_on();
            let killed = pair.cluster.kill("metad-1");
            pair.cluster.wait_for_another("metad-1", killed);
        }
        go_on();
        fs::write(a.join("stop"), "").unwrap();
        for (kind, counting) in kinds.into_iter().zip(counting) {
            let counted: Vec<u64> =
                counting.into_iter().map(|one| one.join().unwrap().trim().parse().unwrap()).collect();
            assert_eq!(count(kind), counted.iter().sum::<u64>(), "{kind}: {counted:?}");
        }
    });
    pair.cluster.assert_sound();
}

/// Each shard keeps the locks of its files; those of one that is killed are told it again, the others go on.
#[test]
fn locks_are_kept_in_eight_shards() {
    let pair = Pair::on(Cluster::of(Shape { metadata: 2, shards: 4, targets: 2, ..Shape::default() }));
    let folders: Vec<String> = (0..8).map(|shard| format!("in-{shard}")).collect();
    for (shard, folder) in folders.iter().enumerate() {
        pair.cluster.weft(&["entry", "set", "/", "--placement", &format!("shard:{shard}")]).expect_ok();
        pair.cluster.folder(folder);
        let path = pair.cluster.path(folder);
        assert_eq!(pair.cluster.json(&["entry", "info", path.to_str().unwrap()])["shard"], shard);
    }
    for what in ["exclusion", "closing", "waiting", "deadlock"] {
        pair.run_in(what, &folders[5]);
    }
    for shards in [&[1, 6][..], &[0, 3, 7], &[2, 2, 5]] {
        let mut cycle = pair.python("cycle_over_shards");
        // Of the same directory other files.
        let folder = |(place, &shard): (usize, &usize)| {
            let path = format!("{}/{place}", folders[shard]);
            pair.cluster.folder(&path);
            path
        };
        let inside: Vec<String> = shards.iter().enumerate().map(folder).collect();
        run::run(cycle.env("FOLDERS", inside.join(" ")), run::LONG).expect_ok();
    }
    let mut holders: Vec<Holder> = folders.iter().map(|folder| pair.holder_in(folder)).collect();
    for victim in ["metad-1", "metad-2"] {
        let killed = pair.cluster.kill(victim);
        for folder in &folders {
            pair.run_in("is_held", folder);
        }
        pair.cluster.wait_for_another(victim, killed);
    }
    for (holder, folder) in holders.iter_mut().zip(&folders) {
        pair.run_in("is_held", folder);
        holder.release();
        pair.run_in("is_free", folder);
    }
    pair.cluster.assert_sound();
}

#[test]
fn a_killed_mount_keeps_its_locks_until_its_session_expires() {
    let expiry = Duration::from_secs(4);
    let pair = Pair::expiring_after(4);
    let _holder = pair.holder();
    let file = fs::File::options().read(true).write(true).open(pair.cluster.path("held")).unwrap();
    process::kill(pair.second_pid);
    let begin = Instant::now();
    file.lock().unwrap();
    let took = begin.elapsed();
    assert!(took > expiry / 2 && took < expiry + Duration::from_secs(6), "after {took:?}");
    pair.run("is_free_but_for_flock");
}

#[test]
fn a_client_that_comes_back_too_late_has_lost_its_locks_and_knows_it() {
    let pair = Pair::expiring_after(2);
    let mut relying = pair.start("relies");
    relying.says("held");
    process::stop(pair.second_pid);
    let mut taker = pair.start("take");
    taker.says("held");
    process::signal(pair.second_pid, libc::SIGCONT);
    // At once: it has to ask first, since it knows how long it was away.
    relying.stdin.write_all(b"\n").unwrap();
    relying.says("EIO");
    // Who opens it anew relies on nothing.
    relying.says("written");
}
