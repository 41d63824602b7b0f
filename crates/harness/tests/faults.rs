//! Disks that are full or gone, keys and directories that are not the right ones: one clear line, the right exit code, and
//! no damage.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::loop_disk::LoopDisk;
use harness::run::{Ended, run};
use harness::{binary, syscall, wait};

const SOON: Duration = Duration::from_secs(60);

/// Refused as something that the user has to change: exit code 2, and one line that has all of `words`.
#[track_caller]
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(2), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("weft: ")).collect();
    assert_eq!(lines.len(), 1, "one line: {ended}");
    for word in words {
        assert!(lines[0].contains(word), "no {word:?} in {:?}", lines[0]);
    }
}

/// A service in the foreground, which is expected to end by itself.
fn service(kind: &str, config: &Path, flags: &[&str]) -> Ended {
    run(Command::new(binary::weft()).arg(kind).arg("--config").arg(config).args(flags), SOON)
}

/// A cluster that was up once, with a file in it, and is down.
fn cluster_with_data() -> Cluster {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.down().expect_ok();
    cluster
}

fn assert_data_is_there(cluster: &Cluster) {
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
}

fn config_of(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.dir().join(format!("{name}.toml"))
}

fn set(config: &Path, key: &str, value: &str) {
    let text = fs::read_to_string(config).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start_matches('#').starts_with(&format!("{key} =")));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(config, format!("{text}{key} = \"{value}\"\n")).unwrap();
}

#[test]
fn a_full_storage_disk_says_so_and_takes_removals() {
    let cluster = cluster_with_data();
    let _disk = LoopDisk::under(&cluster.dir().join("storaged-1"), 160);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let before = syscall::free_bytes(&cluster.mount_point()).unwrap();
    let error = fill(&cluster.path("big"), 400).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let error = fill(&cluster.path("other"), 40).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "still full");
    // What was written is right, and names can still be made and removed.
    let mut block = vec![0; 1 << 20];
    File::open(cluster.path("big")).unwrap().read_exact(&mut block).unwrap();
    assert!(block.iter().all(|&byte| byte == 7));
    fs::create_dir(cluster.path("d")).unwrap();
    for name in ["big", "other"] {
        fs::remove_file(cluster.path(name)).unwrap();
    }
    wait::until("the space is free again", SOON, || {
        (syscall::free_bytes(&cluster.mount_point()).unwrap() + (8 << 20) > before).then_some(())
    });
    fill(&cluster.path("again"), 40).unwrap();
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

fn fill(path: &Path, mib: u64) -> io::Result<()> {
    let file = File::options().create(true).truncate(true).write(true).open(path)?;
    (0..mib).try_for_each(|at| file.write_all_at(&[7; 1 << 20], at << 20))?;
    file.sync_all()
}

#[test]
fn a_full_metadata_disk_says_so_and_takes_removals() {
    let cluster = cluster_with_data();
    let disk_at = cluster.dir().join("metad-1");
    let _disk = LoopDisk::under(&disk_at, 160);
    cluster.up().expect_ok();
    let folder = cluster.folder("d");
    fs::write(folder.join("f"), b"x").unwrap();
    // Somebody else's file on the same disk leaves less than the reserve.
    let free = syscall::free_bytes(&disk_at).unwrap();
    fill(&disk_at.join("foreign"), free / (1 << 20) - 30).unwrap();
    wait::until("making names is refused", SOON, || match File::create_new(folder.join("probe")) {
        Ok(_) => fs::remove_file(folder.join("probe")).map(|()| None).unwrap(),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            Some(())
        }
    });
    assert_eq!(fs::create_dir(folder.join("sub")).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    // Its contents are there too.
    let file = File::options().write(true).open(folder.join("f")).unwrap();
    assert_eq!(file.write_all_at(b"more", 0).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    assert_eq!(fs::read(folder.join("f")).unwrap(), b"x");
    fs::remove_file(folder.join("f")).unwrap();
    fs::remove_dir(&folder).unwrap();
    fs::remove_file(disk_at.join("foreign")).unwrap();
    wait::until("making names works again", SOON, || fs::write(cluster.path("new"), b"y").ok());
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_read_only_disk_is_named_and_harmless() {
    let cluster = cluster_with_data();
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad")] {
        let disk = LoopDisk::under(&cluster.dir().join(name), 128);
        disk.remount("ro");
        let refused = service(kind, &config_of(&cluster, name), &[]);
        assert_refused(&refused, &[name, "Read-only file system"]);
        let refused = cluster.up();
        assert_refused(&refused, &[name, "Read-only file system"]);
        assert!(cluster.pids().is_empty(), "nothing half started stays behind");
        disk.remount("rw");
        set(&config_of(&cluster, name), "reserve", "16MiB");
        cluster.up().expect_ok();
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
        // Back from the small disk.
        let folder = cluster.dir().join(name);
        run(Command::new("cp").arg("-a").arg(&folder).arg(cluster.beside("saved")), SOON).expect_ok();
        drop(disk);
        fs::remove_dir(&folder).unwrap();
        fs::rename(cluster.beside("saved"), &folder).unwrap();
    }
}

#[test]
fn a_disk_that_turns_read_only_under_load_gives_errors_and_loses_nothing() {
    let cluster = cluster_with_data();
    let disk = LoopDisk::under(&cluster.dir().join("storaged-1"), 160);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    fs::write(cluster.path("f"), vec![3; 300_000]).unwrap();
    // A service that ends with code 2 at once is not tried again; one that has run for a while is.
    std::thread::sleep(Duration::from_secs(3));
    // As the kernel does after an error; it refuses while files are open for writing, so the service goes first.
    cluster.freeze_supervisor();
    let old = cluster.kill("storaged-1");
    disk.remount("ro");
    cluster.resume();
    let refused = wait::until("it says why it does not start", SOON, || {
        cluster.log("storaged-1").lines().rfind(|line| line.contains("Read-only")).map(str::to_owned)
    });
    assert!(refused.contains("storaged-1"), "{refused}");
    disk.remount("rw");
    cluster.wait_for_another("storaged-1", old);
    let path = cluster.path("f");
    assert!(wait::within("reading", SOON, move || fs::read(path).unwrap()) == vec![3; 300_000]);
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_wrong_key_is_refused_by_all_and_harms_nothing() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let wrong = cluster.beside("wrong.key");
    fs::write(&wrong, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let mgmtd = mgmtd_of(&cluster);
    let key = wrong.to_str().unwrap();
    let point = cluster.beside("point");
    fs::create_dir(&point).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["key"]);
    let mount = ["mount", point.to_str().unwrap(), "--mgmtd", &mgmtd, "--key-file", key, "--start-timeout", "5s"];
    assert_refused(&cluster.weft_alone(&mount), &["key"]);
    // One that everybody could read is none.
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["wrong.key"]);
    fs::write(&wrong, "short\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["wrong.key"]);
    assert_data_is_there(&cluster);
    assert!(cluster.log("mgmtd").contains("WARN"), "the refusals are in the log");
}

fn mgmtd_of(cluster: &Cluster) -> String {
    cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned()
}

#[test]
fn a_target_of_another_cluster_is_refused() {
    let (ours, theirs) = (cluster_with_data(), cluster_with_data());
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad")] {
        // Their mgmtd and key, our directory.
        theirs.up().expect_ok();
        let config = ours.beside("mixed.toml");
        fs::copy(config_of(&ours, name), &config).unwrap();
        set(&config, "mgmtd", &mgmtd_of(&theirs));
        set(&config, "key_file", theirs.dir().join("cluster.key").to_str().unwrap());
        let refused = service(kind, &config, &[]);
        assert_refused(&refused, &["cluster"]);
        theirs.down().expect_ok();
    }
    for cluster in [&ours, &theirs] {
        cluster.up().expect_ok();
        assert_data_is_there(cluster);
    }
}

#[test]
fn two_services_on_one_directory_are_one_too_many() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad"), ("mgmtd", "mgmtd")] {
        let pid = cluster.pid(name).unwrap().to_string();
        let refused = service(kind, &config_of(&cluster, name), &[]);
        let words = if name == "mgmtd" { vec!["in use"] } else { vec!["another service", &pid, name] };
        assert_refused(&refused, &words);
    }
    // Up twice is no mistake, and starts nothing twice.
    let before = cluster.pids();
    cluster.up().expect_ok();
    assert_eq!(cluster.pids(), before);
    assert_data_is_there(&cluster);
}

#[test]
fn a_target_that_vanished_is_not_made_anew() {
    let cluster = cluster_with_data();
    for (name, vanished) in [("storaged-1", "storaged-1/target-2"), ("metad-1", "metad-1"), ("mgmtd", "mgmtd")] {
        let (place, aside) = (cluster.dir().join(vanished), cluster.beside("aside"));
        fs::rename(&place, &aside).unwrap();
        assert_refused(&cluster.up(), &[name, vanished.rsplit('/').next().unwrap()]);
        assert!(!place.exists(), "nothing was made in its place");
        // An empty directory is what a disk that is not mounted looks like.
        fs::create_dir(&place).unwrap();
        assert_refused(&cluster.up(), &[name]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing was made in {vanished}");
        assert!(cluster.pids().is_empty(), "nothing half started stays behind");
        fs::remove_dir(&place).unwrap();
        fs::rename(&aside, &place).unwrap();
        cluster.up().expect_ok();
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
    }
}

#[test]
fn a_port_in_use_is_named() {
    let cluster = cluster_with_data();
    let mgmtd = config_of(&cluster, "mgmtd");
    let text = fs::read_to_string(&mgmtd).unwrap();
    let listen = text.lines().find(|line| line.starts_with("listen =")).unwrap().split('"').nth(1).unwrap().to_owned();
    let occupied = TcpListener::bind(&listen).unwrap();
    assert_refused(&service("mgmtd", &mgmtd, &[]), &[&listen, "in use"]);
    let other = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    drop(occupied);
    cluster.up().expect_ok();
    cluster.freeze_supervisor();
    for (name, kind, flag, value) in [
        ("storaged-1", "storaged", "--port", port.clone()),
        ("metad-1", "metad", "--listen", format!("0.0.0.0:{port}")),
    ] {
        cluster.kill(name);
        let refused = service(kind, &config_of(&cluster, name), &[flag, &value]);
        assert_refused(&refused, &[&port, "in use"]);
    }
    cluster.resume();
    wait::until("all is well again", SOON, || fs::metadata(cluster.path("kept")).ok());
    assert_data_is_there(&cluster);
}

#[test]
fn a_port_that_weft_chose_itself_is_replaced_where_it_is_taken() {
    let cluster = cluster_with_data();
    let line = |key: &str| -> String {
        let text = fs::read_to_string(config_of(&cluster, "mgmtd")).unwrap();
        text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap().trim_matches('"').to_owned()
    };
    for key in ["listen", "metrics_listen"] {
        let (before, other) = (line("listen"), TcpListener::bind(line(key)).unwrap());
        cluster.up().expect_ok();
        assert_ne!(line("listen"), before);
        assert_eq!(mgmtd_of(&cluster), line("listen"));
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
        drop(other);
    }
    // One that the user has chosen is theirs to change.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    set(&config_of(&cluster, "mgmtd"), "listen", &address);
    assert_refused(&cluster.up(), &["mgmtd", &address, "in use"]);
    assert_eq!(line("listen"), address);
}

/// Bytes that are no protocol, or one of another version: that connection is closed, and nothing else notices.
/// The ports of a metadata service are chosen anew at each start, here after the check has asked where they are.
#[test]
fn a_check_finds_a_service_that_was_started_again_elsewhere() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.freeze_supervisor();
    cluster.kill("metad-1");
    thread::scope(|scope| {
        let check = scope.spawn(|| cluster.weft(&["fsck"]));
        thread::sleep(Duration::from_secs(1));
        cluster.resume();
        check.join().unwrap().expect_ok();
    });
}

#[test]
fn foreign_bytes_close_their_connection_and_nothing_else() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let before = cluster.pids();
    let mut ports = vec![mgmtd_of(&cluster)];
    for kind in ["node", "target"] {
        let list = cluster.json(&[kind, "list"]).to_string();
        let digits = list.split("127.0.0.1:").skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        ports.extend(digits.flatten().map(|port| format!("127.0.0.1:{port}")));
    }
    assert!(ports.len() >= 3, "addresses of all services: {ports:?}");
    for port in &ports {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 4096], b"WEFT\xff\xff\xff\xff", b""] {
            let mut stream = TcpStream::connect(port).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            match stream.take(1 << 20).read_to_end(&mut answer) {
                Ok(_) => {}
                Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "{port} keeps a foreign connection"),
            }
        }
    }
    assert_eq!(cluster.pids(), before);
    assert_data_is_there(&cluster);
}

#[test]
fn wrong_words_are_refused_with_what_to_do() {
    let cluster = Cluster::unborn(Shape::default());
    let dir = cluster.dir();
    fs::create_dir(&dir).unwrap();
    assert_refused(&cluster.weft(&["status"]), &["weft up"]);
    fs::write(dir.join("precious"), b"x").unwrap();
    assert_refused(&cluster.up(), &["something else", "--dir"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing was changed");
    fs::remove_file(dir.join("precious")).unwrap();
    fs::create_dir_all(cluster.mount_point()).unwrap();
    fs::write(cluster.path("mine"), b"x").unwrap();
    assert_refused(&cluster.up(), &["not empty"]);
    assert_eq!(fs::read(cluster.path("mine")).unwrap(), b"x");
    fs::remove_file(cluster.path("mine")).unwrap();
    cluster.up().expect_ok();
    cluster.down().expect_ok();
    let config = config_of(&cluster, "metad-1");
    set(&config, "no_such_key", "1");
    assert_refused(&cluster.up(), &["metad-1", "no_such_key"]);
}
