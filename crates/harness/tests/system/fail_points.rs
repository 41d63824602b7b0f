//! A real metadata service dies at each step of what several shards do together. Whatever the step: the program that asked
//! is told what became of it, and that is so for all mounts, whole; nothing is left over.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells how it went")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use harness::binary;

mod operation;
mod trial;

use operation::Operation;
use trial::Trial;

/// Points of the coordinator, and of a participant; `NAME:N`: the N-th time.
type Points = (&'static [&'static str], &'static [&'static str]);

/// In every operation that succeeds.
const ALWAYS: Points = (
    &[
        "prepare-leaves",
        "prepare-left",
        "promise-arrived",
        "decision-not-committed",
        "decision-committed",
        "decision-synced",
        "finish-left",
        "done-arrived",
        "forgotten",
    ],
    &[
        "prepare-arrived",
        "promise-not-committed",
        "promise-committed",
        "promise-synced",
        "finish-arrived",
        "finish-not-committed",
        "finish-committed",
        "finish-synced",
    ],
);
/// Where three shards are concerned, one of them in two rounds: not all have promised, not all have done it.
const SOME_HAVE: Points =
    (&["promise-arrived:2", "promise-arrived:3", "done-arrived:2"], &["prepare-arrived:2", "promise-committed:2"]);
/// Where directories go to other ones: their way up leads through other shards.
const WAY_UP: Points = (&["climbed-arrived"], &["climb-arrived"]);
/// Where a promise was given in vain.
const IN_VAIN: Points = (
    &["prepare-leaves", "prepare-left", "promise-arrived", "abort-leaves"],
    &[
        "prepare-arrived",
        "promise-not-committed",
        "promise-committed",
        "promise-synced",
        "abort-arrived",
        "finish-not-committed",
        "finish-committed",
        "finish-synced",
    ],
);
/// One dies, and another one, or the same, while that is being mended: each pair is a coordinator's (`true`) or a
/// participant's step.
const RECOVERY: &[[(bool, &str); 2]] = &[
    // It has a promise that nobody knows of any more, and asks.
    [(true, "promise-arrived"), (false, "outcome-arrived")],
    [(true, "promise-arrived"), (true, "ask-arrived")],
    [(false, "promise-synced"), (true, "ask-arrived")],
    [(false, "promise-committed"), (false, "outcome-arrived")],
    // It is decided, and told again.
    [(true, "decision-committed"), (true, "decision-synced")],
    [(true, "decision-synced"), (false, "finish-arrived")],
    [(true, "decision-synced"), (false, "finish-committed")],
    [(false, "finish-arrived"), (false, "finish-not-committed")],
    [(false, "finish-synced"), (true, "done-arrived")],
];

/// The operation is done once for each point, and a service dies there.
fn die_at_each(operation: Operation, lists: &[Points]) {
    let begin = Instant::now();
    let mut trial = Trial::new();
    let coordinators = lists.iter().flat_map(|list| list.0).map(|point| (true, *point));
    let participants = lists.iter().flat_map(|list| list.1).map(|point| (false, *point));
    let deaths: Vec<(bool, &str)> = coordinators.chain(participants).collect();
    for death in &deaths {
        trial.dies_at(operation, &[*death]);
    }
    trial.end();
    println!("{operation:?}: {} deaths in {:.1?}", deaths.len(), begin.elapsed());
}

#[test]
fn a_directory_is_made() {
    die_at_each(Operation::Mkdir, &[ALWAYS]);
}

#[test]
fn a_directory_is_removed() {
    die_at_each(Operation::Rmdir, &[ALWAYS]);
}

#[test]
fn a_file_is_linked() {
    die_at_each(Operation::Link, &[ALWAYS]);
}

#[test]
fn a_file_is_unlinked() {
    die_at_each(Operation::Unlink, &[ALWAYS]);
}

#[test]
fn a_file_is_renamed_over_another_one() {
    die_at_each(Operation::Replace, &[ALWAYS, SOME_HAVE]);
}

#[test]
fn an_open_file_is_renamed_over_an_open_one() {
    die_at_each(Operation::ReplaceOpen, &[ALWAYS]);
}

#[test]
fn a_directory_is_moved() {
    die_at_each(Operation::MoveDirectory, &[ALWAYS, WAY_UP]);
}

#[test]
fn a_directory_is_moved_from_where_the_token_is_not() {
    die_at_each(Operation::MoveDirectoryBack, &[ALWAYS, WAY_UP]);
}

#[test]
fn a_file_and_a_directory_are_exchanged() {
    die_at_each(Operation::Exchange, &[ALWAYS]);
}

#[test]
fn what_is_refused_after_a_promise() {
    die_at_each(Operation::Refused, &[IN_VAIN]);
}

#[test]
fn recovery_is_killed_too() {
    let mut trial = Trial::new();
    for deaths in RECOVERY {
        trial.dies_at(Operation::Replace, deaths);
        trial.dies_at(Operation::Mkdir, deaths);
    }
    trial.end();
}

/// The service itself knows which points there are: each is in a list above, all of which have to fire.
#[test]
fn no_point_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (file, key) = (dir.path().join("point"), dir.path().join("key"));
    std::fs::write(&file, "nonsense").unwrap();
    let mut command = Command::new(binary::weft());
    command.args(["metad", "--mgmtd", "127.0.0.1:1", "--init", "--dir"]).arg(dir.path().join("target"));
    command.arg("--key-file").arg(key).env("WEFT_TEST_FAIL_POINTS", &file);
    let refused = harness::run::run(&mut command, harness::run::LONG);
    assert_eq!(refused.code, Some(2), "{refused}");
    let (_, list) = refused.stderr.split_once("there is no fail point \"nonsense\", only: ").unwrap();
    let there: BTreeSet<&str> = list.lines().next().unwrap().split(", ").collect();
    let lists = [ALWAYS, SOME_HAVE, WAY_UP, IN_VAIN];
    let once = lists.iter().flat_map(|list| list.0.iter().chain(list.1)).copied();
    let tried = once.chain(RECOVERY.iter().flatten().map(|(_, point)| *point));
    let tried: BTreeSet<&str> = tried.map(|point| point.split(':').next().unwrap()).collect();
    assert_eq!(tried, there);
    assert!(!dir.path().join("target").exists(), "nothing was begun");
}
