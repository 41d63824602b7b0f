//! Mounts that stand still for longer than their session lives: they do no harm when they come back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, SecondMount};
use harness::{metrics, preload, process, wait};

const SOON: Duration = Duration::from_secs(60);
const EXPIRY_S: u32 = 2;
/// No lease outlives its session, and nothing is kept back under one that has less than two seconds left.
const KEPT_EXPIRY_S: u32 = 8;
const ENDED: &str = "its session has ended";
/// Too much for the metadata, and little enough that who reads it keeps it.
const LEN: usize = 40_000;

fn reads(cluster: &Cluster) -> f64 {
    metrics::sum(cluster, "storage", "weft_request_seconds_count", &["op=\"Read\""])
}

fn ended(cluster: &Cluster) -> usize {
    cluster.log("metad-1").matches(ENDED).count()
}

/// A process that has a file open. Not this one: what it starts meanwhile would wait for the mount that stands still.
struct Program {
    child: Child,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const PROGRAM: &str = r#"
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print("open", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    try:
        if verb == "write":
            os.pwrite(file, words[1].encode(), int(words[0]))
        elif verb == "lock":
            fcntl.flock(file, fcntl.LOCK_EX)
        elif verb == "sync":
            os.fsync(file)
        print("done", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"#;

impl Program {
    fn with(path: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut program = Self { child, stdin, answers: BufReader::new(stdout) };
        assert_eq!(program.answer(), "open");
        program
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn asks(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").unwrap();
    }

    fn says(&mut self, what: &str) -> String {
        self.asks(what);
        self.answer()
    }

    fn does(&mut self, what: &str) {
        assert_eq!(self.says(what), "done", "{what}");
    }

    fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

/// The second mount, with a file open for writing, stands still until its session is over; since then it does.
fn stopped(cluster: &Cluster, second: &SecondMount) -> (Program, Instant) {
    fs::write(cluster.path("f"), vec![b'.'; LEN]).unwrap();
    let mut program = Program::with(&second.point.join("f"));
    // A second or so: who writes on and on asks for the lease under which the next ones are kept back.
    for _ in 0..40 {
        program.does("write 0 before");
        thread::sleep(Duration::from_millis(50));
    }
    let before = ended(cluster);
    process::stop(second.pid);
    let since = Instant::now();
    wait::until("the end of the session", SOON, || (ended(cluster) > before).then_some(()));
    (program, since)
}

#[test]
fn what_a_mount_writes_after_it_stood_still_is_seen_by_who_believed_that_nobody_writes() {
    let mut cluster = Cluster::expiring_after(EXPIRY_S);
    // Each write is a request of its own, made while the program waits.
    let second = cluster.mount_again(&["--write-back", "0"]);
    let (mut program, _) = stopped(&cluster, &second);
    let path = cluster.path("f");
    // Who writes it now tells the shard at the end how long it is.
    File::options().write(true).open(&path).unwrap().write_all_at(b"others", 20).unwrap();
    wait::until("who reads it asks nobody", SOON, || {
        let before = reads(&cluster);
        (0..20).for_each(|_| assert!(fs::read(&path).unwrap().starts_with(b"before")));
        (reads(&cluster) == before).then_some(())
    });
    assert!(cluster.log("storaged-1").contains("a client's session is over"), "its connections were to be ended");

    process::signal(second.pid, libc::SIGCONT);
    program.does("write 10 after");
    assert_eq!(&fs::read(&path).unwrap()[..27], b"before....after.....others.");
    program.does(&format!("write {LEN} longer"));
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN as u64 + 6);
    assert!(fs::read(&path).unwrap().ends_with(b"...longer"));
    program.end();
    cluster.assert_sound();
}

/// The clock that programs measure time by is behind by the nanoseconds that the file `BEHIND` holds.
const CLOCK: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long long *behind;
__attribute__((constructor)) static void begin(void) {
    behind = mmap(0, sizeof *behind, PROT_READ, MAP_SHARED, open("BEHIND", O_RDONLY | O_CLOEXEC), 0);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_MONOTONIC && behind && behind != MAP_FAILED) {
        long long now = time->tv_sec * 1000000000LL + time->tv_nsec - *behind;
        time->tv_sec = now / 1000000000;
        time->tv_nsec = now % 1000000000;
    }
    return failed;
}
"#;

#[test]
fn what_was_kept_back_when_a_mount_stood_still_is_not_written_over_others() {
    let mut cluster = Cluster::expiring_after(KEPT_EXPIRY_S);
    let second = cluster.mount_again(&[]);
    kept_back_is_not_written_over_others(&cluster, &second, |_| ());
}

/// As when a laptop sleeps: by its own clock, the mount did not stand still at all.
#[test]
fn nor_is_it_when_the_clock_stood_still_too() {
    let mut cluster = Cluster::expiring_after(KEPT_EXPIRY_S);
    let behind = cluster.beside("behind");
    fs::write(&behind, 0i64.to_ne_bytes()).unwrap();
    let source = CLOCK.replace("BEHIND", behind.to_str().unwrap());
    let library = preload::library(behind.parent().unwrap(), "clock", &source);
    let second = cluster.mount_again_with(&[], Some(&library));
    kept_back_is_not_written_over_others(&cluster, &second, |since| {
        // In place, as the mount maps it. It must not go back.
        let slept = since.elapsed() - Duration::from_millis(5);
        let file = File::options().write(true).open(&behind).unwrap();
        file.write_all_at(&(slept.as_nanos() as i64).to_ne_bytes(), 0).unwrap();
    });
}

/// `wake` is told since when the mount has stood still, just before it goes on.
fn kept_back_is_not_written_over_others(cluster: &Cluster, second: &SecondMount, wake: impl FnOnce(Instant)) {
    let (mut program, since) = stopped(cluster, second);
    let path = cluster.path("f");
    fs::write(&path, vec![b'+'; LEN]).unwrap();
    // What it has to hear comes late.
    let shard = cluster.pid("metad-1").unwrap();
    process::stop(shard);
    wake(since);
    process::signal(second.pid, libc::SIGCONT);
    program.asks("sync");
    thread::sleep(Duration::from_secs(1));
    process::signal(shard, libc::SIGCONT);
    assert_eq!(program.answer(), "Input/output error");
    program.end();
    let mut program = Program::with(&second.point.join("f"));
    program.does("write 10 after");
    program.end();
    let found = fs::read(&path).unwrap();
    assert_eq!((&found[..10], &found[10..16]), (&[b'+'; 10][..], &b"after+"[..]));
    cluster.assert_sound();
}

#[test]
fn a_storage_service_that_is_gone_keeps_no_dead_session_alive() {
    let mut cluster = Cluster::expiring_after(EXPIRY_S);
    let second = cluster.mount_again(&[]);
    let mut program = Program::with(&second.point.join("f"));
    program.does(&format!("write 0 {}", ".".repeat(LEN)));
    program.does("lock");
    let ours = File::open(cluster.path("f")).unwrap();
    let storaged = cluster.pid("storaged-1").unwrap();
    // Hanging is worse than gone: its connections are made and say nothing.
    process::stop(storaged);
    process::kill(second.pid);
    let begin = Instant::now();
    ours.lock().unwrap();
    let took = begin.elapsed();
    process::signal(storaged, libc::SIGCONT);
    assert!(took < Duration::from_secs(30), "the lock of a dead mount was kept for {took:?}");
    assert_eq!(fs::read(cluster.path("f")).unwrap().len(), LEN);
    program.end();
}
