//! Programs that wait for a server: Ctrl-C ends them, the bound ends them, and what was killed stands in nobody's way.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::Cluster;
use harness::dice::{Dice, seed};
use harness::run::{self, Code};
use harness::{binary, mounts, process, wait};

const SOON: Duration = Duration::from_secs(30);

fn start(program: &str, path: &Path) -> Child {
    let mut command = Command::new(program);
    // A group of its own, as a shell makes one for each command.
    command.arg(path).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    process::default_signals(&mut command);
    command.spawn().unwrap()
}

/// A server that is gone and not started again, and a program that asks for it.
fn interrupted(server: &str, program: &str, path: &str) {
    let cluster = Cluster::start();
    cluster.folder("d");
    fs::write(cluster.path("d/f"), vec![1; 100_000]).unwrap();
    cluster.freeze_supervisor();
    cluster.kill(server);
    let mut child = start(program, &cluster.path(path));
    thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "{program} does not wait for {server}");
    process::signal(child.id() as i32, libc::SIGINT);
    // The server is not there: nothing else would end it.
    assert_eq!(run::wait(&mut child, SOON), Some(Code(None)), "ended by the signal");
    // The server comes back, and the mount is as good as before.
    cluster.resume();
    let path = cluster.path("d/f");
    let content = wait::within("reading", SOON, move || fs::read(path).unwrap());
    assert_eq!(content, vec![1; 100_000]);
}

#[test]
fn ctrl_c_ends_ls_while_the_metadata_server_is_down() {
    interrupted("metad-1", "ls", "d");
}

#[test]
fn ctrl_c_ends_cat_while_the_storage_server_is_down() {
    interrupted("storaged-1", "cat", "d/f");
}

#[test]
fn a_hung_server_is_waited_for_and_can_be_interrupted() {
    let cluster = Cluster::start();
    cluster.folder("d");
    let metad = cluster.pid("metad-1").unwrap();
    process::stop(metad);
    let mut child = start("ls", &cluster.path("d"));
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "ls does not wait");
    process::signal(child.id() as i32, libc::SIGINT);
    assert_eq!(run::wait(&mut child, SOON), Some(Code(None)));
    let mut patient = start("ls", &cluster.path("d"));
    thread::sleep(Duration::from_millis(300));
    process::signal(metad, libc::SIGCONT);
    assert_eq!(run::wait(&mut patient, SOON), Some(Code(Some(0))));
}

/// Opens its argument, says so, and truncates it when it is told to.
const TRUNCATE: &str = "
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
print('open', flush=True)
sys.stdin.readline()
os.ftruncate(file, 1000)
";

/// The file stays open on the mount of who was killed: its close would end what the shard was told of the truncate.
#[test]
fn a_truncate_that_was_killed_stands_in_nobodys_way() {
    let mut cluster = Cluster::start();
    cluster.folder("d");
    let second = cluster.mount_again(&[]);
    for service in ["metad-1", "storaged-1"] {
        let path = cluster.path("d/f");
        let mut held = File::create(&path).unwrap();
        held.write_all(&vec![1; 3_000_000]).unwrap();
        let mut child = Command::new("python3");
        child.args(["-c", TRUNCATE]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let pid = cluster.pid(service).unwrap();
        process::stop(pid);
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        thread::sleep(Duration::from_millis(700));
        assert!(child.try_wait().unwrap().is_none(), "it does not wait for {service}");
        child.kill().unwrap();
        assert_eq!(run::wait(&mut child, SOON), Some(Code(None)));
        process::signal(pid, libc::SIGCONT);
        for path in [second.point.join("d/f"), path] {
            let look = move || (fs::metadata(&path).unwrap().len(), fs::read(&path).unwrap());
            let (size, content) = wait::within("looking at it", SOON, look);
            assert_eq!(size, content.len() as u64, "{service}");
            assert!(content.iter().take(1000).all(|&byte| byte == 1), "{service}");
        }
    }
}

extern "C" fn caught(_: libc::c_int) {}

/// As on a local file system, where a program's timers, children and stops are no concern of its file operations.
#[test]
fn a_caught_signal_ends_no_operation_though_the_server_is_slow() {
    let cluster = Cluster::start();
    cluster.folder("d");
    // SAFETY: a zeroed record with a handler is valid, and lives through the call; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = caught as *const () as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let metad = cluster.pid("metad-1").unwrap();
    process::stop(metad);
    let path = cluster.path("d/new");
    let asks = thread::spawn(move || fs::create_dir(path));
    let thread = asks.as_pthread_t();
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(200));
        // SAFETY: the thread is not joined before.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    }
    assert!(!asks.is_finished(), "the signal ended it");
    process::signal(metad, libc::SIGCONT);
    wait::within("the answer", SOON, move || asks.join().unwrap().unwrap());
    assert!(cluster.path("d/new").is_dir());
}

#[test]
fn after_the_bound_the_application_gets_eio_and_the_log_names_the_server() {
    let mut cluster = Cluster::start();
    cluster.folder("d");
    // Too long for the metadata.
    let written = Dice::new(seed()).bytes(100 << 10);
    fs::write(cluster.path("d/f"), &written).unwrap();
    let second = cluster.mount_again(&["--retry-timeout", "2s"]);
    for (server, file, is_folder) in [("storaged-1", "d/f", false), ("metad-1", "d", true)] {
        cluster.freeze_supervisor();
        let node = cluster.kill(server);
        let path = second.point.join(file);
        let (error, took) = wait::within("an answer", SOON, move || {
            let begin = Instant::now();
            // Its attributes may be held under a lease; its entries and data never are.
            let list = || fs::read_dir(&path)?.next().transpose().map(drop);
            let error = if is_folder { list() } else { fs::read(&path).map(drop) };
            (error.err().and_then(|error| error.raw_os_error()), begin.elapsed())
        });
        assert_eq!(error, Some(libc::EIO), "{server}");
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(12), "{server}: {took:?}");
        let log = fs::read_to_string(&second.log).unwrap();
        let line = log.lines().rfind(|line| line.contains("giving up on")).unwrap_or_else(|| panic!("no line: {log}"));
        assert!(line.contains("node ") && line.contains("127.0.0.1:"), "{line}");
        cluster.resume();
        cluster.wait_for_another(server, node);
        // It works again, without a new mount.
        let path = second.point.join("d/f");
        let content =
            wait::within("reading again", SOON, move || wait::until("reading", SOON, || fs::read(&path).ok()));
        assert_eq!(content, written);
    }
}

#[test]
fn a_killed_mount_leaves_nothing_in_the_way_of_the_next() {
    let mut cluster = Cluster::start();
    fs::write(cluster.path("f"), b"content").unwrap();
    let second = cluster.mount_again(&[]);
    let open = File::open(second.point.join("f")).unwrap();
    process::kill(second.pid);
    assert!(fs::read_dir(&second.point).is_err(), "nobody serves it");
    // With the dead one still there, at the same place.
    let again = cluster.weft(&["mount", second.point.to_str().unwrap()]).expect_ok();
    assert_eq!(fs::read(second.point.join("f")).unwrap(), b"content", "{again}");
    assert!(open.metadata().is_err(), "a handle of the dead mount is dead");
    drop(open);
    cluster.weft_alone(&["umount", second.point.to_str().unwrap()]).expect_ok();
    assert!(!mounts::is_mounted(&second.point));
    // The supervised one is mounted again by itself.
    let old = cluster.kill("mount");
    cluster.wait_for_another("mount", old);
    cluster.wait_for_mount();
    assert_eq!(fs::read(cluster.path("f")).unwrap(), b"content");
}

#[test]
fn unmounting_is_clean_and_says_who_is_in_the_way() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let point = second.point.to_str().unwrap().to_owned();
    let file = File::create(second.point.join("f")).unwrap();
    let refused = cluster.weft_alone(&["umount", &point]);
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(refused.stderr.contains(&std::process::id().to_string()), "{refused}");
    drop(file);
    cluster.weft_alone(&["umount", &point]).expect_ok();
    assert!(!mounts::is_mounted(&second.point) && !process::is_alive(second.pid));
    let log = fs::read_to_string(&second.log).unwrap();
    assert!(log.lines().last().is_some_and(|line| line.contains("unmounted")), "{log}");
    let twice = cluster.weft_alone(&["umount", &point]);
    assert_eq!(twice.code, Some(2), "{twice}");
    cluster.down().expect_ok();
    assert!(!mounts::is_mounted(&cluster.mount_point()));
    assert_eq!(cluster.running(), Vec::<i32>::new(), "something runs on");
    // Down twice is no mistake.
    cluster.down().expect_ok();
}

/// A program with threads does this to itself: each file that one of them closes is still open in the processes that
/// another one just forked, until their exec.
#[test]
fn users_of_a_mount_who_leave_at_once_are_waited_for() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let leaves = |point: &Path| {
        let file = File::create(point.join("held")).unwrap();
        Command::new("sleep").arg("0.4").stdin(file).spawn().unwrap()
    };
    let mut child = leaves(&second.point);
    cluster.weft_alone(&["umount", second.point.to_str().unwrap()]).expect_ok();
    child.wait().unwrap();
    let mut child = leaves(&cluster.mount_point());
    cluster.down().expect_ok();
    child.wait().unwrap();
}

#[test]
fn sigterm_unmounts() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    fs::write(second.point.join("f"), b"x").unwrap();
    process::signal(second.pid, libc::SIGTERM);
    wait::until("the end of the mount", SOON, || (!process::is_alive(second.pid)).then_some(()));
    assert!(!mounts::is_mounted(&second.point));
    assert_eq!(fs::read(cluster.path("f")).unwrap(), b"x");
}

/// For some time, in which it would end if it did not wait.
fn waits(child: &mut Child) {
    thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it does not wait");
}

/// Nobody answers at its mgmtd's address: it would wait for the whole `start_timeout`.
#[test]
fn a_mount_that_waits_for_its_cluster_can_be_ended() {
    let cluster = Cluster::start();
    cluster.down().expect_ok();
    let point = cluster.beside("point");
    fs::create_dir(&point).unwrap();
    for (flags, signal) in
        [(&["--foreground"][..], libc::SIGTERM), (&["--foreground"], libc::SIGINT), (&[], libc::SIGINT)]
    {
        let mut command = Command::new(binary::weft());
        command.arg("mount").arg(&point).arg("--dir").arg(cluster.dir()).args(flags);
        // Much longer than the signal is given.
        command.args(["--start-timeout", "600s"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        process::default_signals(&mut command);
        let mut child = command.spawn().unwrap();
        let pid = child.id() as i32;
        // Before, it would have no time to say a last word.
        wait::until("it hears the signal", SOON, || process::hears(pid, signal).then_some(()));
        waits(&mut child);
        process::signal(pid, signal);
        assert_eq!(run::wait(&mut child, SOON), Some(Code(Some(1))));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.lines().last().is_some_and(|line| line.starts_with("weft: ")), "{said}");
        assert_eq!(cluster.running(), Vec::<i32>::new(), "something runs on");
    }
    // Services too.
    for (kind, name) in [("metad", "metad-1"), ("storaged", "storaged-1")] {
        let mut command = Command::new(binary::weft());
        command.arg(kind).arg("--config").arg(cluster.dir().join(format!("{name}.toml")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        waits(&mut child);
        process::signal(child.id() as i32, libc::SIGTERM);
        assert!(run::wait(&mut child, SOON).is_some(), "{name} does not end");
    }
}

/// Ctrl-C during `weft up`: what was started goes.
#[test]
fn an_interrupted_start_leaves_nothing_running() {
    for flags in [&[][..], &["--detach"]] {
        let cluster = Cluster::start();
        cluster.down().expect_ok();
        // It cannot come up: its metadata service waits for a mgmtd that is not there.
        let config = cluster.dir().join("metad-1.toml");
        let text = fs::read_to_string(&config).unwrap();
        let text: String =
            text.lines().filter(|line| !line.starts_with("mgmtd =")).map(|line| format!("{line}\n")).collect();
        fs::write(&config, text + "mgmtd = \"127.0.0.1:1\"\n").unwrap();
        let mut command = Command::new(binary::weft());
        command.args(["up", "--dir"]).arg(cluster.dir()).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process::default_signals(&mut command);
        let mut child = command.spawn().unwrap();
        wait::until("services run", SOON, || cluster.pid("mount"));
        thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        process::signal(child.id() as i32, libc::SIGINT);
        assert_eq!(run::wait(&mut child, SOON), Some(Code(Some(1))));
        let took = begin.elapsed();
        // The mount may have a request under way, which is given some seconds.
        assert!(took < Duration::from_secs(20), "took {took:?}");
        assert_eq!(cluster.running(), Vec::<i32>::new(), "something runs on");
    }
}

/// The measurement that is under way ends, its cluster is stopped, its folder goes.
#[test]
fn an_interrupted_bench_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary::weft());
    command.args(["bench", "--quick", "--only", "mount churn x1", "--dir"]).arg(folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    process::default_signals(&mut command);
    let mut child = command.spawn().unwrap();
    let at_work = || {
        let inside = fs::read_dir(folder.path()).unwrap().next()?.unwrap().path();
        inside.join("mnt/bench").read_dir().ok()?.next()
    };
    wait::until("the bench is at work on its cluster", SOON, at_work).unwrap();
    process::signal_group(child.id() as i32, libc::SIGINT);
    assert_eq!(run::wait(&mut child, SOON), Some(Code(Some(1))));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(process::mentioning(folder.path()), Vec::<i32>::new(), "something runs on");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something is left");
}
