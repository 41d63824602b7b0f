//! What the kernel keeps under a lease: it needs no server, and it is never wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, seed};
use harness::syscall::{Directory, as_user};
use harness::{metrics, process, syscall, wait};

/// The default of metad's `lease_term`, and time for everything around it.
const TERM: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(60);

#[test]
fn what_is_held_needs_no_server_until_its_term_is_over() {
    let cluster = Cluster::start();
    let (file, absent) = (cluster.folder("d").join("f"), cluster.path("d/absent"));
    fs::write(&file, b"content").unwrap();
    let look = move || (fs::metadata(&file).map(|meta| meta.len()).ok(), absent.exists());
    let asked = || asked(&cluster, &["Lookup", "GetAttr"]);
    // A mount is given leases from when it listens for their recall: that is a moment after it answers. They are no older than
    // the last look that asked.
    let mut given = Instant::now();
    wait::until("a look that asks nothing", SOON, || {
        let (now, before) = (Instant::now(), asked());
        assert_eq!(look(), (Some(7), false));
        let after = asked();
        if after != before {
            given = now;
        }
        look();
        (asked() == after).then_some(())
    });
    let metad = cluster.pid("metad-1").unwrap();
    process::stop(metad);
    let begin = Instant::now();
    let (again, look) = wait::within("what is held", SOON, move || (look(), look));
    assert_eq!(again, (Some(7), false));
    // Then it has to ask, and waits for the answer. When the last look began, and when the last one that was answered.
    let (looks, stop) = (Arc::new(Mutex::new((Duration::ZERO, Duration::ZERO))), Arc::new(AtomicBool::new(false)));
    let looking = {
        let (looks, stop) = (Arc::clone(&looks), Arc::clone(&stop));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let now = begin.elapsed();
                looks.lock().unwrap().0 = now;
                look();
                looks.lock().unwrap().1 = now;
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    thread::sleep(TERM + Duration::from_secs(2));
    let (asked, answered) = wait::until("it asks", SOON, || {
        let (last, answered) = *looks.lock().unwrap();
        (last > answered && begin.elapsed() > last + Duration::from_secs(1)).then_some((last, answered))
    });
    stop.store(true, Ordering::Relaxed);
    process::signal(metad, libc::SIGCONT);
    looking.join().unwrap();
    let held = begin + asked - given;
    assert!(held > Duration::from_secs(5), "it was held for {held:?} alone");
    assert!(answered < TERM + Duration::from_secs(1), "it believes for longer than it may: {answered:?}");
}

/// How many requests of each of these operations the shards have answered.
fn asked(cluster: &Cluster, operations: &[&str]) -> Vec<u64> {
    let count = |operation: &&str| {
        let label = format!("op=\"{operation}\"");
        metrics::sum(cluster, "metadata", "weft_request_seconds_count", &[&label]) as u64
    };
    operations.iter().map(count).collect()
}

#[test]
fn making_and_removing_files_asks_for_nothing_else() {
    let cluster = Cluster::start();
    let dir = cluster.folder("d");
    fs::write(dir.join("first"), b"").unwrap();
    let operations = ["Create", "Unlink", "GetAttr", "Lookup", "GetXattr", "Open"];
    let before = asked(&cluster, &operations);
    for number in 0..100 {
        let file = dir.join(number.to_string());
        fs::write(&file, b"content").unwrap();
        fs::remove_file(&file).unwrap();
    }
    let after = asked(&cluster, &operations);
    let asked: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(asked[..2], [100, 100]);
    // A lease may end meanwhile.
    assert!(asked[2..].iter().all(|&count| count <= 5), "{operations:?}: {asked:?}");
}

/// As `find` does it, and then `ls -l`.
#[test]
fn who_looks_at_nothing_that_it_lists_gets_names_alone() {
    let mut cluster = Cluster::start();
    let dir = cluster.folder("d");
    for number in 0..40 {
        let inner = dir.join(number.to_string());
        fs::create_dir(&inner).unwrap();
        (0..10).for_each(|file| fs::write(inner.join(file.to_string()), b"").unwrap());
    }
    let second = cluster.mount_again(&[]);
    let list = |number: u32| -> Vec<PathBuf> {
        let entries = fs::read_dir(second.point.join(format!("d/{number}"))).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let looked_up = |paths: &[PathBuf]| {
        let before = asked(&cluster, &["Lookup"])[0];
        assert!(paths.iter().all(|path| fs::metadata(path).unwrap().is_file()));
        asked(&cluster, &["Lookup"])[0] - before
    };
    let listed: Vec<_> = (0..20).map(list).collect();
    assert!(listed.iter().all(|paths| paths.len() == 10));
    assert_eq!(looked_up(&listed[19]), 10);
    let (first, next) = (looked_up(&listed[0]), looked_up(&list(20)));
    assert!(first <= 1 && next == 0, "{first} by which it could have been known, {next} after others");
}

#[test]
fn a_short_listing_is_one_request() {
    let mut cluster = Cluster::start();
    let dir = cluster.folder("d");
    for number in 0..20 {
        let inner = dir.join(number.to_string());
        fs::create_dir(&inner).unwrap();
        (0..number % 2 * 10).for_each(|file| fs::write(inner.join(file.to_string()), b"").unwrap());
    }
    let second = cluster.mount_again(&[]).point;
    let list = |number: usize| {
        let directory = Directory::open(&second.join("d").join(number.to_string())).unwrap();
        let (before, count) = (asked(&cluster, &["ReadDir"])[0], number % 2 * 10);
        assert_eq!(directory.names().len(), count);
        let requests = asked(&cluster, &["ReadDir"])[0] - before;
        // From the beginning again.
        fs::write(dir.join(number.to_string()).join("more"), b"").unwrap();
        assert_eq!(directory.names().len(), count + 1);
        requests
    };
    // Where CPUs are short, a program may read on only when the end is not known any more.
    for rest in [0, 1] {
        let requests: Vec<u64> = (rest..20).step_by(2).map(list).collect();
        assert!(requests.contains(&1) && requests.iter().all(|&count| count <= 2), "{requests:?}");
    }
}

/// What `ls -l` asks of each file, beside `stat`.
#[test]
fn a_listing_tells_of_files_that_they_have_no_extended_attributes() {
    let mut cluster = Cluster::start();
    let dir = cluster.folder("d");
    for number in 0..100 {
        fs::write(dir.join(number.to_string()), b"").unwrap();
    }
    let second = cluster.mount_again(&[]);
    let operations = ["GetXattr", "ListXattr"];
    let before = asked(&cluster, &operations);
    let mut seen = 0;
    for entry in fs::read_dir(second.point.join("d")).unwrap() {
        let path = entry.unwrap().path();
        assert!(fs::metadata(&path).unwrap().is_file());
        let error = |name: &str| syscall::getxattr(&path, name).unwrap_err().raw_os_error();
        for name in ["system.posix_acl_access", "user.k"] {
            assert_eq!(error(name), Some(libc::ENODATA));
        }
        for name in ["security.selinux", "other.k"] {
            assert_eq!(error(name), Some(libc::EOPNOTSUPP));
        }
        assert!(syscall::listxattr(&path).unwrap().is_empty());
        seen += 1;
    }
    assert_eq!(seen, 100);
    let after = asked(&cluster, &operations);
    // A lease may end meanwhile.
    assert!(after.iter().zip(&before).all(|(after, before)| after - before <= 5), "{before:?}, {after:?}");
}

#[test]
fn a_directory_that_one_mount_fills_is_never_out_of_date_there() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.folder("d"), second.point.join("d"));
    for number in 0..30 {
        let name = |what: &str| format!("{what}-{number}");
        fs::write(here.join(name("own")), b"").unwrap();
        assert!(!here.join(name("other")).exists());
        fs::write(there.join(name("other")), b"").unwrap();
        assert!(here.join(name("other")).exists(), "{number}");
        assert_eq!(fs::metadata(&here).unwrap().mtime_nsec(), fs::metadata(&there).unwrap().mtime_nsec());
        fs::create_dir(here.join(name("sub"))).unwrap();
        fs::write(here.join(name("sub")).join("own"), b"").unwrap();
        fs::rename(there.join(name("other")), there.join(name("sub")).join("moved")).unwrap();
        assert!(here.join(name("sub")).join("moved").exists() && !here.join(name("other")).exists());
        fs::set_permissions(&there, Permissions::from_mode(0o700 + number % 8)).unwrap();
        assert_eq!(fs::metadata(&here).unwrap().mode() & 0o777, 0o700 + number % 8);
        // Now and then neither of them is asked for a while, so that leases are given again.
        if number % 10 == 9 {
            thread::sleep(Duration::from_millis(1100));
        }
    }
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_directory_that_was_listed_is_listed_again_without_a_server_until_somebody_changes_it() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.folder("d"), second.point.join("d"));
    let mut expected: BTreeSet<String> = (0..50).map(|number| format!("first-{number}")).collect();
    expected.iter().for_each(|name| fs::write(here.join(name), b"").unwrap());
    for dir in [&here, &there] {
        wait::until("a listing that asks nothing", SOON, || {
            assert_eq!(names(dir), expected);
            let before = asked(&cluster, &["ReadDir"]);
            assert_eq!(names(dir), expected);
            (asked(&cluster, &["ReadDir"]) == before).then_some(())
        });
    }
    // Whoever has it open sees changes where it begins anew.
    let open = [&here, &there].map(|dir| Directory::open(dir).unwrap());
    for number in 0..120 {
        let (dir, name) = ([&here, &there][number % 2], format!("name-{number}"));
        match number % 5 {
            0 => fs::create_dir(dir.join(&name)).unwrap(),
            1 | 2 => fs::write(dir.join(&name), b"").unwrap(),
            _ => {
                let old = expected.pop_first().unwrap();
                match fs::rename(dir.join(&old), dir.join(&name)) {
                    Ok(()) => {}
                    // Somebody else moved or made it: the kernel here has it at no place yet.
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{old}");
                        fs::metadata(dir.join(&old)).unwrap();
                        fs::rename(dir.join(&old), dir.join(&name)).unwrap();
                    }
                }
            }
        }
        expected.insert(name);
        if number % 7 == 6 {
            let gone = expected.pop_last().unwrap();
            let path = [&there, &here][number % 2].join(&gone);
            if fs::metadata(&path).unwrap().is_dir() {
                fs::remove_dir(path).unwrap()
            } else {
                fs::remove_file(path).unwrap()
            }
        }
        for (dir, open) in [&here, &there].into_iter().zip(&open) {
            assert_eq!(names(dir), expected, "{number}");
            assert_eq!(BTreeSet::from_iter(open.names()), expected, "{number}, begun anew");
            assert_eq!(names(dir), expected, "{number}, again");
        }
    }
}

/// By then nobody tells the kernel of changes, and it goes by the directory's time alone.
#[test]
fn a_listing_that_begins_anew_after_the_lease_has_what_was_made_since() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("700ms");
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.folder("d"), second.point.join("d"));
    fs::write(here.join("first"), b"").unwrap();
    syscall::utimens(&here, 1_000, 2_000).unwrap();
    for number in 0..4 {
        // The second time it is opened under the lease that the first listing got.
        let before = names(&here);
        let open = Directory::open(&here).unwrap();
        assert_eq!(BTreeSet::from_iter(open.names()), before);
        thread::sleep(Duration::from_millis(1500));
        let name = format!("other-{number}");
        fs::write(there.join(&name), b"").unwrap();
        // As who unpacks an archive or copies a tree does.
        if number % 2 == 1 {
            syscall::utimens(&there, 1_000, 2_000).unwrap();
        }
        let after = BTreeSet::from_iter(open.names());
        assert!(after.contains(&name) && after.is_superset(&before), "{number}: {after:?}");
        syscall::utimens(&here, 1_000, 2_000).unwrap();
        thread::sleep(Duration::from_millis(1500));
    }
}

/// By then nobody tells the client of changes, and what it knows with an open file may be old.
#[test]
fn who_owns_an_open_file_is_asked_after_the_lease() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("700ms");
    let second = cluster.mount_again(&[]);
    let (here, there) = (cluster.path("f"), second.point.join("f"));
    fs::write(&here, b"x").unwrap();
    chown(&here, Some(1000), None).unwrap();
    let file = as_user(1000, 1000, &[], || File::options().read(true).write(true).open(&there).unwrap());
    thread::sleep(Duration::from_millis(1500));
    chown(&here, Some(1001), None).unwrap();
    let refused = as_user(1000, 1000, &[], || file.set_permissions(Permissions::from_mode(0o666)).unwrap_err());
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    as_user(1001, 1001, &[], || {
        assert_eq!(fs::metadata(&there).unwrap().uid(), 1001);
        fs::set_permissions(&there, Permissions::from_mode(0o600)).unwrap();
    });
    assert_eq!(fs::metadata(&here).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_stopped_client_delays_a_change_for_a_term_and_then_sees_it() {
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    fs::write(cluster.path("f"), b"before").unwrap();
    let there = second.point.join("f");
    cluster.wait_for_leases(&there);
    assert_eq!(fs::metadata(&there).unwrap().len(), 6);
    process::stop(second.pid);
    let (here, begin) = (cluster.path("f"), Instant::now());
    wait::within("the change", SOON, move || fs::set_permissions(&here, Permissions::from_mode(0o600)).unwrap());
    let took = begin.elapsed();
    // Nor for as long as the shard believes in a session that it does not hear of: that is a minute.
    assert!(took > Duration::from_secs(2) && took < 3 * TERM, "took {took:?}");
    process::signal(second.pid, libc::SIGCONT);
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600);
    // What nobody else holds is changed at once.
    let begin = Instant::now();
    fs::write(cluster.path("g"), b"new").unwrap();
    assert!(begin.elapsed() < TERM - Duration::from_secs(1), "took {:?}", begin.elapsed());
    cluster.assert_sound();
}

/// Threads that look at the same names all the time, so that answers are always on their way when recalls come.
struct Lookers {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Lookers {
    fn start(paths: &[PathBuf]) -> Self {
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let look = |path: PathBuf| {
            let (stop, looks) = (Arc::clone(&stop), Arc::clone(&looks));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::symlink_metadata(&path);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = paths.iter().cloned().map(look).collect();
        Self { stop, looks, threads }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.looks.load(Ordering::Relaxed)
    }
}

/// A shard keeps the answers to changes until the client has had those of all that came before.
#[test]
fn while_one_change_waits_for_a_stopped_client_any_number_of_others_go_on() {
    let mut cluster = Cluster::start();
    let (held, dir) = (cluster.path("held"), cluster.folder("many"));
    fs::write(&held, b"content").unwrap();
    let other = cluster.mount_again(&[]);
    let seen = other.point.join("held");
    // Until it is one under a lease.
    cluster.wait_for_leases(&seen);
    process::stop(other.pid);
    let begin = Instant::now();
    let changing =
        thread::spawn(move || (fs::set_permissions(&held, Permissions::from_mode(0o600)).unwrap(), Instant::now()));
    // Each is made and settled: two changes.
    let mut made = 0;
    while made < 6_000 && !changing.is_finished() {
        fs::write(dir.join(made.to_string()), b"content").unwrap_or_else(|error| panic!("file {made}: {error}"));
        made += 1;
    }
    let (_, changed) = changing.join().unwrap();
    process::signal(other.pid, libc::SIGCONT);
    assert!(changed - begin > TERM / 2, "nothing held it up");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), made);
}

fn absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// One mount changes while others look all the time; after each change, every mount shows it.
fn changes_are_seen_by_who_looks_all_the_time(cluster: &mut Cluster, rounds: u32) {
    let seconds = [cluster.mount_again(&[]), cluster.mount_again(&[])];
    let mounts = [cluster.mount_point(), seconds[0].point.clone(), seconds[1].point.clone()];
    let names = ["f", "g", "d", "d/h"];
    fs::create_dir(mounts[0].join("d")).unwrap();
    let looked_at: Vec<_> = mounts.iter().flat_map(|mount| names.iter().map(|name| mount.join(name))).collect();
    let lookers = Lookers::start(&looked_at);
    let mut dice = Dice::new(seed());
    for round in 0..rounds {
        let mount = &mounts[dice.index(mounts.len())];
        let (f, g, h) = (mount.join("f"), mount.join("g"), mount.join("d/h"));
        let check = |what: &str, holds: &dyn Fn(&Path) -> bool| {
            for mount in &mounts {
                assert!(holds(mount), "round {round}: {what}, through {}", mount.display());
            }
        };
        fs::write(&f, b"12345").unwrap();
        check("made", &|mount| fs::metadata(mount.join("f")).is_ok_and(|meta| meta.len() == 5));
        let mode = if round % 2 == 0 { 0o600 } else { 0o640 };
        fs::set_permissions(&f, Permissions::from_mode(mode)).unwrap();
        check("mode", &|mount| fs::metadata(mount.join("f")).is_ok_and(|meta| meta.mode() & 0o777 == mode));
        fs::rename(&f, &g).unwrap();
        check("renamed", &|mount| absent(&mount.join("f")) && mount.join("g").exists());
        fs::hard_link(&g, &h).unwrap();
        check("linked", &|mount| fs::metadata(mount.join("d/h")).is_ok_and(|meta| meta.nlink() == 2));
        fs::write(&g, b"1234567").unwrap();
        check("written", &|mount| fs::metadata(mount.join("d/h")).is_ok_and(|meta| meta.len() == 7));
        fs::remove_file(&g).unwrap();
        check("removed", &|mount| {
            absent(&mount.join("g")) && fs::metadata(mount.join("d/h")).is_ok_and(|meta| meta.nlink() == 1)
        });
        fs::rename(&h, &f).unwrap();
        fs::remove_file(&f).unwrap();
        check("gone", &|mount| absent(&mount.join("f")) && absent(&mount.join("d/h")));
    }
    let looks = lookers.stop();
    assert!(looks > u64::from(rounds), "{looks} looks");
    cluster.assert_sound();
}

#[test]
fn no_look_brings_back_what_was_recalled() {
    let mut cluster = Cluster::start();
    let begin = Instant::now();
    changes_are_seen_by_who_looks_all_the_time(&mut cluster, 40);
    assert!(begin.elapsed() < Duration::from_secs(120), "recalls stall: {:?}", begin.elapsed());
}

/// Most directories are in another shard than their parents.
#[test]
fn no_look_brings_back_what_was_recalled_by_several_shards() {
    let mut cluster = Cluster::of(Shape { metadata: 2, shards: 4, ..Shape::default() });
    let begin = Instant::now();
    changes_are_seen_by_who_looks_all_the_time(&mut cluster, 40);
    assert!(begin.elapsed() < Duration::from_secs(120), "recalls stall: {:?}", begin.elapsed());
}

#[test]
fn no_look_brings_it_back_either_where_terms_end_all_the_time() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("700ms");
    changes_are_seen_by_who_looks_all_the_time(&mut cluster, 40);
}

#[test]
fn leases_given_before_a_restart_of_the_shard_are_honoured() {
    let mut cluster = Cluster::start();
    cluster.set_lease_term("30s");
    let second = cluster.mount_again(&[]);
    for round in 0..5 {
        fs::write(cluster.path("f"), b"content").unwrap();
        let (here, there) = (cluster.path("f"), second.point.join("f"));
        assert!(there.exists() && here.exists());
        cluster.kill("metad-1");
        let begin = Instant::now();
        let mode = 0o600 + round;
        wait::within("the change", SOON, move || fs::set_permissions(&here, Permissions::from_mode(mode)).unwrap());
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, mode, "round {round}");
        fs::remove_file(cluster.path("f")).unwrap();
        assert!(absent(&there), "round {round}");
        // The other mount answers: nobody has to wait for its term.
        assert!(begin.elapsed() < Duration::from_secs(20), "took {:?}", begin.elapsed());
    }
    cluster.assert_sound();
}

/// The kernel hears of its own changes and of attributes on several CPUs: an answer from before a change may reach it after that.
#[test]
fn the_times_of_a_directory_never_go_back_where_it_is_changed() {
    let cluster = Cluster::start();
    let dir = cluster.folder("d");
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    fs::metadata(&dir).unwrap();
                }
            });
        }
        let (begun, mut stale) = (Instant::now(), None);
        for number in 0.. {
            fs::create_dir(dir.join("e")).unwrap();
            fs::remove_dir(dir.join("e")).unwrap();
            // Whoever has an answer takes it up by then.
            thread::sleep(Duration::from_millis(1));
            let meta = fs::metadata(&dir).unwrap();
            let (kept, is) = ((meta.mtime(), meta.mtime_nsec()), syscall::mtime_asked_for(&dir).unwrap());
            if kept != is {
                stale = Some((number, kept, is));
            }
            if stale.is_some() || begun.elapsed() > Duration::from_secs(10) {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(stale, None, "after so many changes");
    });
}
