//! A cluster becomes larger while it runs: nothing that runs is started again, programs on the mounts notice nothing, and
//! what is new is used at once and found again at the next start.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::load::{Control, workers};
use harness::{binary, process, run, wait};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// No call may take so long: it would have waited for something that does not come. (That nothing is started again, for which
/// one would wait less, shows by the processes.)
const LONGEST: Duration = Duration::from_secs(30);

fn shard_of(cluster: &Cluster, path: &Path) -> u64 {
    cluster.json(&["entry", "info", path.to_str().unwrap()])["shard"].as_u64().unwrap()
}

/// The targets that have a part of a file.
fn targets_of(cluster: &Cluster, path: &Path) -> BTreeSet<u64> {
    let info = cluster.json(&["entry", "info", path.to_str().unwrap()]);
    info["stripes"].as_array().unwrap().iter().filter_map(|stripe| stripe["target"].as_u64()).collect()
}

/// Makes directories below `folder` until there is one in each of so many shards, and a file over all targets.
fn use_all(cluster: &Cluster, folder: &Path, shards: usize, targets: usize) {
    fs::create_dir(folder).unwrap();
    let mut seen = BTreeSet::new();
    for number in 0.. {
        let dir = folder.join(format!("d{number}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), dir.to_str().unwrap()).unwrap();
        seen.insert(shard_of(cluster, &dir));
        if seen.len() == shards {
            break;
        }
        assert!(number < 40 * shards, "new directories are in {seen:?} only, of {shards} shards");
    }
    let path = folder.to_str().unwrap();
    let count = targets.to_string();
    cluster.weft(&["entry", "set", path, "--chunk-size", "16KiB", "--stripe-count", &count]).expect_ok();
    fs::write(folder.join("wide"), vec![7; targets * (16 << 10)]).unwrap();
    assert_eq!(targets_of(cluster, &folder.join("wide")).len(), targets);
}

fn check_all(folder: &Path, targets: usize) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_eq!(fs::read_to_string(path.join("f")).unwrap(), path.to_str().unwrap());
        }
    }
    assert_eq!(fs::read(folder.join("wide")).unwrap(), vec![7; targets * (16 << 10)]);
}

fn grow(cluster: &Cluster, flags: &[&str]) -> Value {
    cluster.json(&[&["up"][..], flags].concat())
}

#[test]
fn a_running_cluster_grows_under_load() {
    let mut cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let second = cluster.mount_again(&[]).point;
    let root = cluster.folder("load");
    cluster.weft(&["entry", "set", "/load", "--chunk-size", "16KiB"]).expect_ok();
    // A service that has just been started is not told to grow before it has proven itself.
    let before = cluster.pids();
    let mut team = workers(&root, 2, 1).unwrap();
    let control = Control::default();
    let longest = thread::scope(|scope| {
        let threads: Vec<_> = team.iter_mut().map(|worker| scope.spawn(|| worker.run(&control))).collect();
        let begin = Instant::now();
        // First more services, then more of each.
        let grown = grow(&cluster, &["--metadata", "2", "--storage", "2"]);
        assert_eq!((&grown["already"], &grown["grown"]), (&true.into(), &true.into()));
        use_all(&cluster, &cluster.path("services"), 2, 4);
        grow(&cluster, &["--shards", "2", "--targets", "3"]);
        println!("grown in {:.1?}", begin.elapsed());
        use_all(&cluster, &second.join("more"), 4, 6);
        let calls = control.acknowledged.load(Ordering::Relaxed);
        wait::until("load after that", PATIENCE, || {
            (control.acknowledged.load(Ordering::Relaxed) > calls + 20).then_some(())
        });
        control.stop.store(true, Ordering::Relaxed);
        let longest =
            threads.into_iter().map(|worker| worker.join().unwrap().unwrap_or_else(|error| panic!("{error}")));
        longest.max().unwrap()
    });
    println!("the longest call took {longest:.1?}");
    assert!(longest < LONGEST, "a call took {longest:?}");
    for (name, pid) in &before {
        let now = cluster.pids().into_iter().find(|(known, _)| known == name);
        assert_eq!(now, Some((name.clone(), *pid)), "it was started again");
    }
    let names = ["metad-1", "metad-2", "mgmtd", "mount", "storaged-1", "storaged-2"];
    assert_eq!(cluster.names(), names);
    cluster.assert_sound();

    // The next start knows the larger numbers without being told, and asks for no directory to be made anew.
    harness::mounts::unmount(&second, false).unwrap();
    cluster.down().expect_ok();
    cluster.weft(&["up", "--detach", "--timeout", "60"]).expect_ok();
    assert_eq!(cluster.names(), names);
    for worker in &team {
        worker.verify().unwrap_or_else(|error| panic!("{error}"));
    }
    for (folder, targets) in [("services", 4), ("more", 6)] {
        let found = cluster.path(folder);
        assert_eq!(fs::read(found.join("wide")).unwrap(), vec![7; targets * (16 << 10)]);
    }
    check_all(&cluster.path("services"), 4);
    cluster.assert_sound();
}

/// What the check did not know when it began is no damage.
#[test]
fn a_check_hears_of_what_the_cluster_has_got_meanwhile() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    fs::write(cluster.path("before"), vec![7; 1 << 20]).unwrap();
    // It has asked for the map when it meets a service that stands still.
    let storaged = cluster.pid("storaged-1").unwrap();
    process::stop(storaged);
    let mut command = Command::new(binary::weft());
    command.args(["fsck", "--json", "--dir"]).arg(cluster.dir()).stdout(Stdio::piped());
    let check = command.spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    grow(&cluster, &["--storage", "2"]);
    let targets = cluster.json(&["target", "list"]);
    let new = targets.as_array().unwrap().iter().find(|target| target["node_alias"] == "storaged-2").unwrap();
    cluster.weft(&["pool", "create", "new"]).expect_ok();
    cluster.weft(&["pool", "assign", "new", &new["group"].to_string()]).expect_ok();
    let folder = cluster.folder("new");
    cluster.weft_alone(&["entry", "set", folder.to_str().unwrap(), "--pool", "new"]).expect_ok();
    fs::write(folder.join("f"), vec![7; 1 << 20]).unwrap();
    // Of a file that may still be written nothing is suspected.
    wait::until("the file is settled", PATIENCE, || {
        (cluster.json(&["entry", "info", "/new/f"])["unsettled"] == false).then_some(())
    });
    process::signal(storaged, libc::SIGCONT);
    let ended = check.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{report}");
    assert!(report["passes"].as_u64() > Some(1), "it had a suspicion: {report}");
}

#[test]
fn a_running_cluster_neither_shrinks_nor_moves() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    for (flags, reason) in [
        (&["--targets", "1"][..], "cannot shrink to 1"),
        (&["--mount", "elsewhere"], "is running already, mounted at"),
        (&["--listen", "127.0.0.2"], "is running already, reached at 127.0.0.1"),
        (&["--listen", "0.0.0.0"], "give the address itself"),
    ] {
        let refused = cluster.weft(&[&["up"][..], flags].concat());
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(reason), "{refused}");
    }
    // What the user has written stays theirs; it is said what to do.
    let file = cluster.dir().join("metad-1.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\nshards = 1\n", "\n# mine\nshards = 1 # one\n")).unwrap();
    let refused = cluster.weft(&["up", "--shards", "2"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("shards of your own, 1: raise it there to 2"),
        "{refused}"
    );
    let same = grow(&cluster, &[]);
    assert_eq!((&same["already"], &same["grown"]), (&true.into(), &false.into()));
    // Raised there, it is taken up.
    fs::write(&file, text.replace("\nshards = 1\n", "\nshards = 2 # two\n")).unwrap();
    grow(&cluster, &["--shards", "2"]);
    use_all(&cluster, &cluster.path("all"), 2, 2);
    cluster.assert_sound();
}

/// A service that dies while it is to grow comes back with what is new.
#[test]
fn a_service_that_is_killed_grows_at_its_start() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    let (metad, storaged) = (cluster.pid("metad-1").unwrap(), cluster.pid("storaged-1").unwrap());
    // Stopped, it hears no signal.
    process::stop(metad);
    process::stop(storaged);
    thread::scope(|scope| {
        let up = scope.spawn(|| cluster.weft(&["up", "--shards", "2", "--targets", "2", "--timeout", "60"]));
        thread::sleep(Duration::from_millis(500));
        assert!(!up.is_finished());
        cluster.kill("metad-1");
        cluster.kill("storaged-1");
        up.join().unwrap().expect_ok();
    });
    use_all(&cluster, &cluster.path("all"), 2, 2);
    check_all(&cluster.path("all"), 2);
    cluster.assert_sound();
}

/// A service that a user starts on a host of their own, without a configuration file.
struct Joined(Child);

impl Joined {
    fn start(cluster: &Cluster, words: &[&str]) -> Self {
        let mgmtd = cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned();
        let name = words[0];
        let log = fs::File::options().create(true).append(true).open(cluster.beside(&format!("{name}.log"))).unwrap();
        let mut command = Command::new(binary::weft());
        command.args(words).args(["--join", &mgmtd, "--key-file"]).arg(cluster.dir().join("cluster.key"));
        command.current_dir(cluster.beside("")).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }

    fn stop(mut self) {
        process::signal(self.0.id() as i32, libc::SIGTERM);
        assert!(run::wait(&mut self.0, PATIENCE).is_some(), "it ends");
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_targets(cluster: &Cluster, kind: &str, count: usize) {
    wait::until(&format!("{count} targets of {kind}"), PATIENCE, || {
        let targets = cluster.json(&["target", "list"]);
        let online = |target: &&Value| target["kind"] == kind && target["node_state"] == "online";
        (targets.as_array()?.iter().filter(online).count() == count).then_some(())
    });
}

#[test]
fn services_join_without_a_configuration() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    let (one, two) = (cluster.beside("disk-1"), cluster.beside("disk-2"));
    let storage = ["storaged", "--target", one.to_str().unwrap(), "--target", two.to_str().unwrap()];
    let start = || (Joined::start(&cluster, &["metad", "--shards", "2"]), Joined::start(&cluster, &storage));
    let (metad, storaged) = start();
    wait_for_targets(&cluster, "metadata", 3);
    wait_for_targets(&cluster, "storage", 3);
    // Its directory is where it was started.
    assert!(cluster.beside("weft-metad/shard-2").is_dir());
    use_all(&cluster, &cluster.path("all"), 3, 3);
    cluster.assert_sound();
    let nodes = cluster.json(&["node", "list"]);

    // Once more the same words: the same nodes, on other ports, and mounts find them.
    metad.stop();
    storaged.stop();
    let (_metad, _storaged) = start();
    wait_for_targets(&cluster, "metadata", 3);
    wait_for_targets(&cluster, "storage", 3);
    check_all(&cluster.path("all"), 3);
    let again = cluster.json(&["node", "list"]);
    let ids = |nodes: &Value| nodes.as_array().unwrap().iter().map(|node| node["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&nodes));
    cluster.assert_sound();

    let refused = cluster.weft_alone(&["storaged", "--join", "127.0.0.1:1", "--mgmtd", "127.0.0.1:1"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("cannot be used with"), "{refused}");
}

#[test]
fn a_cluster_of_one_host_is_opened_to_others() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    fs::write(cluster.path("f"), "before").unwrap();
    cluster.down().expect_ok();
    let up =
        |flags: &[&str]| cluster.json(&[&["up", "--detach"], flags].concat())["mgmtd"].as_str().unwrap().to_owned();
    let told = cluster.weft(&["up", "--detach", "--listen", "127.0.0.2"]);
    assert!(told.code == Some(0) && told.stdout.contains("Mount again what was mounted beside"), "{told}");
    let moved = up(&[]);
    assert!(moved.starts_with("127.0.0.2:"), "{moved}");
    assert_eq!(fs::read_to_string(cluster.path("f")).unwrap(), "before");
    let storage = ["storaged", "--target", cluster.beside("disk").to_str().unwrap()].map(str::to_owned);
    let _storaged = Joined::start(&cluster, &storage.each_ref().map(String::as_str));
    wait_for_targets(&cluster, "storage", 2);
    use_all(&cluster, &cluster.path("all"), 1, 2);
    cluster.down().expect_ok();
    assert_eq!(up(&[]), moved, "others know it there");
    cluster.down().expect_ok();
    let refused = cluster.weft(&["up", "--listen", "127.0.0.3"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("cannot move to 127.0.0.3"), "{refused}");
}

#[test]
fn a_cluster_is_opened_to_hosts_that_have_no_ipv4() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    fs::write(cluster.path("f"), "before").unwrap();
    cluster.down().expect_ok();
    let up = cluster.json(&["up", "--detach", "--listen", "::1"]);
    assert!(up["mgmtd"].as_str().is_some_and(|at| at.starts_with("[::1]:")), "{up}");
    let nodes = cluster.json(&["node", "list"]);
    let rails = nodes.to_string();
    assert_eq!(rails.matches("::1").count(), 2, "both services are found there: {rails}");
    use_all(&cluster, &cluster.path("all"), 1, 1);
    assert_eq!(fs::read_to_string(cluster.path("f")).unwrap(), "before");
}

/// All files that say what the cluster is to be.
fn written_down(cluster: &Cluster) -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(cluster.dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|is| is == "toml")).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_changed() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 1, ..Shape::default() });
    cluster.down().expect_ok();
    // For documentation: no host has it.
    let before = written_down(&cluster);
    let refused = cluster.weft(&["up", "--detach", "--listen", "192.0.2.1"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--listen 192.0.2.1"), "{refused}");
    assert_eq!(written_down(&cluster), before);
    // A list of the user's own.
    let config = cluster.dir().join("storaged-1.toml");
    let text = fs::read_to_string(&config).unwrap();
    let target = cluster.dir().join("storaged-1/target-1").display().to_string();
    fs::write(&config, text.replace(&target, "storaged-1/target-1")).unwrap();
    let before = written_down(&cluster);
    let is_refused = || {
        let refused = cluster.weft(&["up", "--detach", "--targets", "3"]);
        assert!(refused.code == Some(2) && refused.stderr.contains("targets of your own, 1"), "{refused}");
        assert_eq!(written_down(&cluster), before);
        assert!(!cluster.dir().join("storaged-2/target-2").exists());
    };
    is_refused();
    cluster.up().expect_ok();
    is_refused();
}

#[test]
fn a_growth_that_fails_is_taken_back() {
    let cluster = Cluster::of(Shape { targets: 1, ..Shape::default() });
    fs::write(cluster.path("f"), "before").unwrap();
    for name in ["storaged-2/target-1", "metad-2"] {
        fs::create_dir_all(cluster.dir().join(name)).unwrap();
        fs::write(cluster.dir().join(name).join("foreign"), "").unwrap();
    }
    let up = |flags: &[&str]| cluster.weft(&[&["up", "--detach", "--timeout", "60"], flags].concat());
    for (flag, name) in [("--storage", "storaged-2"), ("--metadata", "metad-2")] {
        let is_refused = |flags: &[&str]| {
            let refused = up(flags);
            assert!(refused.code == Some(2) && refused.stderr.contains("is not empty"), "{refused}");
            assert!(refused.stderr.contains(&format!("`weft up {flag} 1` does without it")), "{refused}");
        };
        is_refused(&[flag, "2"]);
        up(&[flag, "1"]).expect_ok();
        assert!(!cluster.names().contains(&name.to_owned()), "it is given up");
        is_refused(&[flag, "2"]);
        assert_eq!(fs::read_to_string(cluster.path("f")).unwrap(), "before", "what runs goes on");
        cluster.down().expect_ok();
        is_refused(&[]);
        up(&[flag, "1"]).expect_ok();
        assert_eq!(fs::read_to_string(cluster.path("f")).unwrap(), "before");
    }
    cluster.assert_sound();
}
