//! A client that is cut off from everything for longer than its session lasts: the others go on without it, its programs
//! get errors rather than what is wrong, and when it is back it does no harm.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use harness::hosts::{Cut, Hosts};
use harness::run::shell;
use harness::wait;

const EXPIRY: Duration = Duration::from_secs(12);
/// What others wait for it beyond its session, on a slow and busy machine.
const SLACK: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the file that the client keeps a write back for.
const LEN: usize = 100_000;
const KEPT_AT: u64 = 8192;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn objects(hosts: &Hosts) -> usize {
    shell(&hosts.target(), "find objects -type f | wc -l").stdout.trim().parse().unwrap()
}

/// The call fails, with an error that says so, and in bounded time.
fn fails<T: std::fmt::Debug>(what: &str, call: impl Fn() -> std::io::Result<T>) {
    let begin = Instant::now();
    let outcome = call();
    let errno = outcome.as_ref().err().and_then(std::io::Error::raw_os_error);
    assert!(matches!(errno, Some(libc::EIO | libc::ESTALE)), "{what}: {outcome:?}");
    assert!(begin.elapsed() < PATIENCE, "{what}: only after {:?}", begin.elapsed());
}

/// What the programs of the client have open when it is cut off.
struct Held {
    kept: File,
    locked: File,
    gone: File,
}

fn hold(hosts: &Hosts) -> Held {
    let here = hosts.mount_point();
    let held =
        Held { kept: open(&here.join("kept")), locked: open(&here.join("locked")), gone: open(&here.join("gone")) };
    held.kept.write_all_at(&[b'a'; LEN], 0).unwrap();
    held.locked.write_all_at(&[b'a'; LEN], 0).unwrap();
    held.gone.write_all_at(&[b'a'; LEN], 0).unwrap();
    for file in [&held.kept, &held.locked, &held.gone] {
        file.sync_all().unwrap();
    }
    held.locked.lock().unwrap();
    fs::remove_file(here.join("gone")).unwrap();
    fs::write(here.join("seen"), "seen").unwrap();
    assert_eq!(fs::read(here.join("seen")).unwrap(), b"seen");
    assert!(!here.join("absent").exists());
    held
}

/// What the other client does meanwhile, and how long the client that is away makes it wait.
fn go_on_without_it(hosts: &Hosts, there: &Path, objects_before: usize) -> File {
    let begin = Instant::now();
    let bounded = |what: &str| {
        println!("{what} after {:.1?}", begin.elapsed());
        assert!(begin.elapsed() < EXPIRY + SLACK, "{what} after {:?}", begin.elapsed());
    };
    let locked = open(&there.join("locked"));
    assert!(matches!(locked.try_lock(), Err(TryLockError::WouldBlock)), "its session is not over");
    fs::rename(there.join("seen"), there.join("renamed")).unwrap();
    fs::write(there.join("absent"), "made").unwrap();
    bounded("names were changed");
    // What it has kept back nobody has seen, and nobody ever will.
    let kept = open(&there.join("kept"));
    let mut content = vec![0; LEN];
    kept.read_exact_at(&mut content, 0).unwrap();
    assert!(content.iter().all(|&byte| byte == b'a'));
    kept.write_all_at(&[b'b'; 4096], KEPT_AT).unwrap();
    kept.sync_all().unwrap();
    bounded("its file was written");
    locked.lock().unwrap();
    bounded("its lock was given away");
    locked.write_all_at(b"mine", 0).unwrap();
    locked.sync_all().unwrap();
    wait::until("the removed file's objects go", EXPIRY + SLACK, || (objects(hosts) < objects_before).then_some(()));
    bounded("its open file was removed");
    locked
}

#[test]
fn a_client_that_was_cut_off_has_lost_all_and_does_no_harm() {
    let expiry = format!("{}s", EXPIRY.as_secs());
    let metadata = ["--session-expiry", &expiry, "--lease-term", "6s"];
    let mut hosts = Hosts::start_as(1, "1gbit", &metadata, &["--retry-timeout", "4s"]);
    let (here, there) = (hosts.mount_point(), hosts.mount_at_server());
    let Held { kept, locked, gone } = hold(&hosts);
    let objects_before = objects(&hosts);
    // Small writes are kept back from the third on, under a lease that is asked for meanwhile.
    for _ in 0..20 {
        kept.write_all_at(&[b'a'; 4096], KEPT_AT).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    kept.sync_all().unwrap();
    hosts.cut_off();
    // It still believes that nobody else has the file, and keeps this to be written later: else it would fail.
    kept.write_all_at(&[b'x'; 4096], KEPT_AT).unwrap();
    let others = go_on_without_it(&hosts, &there, objects_before);

    // Errors, and nothing that is not true any more.
    let byte = |file: &File, at: u64| file.read_at(&mut [0], at);
    let look = || {
        fails("a file with a write that was kept back", || byte(&kept, KEPT_AT));
        fails("a file whose lock is lost", || byte(&locked, 0));
        fails("a file that is gone", || byte(&gone, 50_000));
        fails("its size", || gone.metadata().map(|meta| meta.len()));
    };
    look();
    for name in ["seen", "absent", "kept"] {
        fails(name, || fs::metadata(here.join(name)));
    }
    hosts.mend(0);
    wait::until("it answers again", PATIENCE, || fs::metadata(here.join("renamed")).ok());
    look();
    fails("what was kept back", || kept.sync_all());
    drop((kept, gone));
    assert!(!here.join("seen").exists());
    assert_eq!(fs::read(here.join("absent")).unwrap(), b"made");

    // With its files opened anew it is one client among others.
    let mut expected = vec![b'a'; LEN];
    expected[KEPT_AT as usize..][..4096].fill(b'b');
    // The kernel tells of the end of the lost one some time after the close, and whoever opens it before is told of the loss.
    let kept = wait::until("the close of the lost one is over", PATIENCE, || fs::read(here.join("kept")).ok());
    assert!(kept == expected);
    drop(locked);
    let again = open(&here.join("locked"));
    assert!(matches!(again.try_lock(), Err(TryLockError::WouldBlock)), "somebody else has it");
    drop((others, again));
    let again = wait::until("the close of the one whose lock is lost is over", PATIENCE, || {
        let again = open(&here.join("locked"));
        again.lock().ok().map(|()| again)
    });
    let mut content = [0; 4];
    again.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"mine");
    // Long enough for whatever it might have kept to be tried again.
    std::thread::sleep(Duration::from_secs(3));
    for mount in [&here, &there] {
        assert!(fs::read(mount.join("kept")).unwrap() == expected);
        assert_eq!(fs::metadata(mount.join("kept")).unwrap().size(), LEN as u64);
    }
    drop(again);
    hosts.weft_on_cluster(&["fsck"]).expect_ok();
}

/// Its shard has executed the change, told nobody of that, and forgotten it with the session.
#[test]
fn what_a_shard_may_have_done_and_has_forgotten_is_not_done_again() {
    // What it knows of the directory has to last until it asks to make one there: it hears no answer by then. Beside other
    // tests, whose networks are made and taken down, the rule that makes it deaf has taken 8 s.
    let metadata = ["--session-expiry", "32s", "--lease-term", "16s"];
    // All over the one connection that is there.
    let mut hosts = Hosts::start_as(1, "1gbit", &metadata, &["--retry-timeout", "60s", "--loops", "1"]);
    let (here, there) = (hosts.mount_point().join("d"), hosts.mount_at_server().join("d"));
    // Until it listens for recalls: without that nobody gives it leases.
    std::thread::sleep(Duration::from_secs(3));
    fs::create_dir(&here).unwrap();
    // It knows that no other names are there, and asks nobody.
    fs::create_dir(here.join("before")).unwrap();
    hosts.deafen();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| fs::create_dir(here.join("made")));
        wait::until("the directory", PATIENCE, || there.join("made").exists().then_some(()));
        // With the connection goes the answer.
        hosts.cut(0, Cut::Reset);
        fs::remove_dir(there.join("made")).unwrap();
        wait::until("its session ends", PATIENCE, || {
            hosts.log("metad").contains("its session has ended").then_some(())
        });
        hosts.mend(0);
        let made = made.join().unwrap();
        assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::EIO), "nobody knows whether it was made");
    });
    for dir in [&here, &there] {
        assert!(!dir.join("made").exists(), "it was made twice");
    }
    fs::create_dir(here.join("made")).unwrap();
    assert!(there.join("made").exists());
}
