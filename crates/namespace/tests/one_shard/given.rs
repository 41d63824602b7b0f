//! Changes that are made only where it still is as whoever permitted them was told.

use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::view::{Looked, RENAME_EXCHANGE, RENAME_NOREPLACE, Rename};
use types::attr::SetAttr;
use types::cred::Conditions;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;
use types::xattr::ACCESS_ACL;

use crate::common::{A, B, Bed, CRED, ROOT, config, name, refused};

const OTHER: u32 = 1 + CRED.uid;

fn owned_by(owner: u32) -> Conditions {
    Conditions { owner: Some(owner), ..Conditions::default() }
}

fn removed_by(user: u32) -> Conditions {
    Conditions { remover: Some(user), ..Conditions::default() }
}

fn set(bed: &mut Bed, inode: InodeId, given: Conditions, change: SetAttr) -> Result<()> {
    let exactly = namespace::view::Exactly { given, ..bed.next(A) };
    bed.shard.set(exactly, inode, &change, false).map(drop)
}

fn unlink(bed: &mut Bed, user: u32, parent: InodeId, text: &str) -> Result<()> {
    let exactly = namespace::view::Exactly { given: removed_by(user), ..bed.next(A) };
    bed.shard.unlink(exactly, parent, &name(text)).map(drop)
}

fn rename(bed: &mut Bed, user: u32, from: (InodeId, &str), to: (InodeId, &str), flags: u32) -> Result<()> {
    let exactly = namespace::view::Exactly { given: removed_by(user), ..bed.next(A) };
    let (source_name, target_name) = (&name(from.1), &name(to.1));
    let (source_parent, target_parent) = (from.0, to.0);
    bed.shard
        .rename(exactly, &Rename { source_parent, source_name, target_parent, target_name, flags, cred: CRED })
        .map(drop)
}

#[test]
fn attributes_change_for_the_owner_of_that_moment() {
    let mut bed = Bed::new();
    let f = bed.create(ROOT, "f").unwrap().attr.inode;
    let mode = SetAttr { mode: Some(0o4777), ..SetAttr::default() };
    set(&mut bed, f, owned_by(CRED.uid), mode).unwrap();
    bed.set(f, SetAttr { uid: Some(OTHER), mode: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(refused(set(&mut bed, f, owned_by(CRED.uid), mode)), Errno::ECANCELED);
    let exactly = namespace::view::Exactly { given: owned_by(CRED.uid), ..bed.next(A) };
    assert_eq!(refused(bed.shard.set_xattr(exactly, f, ACCESS_ACL, b"", 0)), Errno::ECANCELED);
    let exactly = namespace::view::Exactly { given: owned_by(CRED.uid), ..bed.next(A) };
    assert_eq!(refused(bed.shard.remove_xattr(exactly, f, ACCESS_ACL)), Errno::ECANCELED);
    assert_eq!(bed.stat(f).unwrap().attr.mode, 0o600);
    set(&mut bed, f, owned_by(OTHER), mode).unwrap();
    // What has happened is not judged again.
    let exactly = namespace::view::Exactly { given: owned_by(OTHER), ..bed.next(A) };
    bed.shard.set(exactly, f, &SetAttr { uid: Some(CRED.uid), ..SetAttr::default() }, false).unwrap();
    bed.shard.set(exactly, f, &SetAttr { uid: Some(CRED.uid), ..SetAttr::default() }, false).unwrap();
    let of_group = Conditions { group: Some(CRED.gid + 1), ..Conditions::default() };
    assert_eq!(refused(set(&mut bed, f, of_group, mode)), Errno::ECANCELED);
}

#[test]
fn flags_that_others_have_set_meanwhile_stay() {
    let mut bed = Bed::new();
    let f = bed.create(ROOT, "f").unwrap().attr.inode;
    let given = |fixed| Conditions { fixed: Some(fixed), ..Conditions::default() };
    let flags = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
    let fixed = FileFlags::IMMUTABLE;
    bed.set(f, flags(fixed)).unwrap();
    let dropped = set(&mut bed, f, given(FileFlags::NONE), flags(FileFlags::NODUMP));
    assert_eq!(refused(dropped), Errno::ECANCELED);
    set(&mut bed, f, given(fixed), flags(fixed.with(FileFlags::NODUMP))).unwrap();
    assert_eq!(bed.stat(f).unwrap().flags, fixed.with(FileFlags::NODUMP));
}

#[test]
fn names_in_sticky_directories_are_taken_away_by_owners() {
    let mut bed = Bed::new();
    let d = bed.mkdir(ROOT, "d").unwrap().attr.inode;
    let sticky = |bed: &mut Bed, uid, mode| {
        bed.set(d, SetAttr { uid: Some(uid), mode: Some(mode), ..SetAttr::default() }).unwrap();
    };
    for text in ["f", "g", "h"] {
        bed.create(d, text).unwrap();
    }
    sticky(&mut bed, 0, 0o1777);
    assert_eq!(refused(unlink(&mut bed, OTHER, d, "f")), Errno::ECANCELED);
    let other = bed.create(d, "other").unwrap().attr.inode;
    bed.set(other, SetAttr { uid: Some(OTHER), ..SetAttr::default() }).unwrap();
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "f"), (ROOT, "f"), 0)), Errno::ECANCELED);
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "other"), (d, "f"), 0)), Errno::ECANCELED);
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "other"), (d, "f"), RENAME_EXCHANGE)), Errno::ECANCELED);
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "other"), (d, "f"), RENAME_NOREPLACE)), Errno::EEXIST);
    rename(&mut bed, OTHER, (d, "other"), (d, "mine"), 0).unwrap();
    assert_eq!(unlink(&mut bed, OTHER, d, "none"), Err(Error::Refused(Errno::ENOENT)));
    unlink(&mut bed, CRED.uid, d, "f").unwrap();
    sticky(&mut bed, OTHER, 0o1777);
    unlink(&mut bed, OTHER, d, "g").unwrap();
    sticky(&mut bed, 0, 0o777);
    unlink(&mut bed, OTHER, d, "h").unwrap();
}

/// With the name a kernel detaches what is mounted there.
#[test]
fn a_name_that_is_not_taken_away_is_taken_back_from_nobody() {
    let mut bed = Bed::with(Config { lease_term_ms: 1_000, ..config() });
    let d = bed.dir(ROOT, "d");
    bed.set(d, SetAttr { uid: Some(0), mode: Some(0o1777), ..SetAttr::default() }).unwrap();
    bed.file(d, "f");
    bed.dir(d, "dir");
    let theirs = bed.file(d, "theirs");
    bed.set(theirs, SetAttr { uid: Some(OTHER), ..SetAttr::default() }).unwrap();
    bed.shard.listen(B, true);
    for text in ["f", "dir", "theirs"] {
        let Looked::Found(view) = bed.shard.lookup(B, d, &name(text)).unwrap() else { panic!("it is there") };
        assert!(view.name_lease_ms > 0);
    }
    assert_eq!(refused(unlink(&mut bed, OTHER, d, "f")), Errno::ECANCELED);
    let exactly = namespace::view::Exactly { given: removed_by(OTHER), ..bed.next(A) };
    assert_eq!(refused(bed.shard.rmdir(exactly, d, &name("dir"))), Errno::ECANCELED);
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "f"), (ROOT, "f"), 0)), Errno::ECANCELED);
    assert_eq!(refused(rename(&mut bed, OTHER, (d, "theirs"), (d, "f"), 0)), Errno::ECANCELED);
    assert!(bed.shard.recalls(B).is_empty());
    assert_eq!(unlink(&mut bed, OTHER, d, "theirs"), Err(Error::Recalling));
}
