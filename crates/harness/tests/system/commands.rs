//! Every command as users have it: its help, its JSON, and the ways in which it finds its cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::binary;
use harness::cluster::{Cluster, Shape};
use harness::run::{Ended, run};
use harness::{terminal, wait};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);

/// In a folder that tells nothing, with nothing in the environment but `variables`.
fn weft(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = Command::new(binary::weft());
    for variable in ["WEFT_DIR", "WEFT_MGMTD", "WEFT_KEY_FILE"] {
        command.env_remove(variable);
    }
    run(command.args(args).envs(variables.iter().copied()).current_dir(folder), SOON)
}

/// Names of a command's subcommands, from its help.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.split_once("Commands:\n").map_or("", |(_, list)| list);
    let lines = list.lines().take_while(|line| !line.is_empty());
    let words = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    words.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help").map(str::to_owned).collect()
}

fn assert_helps(command: &[&str]) -> usize {
    let ended = weft(Path::new("/"), &[], &[command, &["--help"]].concat()).expect_ok();
    assert!(ended.stdout.contains("Example"), "no example: {ended}");
    assert!(ended.stdout.contains("--json"), "no --json: {ended}");
    let subcommands = subcommands(&ended.stdout);
    1 + subcommands.iter().map(|name| assert_helps(&[command, &[name.as_str()]].concat())).sum::<usize>()
}

#[test]
fn every_command_explains_itself_with_an_example() {
    assert!(assert_helps(&[]) >= 30, "hardly any command was found");
}

#[test]
fn a_cluster_is_found_by_directory_address_environment_mount_or_not_at_all() {
    let cluster = Cluster::start();
    let (dir, mount) = (cluster.dir(), cluster.mount_point());
    let (dir, mount) = (dir.to_str().unwrap(), mount.to_str().unwrap());
    fs::create_dir(cluster.path("inside")).unwrap();
    let file = cluster.path("f");
    fs::write(&file, b"x").unwrap();
    let mgmtd = cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned();
    let key = format!("{dir}/cluster.key");
    let nowhere = Path::new("/");
    let list = ["target", "list"];
    let expected = weft(nowhere, &[], &[&list[..], &["--dir", dir]].concat()).expect_ok().stdout;
    let same = |folder: &Path, variables: &[(&str, &str)], words: &[&str]| {
        let ended = weft(folder, variables, &[&list[..], words].concat()).expect_ok();
        let ids = |text: &str| text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
        let (found, expected): (Vec<String>, Vec<String>) = (ids(&ended.stdout), ids(&expected));
        assert_eq!(found, expected, "{ended}");
    };
    same(nowhere, &[], &["--mgmtd", &mgmtd, "--key-file", &key]);
    same(nowhere, &[("WEFT_DIR", dir)], &[]);
    same(nowhere, &[("WEFT_MGMTD", &mgmtd), ("WEFT_KEY_FILE", &key)], &[]);
    same(nowhere, &[("WEFT_KEY_FILE", &key)], &["--mgmtd", &mgmtd]);
    same(nowhere, &[("WEFT_DIR", ""), ("WEFT_MGMTD", &mgmtd), ("WEFT_KEY_FILE", &key)], &[]);
    same(Path::new(mount), &[], &[]);
    same(&cluster.path("inside"), &[], &[]);
    // A file says it by the mount that it is on, whatever the environment names.
    let info = weft(nowhere, &[("WEFT_DIR", "/nonexistent")], &["entry", "info", file.to_str().unwrap()]);
    info.expect_ok();

    // One that another host made is not stopped here, nor is another one in its place.
    for words in [&["--mgmtd", &mgmtd, "--key-file", &key][..], &["--mgmtd", &mgmtd, "--dir", dir]] {
        let refused = weft(Path::new(mount), &[], &[&["down"], words].concat());
        assert_eq!(refused.code, Some(2), "{refused}");
    }
    fs::write(&file, b"x").unwrap();

    let lost = weft(nowhere, &[], &list);
    assert_eq!(lost.code, Some(2), "{lost}");
    for word in ["--dir", "--mgmtd", "--key-file", "WEFT_DIR", "WEFT_MGMTD", "mount"] {
        assert!(lost.stderr.contains(word), "no {word}: {lost}");
    }
    let keyless = weft(nowhere, &[], &[&list[..], &["--mgmtd", &mgmtd]].concat());
    assert_eq!((keyless.code, keyless.stderr.contains("--key-file")), (Some(2), true), "{keyless}");
    cluster.down().expect_ok();
    let down = weft(nowhere, &[], &[&list[..], &["--dir", dir]].concat());
    assert_eq!((down.code, down.stderr.contains("weft up --dir")), (Some(1), true), "{down}");
    let silent = weft(nowhere, &[], &[&list[..], &["--mgmtd", &mgmtd, "--key-file", &key]].concat());
    assert_eq!((silent.code, silent.stderr.contains("no mgmtd answers")), (Some(1), true), "{silent}");
}

#[test]
fn no_cluster_is_made_where_another_one_may_be_meant() {
    let cluster = Cluster::unborn(Shape { targets: 1, ..Shape::default() });
    let place = cluster.beside("");
    let (dir, mount) = (place.join(".weft"), place.join("mnt"));
    let up =
        |folder: &Path, words: &[&str]| weft(folder, &[], &[&["up", "--detach", "--timeout", "60"], words].concat());
    up(&place, &["--targets", "1"]).expect_ok();
    let below = place.join("below");
    fs::create_dir(&below).unwrap();
    fs::create_dir(mount.join("inside")).unwrap();
    for (folder, word) in [(&below, ".weft is a cluster"), (&mount.join("inside"), "on a mount of Weft")] {
        let refused = up(folder, &[]);
        assert!(refused.code == Some(2) && refused.stderr.contains(word), "{refused}");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }
    up(&below, &["--dir", dir.to_str().unwrap()]).expect_ok();
    weft(&below, &[], &["down"]).expect_ok();
    assert!(!harness::mounts::is_mounted(&mount));
}

#[test]
fn inodes_of_one_cluster_are_not_looked_up_in_another() {
    let (ours, theirs) = (Cluster::start(), Cluster::start());
    fs::write(ours.path("f"), b"x").unwrap();
    let path = ours.path("f");
    let refused = theirs.weft(&["entry", "info", path.to_str().unwrap()]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("is on a mount of the cluster"), "{refused}");
}

#[test]
fn what_cannot_be_set_or_found_is_refused_by_its_name() {
    let cluster = Cluster::start();
    fs::write(cluster.path("f"), b"x").unwrap();
    for (arguments, words) in [
        (&["entry", "set", "/", "--placement", "shard:99"][..], "there is no metadata shard 99, only 0"),
        (&["entry", "set", "/f", "--stripe-count", "1"], "it is no directory"),
        (&["entry", "info", "/tmp"], "/tmp, from the root of the file system as it is on no mount"),
    ] {
        let refused = cluster.weft(arguments);
        assert!(refused.code == Some(1) && refused.stderr.contains(words), "{refused}");
    }
}

#[test]
fn a_file_tells_where_it_lies_and_a_directory_how_its_files_will() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 2, ..Shape::default() });
    let folder = cluster.folder("d");
    let path = folder.to_str().unwrap();
    let set = cluster.weft_alone(&["entry", "set", path, "--chunk-size", "64KiB", "--stripe-count", "3", "--json"]);
    let set: Value = serde_json::from_str(&set.expect_ok().stdout).unwrap();
    assert_eq!((set["chunk_size"].as_u64(), set["desired_targets"].as_u64()), (Some(64 << 10), Some(3)));
    let file = folder.join("f");
    let content: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    fs::write(&file, &content).unwrap();
    let info = cluster.weft_alone(&["entry", "info", file.to_str().unwrap(), "--json"]).expect_ok();
    let info: Value = serde_json::from_str(&info.stdout).unwrap();
    assert_eq!((info["size"].as_u64(), info["chunk_size"].as_u64()), (Some(200_000), Some(64 << 10)));
    assert_eq!((info["pattern"].as_str(), info["pool_name"].as_str()), (Some("raid0"), Some("default")));
    assert_eq!(info["parent"], set["id"]);
    assert_eq!(info["metadata_node"]["alias"], "metad-1");
    // A symbolic link elsewhere is a way to it, one on the mount a thing of its own.
    let (way, own) = (cluster.beside("way"), folder.join("own"));
    [&way, &own].into_iter().for_each(|link| symlink(&file, link).unwrap());
    let by = |path: &Path| cluster.weft_alone(&["entry", "info", path.to_str().unwrap(), "--json"]).expect_ok().stdout;
    let [way, own] = [way, own].map(|path| serde_json::from_str::<Value>(&by(&path)).unwrap());
    assert!(way["id"] == info["id"] && own["kind"] == "symlink", "{way} {own}");
    let out = folder.join("out");
    symlink("/etc", &out).unwrap();
    let out: Value = serde_json::from_str(&by(&out)).unwrap();
    assert!(out["kind"] == "symlink" && out["parent"] == set["id"], "{out}");
    let stripes = info["stripes"].as_array().unwrap();
    assert_eq!(stripes.len(), 3);
    // The objects are where it says, and together they are the file.
    let objects: Vec<Vec<u8>> =
        stripes.iter().map(|stripe| fs::read(stripe["place"].as_str().unwrap()).unwrap()).collect();
    let chunks = content.chunks(64 << 10).enumerate();
    let expected = chunks.fold(vec![Vec::new(); 3], |mut objects, (at, chunk)| {
        objects[at % 3].extend_from_slice(chunk);
        objects
    });
    assert!(objects == expected);
    // For people, the same.
    let text = cluster.weft(&["entry", "info", "/d/f"]).expect_ok().stdout;
    for word in ["entry id", "parent id", "metadata node", "metad-1 (node ", "shard 0", "raid0", "64 KiB", "default"] {
        assert!(text.contains(word), "no {word:?}: {text}");
    }
    for stripe in stripes {
        assert!(text.contains(stripe["place"].as_str().unwrap()), "{text}");
    }
    let refused = cluster.weft_alone(&["entry", "set", path, "--chunk-size", "5000"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    let refused = cluster.weft_alone(&["entry", "set", path]);
    assert_eq!(refused.code, Some(2), "{refused}");
}

#[test]
fn the_lists_agree_with_each_other_and_with_the_disks() {
    let cluster = Cluster::of(Shape { storage: 2, targets: 2, ..Shape::default() });
    fs::write(cluster.path("f"), vec![1; 1 << 20]).unwrap();
    let status = cluster.json(&["status"]);
    assert_eq!(status["mounts"][0].as_str(), cluster.mount_point().to_str());
    assert!(status["cluster"].as_str().is_some_and(|uuid| uuid.len() == 36));
    let nodes = cluster.json(&["node", "list"]);
    let names: Vec<&str> = nodes.as_array().unwrap().iter().map(|node| node["alias"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 3);
    assert!(["metad-1", "storaged-1", "storaged-2"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(nodes.as_array().unwrap().iter().all(|node| node["state"] == "online"), "{nodes}");
    let targets = cluster.json(&["target", "list"]);
    let targets = targets.as_array().unwrap();
    assert_eq!(targets.len(), 5);
    assert!(
        targets.iter().all(|target| target["state"] == "good" && Path::new(target["path"].as_str().unwrap()).is_dir())
    );
    let df = cluster.json(&["df"]);
    assert_eq!(df["targets"].as_array().unwrap().len(), 5);
    assert!(df["storage"]["total_bytes"].as_u64().unwrap() > 0);
    assert_eq!(cluster.json(&["pool", "list"]).as_array().unwrap().len(), 1);
    let fsck = cluster.json(&["fsck"]);
    assert_eq!((fsck["findings"].as_array().unwrap().len(), fsck["inodes"].as_u64()), (0, Some(2)));
    for service in ["mgmtd", "metad", "storaged", "mount"] {
        let said = cluster.weft_alone(&["config", "default", service, "--json"]).expect_ok().stdout;
        let said: Value = serde_json::from_str(&said).unwrap();
        let text = cluster.weft_alone(&["config", "default", service]).expect_ok().stdout;
        assert_eq!(said["toml"].as_str().unwrap().trim_end(), text.trim_end());
    }
    // What the commands that change something answer, as JSON.
    assert!(cluster.json(&["pool", "create", "fast"])["pool"].is_u64());
    assert_eq!(cluster.json(&["target", "set-state", "1", "good"])["state"], "good");
    assert_eq!(cluster.json(&["node", "rename", "storaged-2", "second"])["alias"], "second");
    let refused = cluster.weft(&["node", "delete", "second", "--yes"]);
    assert_eq!((refused.code, refused.stderr.contains("stop it first")), (Some(2), true), "{refused}");
    assert_eq!(cluster.json(&["node", "list"]).as_array().unwrap().len(), 3);
    let again = cluster.json(&["up"]);
    assert_eq!((again["already"].as_bool(), again["mounted"].as_bool()), (Some(true), Some(true)));
    assert_eq!(cluster.json(&["down"])["was_running"], true);
}

/// One document, and nothing else.
fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

#[test]
fn what_mounts_networks_and_pools_answer_is_json() {
    let mut cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let second = cluster.mount_again(&[]);
    let services = cluster.json(&["net"]);
    let services: Vec<&Value> = services.as_array().unwrap().iter().collect();
    let rails_of = |service: &str| {
        let found = services.iter().find(|of| of["service"] == service).unwrap_or_else(|| panic!("no {service}"));
        found["rails"].as_array().unwrap().len() + found["interfaces"].as_array().unwrap().len()
    };
    assert!(rails_of("storaged-1") > 0 && rails_of(second.point.to_str().unwrap()) > 0);
    let point = second.point.to_str().unwrap();
    let one = cluster.json(&["net", point]);
    assert_eq!((one[0]["service"].as_str(), one.as_array().unwrap().len()), (Some(point), 1));
    let gone = json_of(&cluster.weft_alone(&["umount", point, "--json"]).expect_ok());
    assert_eq!(gone["mount"].as_str(), Some(point));

    let pool = cluster.json(&["pool", "create", "fast"])["pool"].as_u64().unwrap();
    let targets = cluster.json(&["target", "list"]);
    let group =
        targets.as_array().unwrap().iter().find(|target| target["pool"] == "default").unwrap()["group"].as_u64();
    let group = group.unwrap();
    assert_eq!(cluster.json(&["pool", "assign", "fast", &group.to_string()])["groups"], serde_json::json!([group]));
    cluster.json(&["pool", "assign", "default", &group.to_string()]);
    assert_eq!(cluster.json(&["pool", "remove", "fast"])["removed"].as_u64(), Some(pool));
}

#[test]
fn what_deletions_answer_is_json() {
    let cluster = Cluster::start();
    let mgmtd = cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned();
    let (key, target) = (cluster.dir().join("cluster.key"), cluster.beside("further"));
    let mut service = Command::new(binary::weft());
    service.args(["storaged", "--init", "--alias", "further", "--mgmtd", &mgmtd, "--key-file"]).arg(key);
    service.args(["--lanes", "1", "--listen", "127.0.0.1", "--targets"]).arg(&target);
    let mut service = service.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let further = || {
        let nodes = cluster.json(&["node", "list"]);
        nodes.as_array().unwrap().iter().find(|node| node["alias"] == "further").cloned()
    };
    let node = wait::until("it has registered", SOON, further);
    let number = node["targets"][0].to_string();
    let path_of = |deletion: &Value| deletion["deleted"][0].as_str().unwrap().contains(target.to_str().unwrap());
    let would = wait::until("it is known to be empty", SOON, || {
        let ended = cluster.weft(&["target", "delete", &number, "--json"]);
        (ended.code == Some(0)).then(|| json_of(&ended))
    });
    assert!(would["dry_run"] == true && path_of(&would), "{would}");
    service.kill().unwrap();
    service.wait().unwrap();
    wait::until("it is offline", SOON, || (further()?["state"] == "offline").then_some(()));
    let gone = cluster.json(&["target", "delete", &number, "--yes"]);
    assert!(gone["dry_run"] == false && path_of(&gone), "{gone}");
    let gone = cluster.json(&["node", "delete", "further", "--yes"]);
    assert_eq!((gone["dry_run"].as_bool(), gone["deleted"].as_array().unwrap().len()), (Some(false), 1), "{gone}");
    assert!(further().is_none());
}

#[test]
fn the_bench_answers_json() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["bench", "--quick", "--rounds", "1", "--only", "shard create", "--json"];
    let report = json_of(&weft(folder.path(), &[], &words).expect_ok());
    let row = &report["rows"][0];
    assert_eq!((row["name"].as_str(), row["unit"].as_str()), (Some("shard create"), Some("op/s")), "{report}");
    assert!(row["ours"].as_f64() > Some(0.0) && row["yardstick"].as_f64() > Some(0.0), "{report}");
}

/// Whoever reads the results by program reads failures so, too.
#[test]
fn a_failure_is_json_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "ab".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (key, silent) = (key.to_str().unwrap(), silent_address());
    let mount = folder.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let waits = ["mount", mount.to_str().unwrap(), "--mgmtd", &silent, "--key-file", key, "--start-timeout", "1s"];
    let cases: [(&[&str], i32, &str); 5] = [
        (&["target", "list"], 2, "--mgmtd"),
        (&["target", "list", "--mgmtd", &silent, "--key-file", key], 1, "no mgmtd answers"),
        (&["target", "lsit"], 2, "lsit"),
        (&["umount", "/nonexistent"], 2, "is not a mount of Weft"),
        (&waits, 1, "no mgmtd answers"),
    ];
    for (words, code, reason) in cases {
        let plain = weft(folder.path(), &[], words);
        let ended = weft(folder.path(), &[], &[words, &["--json"]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{ended}");
        let said: Value = serde_json::from_str(&ended.stderr).unwrap_or_else(|error| panic!("{error}: {ended}"));
        let error = said["error"].as_str().unwrap();
        assert!(error.contains(reason) && !error.starts_with('{'), "{ended}");
        assert_eq!(said["code"].as_i64(), Some(code.into()), "{ended}");
        assert_eq!(plain.code, Some(code), "{plain}");
        assert!(plain.stderr.contains(error.lines().next().unwrap()), "{plain}\n{ended}");
    }
}

/// Nobody listens there.
fn silent_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Whether it is said for how many seconds it has been so: not for how many, since a slow machine may miss any of them.
fn tells_seconds(text: &str, what: &str) -> bool {
    let what = format!("{what}, ");
    let told = text.split(&what).skip(1);
    told.filter_map(|rest| rest.split_once(" s")).any(|(count, _)| count.parse::<u32>().is_ok())
}

#[test]
fn who_waits_at_a_terminal_is_told_for_what() {
    let cluster = Cluster::of(Shape { shards: 2, ..Shape::default() });
    let silent = silent_address();
    let (key, point) = (cluster.dir().join("cluster.key"), cluster.beside("late"));
    fs::create_dir(&point).unwrap();
    let mut mount = Command::new(binary::weft());
    mount.arg("mount").arg(&point).args(["--mgmtd", &silent, "--start-timeout", "3s", "--key-file"]).arg(key);
    let shown = terminal::run(&mut mount, SOON);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(tells_seconds(&shown.text, &format!("waiting for the cluster of mgmtd at {silent}")), "{shown:?}");
    assert!(shown.text.contains("no mgmtd answers"), "{shown:?}");

    // What the mount believes of absent names nobody takes back: it ends by itself.
    let folder = cluster.folder("d");
    fs::write(folder.join("f"), b"x").unwrap();
    assert!(!folder.join("absent").exists());
    let mut split = Command::new(binary::weft());
    split.args(["entry", "set", "--split", "2"]).arg(&folder);
    let shown = terminal::run(&mut split, SOON);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let waiting = format!("waiting for the leases of clients on {}", folder.display());
    assert!(tells_seconds(&shown.text, &waiting) && shown.text.contains("split over shards"), "{shown:?}");
}

/// `mount(8)` finds a helper by the type of the file system: here in a namespace of its own, where nothing else is
/// installed.
#[test]
fn mount_and_fstab_know_the_file_system_by_its_type() {
    let cluster = Cluster::start();
    fs::write(cluster.path("f"), b"content").unwrap();
    let (helpers, point, fstab) = (cluster.beside("helpers"), cluster.beside("by-type"), cluster.beside("fstab"));
    fs::create_dir(&helpers).unwrap();
    fs::create_dir(&point).unwrap();
    for name in ["mount.weft", "mount.fuse.weft"] {
        std::os::unix::fs::symlink(binary::weft(), helpers.join(name)).unwrap();
    }
    let mgmtd = cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned();
    let (dir, point) = (cluster.dir(), point.to_str().unwrap().to_owned());
    let key = dir.join("cluster.key");
    let line = format!("weft@{mgmtd} {point} weft key_file={},_netdev,noauto,ro 0 0\n", key.display());
    fs::write(&fstab, line).unwrap();
    let script = format!(
        "mount --bind {helpers} $(readlink -f /sbin)
        test -z \"$(mount -T {fstab} {point})\"
        test $(cat {point}/f) = content
        if touch {point}/g; then exit 1; fi
        grep -q 'weft@{mgmtd} {point} fuse.weft ro' /proc/self/mounts
        umount {point}
        mount -t fuse.weft -o key_file={key} {mgmtd} {point}
        touch {point}/g
        umount {point}
        mount -v -t weft {dir} {point} | grep -q 'mounted at {point}'
        test -e {point}/g
        mount -o remount,ro {point}
        if touch {point}/h; then exit 1; fi
        mount -o remount,rw {point}
        touch {point}/h
        umount {point}
        if mount -t weft -o sync {dir} {point} 2> {point}.said; then exit 1; fi
        grep -q 'no mount option sync' {point}.said
        mount -t weft -o noatime,nodiratime {dir} {point}
        grep -q '{point} fuse.weft rw,nosuid,nodev,noatime,nodiratime' /proc/self/mounts
        stat -c %x {point}/f > {point}.before
        cat {point}/f
        stat -c %x {point}/f | cmp - {point}.before
        mount -o remount,ro {point}
        if mount -o remount,strictatime {point} 2> {point}.said; then exit 1; fi
        grep -q 'stay as they were mounted (noatime,nodiratime)' {point}.said
        grep -q '{point} fuse.weft ro,nosuid,nodev,noatime,nodiratime' /proc/self/mounts
        umount {point}
        for round in 1 2 3 4 5 6 7 8 9 10; do
            mount -t weft {dir} {point}
            test -e {point}/f
            umount {point}
        done
        mount -t weft -o strictatime {dir} {point}
        cat {point}/f
        if stat -c %x {point}/f | cmp - {point}.before; then exit 1; fi
        umount {point}",
        helpers = helpers.display(),
        fstab = fstab.display(),
        key = key.display(),
        dir = dir.display(),
    );
    run(Command::new("unshare").args(["--mount", "sh", "-euxc", &script]), SOON).expect_ok();
}

/// Above what a file or the environment says, and as `mount(8)` means them.
#[test]
fn flags_of_mount_are_obeyed() {
    let cluster = Cluster::start();
    fs::copy("/bin/true", cluster.path("true")).unwrap();
    let (helpers, point, fstab) = (cluster.beside("helpers"), cluster.beside("flagged"), cluster.beside("fstab"));
    fs::create_dir(&helpers).unwrap();
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::symlink(binary::weft(), helpers.join("mount.weft")).unwrap();
    let dir = cluster.dir();
    let (dir, point) = (dir.display(), point.display());
    fs::write(&fstab, format!("{dir} {point} weft user,noauto,loops=1 0 0\n")).unwrap();
    let script = format!(
        "mount --bind {helpers} $(readlink -f /sbin)
        shows() {{ grep -q \"{point} fuse.weft $1,relatime\" /proc/self/mounts; }}
        flags() {{ mount -t weft -o $1 {dir} {point}; shows $2; umount {point}; }}
        flags allow_suid rw,nodev
        flags allow_devices rw,nosuid
        echo '{dir} {point} weft noauto,allow_suid 0 0' > {fstab}-bare
        mount -T {fstab}-bare {point}
        mount -T {fstab}-bare -o remount,ro {point}
        shows ro,nodev
        mount -T {fstab}-bare -o remount,rw {point}
        shows rw,nodev
        umount {point}
        export WEFT_MOUNT_ALLOW_SUID=true WEFT_MOUNT_ALLOW_DEVICES=true
        flags loops=1 rw
        flags nosuid rw,nosuid
        flags nodev,nosuid rw,nosuid,nodev
        flags nosuid,suid rw
        flags allow_suid,nosuid rw,nosuid
        flags ro,nodev ro,nodev
        flags user,suid rw,nodev,noexec
        mount -T {fstab} {point}
        shows rw,nosuid,nodev,noexec
        if {point}/true; then exit 1; fi
        mount -o remount,exec {point}
        {point}/true
        umount {point}
        mount -T {fstab} -o exec,suid {point}
        shows rw,nodev
        {point}/true
        umount {point}
        export WEFT_MOUNT_ALLOW_SUID=false WEFT_MOUNT_NOEXEC=true WEFT_MOUNT_READ_ONLY=true
        flags loops=1 ro,nosuid,noexec
        mount.weft {dir} {point} -o ro,rw,nosuid,suid,exec,read_only=false
        shows rw
        umount {point}",
        helpers = helpers.display(),
        fstab = fstab.display(),
    );
    run(Command::new("unshare").args(["--mount", "sh", "-euxc", &script]), SOON).expect_ok();
}
