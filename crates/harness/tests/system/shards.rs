//! A namespace over several shards: directories go where they are placed, what concerns several shards is done as one,
//! also where their services are killed, and nobody believes what another shard's part has changed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::{metrics, process, syscall, wait};

const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const NOREPLACE: u32 = libc::RENAME_NOREPLACE;
const PATIENCE: Duration = Duration::from_secs(30);

/// Two services of one shard each.
fn two_nodes() -> Cluster {
    Cluster::of(Shape { metadata: 2, targets: 2, ..Shape::default() })
}

fn shard_of(cluster: &Cluster, path: &Path) -> u64 {
    cluster.json(&["entry", "info", path.to_str().unwrap()])["shard"].as_u64().unwrap()
}

/// A directory of that name in the root, at home in `shard`.
fn folder_in(cluster: &Cluster, shard: u64, name: &str) -> PathBuf {
    cluster.weft(&["entry", "set", "/", "--placement", &format!("shard:{shard}")]).expect_ok();
    let path = cluster.folder(name);
    assert_eq!(shard_of(cluster, &path), shard);
    path
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("refused").raw_os_error().unwrap()
}

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn directories_go_where_they_are_placed() {
    let cluster = two_nodes();
    let shards: BTreeSet<u64> = [0, 1].into();
    for shard in [0, 1] {
        let path = folder_in(&cluster, shard, &format!("in-{shard}"));
        // They inherit the placement.
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/f"), b"x").unwrap();
        assert_eq!(shard_of(&cluster, &path.join("below")), shard);
        assert_eq!(shard_of(&cluster, &path.join("below/f")), shard);
    }
    let inner = cluster.path("in-1");
    cluster.weft(&["entry", "set", "/in-1", "--placement", "inherit"]).expect_ok();
    fs::create_dir(inner.join("same")).unwrap();
    assert_eq!(shard_of(&cluster, &inner.join("same")), 1);
    assert_eq!(cluster.json(&["entry", "info", "/in-1/same"])["placement"], "inherit");
    for placement in ["random", "roundrobin"] {
        cluster.weft(&["entry", "set", "/in-1", "--placement", placement]).expect_ok();
        let made = (0..12).map(|n| {
            let path = inner.join(format!("{placement}-{n}"));
            fs::create_dir(&path).unwrap();
            shard_of(&cluster, &path)
        });
        assert_eq!(made.collect::<BTreeSet<_>>(), shards, "{placement}");
    }
    let refused = cluster.weft(&["entry", "set", "/in-1", "--placement", "shard:7"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    cluster.assert_sound();
}

#[test]
fn what_concerns_two_shards_is_done_as_in_one() {
    let cluster = two_nodes();
    let (one, two) = (folder_in(&cluster, 0, "one"), folder_in(&cluster, 1, "two"));
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    fs::write(one.join("f"), b"content").unwrap();
    fs::rename(one.join("f"), two.join("g")).unwrap();
    assert_eq!(fs::read(two.join("g")).unwrap(), b"content");
    assert!(names(&one).is_empty());
    fs::hard_link(two.join("g"), one.join("h")).unwrap();
    assert_eq!(fs::metadata(two.join("g")).unwrap().nlink(), 2);
    assert_eq!(errno(fs::hard_link(two.join("g"), one.join("h"))), libc::EEXIST);
    fs::write(one.join("other"), b"x").unwrap();
    assert_eq!(errno(syscall::rename(&one.join("other"), &two.join("g"), NOREPLACE)), libc::EEXIST);
    let (other, g) = (inode(&one.join("other")), inode(&two.join("g")));
    syscall::rename(&one.join("other"), &two.join("g"), EXCHANGE).unwrap();
    assert_eq!((inode(&one.join("other")), inode(&two.join("g"))), (g, other));
    // What was there goes, with its last name, and its objects with it.
    fs::rename(one.join("other"), two.join("g")).unwrap();
    fs::remove_file(two.join("g")).unwrap();
    assert_eq!(fs::metadata(one.join("h")).unwrap().nlink(), 1);
    fs::remove_file(one.join("h")).unwrap();
    // Directories of the other shard.
    fs::create_dir_all(two.join("d/e")).unwrap();
    assert_eq!(errno(fs::rename(&two, two.join("d/e/x"))), libc::EINVAL);
    assert_eq!(errno(fs::remove_dir(&two)), libc::ENOTEMPTY);
    fs::rename(two.join("d"), one.join("d")).unwrap();
    assert_eq!((fs::metadata(&one).unwrap().nlink(), fs::metadata(&two).unwrap().nlink()), (3, 2));
    assert_eq!(errno(fs::rename(&one, one.join("d/e/x"))), libc::EINVAL);
    fs::rename(&two, one.join("d/e/two")).unwrap();
    assert_eq!(names(&cluster.mount_point()), ["one".to_owned()].into());
    assert_eq!(errno(syscall::rename(&one, &one.join("d/e"), EXCHANGE)), libc::EINVAL);
    for path in ["d/e/two", "d/e", "d", ""] {
        fs::remove_dir(one.join(path)).unwrap();
    }
    cluster.assert_sound();
}

/// Moves its own balls between directories of different shards, and makes and removes directories and links there. No
/// call may fail.
fn juggle(folders: &[PathBuf], own: &[String], seed: u64, stop: &AtomicBool, moves: &AtomicU64) {
    let mut dice = Dice::new(seed);
    let mut at: Vec<usize> = vec![0; own.len()];
    while !stop.load(Ordering::Relaxed) {
        let (ball, to) = (dice.index(own.len()), dice.index(folders.len()));
        if at[ball] == to {
            continue;
        }
        let (from, target) = (folders[at[ball]].join(&own[ball]), folders[to].join(&own[ball]));
        fs::rename(&from, &target)
            .unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), target.display()));
        assert!(fs::symlink_metadata(&from).is_err() && target.exists(), "{} is not moved", own[ball]);
        at[ball] = to;
        let inner = folders[to].join(format!("{}-dir", own[ball]));
        fs::create_dir(&inner).unwrap();
        fs::hard_link(&target, inner.join("link")).unwrap();
        fs::remove_file(inner.join("link")).unwrap();
        fs::remove_dir(&inner).unwrap();
        moves.fetch_add(1, Ordering::Relaxed);
    }
}

/// kill -9 of the metadata services while all that clients do concerns two of them: no call fails, each file is in one
/// place, and nothing is left over. `WEFT_TEST_KILLS=100` for a run by hand.
#[test]
fn killed_services_leave_nothing_half_done() {
    let kills = scale("WEFT_TEST_KILLS", 6);
    let cluster = Cluster::of(Shape { metadata: 2, shards: 2, targets: 2, ..Shape::default() });
    let folders: Vec<PathBuf> = (0..4).map(|shard| folder_in(&cluster, shard, &format!("in-{shard}"))).collect();
    // What is made below is spread as well.
    for shard in 0..4 {
        cluster.weft(&["entry", "set", &format!("/in-{shard}"), "--placement", "random"]).expect_ok();
    }
    // And one has its entries in all shards.
    cluster.weft(&["entry", "set", "/in-3", "--split", "4"]).expect_ok();
    let balls: Vec<Vec<String>> = (0..3).map(|n| (0..4).map(|ball| format!("ball-{n}-{ball}")).collect()).collect();
    for ball in balls.iter().flatten() {
        fs::write(folders[0].join(ball), ball).unwrap();
    }
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut dice, seed) = (Dice::new(seed()), seed());
    let begin = Instant::now();
    thread::scope(|scope| {
        for (own, n) in balls.iter().zip(1..) {
            let (folders, stop, moves) = (&folders, &stop, &moves);
            scope.spawn(move || juggle(folders, own, seed + n, stop, moves));
        }
        for kill in 0..kills {
            wait::until_others_get_on(kill, &moves, &stop);
            thread::sleep(Duration::from_millis(dice.roll(1000)));
            let name = ["metad-1", "metad-2"][dice.index(2)];
            let old = cluster.kill(name);
            cluster.wait_for_another(name, old);
        }
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} moves with {kills} kills in {:.1?}", moves.load(Ordering::Relaxed), begin.elapsed());
    let found: Vec<String> = folders.iter().flat_map(|folder| names(folder)).collect();
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(sorted, balls.concat(), "each ball in one place");
    for folder in &folders {
        for ball in names(folder) {
            assert_eq!(fs::read_to_string(folder.join(&ball)).unwrap(), ball);
        }
    }
    assert!(moves.load(Ordering::Relaxed) > kills, "hardly any load");
    cluster.assert_sound();
}

/// What is one directory to all who use it lies in several shards.
#[test]
fn a_split_directory_is_one_directory() {
    let mut cluster = Cluster::of(Shape { metadata: 2, shards: 2, targets: 2, ..Shape::default() });
    let second = cluster.mount_again(&[]).point;
    let (here, there) = (cluster.folder("busy"), second.join("busy"));
    let set = |path: &str, count: &str| cluster.weft(&["entry", "set", path, "--split", count]);
    for (path, count, why) in [("/busy", "5", "there are 4"), ("/busy", "1", "2 to 64")] {
        let refused = set(path, count);
        assert!(refused.code != Some(0) && refused.to_string().contains(why), "{refused}");
    }
    // Whoever believes that a name is not there hears of it when it is made in another shard.
    let is_there = |name: &str| there.join(name).try_exists().unwrap();
    assert!((0..8).all(|n| !is_there(&format!("f{n}"))));
    set("/busy", "4").expect_ok();
    let parts = cluster.json(&["entry", "info", "/busy"])["parts"].as_array().unwrap().clone();
    let shards: BTreeSet<u64> = parts.iter().map(|part| part["shard"].as_u64().unwrap()).collect();
    assert_eq!(shards, (0..4).collect());
    let time = |path: &Path| fs::metadata(path).map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap();
    let mut before = time(&there);
    for n in 0..8 {
        fs::write(here.join(format!("f{n}")), b"x").unwrap();
        assert!(is_there(&format!("f{n}")));
        let now = time(&there);
        assert!(now > before, "{n}: it was changed");
        before = now;
    }
    let homes: BTreeSet<u64> = (0..8).map(|n| shard_of(&cluster, &here.join(format!("f{n}")))).collect();
    assert!(homes.len() > 2, "{homes:?}");
    let refused = set("/busy", "2");
    assert!(refused.code != Some(0) && refused.to_string().contains("split already"), "{refused}");

    // What is made in it follows what it is changed to.
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    fs::set_permissions(&here, fs::Permissions::from_mode(0o2775)).unwrap();
    std::os::unix::fs::chown(&here, None, Some(4711)).unwrap();
    for n in 0..8 {
        let inner = there.join(format!("d{n}"));
        fs::create_dir(&inner).unwrap();
        assert_eq!((mode(&inner) & 0o2000, fs::metadata(&inner).unwrap().gid()), (0o2000, 4711));
    }
    assert_eq!((fs::metadata(&here).unwrap().nlink(), mode(&there)), (10, 0o2775));
    // Back in time, and on.
    let file = fs::File::open(&here).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
    assert_eq!((time(&here), time(&there)), ((1000, 0), (1000, 0)));
    file.sync_all().unwrap();
    fs::rename(here.join("f0"), here.join("g0")).unwrap();
    assert!(time(&there) > (1000, 0) && is_there("g0") && !is_there("f0"));

    // Listings in pieces, while names come and go.
    for n in 0..3000 {
        fs::write(here.join(format!("many-{n}")), b"").unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                let (one, other) = (here.join(format!("passing-{n}")), here.join(format!("by-{n}")));
                fs::write(&one, b"").unwrap();
                fs::rename(&one, &other).unwrap();
                fs::remove_file(&other).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..5 {
            let entries = fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut many: Vec<String> = entries.filter(|name| name.starts_with("many-")).collect();
            many.sort();
            let mut expected: Vec<String> = (0..3000).map(|n| format!("many-{n}")).collect();
            expected.sort();
            assert!(many == expected, "{} of 3000", many.len());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(errno(fs::remove_dir(&there)), libc::ENOTEMPTY);
    cluster.assert_sound();
    for name in names(&there) {
        let path = there.join(name);
        if path.is_dir() { fs::remove_dir(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    // One shard less that answers: it stays whole, and goes when that is back.
    let old = cluster.kill("metad-2");
    fs::remove_dir(&there).unwrap();
    cluster.wait_for_another("metad-2", old);
    assert!(!here.exists() && names(&cluster.mount_point()).is_empty());
    cluster.assert_sound();
}

/// One mount changes names over shards; the other has looked before, and sees each change.
#[test]
fn others_see_at_once_what_two_shards_have_changed() {
    let mut cluster = two_nodes();
    let second = cluster.mount_again(&[]).point;
    let (one, two) = (folder_in(&cluster, 0, "one"), folder_in(&cluster, 1, "two"));
    let there = |path: &Path| second.join(path.strip_prefix(cluster.mount_point()).unwrap());
    let missing = |path: &Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let links = |path: &Path| fs::symlink_metadata(path).unwrap().nlink();
    let begin = Instant::now();
    let rounds = 30;
    for round in 0..rounds {
        let (f, g, d, link) = (one.join("f"), two.join("g"), one.join("d"), one.join("link"));
        for path in [&f, &g, &d, &link] {
            assert!(missing(&there(path)), "round {round}: nothing is there yet");
        }
        fs::write(&f, b"content").unwrap();
        assert_eq!((fs::metadata(there(&f)).unwrap().len(), links(&there(&two))), (7, 2), "round {round}");
        fs::rename(&f, &g).unwrap();
        assert!(missing(&there(&f)) && there(&g).exists(), "round {round}: moved");
        fs::hard_link(&g, &link).unwrap();
        assert_eq!((links(&there(&g)), links(&there(&link))), (2, 2), "round {round}: linked");
        fs::remove_file(&link).unwrap();
        assert_eq!((links(&there(&g)), missing(&there(&link))), (1, true), "round {round}: unlinked");
        fs::create_dir(&d).unwrap();
        assert_eq!((links(&there(&one)), links(&there(&d))), (3, 2), "round {round}: made");
        fs::rename(&d, two.join("d")).unwrap();
        assert_eq!((links(&there(&one)), links(&there(&two))), (2, 3), "round {round}: a directory moved");
        assert!(missing(&there(&d)) && there(&two.join("d")).is_dir());
        fs::remove_dir(two.join("d")).unwrap();
        fs::remove_file(&g).unwrap();
        assert!(missing(&there(&two.join("d"))) && missing(&there(&g)), "round {round}: removed");
    }
    // Each of these 7 changes of a round takes back leases at two shards, and waits for no term.
    assert!(begin.elapsed() < Duration::from_secs(60), "recalls stall: {:?}", begin.elapsed());
    cluster.assert_sound();
}

/// Leases of one shard outlive another one, and those of a shard that was killed are honoured.
#[test]
fn leases_are_honoured_over_shards_though_one_is_killed() {
    let mut cluster = two_nodes();
    cluster.set_lease_term("30s");
    let second = cluster.mount_again(&[]).point;
    let (one, two) = (folder_in(&cluster, 0, "one"), folder_in(&cluster, 1, "two"));
    for round in 0..6 {
        fs::write(one.join("f"), b"content").unwrap();
        assert!(second.join("one/f").exists() && !second.join("two/f").exists());
        let (victim, begin) = (["metad-1", "metad-2"][round % 2], Instant::now());
        let old = cluster.kill(victim);
        fs::rename(one.join("f"), two.join("f")).unwrap();
        assert!(!second.join("one/f").exists() && second.join("two/f").exists(), "round {round}");
        fs::remove_file(two.join("f")).unwrap();
        assert!(!second.join("two/f").exists(), "round {round}");
        // The other mount answers: nobody has to wait for its term.
        assert!(begin.elapsed() < Duration::from_secs(20), "took {:?}", begin.elapsed());
        cluster.wait_for_another(victim, old);
    }
    cluster.assert_sound();
}

#[test]
fn a_removed_directory_of_another_shard_lives_while_it_is_used() {
    let cluster = two_nodes();
    cluster.weft(&["entry", "set", "/", "--placement", "shard:1"]).expect_ok();
    let path = cluster.folder("there");
    assert_eq!((shard_of(&cluster, &cluster.mount_point()), shard_of(&cluster, &path)), (0, 1));
    let open = fs::File::open(&path).unwrap();
    let before = open.metadata().unwrap();
    fs::remove_dir(&path).unwrap();
    let after = open.metadata().unwrap();
    assert_eq!((after.ino(), after.mode(), after.nlink()), (before.ino(), before.mode(), 0));
    cluster.assert_sound();
}

#[test]
fn what_a_killed_mount_had_asked_for_does_not_happen_after_the_next_one_has_looked() {
    let cluster = two_nodes();
    cluster.weft(&["entry", "set", "/", "--placement", "shard:1"]).expect_ok();
    let asked = &metrics::addresses(&cluster, "metadata")[&cluster.keeper(0)];
    let other = cluster.pid(&cluster.keeper(1)).unwrap();
    let waiting = || metrics::sum_of(asked, "weft_queue_depth", &["\"transactions\""]) > 0.0;
    process::stop(other);
    let path = cluster.path("made");
    let making = {
        let path = path.clone();
        thread::spawn(move || fs::create_dir(path))
    };
    wait::until("the request waits for the other shard", PATIENCE, || waiting().then_some(()));
    let killed = cluster.kill("mount");
    making.join().unwrap().expect_err("its mount was killed");
    cluster.wait_for_another("mount", killed);
    cluster.wait_for_mount();
    assert_eq!(fs::exists(&path).ok(), Some(false));
    process::signal(other, libc::SIGCONT);
    // By the time this is done, so is all that was asked of that shard before.
    fs::create_dir(cluster.path("later")).unwrap();
    assert_eq!(names(&cluster.mount_point()), ["later".to_owned()].into());
    fs::create_dir(&path).unwrap();
    cluster.assert_sound();
}
