use wire::codec::Bytes;
use wire::v1::bench::{BenchLatency, BenchRun};

use super::super::samples::{MIB, member, members, run, with};
use super::*;

/// Target and suspicion of each suspect.
fn suspects(members: &[Member]) -> Vec<(u32, Suspicion)> {
    judge(members).suspects.iter().map(|suspect| (suspect.target.0, suspect.suspicion)).collect()
}

/// The one reason there is.
fn reason(members: &[Member]) -> String {
    let verdict = judge(members);
    assert_eq!(verdict.suspects.len(), 1, "{:?}", verdict.suspects);
    verdict.suspects[0].reason.clone()
}

fn at_rate(run: &mut BenchRun, mib_per_second: u64) {
    run.blocks = mib_per_second * run.elapsed_us / 1_000_000;
}

#[test]
fn all_alike_is_well() {
    assert_eq!(judge(&members(5, |_, _| {})), Verdict::default());
    assert_eq!(judge(&members(1, |_, _| {})), Verdict::default());
    assert_eq!(judge(&[]), Verdict::default());
}

#[test]
fn a_slow_target_is_named_with_its_figures() {
    let all = members(5, |target, run| at_rate(run, if target == 4 { 20 } else { 100 }));
    assert_eq!(suspects(&all), [(4, Suspicion::Slow)]);
    let reason = reason(&all);
    assert!(reason.contains("20480 KiB/s") && reason.contains("102400 KiB/s") && reason.contains("87040"), "{reason}");
}

#[test]
fn what_is_slow_depends_on_how_different_the_others_are() {
    // 10 % below the others, which are all alike: no reason to look.
    let alike = members(5, |target, run| at_rate(run, if target == 4 { 90 } else { 100 }));
    assert_eq!(suspects(&alike), []);
    let lower = members(5, |target, run| at_rate(run, if target == 4 { 84 } else { 100 }));
    assert_eq!(suspects(&lower), [(4, Suspicion::Slow)]);
    // The same where they differ much by themselves.
    let rates = [100, 84, 110, 120, 92, 105, 88, 115];
    assert_eq!(suspects(&members(8, |target, run| at_rate(run, rates[target as usize - 1]))), []);
    // Of two, one is slow when it has less than half of what they have on average.
    for (other, found) in [(40, vec![]), (20, vec![(2, Suspicion::Slow)])] {
        let two = members(2, |target, run| at_rate(run, if target == 2 { other } else { 100 }));
        assert_eq!(suspects(&two), found);
    }
}

#[test]
fn who_was_stopped_at_its_beginning_is_not_slow() {
    let stopped = |cut: u64| {
        members(3, move |target, run| {
            run.phase = BenchPhase::Stopped;
            if target == 3 {
                (run.blocks, run.elapsed_us) = (cut, 300 + cut * 100_000);
                (run.samples, run.latencies) = (Vec::new(), Vec::new());
            }
        })
    };
    assert_eq!((suspects(&stopped(0)), suspects(&stopped(1))), (vec![], vec![]));
    assert_eq!(stopped(0)[2].rate(), None, "nothing was measured");
}

#[test]
fn where_the_system_does_not_tell_nothing_is_strange() {
    let untold = members(3, |target, run| {
        if target == 2 {
            run.place.file_system = Bytes(Vec::new());
        }
    });
    assert_eq!(judge(&untold), Verdict::default());
}

#[test]
fn several_slow_targets_do_not_hide_each_other() {
    let all = members(7, |target, run| at_rate(run, if target <= 3 { 10 } else { 100 }));
    assert_eq!(suspects(&all), [(1, Suspicion::Slow), (2, Suspicion::Slow), (3, Suspicion::Slow)]);
}

#[test]
fn a_stopped_run_is_judged_too_but_not_a_short_one() {
    let slow = |target: u32, run: &mut BenchRun| {
        run.phase = BenchPhase::Stopped;
        at_rate(run, if target == 1 { 10 } else { 100 });
    };
    assert_eq!(suspects(&members(4, slow)), [(1, Suspicion::Slow)]);
    let short = members(4, |target, run| {
        slow(target, run);
        (run.elapsed_us, run.blocks) = (run.elapsed_us / 20, run.blocks / 20);
    });
    let verdict = judge(&short);
    assert!(verdict.suspects.is_empty() && verdict.notes[0].contains("too short"), "{verdict:?}");
}

#[test]
fn pools_are_not_compared_with_each_other() {
    let mut all = members(6, |target, run| {
        at_rate(run, if target <= 3 { 10 } else { 100 });
        run.place.file_system = Bytes(if target <= 3 { b"xfs".to_vec() } else { b"ext4".to_vec() });
    });
    assert!(!suspects(&all).is_empty() || !judge(&all).notes.is_empty(), "in one pool they do not belong together");
    all[..3].iter_mut().for_each(|member| member.place.pool = "capacity".to_owned());
    assert_eq!(judge(&all), Verdict::default());
}

#[test]
fn a_full_disk_is_misconfigured() {
    let no_room = |run: &mut BenchRun| {
        (run.phase, run.blocks, run.elapsed_us) = (BenchPhase::NoRoom, 0, 0);
        run.message = Bytes(b"its files need 1000 MiB".to_vec());
        run.place.free_bytes = 3 * MIB;
    };
    let full = members(4, |target, run| {
        if target == 2 {
            no_room(run)
        }
    });
    assert_eq!(suspects(&full), [(2, Suspicion::Misconfigured)]);
    assert!(reason(&full).contains("its disk is full: 3 of 1000 MiB"), "{}", reason(&full));
    // Room for others, but not for this.
    let small = members(4, |target, run| {
        if target == 2 {
            no_room(run);
            run.place.free_bytes = 500 * MIB;
        }
    });
    assert!(reason(&small).contains("too little of its disk is free: 500 of 1000"), "{}", reason(&small));
    // One that could be read all the same.
    assert_eq!(
        suspects(&members(4, |target, run| if target == 2 {
            run.place.free_bytes = 0
        })),
        [(2, Suspicion::Misconfigured)]
    );
    let inodes = members(4, |target, run| {
        if target == 2 {
            run.place.free_inodes = 0
        }
    });
    assert!(reason(&inodes).contains("no inodes"), "{}", reason(&inodes));
}

#[test]
fn the_file_system_of_most_is_the_right_one() {
    let all = members(4, |target, run| {
        if target == 3 {
            run.place.file_system = Bytes(b"xfs".to_vec())
        }
    });
    assert_eq!(suspects(&all), [(3, Suspicion::Misconfigured)]);
    let reason = reason(&all);
    assert!(reason.contains("/data/t3 is on xfs") && reason.contains("on ext4"), "{reason}");
    // Of two, nobody knows which is wrong.
    let two = judge(&members(2, |target, run| {
        if target == 2 {
            run.place.file_system = Bytes(b"xfs".to_vec())
        }
    }));
    assert!(two.suspects.is_empty() && two.notes[0].contains("different file systems"), "{two:?}");
}

#[test]
fn a_disk_that_is_not_mounted_is_found_by_where_the_target_lies() {
    let root = members(4, |target, run| run.place.on_root = target == 1);
    assert!(reason(&root).contains("on the disk of /"), "{}", reason(&root));
    let shared = members(5, |target, run| {
        if target <= 2 {
            run.place.device = 99
        }
    });
    assert_eq!(suspects(&shared), [(1, Suspicion::Misconfigured), (2, Suspicion::Misconfigured)]);
    // Where all are like that, as on one machine for a try, it is meant so.
    let all = judge(&members(4, |_, run| (run.place.device, run.place.on_root) = (1, true)));
    assert!(all.suspects.is_empty() && all.notes[0].contains("share disks"), "{all:?}");
    // The same number on another node is another disk.
    let mut nodes = members(4, |target, run| {
        if target <= 2 {
            run.place.device = 99
        }
    });
    nodes[0].place.node.0 = 2;
    assert_eq!(suspects(&nodes), []);
}

#[test]
fn errors_and_silence_are_failures() {
    let failed = |read_only: bool| {
        with(3, |run| {
            (run.phase, run.message) = (BenchPhase::Failed, Bytes(b"it does not work: Input/output error".to_vec()));
            run.place.read_only = read_only;
        })
    };
    let ok = || vec![with(1, |_| {}), with(2, |_| {})];
    let and = |one: Member| [ok(), vec![one]].concat();
    assert_eq!(suspects(&and(failed(false))), [(3, Suspicion::Failing)]);
    assert!(reason(&and(failed(false))).contains("Input/output error"));
    assert_eq!(suspects(&and(failed(true))), [(3, Suspicion::Misconfigured)]);
    assert_eq!(suspects(&and(member(3, Answer::Lost))), [(3, Suspicion::Failing)]);
    let replaced = and(member(3, Answer::Replaced));
    assert_eq!(suspects(&replaced), []);
    assert!(judge(&replaced).notes.iter().any(|note| note.contains("target 3") && note.contains("another run")));
    let silent = and(member(3, Answer::Silent("node 3 does not answer".to_owned())));
    assert_eq!(reason(&silent), "node 3 does not answer");
}

#[test]
fn stalls_and_swings_are_unstable() {
    let stalls = members(4, |target, run| {
        if target == 2 {
            run.samples = (0..100).map(|at| if at % 10 < 3 { 0 } else { 14 }).collect();
        }
    });
    assert_eq!(suspects(&stalls), [(2, Suspicion::Unstable)]);
    assert!(reason(&stalls).contains("less than a quarter of its usual speed in 30 %"), "{}", reason(&stalls));
    let swings = members(4, |target, run| {
        if target == 2 {
            run.samples = (0..100).map(|at| 3 + at * 37 % 15).collect();
        }
    });
    assert_eq!(suspects(&swings), [(2, Suspicion::Unstable)]);
    assert!(reason(&swings).contains("varied by"), "{}", reason(&swings));
    // Where all do so, it is the machine.
    assert_eq!(suspects(&members(4, |_, run| run.samples = (0..100).map(|at| 3 + at * 37 % 15).collect())), []);
    // Alone, it must be bad by itself.
    assert_eq!(suspects(&stalls[1..2]), [(2, Suspicion::Unstable)]);
}

#[test]
fn the_rhythm_of_single_blocks_is_no_instability() {
    // One block in every third interval, as from a slow disk.
    let slow = |run: &mut BenchRun| run.samples = (0..300).map(|at| u64::from(at % 3 == 0)).collect();
    assert_eq!(
        suspects(&members(4, |target, run| if target == 1 {
            slow(run)
        })),
        []
    );
    // Too few to say anything.
    assert_eq!(
        suspects(&members(4, |target, run| if target == 1 {
            run.samples = vec![0, 30, 0, 10, 0]
        })),
        []
    );
    assert_eq!(
        suspects(&members(4, |target, run| if target == 1 {
            run.samples = Vec::new()
        })),
        []
    );
    assert_eq!(
        suspects(&members(4, |target, run| if target == 1 {
            run.samples = vec![0; 50]
        })),
        []
    );
}

#[test]
fn long_waits_at_full_speed_are_unstable() {
    let slowest = |run: &mut BenchRun, ns| {
        run.latencies =
            vec![BenchLatency { at_most_ns: 9_000_000, count: 980 }, BenchLatency { at_most_ns: ns, count: 20 }];
    };
    let all = members(4, |target, run| slowest(run, if target == 2 { 400_000_000 } else { 20_000_000 }));
    assert_eq!(suspects(&all), [(2, Suspicion::Unstable)]);
    assert!(reason(&all).contains("400.0 ms") && reason(&all).contains("20.0 ms"), "{}", reason(&all));
    // One of few blocks is no percent of them.
    let few = members(4, |target, run| {
        run.latencies = vec![BenchLatency { at_most_ns: 9_000_000, count: 98 }];
        if target == 2 {
            run.latencies = vec![
                BenchLatency { at_most_ns: 9_000_000, count: 97 },
                BenchLatency { at_most_ns: 400_000_000, count: 1 },
            ];
        }
    });
    assert_eq!(suspects(&few), []);
    // Short anyway.
    assert_eq!(suspects(&members(4, |target, run| slowest(run, if target == 2 { 9_900_000 } else { 9_000_100 }))), []);
}

#[test]
fn the_page_cache_is_told() {
    let notes = judge(&members(3, |target, run| run.direct = target != 2)).notes;
    assert!(notes.len() == 1 && notes[0].contains("targets 2 were measured through the page cache"), "{notes:?}");
    assert_eq!(run(1).place.device, 1, "samples have a disk each");
}
