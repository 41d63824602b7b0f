//! Several rails between two hosts: they carry more than one, and each may be cut at any time. `WEFT_TEST_RAIL_CUTS=100`
//! for a run by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::dice::{Dice, scale, seed};
use harness::hosts::{Cut, Hosts};
use harness::{process, wait};
use serde_json::Value;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of an operation when a rail is cut; without the watch over rails it would be 15 s and more. It is printed
/// too: two seconds are what it may take, but the disk below may stand still for longer.
const LONGEST: Duration = Duration::from_secs(10);
/// One of so many counts is to be good: others use this machine too.
const TRIES: usize = 3;

/// Memory that direct I/O takes.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

struct Block(Vec<Page>);

impl Block {
    fn new(len: usize) -> Self {
        Self(vec![Page([0; 4096]); len / 4096])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.len() * 4096;
        // SAFETY: pages are plain bytes, one behind the other, and borrowed as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }

    /// Bytes that nothing else has.
    fn fill(&mut self, stamp: u64) {
        for (at, word) in self.bytes().chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64).to_le_bytes());
        }
    }

    fn assert_is(&mut self, stamp: u64, what: &str) {
        let mut expected = Block::new(self.0.len() * 4096);
        expected.fill(stamp);
        let (found, expected) = (self.bytes(), expected.bytes());
        let wrong = (0..found.len()).filter(|&at| found[at] != expected[at]).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{what}: {} wrong bytes, the first at {}", wrong.len(), wrong[0]);
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Seconds to write `count` MiB, and to read them again.
fn stream(path: &Path, count: usize) -> (f64, f64) {
    let (file, mut block) = (open(path), Block::new(MIB));
    let begin = Instant::now();
    for at in 0..count {
        block.fill(at as u64);
        file.write_all_at(block.bytes(), (at * MIB) as u64).unwrap();
    }
    let written = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for at in 0..count {
        file.read_exact_at(block.bytes(), (at * MIB) as u64).unwrap();
        block.assert_is(at as u64, "read again");
    }
    (written, begin.elapsed().as_secs_f64())
}

/// By how much writes and reads are faster with all rails than with the first one alone; not at all where one of them carried
/// much less than the others.
fn gain(hosts: &Hosts, file: &Path, count: usize) -> (f64, f64) {
    let rails = hosts.healthy().len();
    (1..rails).for_each(|rail| hosts.mend(rail));
    // Until all rails are known to work.
    wait::until("all rails", PATIENCE, || {
        stream(file, 2);
        hosts.healthy().iter().all(|&healthy| healthy).then_some(())
    });
    let before = hosts.bytes();
    let many = stream(file, count);
    let moved: Vec<u64> = hosts.bytes().iter().zip(&before).map(|(now, before)| now - before).collect();
    (1..rails).for_each(|rail| hosts.cut(rail, Cut::Down));
    stream(file, 2);
    let one = stream(file, count);
    let (write, read) = (one.0 / many.0, one.1 / many.1);
    let speed = |seconds: f64| (count * MIB) as f64 * 8.0 / 1e6 / seconds;
    println!("{rails} rails: write x{write:.2}, read x{read:.2}; bytes {moved:?}");
    println!(
        "one: {:.0} and {:.0} Mbit/s; all: {:.0} and {:.0}",
        speed(one.0),
        speed(one.1),
        speed(many.0),
        speed(many.1)
    );
    let (most, least) = (moved.iter().max().unwrap(), moved.iter().min().unwrap());
    if *least * 2 > *most { (write, read) } else { (0.0, 0.0) }
}

#[test]
fn two_rails_carry_more_than_one() {
    let rails = scale("WEFT_TEST_RAILS", 2) as usize;
    // So slow that the programs have CPU enough for both rails also on a machine that others use.
    let rate = std::env::var("WEFT_TEST_RAIL_RATE").unwrap_or_else(|_| "40mbit".into());
    let count = scale("WEFT_TEST_RAIL_MIB", 12) as usize;
    let hosts = Hosts::start(rails, &rate);
    let bound = 0.75 * rails as f64;
    let is_good = |_| {
        let (write, read) = gain(&hosts, &hosts.file("stream"), count);
        write >= bound && read >= bound
    };
    assert!((0..TRIES).any(is_good), "none of {TRIES} counts reached x{bound}");
}

/// Writes blocks and reads them again, for as long as it may.
struct Load<'a> {
    stop: &'a AtomicBool,
    /// Operations of all.
    done: &'a AtomicU64,
}

impl Load<'_> {
    const BLOCKS: u64 = 12;
    const LEN: usize = 320 << 10;

    /// # Panics
    /// Where an operation fails, or a byte is wrong.
    fn run(&self, path: &Path, seed: u64) -> Duration {
        let (file, mut block, mut dice) = (open(path), Block::new(Self::LEN), Dice::new(seed));
        let mut stamps = vec![None; Self::BLOCKS as usize];
        let (mut version, mut longest) = (seed << 32, Duration::ZERO);
        while !self.stop.load(Ordering::SeqCst) {
            let at = dice.index(stamps.len());
            let offset = (at * Self::LEN) as u64;
            let begin = Instant::now();
            match stamps[at] {
                Some(stamp) if dice.roll(2) == 0 => {
                    file.read_exact_at(block.bytes(), offset).unwrap();
                    block.assert_is(stamp, &format!("block {at}"));
                }
                _ => {
                    version += 1;
                    block.fill(version);
                    file.write_all_at(block.bytes(), offset).unwrap();
                    stamps[at] = Some(version);
                }
            }
            longest = longest.max(begin.elapsed());
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        for (at, stamp) in stamps.iter().enumerate() {
            if let Some(stamp) = stamp {
                file.read_exact_at(block.bytes(), (at * Self::LEN) as u64).unwrap();
                block.assert_is(*stamp, &format!("block {at} at the end"));
            }
        }
        longest
    }
}

/// Ends the load when dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn rails_that_are_cut_in_turn_cost_no_error_and_no_byte() {
    let cuts = scale("WEFT_TEST_RAIL_CUTS", 4);
    let seed = seed();
    let hosts = Hosts::start(2, "400mbit");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = Load { stop: &stop, done: &done };
    let progress = |what: &str, limit: Duration| {
        let before = done.load(Ordering::SeqCst);
        let begin = Instant::now();
        wait::until(what, limit, || (done.load(Ordering::SeqCst) >= before + 20).then_some(begin.elapsed()))
    };
    thread::scope(|scope| {
        // Also where a check fails, or the scope would wait for them for ever.
        let stops = Stops(&stop);
        let workers: Vec<_> = (0..3u64)
            .map(|worker| {
                let (load, path) = (&load, hosts.file(&format!("load-{worker}")));
                scope.spawn(move || load.run(&path, seed + worker))
            })
            .collect();
        let all_healthy = || {
            wait::until("all rails", PATIENCE, || hosts.healthy().iter().all(|&healthy| healthy).then_some(()));
        };
        all_healthy();
        for round in 0..cuts {
            let how = [Cut::Blackhole, Cut::FarDown, Cut::Reset, Cut::Down][round as usize % 4];
            let rail = (round as usize + round as usize / 4) % 2;
            progress("load", PATIENCE);
            hosts.cut(rail, how);
            let cut = Instant::now();
            wait::until("the cut is found", PATIENCE, || (!hosts.healthy()[rail]).then_some(()));
            let found = cut.elapsed();
            // All that was under way on the dead rail, and more than that.
            let back = progress("load after the cut", PATIENCE);
            hosts.mend(rail);
            let mended = Instant::now();
            all_healthy();
            // One of the mount's loops may have it again before the others.
            let before = hosts.bytes()[rail];
            let used = || (hosts.bytes()[rail] > before + MIB as u64).then_some(());
            wait::until(&format!("use of rail {rail} again after {how:?}"), LONGEST, used);
            println!(
                "{how:?} of rail {rail}: found after {found:.2?}, then 20 operations in {back:.2?}, used again after {:.2?}",
                mended.elapsed()
            );
            if workers.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        drop(stops);
        for worker in workers {
            let longest = worker.join().expect("no error and no wrong byte");
            println!("longest operation {longest:.2?}");
            assert!(longest < LONGEST, "an operation took {longest:?}");
        }
    });
}

/// Reads, or writes, a file over two rails of which one loses long packets on the way: how much in the second half of
/// `seconds`, in MiB, and the longest operation of all.
fn beside_a_rail_that_loses_long_packets(how: Cut, seconds: u64) -> (u64, Duration) {
    let hosts = Hosts::start(2, "80mbit");
    let path = hosts.file("long");
    stream(&path, 16);
    wait::until("all rails", PATIENCE, || {
        stream(&path, 2);
        hosts.healthy().iter().all(|&healthy| healthy).then_some(())
    });
    hosts.cut(1, how);
    let (file, mut block, begin) = (open(&path), Block::new(MIB), Instant::now());
    let (half, mut done, mut longest) = (Duration::from_secs(seconds) / 2, 0, Duration::ZERO);
    for at in (0..16).cycle() {
        let began = begin.elapsed();
        if began >= 2 * half {
            break;
        }
        if how == Cut::LongFromClient {
            file.write_all_at(block.bytes(), at * MIB as u64).unwrap();
        } else {
            file.read_exact_at(block.bytes(), at * MIB as u64).unwrap();
        }
        longest = longest.max(begin.elapsed().saturating_sub(began));
        done += u64::from(began >= half);
    }
    println!("{how:?}: {done} MiB in {half:?}, longest operation {longest:.2?}; {}", hosts.net());
    (done, longest)
}

#[test]
fn reads_go_on_beside_a_rail_that_loses_long_packets() {
    let seconds = scale("WEFT_TEST_LONG_SECONDS", 12);
    let (done, longest) = beside_a_rail_that_loses_long_packets(Cut::LongToClient, seconds);
    assert!(longest < LONGEST, "an operation took {longest:?}");
    // A quarter of what the other rail carries.
    assert!(done > seconds * 10 / 4 / 2, "{done} MiB");
}

#[test]
fn writes_go_on_beside_a_rail_that_loses_long_packets() {
    let seconds = scale("WEFT_TEST_LONG_SECONDS", 12);
    let (done, longest) = beside_a_rail_that_loses_long_packets(Cut::LongFromClient, seconds);
    assert!(longest < LONGEST, "an operation took {longest:?}");
    assert!(done > seconds * 10 / 4 / 2, "{done} MiB");
}

/// Who has one connection finds out over another rail that its own is deaf, and is not found waiting for 15 s.
#[test]
fn listings_go_on_beside_a_rail_that_loses_long_packets() {
    let mut hosts = Hosts::start(2, "400mbit");
    let there = hosts.mount_at_server();
    let directory = |rail: usize, worker: usize| format!("listed-{rail}-{worker}");
    let all = || (0..2).flat_map(|rail| (0..3).map(move |worker| (rail, worker)));
    for (rail, worker) in all() {
        let path = there.join(directory(rail, worker));
        std::fs::create_dir(&path).unwrap();
        (0..100).for_each(|at| drop(File::create(path.join(format!("a-name-of-some-length-{at}"))).unwrap()));
    }
    // Each loop begins at one of the two.
    for rail in 0..2 {
        hosts.cut(rail, Cut::LongToClient);
        thread::scope(|scope| {
            for worker in 0..3 {
                let path = hosts.file(&directory(rail, worker));
                scope.spawn(move || {
                    let begin = Instant::now();
                    assert_eq!(std::fs::read_dir(path).unwrap().count(), 100);
                    println!("rail {rail}: listed after {:.2?}", begin.elapsed());
                    assert!(begin.elapsed() < LONGEST, "a listing took {:?}", begin.elapsed());
                });
            }
        });
        hosts.mend(rail);
    }
}

/// What carries data is healthy, also where another service that it leads to is gone.
#[test]
fn a_rail_that_works_is_called_healthy_though_one_service_is_not_there() {
    [1, 2].into_iter().for_each(healthy_without_a_service);
}

fn healthy_without_a_service(rails: usize) {
    let hosts = Hosts::start(rails, "400mbit");
    let (file, mut block) = (open(&hosts.file("f")), Block::new(MIB));
    let mut write = || {
        block.fill(7);
        (0..4).for_each(|at| file.write_all_at(block.bytes(), at * MIB as u64).unwrap());
    };
    wait::until("all rails", PATIENCE, || {
        write();
        hosts.healthy().iter().all(|&healthy| healthy).then_some(())
    });
    // By now each of the mount's loops has connected all that it connects.
    thread::sleep(Duration::from_secs(1));
    process::kill(hosts.service("metad"));
    wait::until("it is missed on all rails", PATIENCE, || {
        let failures = |rail: &Value| rail["failures"].as_u64();
        hosts.per_rail(failures).iter().all(|&count| count > 0).then_some(())
    });
    wait::until("all rails are healthy again", PATIENCE, || {
        write();
        let net = hosts.net();
        net[0]["rails"].as_array().unwrap().iter().all(|rail| rail["state"] == "healthy").then_some(())
    });
}

/// Bytes that each rail carries while files are made by several threads. They are empty: only the shard is asked.
fn bytes_of_names(hosts: &Hosts, round: &mut u32) -> Vec<u64> {
    *round += 1;
    let before = hosts.bytes();
    thread::scope(|scope| {
        for worker in 0..4 {
            let name = format!("name-{round}-{worker}");
            scope.spawn(move || {
                (0..100).for_each(|at| drop(File::create(hosts.file(&format!("{name}-{at}"))).unwrap()))
            });
        }
    });
    hosts.bytes().iter().zip(&before).map(|(now, before)| now - before).collect()
}

/// A loop of the mount asks a shard over one rail, and over the same as before when that was cut and works again.
#[test]
fn requests_to_shards_return_to_a_rail_that_works_again() {
    let hosts = Hosts::start(2, "400mbit");
    let mut round = 0;
    for how in [Cut::Blackhole, Cut::Reset] {
        let at_first = bytes_of_names(&hosts, &mut round);
        let rail = usize::from(at_first[1] > at_first[0]);
        // Connections that nobody uses are looked after with much less.
        let much = at_first[rail] / 3;
        assert!(much > 10_000, "{at_first:?}");
        hosts.cut(rail, how);
        let without = bytes_of_names(&hosts, &mut round);
        assert!(without[1 - rail] > much, "{how:?} of rail {rail}: {at_first:?}, then {without:?}");
        hosts.mend(rail);
        let mended = Instant::now();
        wait::until(&format!("requests over rail {rail} after {how:?}"), LONGEST, || {
            (bytes_of_names(&hosts, &mut round)[rail] > much).then_some(())
        });
        println!("{how:?} of rail {rail}: used again after {:.2?}", mended.elapsed());
    }
}

#[test]
fn an_interface_that_comes_later_is_registered_and_used() {
    let mut hosts = Hosts::start(1, "400mbit");
    let file = hosts.file("stream");
    stream(&file, 2);
    assert_eq!(hosts.healthy(), [true]);
    hosts.add_rail();
    wait::until("the new rail", PATIENCE, || {
        stream(&file, 2);
        hosts.healthy()[1].then_some(())
    });
    let before = hosts.bytes()[1];
    stream(&file, 8);
    assert!(hosts.bytes()[1] > before + 4 * MIB as u64, "the new rail carries nothing: {}", hosts.net());
}

/// What a mount keeps back it has to write before a lease ends that somebody asks for.
#[test]
fn what_is_written_over_a_slow_link_is_not_lost_when_others_look() {
    let mut hosts = Hosts::start_as(1, "4mbit", &["--lease-term", "5s"], &[]);
    let server = hosts.mount_at_server();
    let file = hosts.file("slow");
    let (done, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let _ = std::fs::metadata(server.join("slow"));
                longest.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(300));
            }
        });
        let written = write_slowly(&file);
        done.store(true, Ordering::Relaxed);
        written.unwrap();
    });
    println!("a stat took {} ms at most", longest.load(Ordering::Relaxed));
    let content = std::fs::read(server.join("slow")).unwrap();
    assert!(content.len() == 4 * MIB && content.iter().all(|&byte| byte == 7));
}

/// As `cp` does, which goes on as soon as what it has written is taken.
fn write_slowly(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
    let piece = vec![7; MIB / 8];
    (0..32).try_for_each(|number| file.write_all_at(&piece, number * piece.len() as u64))?;
    file.sync_all()
}

#[test]
fn bytes_that_change_on_the_way_are_noticed_and_sent_again() {
    let seconds = scale("WEFT_TEST_CORRUPTION_SECONDS", 8);
    let seed = seed();
    let hosts = Hosts::start(1, "800mbit");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = Load { stop: &stop, done: &done };
    hosts.corrupt(0, 200);
    thread::scope(|scope| {
        let stops = Stops(&stop);
        let workers: Vec<_> = (0..3u64)
            .map(|worker| {
                let (load, path) = (&load, hosts.file(&format!("corrupted-{worker}")));
                scope.spawn(move || load.run(&path, seed + worker))
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !workers.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(100));
        }
        drop(stops);
        for worker in workers {
            worker.join().expect("no error and no wrong byte");
        }
    });
    hosts.mend(0);
    let noticed = ["mount", "storaged"].map(|side| hosts.log(side).matches("payload checksum does not match").count());
    println!("{} operations; noticed by mount and storage service: {noticed:?}", done.load(Ordering::SeqCst));
    assert!(noticed.iter().all(|&count| count > 0), "what was read and what was written is to be hit: {noticed:?}");
}
