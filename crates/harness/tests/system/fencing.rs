//! Mounts that stand still for longer than their session lives: they do no harm when they come back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, SecondMount};
use harness::{metrics, process, wait};

const SOON: Duration = Duration::from_secs(60);
const EXPIRY_S: u32 = 2;
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

    fn says(&mut self, what: &str) -> String {
        writeln!(self.stdin, "{what}").unwrap();
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

/// The second mount, with a file open for writing, stands still until its session is over.
fn stopped(cluster: &Cluster, second: &SecondMount) -> Program {
    fs::write(cluster.path("f"), vec![b'.'; LEN]).unwrap();
    let mut program = Program::with(&second.point.join("f"));
    program.does("write 0 before");
    let before = ended(cluster);
    process::stop(second.pid);
    wait::until("the end of the session", SOON, || (ended(cluster) > before).then_some(()));
    program
}

#[test]
fn what_a_mount_writes_after_it_stood_still_is_seen_by_who_believed_that_nobody_writes() {
    let mut cluster = Cluster::expiring_after(EXPIRY_S);
    // Each write is a request of its own, made while the program waits.
    let second = cluster.mount_again(&["--write-back", "0"]);
    let mut program = stopped(&cluster, &second);
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

#[test]
fn what_was_kept_back_when_a_mount_stood_still_is_not_written_over_others() {
    let mut cluster = Cluster::expiring_after(EXPIRY_S);
    let second = cluster.mount_again(&[]);
    let mut program = stopped(&cluster, &second);
    let path = cluster.path("f");
    fs::write(&path, vec![b'+'; LEN]).unwrap();
    process::signal(second.pid, libc::SIGCONT);
    // It may say that something was lost.
    let _ = program.says("sync");
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
