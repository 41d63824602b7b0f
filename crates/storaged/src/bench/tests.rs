//! Runs on a directory, as the lanes ask for them.

use std::path::Path;

use types::id::TargetId;
use wire::v1::bench::{BenchPlan, BenchSync};

use super::*;

const MIB: u64 = 1 << 20;

fn plan() -> BenchPlan {
    BenchPlan {
        read: false,
        random: false,
        block: 65_536,
        size: MIB,
        threads: 2,
        duration_ms: 0,
        sync: BenchSync::End,
        buffered: false,
        use_reserve: false,
    }
}

fn request(plan: BenchPlan) -> BenchStart {
    BenchStart { run: 7, plan, targets: vec![TargetId(1)] }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

fn home(path: &Path, reserve: u64) -> Home<'_> {
    Home { path, reserve, sharers: 1, is_present: true }
}

/// Waits for the end of what is under way.
fn ended(bench: &Bench) -> BenchStatusReply {
    let begin = Instant::now();
    while bench.shared.state().busy {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
        thread::sleep(Duration::from_millis(2));
    }
    bench.status()
}

fn run(bench: &Bench, path: &Path, reserve: u64, plan: BenchPlan) -> BenchRun {
    assert_eq!(text(&bench.start(home(path, reserve), request(plan)).refused), "");
    ended(bench).run.expect("there was one")
}

#[test]
fn a_run_is_measured_and_its_files_go_at_the_end() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    assert_eq!(bench.status().run, None);
    let written = run(&bench, target.path(), 0, plan());
    assert_eq!(
        (written.phase, written.blocks, written.run),
        (BenchPhase::Finished, 32, 7),
        "{}",
        text(&written.message)
    );
    assert_eq!(written.latencies.iter().map(|latency| latency.count).sum::<u64>(), 32);
    assert!(written.elapsed_us > 0 && !written.place.file_system.0.is_empty());
    assert!(bench.status().files >= 2 * MIB);
    // One file is enough for this one.
    let read = run(&bench, target.path(), 0, BenchPlan { read: true, threads: 1, ..plan() });
    assert_eq!((read.phase, read.blocks), (BenchPhase::Finished, 16), "{}", text(&read.message));
    assert!(bench.status().files < 2 * MIB);
    assert!(target.path().join("bench").exists());
    bench.clean(target.path()).expect("it begins");
    assert_eq!(ended(&bench).files, 0);
    assert!(!target.path().join("bench").exists());
}

#[test]
fn what_cannot_be_looked_at_is_not_called_clean() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    run(&bench, target.path(), 0, plan());
    std::fs::rename(target.path().join("bench"), target.path().join("moved")).expect("moved");
    std::os::unix::fs::symlink("moved", target.path().join("bench")).expect("made");
    bench.clean(target.path()).expect("it begins");
    assert!(ended(&bench).files > 0);
}

#[test]
fn a_second_run_is_refused_while_one_is_under_way_which_can_be_stopped() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    let long = BenchPlan { duration_ms: 3_600_000, ..plan() };
    assert_eq!(text(&bench.start(home(target.path(), 0), request(long)).refused), "");
    let refused = text(&bench.start(home(target.path(), 0), request(plan())).refused);
    assert!(refused.contains("under way") && refused.contains("--stop"), "{refused}");
    assert_eq!(bench.clean(target.path()), Err(Errno::EBUSY));
    let begin = Instant::now();
    while bench.status().run.is_none_or(|run| run.samples.len() < 2) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is told of it");
        thread::sleep(Duration::from_millis(10));
    }
    bench.stop(8);
    assert!(!bench.shared.is_stopped(), "that is another run");
    bench.stop(7);
    let stopped = ended(&bench).run.expect("it was there");
    assert_eq!(stopped.phase, BenchPhase::Stopped);
    assert!(stopped.blocks > 0 && stopped.samples.iter().sum::<u64>() <= stopped.blocks);
    assert_eq!(run(&bench, target.path(), 0, plan()).phase, BenchPhase::Finished, "the next one may begin");
}

#[test]
fn space_is_kept_unless_told_otherwise() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    let reserve = place::free_bytes(target.path()).expect("told").saturating_sub(MIB);
    let refused = run(&bench, target.path(), reserve, plan());
    assert_eq!(refused.phase, BenchPhase::NoRoom);
    assert!(text(&refused.message).contains("need 2 MiB"), "{}", text(&refused.message));
    assert!(!target.path().join("bench").exists(), "nothing was written");
    assert_eq!(refused.place.reserve_bytes, reserve);
    let allowed = run(&bench, target.path(), reserve, BenchPlan { use_reserve: true, ..plan() });
    assert_eq!(allowed.phase, BenchPhase::Finished);
    // Its files are there: to read them takes no space.
    let read = run(&bench, target.path(), reserve, BenchPlan { read: true, ..plan() });
    assert_eq!(read.phase, BenchPhase::Finished, "{}", text(&read.message));
}

/// They are all measured at once, and each finds the same space.
#[test]
fn targets_that_share_a_disk_do_not_fill_it_together() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    // A hundred shares of what is free, of which this one wants two: others may use the disk meanwhile.
    let free = place::free_bytes(target.path()).expect("told");
    let large = BenchPlan { size: free / 100 / MIB * MIB, ..plan() };
    let targets = (1..=200).map(TargetId).collect();
    let request = BenchStart { targets, ..request(large) };
    assert_eq!(text(&bench.start(Home { sharers: 100, ..home(target.path(), 0) }, request).refused), "");
    let refused = ended(&bench).run.expect("there was one");
    assert_eq!(refused.phase, BenchPhase::NoRoom);
    assert!(text(&refused.message).contains("100 targets share"), "{}", text(&refused.message));
    assert!(!target.path().join("bench").exists(), "nothing was written");
}

/// Else the verdict would call the disk full of them.
#[test]
fn its_own_files_are_not_in_the_way() {
    let target = tempfile::tempdir().expect("a directory");
    let (bench, large) = (Bench::default(), BenchPlan { size: 64 * MIB, block: 1 << 20, ..plan() });
    run(&bench, target.path(), 0, large.clone());
    let files = bench.status().files;
    assert!(files >= 128 * MIB);
    let again = run(&bench, target.path(), 0, BenchPlan { read: true, ..large });
    // Others use the disk too.
    let free = place::free_bytes(target.path()).expect("told");
    assert!(again.place.free_bytes > free + files / 2, "{} with files, {free} beside them", again.place.free_bytes);
}

#[test]
fn what_cannot_be_is_told() {
    let target = tempfile::tempdir().expect("a directory");
    let bench = Bench::default();
    let refused = text(&bench.start(home(target.path(), 0), request(BenchPlan { block: 1, ..plan() })).refused);
    assert!(refused.contains("multiple of 4096"), "{refused}");
    assert_eq!(bench.status().run, None);
    std::fs::write(target.path().join("bench"), b"mine").expect("written");
    let failed = run(&bench, target.path(), 0, plan());
    assert_eq!(failed.phase, BenchPhase::Failed);
    assert!(text(&failed.message).contains("no directory"), "{}", text(&failed.message));
    let gone = run(&bench, &target.path().join("gone"), 0, plan());
    assert!(gone.phase == BenchPhase::Failed && text(&gone.message).contains("gone"), "{}", text(&gone.message));
    // Nothing is written to what has the path of a disk that is not mounted.
    let bare = tempfile::tempdir().expect("a directory");
    let unmounted = Home { is_present: false, ..home(bare.path(), 0) };
    assert_eq!(text(&bench.start(unmounted, request(plan())).refused), "");
    let failed = ended(&bench).run.expect("there was one");
    assert!(failed.phase == BenchPhase::Failed && text(&failed.message).contains("mount its disk"));
    assert_eq!(std::fs::read_dir(bare.path()).expect("readable").count(), 0);
}

#[test]
fn what_a_killed_run_has_left_goes_at_the_next_start() {
    let target = tempfile::tempdir().expect("a directory");
    run(&Bench::default(), target.path(), 0, plan());
    assert!(target.path().join("bench").exists());
    let next = Bench::default();
    next.clean_leftovers(target.path());
    assert_eq!(ended(&next).files, 0);
    assert!(!target.path().join("bench").exists());
}

#[test]
fn runs_on_disks_that_hang_are_waited_for_together() {
    // One after the other they would take 20 times as long as one.
    let benches: Vec<Bench> = (0..20).map(|_| Bench::default()).collect();
    benches.iter().for_each(|bench| bench.shared.state().busy = true);
    let begun = Instant::now();
    end_all(benches.iter());
    assert!((END_MAX..10 * END_MAX).contains(&begun.elapsed()));
    assert!(benches.iter().all(|bench| bench.shared.is_stopped()));
}
