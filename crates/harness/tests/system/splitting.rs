//! Directories that are split while they have entries and are used from two mounts: nothing is lost or seen twice, also where
//! services are killed, and where nobody but their size asks for it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::wait;

/// For a split to come to its end. `WEFT_TEST_ENTRIES=100000` for a run by hand.
const PATIENCE: Duration = Duration::from_secs(300);
const LEASE_TERM: (&str, &str) = ("#lease_term = \"10s\"", "lease_term = \"2s\"");
const MEASURED_FROM: u64 = 20_000;
/// Each so many entries, a directory.
const DIRECTORY_EVERY: u64 = 40;

fn four_shards() -> Cluster {
    Cluster::of(Shape { metadata: 2, shards: 2, targets: 2, ..Shape::default() })
}

fn fill(folder: &Path, count: u64) -> BTreeSet<String> {
    let names: BTreeSet<String> = (0..count).map(|n| format!("entry-{n}")).collect();
    for (name, n) in names.iter().zip(0u64..) {
        let path = folder.join(name);
        if n.is_multiple_of(DIRECTORY_EVERY) {
            fs::create_dir(path).unwrap()
        } else {
            drop(fs::File::create(path).unwrap())
        }
    }
    names
}

fn list(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes, moves and removes names of its own; the other mount sees each of them.
fn churn(here: &Path, there: &Path, who: u64, stop: &AtomicBool, made: &AtomicU64) {
    for n in 0u64.. {
        let (one, other) = (format!("passing-{who}-{n}"), format!("moved-{who}-{n}"));
        fs::write(here.join(&one), b"x").unwrap();
        made.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(8) {
            assert!(there.join(&one).exists(), "{one} is not there");
        }
        fs::rename(here.join(&one), here.join(&other)).unwrap();
        if n.is_multiple_of(8) {
            assert!(!there.join(&one).exists() && there.join(&other).exists(), "{one} is not {other}");
        }
        fs::remove_file(here.join(&other)).unwrap();
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Makes and removes files, and nothing else: how many a second tells how much room the split leaves to others.
fn create(folder: &Path, stop: &AtomicBool, made: &AtomicU64) {
    for n in 0u64.. {
        let path = folder.join(format!("made-{n}"));
        drop(fs::File::create(&path).unwrap());
        made.fetch_add(1, Ordering::Relaxed);
        fs::remove_file(&path).unwrap();
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Each listing has all `names`, once.
fn list_all(folder: &Path, names: &BTreeSet<String>, stop: &AtomicBool, listings: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut found: Vec<String> = list(folder).into_iter().filter(|name| name.starts_with("entry-")).collect();
        found.sort();
        assert!(found.iter().eq(names.iter()), "{} of {} entries", found.len(), names.len());
        let links = 2 + names.len().div_ceil(DIRECTORY_EVERY as usize) as u64;
        assert_eq!(fs::metadata(folder).unwrap().nlink(), links);
        listings.fetch_add(1, Ordering::Relaxed);
        // Who lists all the time keeps what moves names from one shard to another from its work.
        thread::sleep(Duration::from_millis(50));
    }
}

/// Each name that is looked for is there.
fn look(folder: &Path, count: u64, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let path = folder.join(format!("entry-{}", dice.index(count as usize)));
        assert!(path.symlink_metadata().is_ok(), "{} is not there", path.display());
        assert!(!folder.join(format!("absent-{}", dice.roll(100))).exists());
    }
}

fn is_split(cluster: &Cluster) -> bool {
    let info = cluster.json(&["entry", "info", "/busy"]);
    !info["parts"].as_array().unwrap().is_empty() && info["split_percent"].is_null()
}

/// A failed assertion of one ends the others.
fn ended(stop: &AtomicBool, work: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        stop.store(true, Ordering::Relaxed);
        std::panic::resume_unwind(panic);
    }
}

/// `parts` by command, or by itself.
fn split_in_use(cluster: &mut Cluster, parts: Option<u64>, kills: u64) {
    let count = scale("WEFT_TEST_ENTRIES", 5000);
    // With very many, one mount makes files, and nobody else is there.
    let measures = count > MEASURED_FROM;
    let second = cluster.mount_again(&[]).point;
    let (here, there) = (cluster.folder("busy"), second.join("busy"));
    let names = fill(&here, count);
    let (stop, made, listings) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let cluster = &*cluster;
    thread::scope(|scope| {
        let (stop, made, listings, names) = (&stop, &made, &listings, &names);
        let (here, there) = (&here, &there);
        if measures {
            scope.spawn(move || ended(stop, || create(there, stop, made)));
        } else {
            scope.spawn(move || ended(stop, || churn(here, there, 1, stop, made)));
            scope.spawn(move || ended(stop, || churn(there, here, 2, stop, made)));
            scope.spawn(move || ended(stop, || list_all(there, names, stop, listings)));
            scope.spawn(move || ended(stop, || look(here, count, seed(), stop)));
        }
        let rate = |before: (u64, Instant)| {
            (made.load(Ordering::Relaxed) - before.0) as f64 / before.1.elapsed().as_secs_f64()
        };
        let now = || (made.load(Ordering::Relaxed), Instant::now());
        let before = now();
        thread::sleep(Duration::from_secs(1));
        println!("before: {:.0} creates/s beside removals", rate(before));
        let begin = now();
        if let Some(parts) = parts {
            cluster.weft(&["entry", "set", "/busy", "--split", &parts.to_string()]).expect_ok();
        }
        println!("begun after {:.1?}", begin.1.elapsed());
        let mut dice = Dice::new(seed());
        let moving = now();
        for kill in 0..kills {
            wait::until_others_get_on(kill, made, stop);
            thread::sleep(Duration::from_millis(dice.roll(400)));
            let name = ["metad-1", "metad-2"][dice.index(2)];
            let old = cluster.kill(name);
            cluster.wait_for_another(name, old);
        }
        wait::until("the directory is split", PATIENCE, || {
            (is_split(cluster) || stop.load(Ordering::Relaxed)).then_some(())
        });
        println!("{count} entries moved in {:.1?}; meanwhile {:.0} creates/s", moving.1.elapsed(), rate(moving));
        let after = now();
        thread::sleep(Duration::from_secs(1));
        println!("after: {:.0} creates/s, {} listings", rate(after), listings.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
    });
    let listed = listings.load(Ordering::Relaxed);
    assert!(made.load(Ordering::Relaxed) > 20 && (measures || listed > 1), "hardly any load");
    for folder in [&here, &there] {
        let found = list(folder);
        assert_eq!((found.len(), found.into_iter().collect()), (names.len(), names.clone()));
    }
    cluster.assert_sound();
    assert!(fs::remove_dir(&there).is_err());
    if !measures {
        for (name, n) in names.iter().zip(0u64..) {
            let path = there.join(name);
            if n.is_multiple_of(DIRECTORY_EVERY) {
                fs::remove_dir(path).unwrap()
            } else {
                fs::remove_file(path).unwrap()
            }
        }
        fs::remove_dir(&there).unwrap();
        assert!(!here.exists());
        cluster.assert_sound();
    }
}

#[test]
fn a_directory_is_split_while_two_mounts_use_it() {
    let mut cluster = four_shards();
    cluster.set_metadata(&[LEASE_TERM]);
    split_in_use(&mut cluster, Some(scale("WEFT_TEST_PARTS", 4)), 0);
}

#[test]
fn a_directory_is_split_though_services_are_killed() {
    let mut cluster = four_shards();
    cluster.set_metadata(&[LEASE_TERM]);
    split_in_use(&mut cluster, Some(3), scale("WEFT_TEST_KILLS", 4));
}

#[test]
fn a_directory_splits_by_itself_when_it_has_grown() {
    let mut cluster = four_shards();
    cluster.set_metadata(&[LEASE_TERM, ("#split_above = 50000", "split_above = 1000")]);
    split_in_use(&mut cluster, None, 1);
    let small = cluster.folder("small");
    fill(&small, 900);
    thread::sleep(Duration::from_secs(3));
    assert!(cluster.json(&["entry", "info", "/small"])["parts"].as_array().unwrap().is_empty());
}

/// A spool: it never has many entries, and all of them are new.
#[test]
fn a_directory_splits_by_itself_when_its_names_change_often() {
    let cluster = four_shards();
    cluster.set_metadata(&[LEASE_TERM, ("#split_rate = 30000", "split_rate = 40")]);
    let (busy, quiet) = (cluster.folder("busy"), cluster.folder("quiet"));
    wait::until("the directory is split", PATIENCE, || {
        for n in 0..100 {
            let (coming, there) = (busy.join(format!("coming-{n}")), busy.join(format!("there-{n}")));
            fs::write(&coming, "x").unwrap();
            fs::rename(&coming, &there).unwrap();
            fs::remove_file(&there).unwrap();
        }
        fs::write(quiet.join("file"), "x").unwrap();
        is_split(&cluster).then_some(())
    });
    assert!(cluster.json(&["entry", "info", "/quiet"])["parts"].as_array().unwrap().is_empty());
    cluster.assert_sound();
}
