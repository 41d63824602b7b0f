//! Several names in one request, of one shard: each step is what a lookup answers.

use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::view::{InodeView, Walked};
use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::walk::{WALK_NAMES_MAX, WalkEnd, WalkNames};

use crate::common::{A, B, Bed, ROOT, config, name, refused};

fn names(path: &str) -> WalkNames {
    WalkNames::new(path.split('/').map(name).collect()).expect("some, and not many")
}

fn walk_of(bed: &mut Bed, session: SessionId, start: InodeId, path: &str, leases: bool) -> Result<Walked> {
    bed.shard.walk(session, start, &names(path), leases)
}

fn walk(bed: &mut Bed, path: &str) -> Walked {
    walk_of(bed, A, ROOT, path, false).expect("walks")
}

fn ids(walked: &Walked) -> Vec<InodeId> {
    walked.steps.iter().map(|view| view.attr.inode).collect()
}

#[test]
fn each_step_is_told_as_a_lookup_tells_it() {
    let mut bed = Bed::new();
    let a = bed.dir(ROOT, "a");
    let b = bed.dir(a, "b");
    let file = bed.file(b, "file");
    let check = |bed: &mut Bed| {
        let walked = walk(bed, "a/b/file");
        assert_eq!((ids(&walked), walked.end), (vec![a, b, file], WalkEnd::Found));
        let places = [(ROOT, "a"), (a, "b"), (b, "file")];
        for ((parent, text), step) in places.into_iter().zip(&walked.steps) {
            let looked = bed.shard.lookup(A, parent, &name(text)).expect("looks").found().expect("there");
            assert_eq!(looked, *step, "{text}");
        }
    };
    // In the turn that made them, after it, and after a restart.
    check(&mut bed);
    bed.turn();
    check(&mut bed);
    bed.restart();
    check(&mut bed);
    let walked = walk_of(&mut bed, A, b, "file", false).expect("walks");
    assert_eq!((ids(&walked), walked.end), (vec![file], WalkEnd::Found));
}

#[test]
fn a_walk_ends_where_it_does_not_go_on() {
    let mut bed = Bed::new();
    let a = bed.dir(ROOT, "a");
    let file = bed.file(a, "file");
    let link = bed.symlink(a, "link", b"b").expect("made").attr.inode;
    let fifo = bed.make(a, "fifo", FileType::Fifo, false, true).expect("made").attr.inode;
    for (path, found, end) in [
        ("no", vec![], WalkEnd::Absent),
        ("a/no/more", vec![a], WalkEnd::Absent),
        ("a/file/more", vec![a, file], WalkEnd::NotDirectory),
        ("a/fifo/more", vec![a, fifo], WalkEnd::NotDirectory),
        ("a/link/more", vec![a, link], WalkEnd::Symlink),
        // The last name may stand for anything.
        ("a/link", vec![a, link], WalkEnd::Found),
        ("a/file", vec![a, file], WalkEnd::Found),
    ] {
        let walked = walk(&mut bed, path);
        assert_eq!((ids(&walked), walked.end), (found, end), "{path}");
    }
    assert_eq!(refused(walk_of(&mut bed, A, file, "x/y", false)), Errno::ENOTDIR);
    assert_eq!(refused(walk_of(&mut bed, A, link, "x/y", false)), Errno::ENOTDIR);
    assert_eq!(refused(walk_of(&mut bed, A, InodeId(4711), "x", false)), Errno::ENOENT);
}

#[test]
fn nothing_is_found_in_a_directory_that_was_removed() {
    let mut bed = Bed::new();
    let a = bed.dir(ROOT, "a");
    let b = bed.dir(a, "b");
    bed.turn();
    // Held by who is in it.
    bed.shard.open_inode(B, b, false).expect("opens");
    bed.rmdir(a, "b").expect("removed");
    for _ in 0..2 {
        assert_eq!(walk(&mut bed, "a/b").end, WalkEnd::Absent);
        let inside = walk_of(&mut bed, B, b, "x/y", false).expect("it is held");
        assert_eq!((inside.steps.len(), inside.end), (0, WalkEnd::Absent));
        bed.turn();
    }
    bed.shard.close_inode(B, b, None).expect("closes");
    bed.turn();
    assert_eq!(refused(walk_of(&mut bed, B, b, "x/y", false)), Errno::ENOENT);
    // Another one in its place.
    let again = bed.dir(a, "b");
    assert_eq!(ids(&walk(&mut bed, "a/b")), [a, again]);
}

#[test]
fn permissions_are_looked_at_by_who_asks() {
    let mut bed = Bed::new();
    let a = bed.dir(ROOT, "a");
    let b = bed.dir(a, "b");
    bed.set(a, SetAttr { mode: Some(0), ..SetAttr::default() }).expect("set");
    // A lookup goes through, since the caller's kernel has looked at the mode, which it was told; so does a walk, and tells it.
    assert_eq!(bed.lookup(a, "b"), Ok(b));
    let walked = walk(&mut bed, "a/b");
    let modes: Vec<u32> = walked.steps.iter().map(|view| view.attr.mode).collect();
    assert_eq!((ids(&walked), modes), (vec![a, b], vec![0, 0o755]));
}

#[test]
fn as_many_names_as_there_may_be() {
    let mut bed = Bed::new();
    let mut at = ROOT;
    for _ in 0..WALK_NAMES_MAX {
        at = bed.dir(at, "d");
    }
    let walked = walk(&mut bed, &["d"; WALK_NAMES_MAX].join("/"));
    assert_eq!((walked.steps.len(), walked.steps[WALK_NAMES_MAX - 1].attr.inode, walked.end), (64, at, WalkEnd::Found));
}

/// One where both sessions hear recalls.
fn leasing() -> Bed {
    let mut bed = Bed::with(Config { lease_term_ms: 3_000, ..config() });
    for session in [A, B] {
        bed.shard.listen(session, true);
    }
    bed.turn();
    bed
}

#[test]
fn steps_bear_the_leases_of_lookups_where_they_are_wanted() {
    let mut bed = leasing();
    let a = bed.dir(ROOT, "a");
    let b = bed.dir(a, "b");
    bed.turn();
    let leases = |view: &InodeView| (view.lease_ms > 0, view.name_lease_ms > 0);
    let bare = walk_of(&mut bed, B, ROOT, "a/b/no", false).expect("walks");
    assert!(bare.steps.iter().all(|view| leases(view) == (false, false)), "{bare:?}");
    // So nobody has to be waited for.
    bed.rename((a, "b"), (a, "c"), 0).expect("renamed");
    bed.rename((a, "c"), (a, "b"), 0).expect("and back");
    let leased = walk_of(&mut bed, B, ROOT, "a/b/no", true).expect("walks");
    assert!(leased.steps.iter().all(|view| leases(view) == (true, true)), "{leased:?}");
    assert_eq!(bed.rename((a, "b"), (a, "c"), 0), Err(Error::Recalling));
    let mut recalled: Vec<_> = bed.shard.recalls(B).into_iter().map(|recall| (recall.inode, recall.name)).collect();
    recalled.sort();
    assert_eq!(recalled, [(a, None), (a, Some(name("b"))), (b, None)]);
    // The name that is absent was not leased.
    assert!(bed.create(b, "no").is_err_and(|error| error == Error::Recalling), "it is a change of b");
    let ids: Vec<u64> = bed.shard.recalls(B).iter().map(|recall| recall.id).collect();
    bed.shard.acknowledge_recalls(B, &ids);
    bed.create(b, "no").expect("nobody believes that it is absent");
}

#[test]
fn what_is_on_the_way_is_not_leased_by_who_does_not_listen() {
    let mut bed = leasing();
    bed.shard.listen(B, false);
    let a = bed.dir(ROOT, "a");
    bed.turn();
    let walked = walk_of(&mut bed, B, ROOT, "a", true).expect("walks");
    assert_eq!((walked.steps[0].attr.inode, walked.steps[0].lease_ms, walked.steps[0].name_lease_ms), (a, 0, 0));
}

#[test]
fn a_file_that_another_session_writes_is_waited_for() {
    let mut bed = leasing();
    let a = bed.dir(ROOT, "a");
    let file = bed.make(a, "file", FileType::Regular, true, true).expect("made").attr.inode;
    bed.write_intent(A, file).expect("given");
    bed.turn();
    // It alone writes, and may have kept back what it wrote.
    assert!(bed.shard.getattr(A, file).expect("told").lease_ms > 0);
    assert_eq!(walk_of(&mut bed, B, ROOT, "a/file", false), Err(Error::Recalling));
    let ids: Vec<u64> = bed.shard.recalls(A).iter().map(|recall| recall.id).collect();
    bed.shard.acknowledge_recalls(A, &ids);
    let walked = walk_of(&mut bed, B, ROOT, "a/file", false).expect("walks");
    let step = &walked.steps[1];
    assert!(step.unsettled && step.layout.is_some(), "the objects know its size");
}
