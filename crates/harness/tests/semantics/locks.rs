//! Locks. Those of the two mounts are tried through open files of this process, which are owners of their own; what needs
//! processes is in `locks.py`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Place, errno, open};

const READ: i32 = libc::F_RDLCK;
const WRITE: i32 = libc::F_WRLCK;
const UNLOCK: i32 = libc::F_UNLCK;
/// Of files whose locks are asked for right after.
const CLOSES: u32 = 300;
/// So many of them may come while a loop of the mount has no CPU.
const LATE_MAX: usize = 15;

fn flock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: takes nothing but numbers.
    if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One range; length 0 is all from `start` on. What is found, where `command` asks.
fn range(file: &File, command: i32, mode: i32, start: i64, length: i64) -> io::Result<(i32, i64, i64)> {
    // SAFETY: all zeros is a sound value of the struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (mode as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (start, length);
    // SAFETY: the struct lives longer than the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((i32::from(lock.l_type), lock.l_start, lock.l_len))
}

fn set(file: &File, mode: i32, start: i64, length: i64) -> io::Result<()> {
    range(file, libc::F_OFD_SETLK, mode, start, length).map(drop)
}

fn python(place: &Place, what: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(harness::checkout::file("tests/locks.py")).arg(what);
    command.arg(&place.here).arg(&place.there);
    command
}

/// How long it took until it was not refused any more.
fn soon(mut what: impl FnMut() -> io::Result<()>) -> Duration {
    let begin = Instant::now();
    while errno(what()) == libc::EAGAIN {
        assert!(begin.elapsed() < Duration::from_secs(20), "still refused");
        thread::sleep(Duration::from_millis(2));
    }
    begin.elapsed()
}

pub(super) fn flock_excludes_everywhere(place: &Place) {
    let (a, b) = place.both("f");
    let (here, there) = (open(&a), open(&b));
    flock(&here, libc::LOCK_EX).unwrap();
    for operation in [libc::LOCK_SH, libc::LOCK_EX] {
        assert_eq!(errno(flock(&there, operation | libc::LOCK_NB)), libc::EWOULDBLOCK);
    }
    flock(&here, libc::LOCK_SH).unwrap();
    flock(&there, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    // Refused, and the shared one is gone with it.
    assert_eq!(errno(flock(&here, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    flock(&there, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    // The other kind does not see it.
    set(&here, WRITE, 0, 0).unwrap();
    flock(&there, libc::LOCK_UN).unwrap();
    flock(&here, libc::LOCK_EX | libc::LOCK_NB).unwrap();
}

pub(super) fn ranges_split_and_merge(place: &Place) {
    let (a, b) = place.both("f");
    let (here, there) = (open(&a), open(&b));
    let found = |mode, start, length| range(&there, libc::F_OFD_GETLK, mode, start, length).unwrap();
    set(&here, WRITE, 0, 0).unwrap();
    assert_eq!(found(READ, 1 << 61, 1), (WRITE, 0, 0), "beyond the end, too");
    set(&here, UNLOCK, 100, 50).unwrap();
    set(&here, READ, 20, 10).unwrap();
    assert_eq!(found(READ, 0, 0), (WRITE, 0, 20));
    assert_eq!(found(READ, 20, 50), (WRITE, 30, 70));
    assert_eq!(found(WRITE, 22, 5), (READ, 20, 10));
    assert_eq!(found(WRITE, 100, 50).0, UNLOCK);
    assert_eq!(found(READ, 149, 2), (WRITE, 150, 0));
    set(&there, WRITE, 100, 50).unwrap();
    set(&there, READ, 25, 5).unwrap();
    assert_eq!(errno(set(&there, READ, 25, 6)), libc::EAGAIN);
    assert_eq!(errno(set(&here, WRITE, 0, 0)), libc::EAGAIN);
    set(&there, UNLOCK, 0, 0).unwrap();
    set(&here, WRITE, 0, 0).unwrap();
    assert_eq!(found(READ, 500, 1), (WRITE, 0, 0), "one piece again");
}

pub(super) fn a_close_ends_the_locks_of_its_process(place: &Place) {
    let (a, b) = place.both("f");
    let (here, there) = (open(&a), open(&b));
    range(&here, libc::F_SETLK, WRITE, 0, 10).unwrap();
    set(&here, WRITE, 20, 10).unwrap();
    flock(&here, libc::LOCK_EX).unwrap();
    assert_eq!(errno(set(&there, WRITE, 0, 10)), libc::EAGAIN);
    // Another open file, another name of it: the process is the same.
    drop(open(&a));
    set(&there, WRITE, 0, 10).unwrap();
    // The others go with the open file.
    assert_eq!(errno(set(&there, WRITE, 20, 10)), libc::EAGAIN);
    let copy = here.try_clone().unwrap();
    drop(here);
    assert_eq!(errno(set(&there, WRITE, 20, 10)), libc::EAGAIN);
    assert_eq!(errno(flock(&there, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    drop(copy);
    soon(|| set(&there, WRITE, 20, 10));
    soon(|| flock(&there, libc::LOCK_EX | libc::LOCK_NB));
}

/// Closed on one CPU, asked for on another: so the kernel may tell of the two over different loops.
pub(super) fn closed_files_hold_no_locks(place: &Place) {
    let (a, _) = place.both("f");
    let cpus = ring::place::allowed();
    let (closed, asked) = (AtomicU32::new(0), AtomicU32::new(0));
    let asker = open(&a);
    let refused: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            ring::place::bind(&cpus[cpus.len() - 1..]).unwrap();
            keep_descriptors_apart();
            for round in 1..=CLOSES {
                let file = open(&a);
                flock(&file, libc::LOCK_EX).unwrap();
                set(&file, WRITE, 0, 0).unwrap();
                drop(file);
                closed.store(round, Ordering::SeqCst);
                reaches(&asked, round);
            }
        });
        let asker = scope.spawn(|| {
            ring::place::bind(&cpus[..1]).unwrap();
            let refused = (1..=CLOSES).filter_map(|round| {
                reaches(&closed, round);
                let refused = finds_a_lock(&asker, round);
                asked.store(round, Ordering::SeqCst);
                refused
            });
            refused.collect()
        });
        asker.join().unwrap()
    });
    // A mount one of whose loops hangs, or has no CPU, refuses a lock after some time though it may have been given up.
    let (late, wrong): (Vec<Duration>, Vec<Duration>) =
        refused.iter().partition(|&&took| took >= Duration::from_secs(1));
    assert!(wrong.is_empty() && late.len() <= LATE_MAX, "of {CLOSES} closes: {wrong:?}, and late: {late:?}");
}

/// From here on this thread has descriptors of its own. A program that another thread starts has copies of all that the process
/// has until it is executed: what was closed here in between would be open there.
fn keep_descriptors_apart() {
    // SAFETY: takes nothing but a number; descriptors that are open stay so.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0, "{}", io::Error::last_os_error());
}

/// In one of the ways to ask: how long that took where there is one. Nothing is held in the end.
fn finds_a_lock(asker: &File, way: u32) -> Option<Duration> {
    let begun = Instant::now();
    let is_refused = match way % 3 {
        0 => flock(asker, libc::LOCK_EX | libc::LOCK_NB).is_err(),
        1 => range(asker, libc::F_OFD_GETLK, WRITE, 0, 0).unwrap().0 != UNLOCK,
        _ => set(asker, WRITE, 0, 0).is_err(),
    };
    let took = begun.elapsed();
    soon(|| flock(asker, libc::LOCK_EX | libc::LOCK_NB));
    flock(asker, libc::LOCK_UN).unwrap();
    set(asker, UNLOCK, 0, 0).unwrap();
    is_refused.then_some(took)
}

/// Without sleeping at first: the one who waits is to go on at once. Not for long: it may be what keeps the mount from its CPU.
fn reaches(count: &AtomicU32, round: u32) {
    let begin = Instant::now();
    while count.load(Ordering::SeqCst) < round {
        assert!(begin.elapsed() < Duration::from_secs(20), "the other one has failed");
        match begin.elapsed() < Duration::from_millis(2) {
            true => thread::yield_now(),
            false => thread::sleep(Duration::from_micros(100)),
        }
    }
}

pub(super) fn waits_end_with_the_unlock(place: &Place) {
    let (a, b) = place.both("f");
    let (here, there) = (open(&a), open(&b));
    for round in 0..5 {
        set(&here, WRITE, round, 1).unwrap();
        flock(&here, libc::LOCK_EX).unwrap();
        let waiter = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                range(&there, libc::F_OFD_SETLKW, WRITE, 0, 0).unwrap();
                let ranged = Instant::now();
                flock(&there, libc::LOCK_EX).unwrap();
                (ranged, Instant::now())
            });
            thread::sleep(Duration::from_millis(100));
            assert!(!waiter.is_finished());
            let unlocked = Instant::now();
            set(&here, UNLOCK, 0, 0).unwrap();
            thread::sleep(Duration::from_millis(50));
            let unflocked = Instant::now();
            flock(&here, libc::LOCK_UN).unwrap();
            let (ranged, flocked) = waiter.join().unwrap();
            [ranged.checked_duration_since(unlocked), flocked.checked_duration_since(unflocked)]
        });
        for took in waiter {
            let took = took.expect("it had what was held");
            assert!(took < Duration::from_secs(2), "woken after {took:?}");
        }
        set(&there, UNLOCK, 0, 0).unwrap();
        flock(&there, libc::LOCK_UN).unwrap();
    }
}

pub(super) fn signals_end_waits(place: &Place) {
    let (a, _) = place.both("f");
    let here = open(&a);
    flock(&here, libc::LOCK_EX).unwrap();
    set(&here, WRITE, 0, 0).unwrap();
    harness::run::run(&mut python(place, "signalled"), harness::run::LONG).expect_ok();
    // Nobody waits any more, and nobody got it.
    flock(&here, libc::LOCK_UN).unwrap();
    set(&here, UNLOCK, 0, 0).unwrap();
    thread::sleep(Duration::from_millis(50));
    flock(&here, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    set(&here, WRITE, 0, 0).unwrap();
}

pub(super) fn deadlocks_of_processes_are_refused(place: &Place) {
    harness::run::run(&mut python(place, "deadlock"), harness::run::LONG).expect_ok();
}

pub(super) fn the_dead_hold_nothing(place: &Place) {
    let (a, _) = place.both("held");
    let mut child = python(place, "hold").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let here = open(&a);
    assert_eq!(errno(set(&here, WRITE, 0, 5)), libc::EAGAIN);
    assert_eq!(errno(set(&here, WRITE, 25, 1)), libc::EAGAIN);
    assert_eq!(errno(flock(&here, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    child.kill().unwrap();
    child.wait().unwrap();
    soon(|| set(&here, WRITE, 0, 0));
    soon(|| flock(&here, libc::LOCK_EX | libc::LOCK_NB));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
