//! What programs leave behind that were killed while they waited for a server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::run::{self, Code};
use harness::{process, wait};

const SOON: Duration = Duration::from_secs(30);
/// More than the metadata keeps.
const LEN: usize = 100_000;

fn start(program: &str, args: &[&str], path: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(args).arg(path).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// It waits for a server that is stopped, and is killed.
fn killed(child: &mut Child, what: &str) {
    process::wait_until_it_waits(child.id() as i32);
    assert!(child.try_wait().unwrap().is_none(), "{what} does not wait");
    child.kill().unwrap();
    assert_eq!(run::wait(child, SOON), Some(Code(None)), "{what}");
}

/// Writes `len` bytes to the beginning of a file, from one CPU and past all caches, with so many threads at once.
fn writer(cpu: usize, byte: u8, threads: usize, len: usize, path: &Path) -> Child {
    let program = format!(
        "import mmap, os, sys, threading
os.sched_setaffinity(0, [{cpu}])
file = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
data = mmap.mmap(-1, {len})
data.write(bytes([{byte}]) * {len})
for _ in range({threads}):
    threading.Thread(target=os.pwrite, args=(file, data, 0)).start()"
    );
    start("python3", &["-c", &program], path)
}

/// Who is killed has written what it was writing, or has not: it does not write later. Each CPU has connections of its own.
#[test]
fn what_the_killed_wrote_is_not_written_later() {
    let mut cluster = Cluster::start();
    // As from another host: of what a stopped server was sent, a part is still here.
    let mount = cluster.mount_again(&["--local-sockets=false", "--share-memory=false"]);
    let path = mount.point.join("f");
    let storaged = cluster.pid("storaged-1").unwrap();
    for round in 1..=4 {
        // Writes that make it longer would wait for each other in the kernel.
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        process::stop(storaged);
        killed(&mut writer(round % 2, 1, 16, 1 << 20, &path), "a write");
        let mut later = writer((round + 1) % 2, 2, 1, 4096, &path);
        thread::sleep(Duration::from_millis(200));
        process::signal(storaged, libc::SIGCONT);
        assert_eq!(run::wait(&mut later, SOON), Some(Code(Some(0))));
        for _ in 0..20 {
            let mut content = [0; 4096];
            File::open(&path).unwrap().read_exact(&mut content).unwrap();
            assert!(content.iter().all(|&byte| byte == 2), "round {round}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The file in which the first object of a file lies.
fn object(cluster: &Cluster, path: &Path) -> PathBuf {
    let info = cluster.json(&["entry", "info", path.to_str().unwrap()]);
    PathBuf::from(info["stripes"][0]["place"].as_str().unwrap())
}

/// What nobody has open goes with its name.
#[test]
fn what_the_killed_opened_is_closed() {
    let cluster = Cluster::start();
    let metad = cluster.pid("metad-1").unwrap();
    let programs: [(&str, &[&str]); 2] = [("cat", &[]), ("truncate", &["-s", "1"])];
    for (program, args) in programs {
        let path = cluster.path(program);
        fs::write(&path, vec![1; LEN]).unwrap();
        let object = object(&cluster, &path);
        assert!(object.exists());
        process::stop(metad);
        killed(&mut start(program, args, &path), program);
        process::signal(metad, libc::SIGCONT);
        fs::remove_file(&path).unwrap();
        wait::until("the object goes", SOON, || (!object.exists()).then_some(()));
    }
}

/// Makes a file and writes too much for the metadata, or is killed before it is made.
#[test]
fn what_the_killed_made_is_closed() {
    let cluster = Cluster::start();
    let metad = cluster.pid("metad-1").unwrap();
    // Each CPU has a connection of its own: what was never sent is never done.
    for cpu in 0..thread::available_parallelism().unwrap().get() {
        let warm = cluster.path(&format!("warm-{cpu}"));
        let mut child = start("taskset", &["-c", &cpu.to_string(), "touch"], &warm);
        assert_eq!(run::wait(&mut child, SOON), Some(Code(Some(0))));
    }
    // The kernel may have other questions first.
    let mut names = (0..20).map(|number| cluster.path(&format!("made-{number}")));
    let made = names.find(|path| {
        assert!(!path.exists());
        process::stop(metad);
        killed(&mut start("touch", &[], path), "touch");
        process::signal(metad, libc::SIGCONT);
        thread::sleep(Duration::from_millis(200));
        path.exists()
    });
    let path = made.expect("some program gets as far as to ask for its file");
    // By who has it open again, and closes it.
    let mut file = File::options().write(true).open(&path).unwrap();
    file.write_all(&vec![1; LEN]).unwrap();
    drop(file);
    let object = object(&cluster, &path);
    let mut held = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut content = Vec::new();
    held.read_to_end(&mut content).unwrap();
    assert!(content.len() == LEN && object.exists(), "it is open");
    drop(held);
    wait::until("the object goes", SOON, || (!object.exists()).then_some(()));
}

/// The other mount is to give back a lease on the directory, and does not: each change waits for that, also when nobody waits
/// for the change any more. What it makes is seen at once where the program was killed, too.
#[test]
fn what_the_killed_changed_is_seen_when_it_happens() {
    const COOLING: Duration = Duration::from_millis(1200);
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let dir = cluster.folder("d");
    fs::write(dir.join("removed"), b"x").unwrap();
    for (program, name) in [("mkdir", "made"), ("unlink", "removed")] {
        let (here, there) = (dir.join(name), second.point.join("d").join(name));
        let before = here.exists();
        thread::sleep(COOLING);
        assert!(second.point.join("d").is_dir());
        process::stop(second.pid);
        killed(&mut start(program, &[], &here), program);
        assert_eq!(here.exists(), before, "{program} is waiting");
        process::signal(second.pid, libc::SIGCONT);
        wait::until("the change", SOON, || (there.exists() != before).then_some(()));
        assert_eq!(here.exists(), !before, "{program}");
    }
    cluster.assert_sound();
}

/// Opens its argument, writes, closes it and opens it again.
const CLOSE: &str = "
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(file, b'x', 0)
os.fsync(file)
sys.stdout.write('o')
sys.stdout.flush()
sys.stdin.read(1)
os.close(file)
# By then the close is on its way.
time.sleep(0.1)
os.open(sys.argv[1], os.O_RDONLY)
";

/// Who opens a file that is just being closed waits for that.
#[test]
fn who_waits_for_a_close_can_be_killed() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    fs::write(&path, vec![1; LEN]).unwrap();
    let metad = cluster.pid("metad-1").unwrap();
    let mut child = Command::new("python3");
    child.args(["-c", CLOSE]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = child.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    process::stop(metad);
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    killed(&mut child, "an open");
    process::signal(metad, libc::SIGCONT);
    assert_eq!(fs::read(&path).unwrap().len(), LEN);
}
