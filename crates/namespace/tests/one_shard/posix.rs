//! Access control lists, capabilities, files without a name, and access times.

use namespace::acl::{ACCESS, DEFAULT};
use namespace::view::{Create, Settle, Settled, Telling, TimeChange, XATTR_KILL_SGID};
use types::attr::{FileType, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::time::{AccessTimes, Timestamp};

use crate::common::{A, B, Bed, CRED, EXPIRY_MS, ROOT, name, refused};

const NO_ID: u32 = u32::MAX;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const CAPABILITY: &[u8] = b"security.capability";

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// Owner, user 7, group, mask and others.
fn list(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    acl(&[(OWNER, owner, NO_ID), (USER, user, 7), (GROUP, group, NO_ID), (MASK, mask, NO_ID), (OTHER, other, NO_ID)])
}

fn mode(bed: &mut Bed, inode: InodeId) -> u32 {
    bed.stat(inode).expect("there").attr.mode
}

fn make(bed: &mut Bed, parent: InodeId, text: &str, mode: u32, umask: u32) -> InodeId {
    let (exactly, name) = (bed.next(A), name(text));
    let create = Create {
        parent,
        name: &name,
        kind: FileType::Regular,
        mode,
        rdev: 0,
        cred: Credentials { umask, ..CRED },
        open: false,
        write_intent: false,
        exclusive: true,
        draft: false,
    };
    bed.shard.create(exactly, &create).expect("made").attr.inode
}

#[test]
fn a_list_and_the_permission_bits_are_one() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.set_xattr(f, ACCESS, &list(7, 6, 5, 6, 4), 0).unwrap();
    assert_eq!(mode(&mut bed, f), 0o764);
    bed.turn();
    bed.set(f, SetAttr { mode: Some(0o4710), ..SetAttr::default() }).unwrap();
    assert_eq!(bed.shard.get_xattr(f, ACCESS).unwrap(), list(7, 6, 5, 1, 0));
    assert_eq!(bed.shard.list_xattr(f).unwrap(), [ACCESS.to_vec()]);
    bed.turn();
    // One that the bits say as well is not kept.
    bed.set_xattr(f, ACCESS, &acl(&[(OWNER, 6, NO_ID), (GROUP, 2, NO_ID), (OTHER, 0, NO_ID)]), 0).unwrap();
    assert_eq!(mode(&mut bed, f), 0o4620);
    assert_eq!(refused(bed.shard.get_xattr(f, ACCESS)), Errno::ENODATA);
    bed.turn();
    // Removing one leaves the bits.
    bed.set_xattr(f, ACCESS, &list(6, 6, 4, 6, 0), 0).unwrap();
    bed.set_xattr(f, b"user.x", b"stays", 0).unwrap();
    bed.remove_xattr(f, ACCESS).unwrap();
    assert_eq!(mode(&mut bed, f), 0o4660);
    bed.turn();
}

#[test]
fn one_who_is_not_in_the_group_takes_its_bit_away() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    let set_mode = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
    bed.set(f, set_mode).unwrap();
    bed.set_xattr(f, ACCESS, &list(7, 5, 5, 5, 5), 0).unwrap();
    assert_eq!(mode(&mut bed, f), 0o2755);
    bed.set_xattr(f, ACCESS, &list(7, 5, 5, 5, 5), XATTR_KILL_SGID).unwrap();
    assert_eq!(mode(&mut bed, f), 0o755);
    bed.turn();
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let mut bed = Bed::in_objects();
    let (f, d) = (bed.file(ROOT, "f"), bed.dir(ROOT, "d"));
    let l = bed.symlink(ROOT, "l", b"x").unwrap().attr.inode;
    bed.turn();
    assert_eq!(refused(bed.set_xattr(f, ACCESS, b"", 0)), Errno::EINVAL);
    assert_eq!(refused(bed.set_xattr(f, ACCESS, &acl(&[(OWNER, 7, NO_ID)]), 0)), Errno::EINVAL);
    assert_eq!(refused(bed.set_xattr(f, DEFAULT, &list(7, 7, 7, 7, 7), 0)), Errno::EACCES);
    assert_eq!(refused(bed.set_xattr(l, ACCESS, &list(7, 7, 7, 7, 7), 0)), Errno::EOPNOTSUPP);
    assert_eq!(refused(bed.remove_xattr(d, DEFAULT)), Errno::ENODATA);
    bed.turn();
    assert_eq!(mode(&mut bed, f), 0o644, "nothing happened");
}

#[test]
fn a_default_list_is_inherited_instead_of_the_umask() {
    let mut bed = Bed::in_objects();
    let d = bed.dir(ROOT, "d");
    let plain = make(&mut bed, d, "plain", 0o4666, 0o027);
    assert_eq!(mode(&mut bed, plain), 0o4640);
    bed.set_xattr(d, DEFAULT, &list(7, 6, 5, 6, 1), 0).unwrap();
    assert_eq!(mode(&mut bed, d), 0o755, "a default list permits nothing");
    bed.turn();
    let f = make(&mut bed, d, "f", 0o4666, 0o777);
    assert_eq!(mode(&mut bed, f), 0o4660);
    assert_eq!(bed.shard.get_xattr(f, ACCESS).unwrap(), list(6, 6, 5, 6, 0));
    let exactly = bed.next(A);
    let e = bed.shard.mkdir(exactly, d, &name("e"), 0o777, Credentials { umask: 0o777, ..CRED }).unwrap().attr;
    assert_eq!(e.mode, 0o761);
    assert_eq!(bed.shard.get_xattr(e.inode, ACCESS).unwrap(), list(7, 6, 5, 6, 1));
    assert_eq!(bed.shard.get_xattr(e.inode, DEFAULT).unwrap(), list(7, 6, 5, 6, 1));
    let link = bed.symlink(d, "l", b"x").unwrap().attr;
    assert_eq!((link.mode, bed.shard.list_xattr(link.inode).unwrap().len()), (0o777, 0));
    bed.turn();
    // Three entries are permission bits, for the children too.
    bed.set_xattr(d, DEFAULT, &acl(&[(OWNER, 7, NO_ID), (GROUP, 5, NO_ID), (OTHER, 0, NO_ID)]), 0).unwrap();
    let g = make(&mut bed, d, "g", 0o666, 0o777);
    assert_eq!((mode(&mut bed, g), bed.shard.list_xattr(g).unwrap().len()), (0o640, 0));
    bed.turn();
    bed.remove_xattr(d, DEFAULT).unwrap();
    let h = make(&mut bed, d, "h", 0o666, 0o022);
    assert_eq!(mode(&mut bed, h), 0o644);
    bed.turn();
    for text in ["plain", "f", "l", "g", "h"] {
        bed.unlink(d, text).unwrap();
    }
    bed.rmdir(d, "e").unwrap();
    bed.turn();
}

#[test]
fn capabilities_end_with_a_write_or_another_owner() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    let set = |bed: &mut Bed| bed.set_xattr(f, CAPABILITY, b"may", 0).unwrap();
    let gone = |bed: &mut Bed| bed.shard.get_xattr(f, CAPABILITY).is_err();
    set(&mut bed);
    bed.set(f, SetAttr { mode: Some(0o755), atime: Some(SetTime::Now), ..SetAttr::default() }).unwrap();
    assert!(!gone(&mut bed));
    bed.turn();
    bed.set(f, SetAttr { uid: Some(5), ..SetAttr::default() }).unwrap();
    assert!(gone(&mut bed), "another owner");
    set(&mut bed);
    assert!(bed.stat(f).unwrap().capability);
    let kill = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
    assert!(!bed.set(f, kill).unwrap().capability && gone(&mut bed), "who writes already takes it");
    set(&mut bed);
    bed.turn();
    bed.write_intent(B, f).unwrap();
    assert!(gone(&mut bed), "a write");
    bed.turn();
    // Set while another session writes: the next write of that one ends it as well.
    set(&mut bed);
    bed.turn();
    let written = bed.now + 1;
    bed.turn();
    let exactly = bed.next(B);
    let settle = Settle {
        inode: f,
        size: 3,
        blocks: 8,
        mtime: Some(TimeChange { at: Timestamp(written), before: Timestamp(0) }),
        gathered: None,
        release: true,
        close: false,
        untouched: false,
        read: None,
    };
    assert!(bed.shard.settle(exactly, &settle, None).unwrap().settled);
    assert!(gone(&mut bed), "a write that was settled later");
    bed.turn();
}

/// Who asks the objects when they were written last has to know from when on that counts.
#[test]
fn writes_count_from_the_last_time_that_was_set() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    assert_eq!(bed.stat(f).unwrap().written_after, None);
    bed.turn();
    let before = bed.stat(f).unwrap().attr.ctime;
    for session in [A, B] {
        assert_eq!(bed.write_intent(session, f).unwrap().written_after, Some(before));
    }
    bed.turn();
    bed.set(f, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    bed.set_xattr(f, b"user.x", b"y", 0).unwrap();
    bed.link(f, ROOT, "g").unwrap();
    let changed = bed.stat(f).unwrap();
    assert!(changed.attr.ctime > before && changed.written_after == Some(before), "{changed:?}");
    bed.turn();
    let now = bed.set(f, SetAttr { mtime: Some(SetTime::At(Timestamp(5))), ..SetAttr::default() }).unwrap();
    assert_eq!(now.written_after, Some(now.attr.ctime));
    bed.turn();
    bed.ask_for_end(A, f, 1).unwrap().expect("as who cuts a file has it that others write");
    let cut = bed.set(f, SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    assert!(cut.written_after == Some(cut.attr.ctime) && cut.attr.ctime > now.attr.ctime);
    bed.turn();
    // Also when nobody intends to write any more, and it is yet to be settled.
    for session in [A, B] {
        bed.settle(session, f, 0, Some(0), true);
    }
    bed.set(f, SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    let left = bed.stat(f).unwrap();
    assert!(left.unsettled && left.written_after == cut.written_after, "{left:?}");
    let again = bed.write_intent(A, f).unwrap();
    assert_eq!(again.written_after, cut.written_after);
    assert!(bed.settle(A, f, 0, Some(again.intents), true).settled);
    assert_eq!(bed.stat(f).unwrap().written_after, None);
    bed.turn();
}

/// The change time of what was made while the clock was ahead is of the future: writes count all the same, and by then.
#[test]
fn writes_count_though_a_clock_was_ahead_when_the_file_was_made() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.now -= 900;
    bed.turn();
    let made = bed.stat(f).unwrap().attr;
    for session in [A, B] {
        let after = bed.write_intent(session, f).unwrap().written_after.unwrap();
        assert!(after < made.ctime && after == Timestamp(bed.now), "{after:?}");
    }
    bed.turn();
}

/// Also one that its client alone knows of: another has set the time before it, and changed the mode after it.
#[test]
fn a_write_after_the_time_was_set_counts_whatever_changes_then() {
    for (written, counts) in [(2, true), (0, false)] {
        let mut bed = Bed::in_objects();
        let f = bed.file(ROOT, "f");
        bed.turn();
        let before = bed.write_intent(B, f).unwrap().attr.mtime;
        bed.turn();
        let set = bed.set(f, SetAttr { mtime: Some(SetTime::At(Timestamp(5))), ..SetAttr::default() }).unwrap();
        bed.turn();
        let written = Timestamp(set.attr.ctime.0 - 1 + written);
        bed.now += 10;
        bed.turn();
        let changed = bed.set(f, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
        assert!(changed.attr.ctime > written);
        let exactly = bed.next(B);
        let mtime = Some(TimeChange { at: written, before });
        let (release, close, untouched) = (true, false, false);
        let settle =
            Settle { inode: f, size: 3, blocks: 8, mtime, gathered: None, release, close, untouched, read: None };
        assert!(bed.shard.settle(exactly, &settle, None).unwrap().settled);
        assert_eq!(bed.stat(f).unwrap().attr.mtime, if counts { written } else { Timestamp(5) });
        bed.turn();
    }
}

/// Who asks the objects has no intent any more when somebody sets the time to what it was.
#[test]
fn a_time_that_is_set_while_the_objects_are_asked_goes_over_writes_before_it() {
    for (later, counts) in [(0, false), (1, true)] {
        let mut bed = Bed::in_objects();
        let f = bed.file(ROOT, "f");
        bed.turn();
        for session in [A, B] {
            bed.write_intent(session, f).unwrap();
        }
        assert!(!bed.settle(A, f, 0, Some(Settled::LEFT_TO_OTHERS), true).settled);
        let asked = bed.settle(B, f, 0, Some(Settled::LEFT_TO_OTHERS), true);
        bed.now += 10;
        bed.turn();
        let before = bed.stat(f).unwrap().attr.mtime;
        let set = bed.set(f, SetAttr { mtime: Some(SetTime::At(before)), ..SetAttr::default() }).unwrap();
        bed.turn();
        let written = Timestamp(set.attr.ctime.0 + later);
        let (mtime, gathered) = (Some(TimeChange { at: written, before }), Some(asked.intents));
        let (release, close, untouched) = (true, false, false);
        let settle = Settle { inode: f, size: 3, blocks: 8, mtime, gathered, release, close, untouched, read: None };
        let exactly = bed.next(B);
        assert!(bed.shard.settle(exactly, &settle, None).unwrap().settled);
        assert_eq!(bed.stat(f).unwrap().attr.mtime, if counts { written } else { before });
        bed.turn();
    }
}

/// Whoever sets it may have seen it before the write, as who puts it back after a backup.
#[test]
fn a_time_that_is_set_to_what_it_was_goes_over_writes_before_it() {
    for (by, later, counts) in [([A, A], 0, false), ([A, A], 1, true), ([B, B], 0, true), ([A, B], 0, true)] {
        let mut bed = Bed::in_objects();
        let f = bed.file(ROOT, "f");
        bed.turn();
        let before = bed.write_intent(B, f).unwrap().attr.mtime;
        bed.turn();
        for (by, mtime) in by.into_iter().zip([Timestamp(5), before]) {
            let exactly = bed.next(by);
            let change = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
            bed.shard.set(exactly, f, &change, false).unwrap();
            bed.turn();
        }
        let written = Timestamp(bed.stat(f).unwrap().attr.ctime.0 + later);
        let exactly = bed.next(B);
        let (mtime, gathered) = (Some(TimeChange { at: written, before }), None);
        let (release, close, untouched) = (true, false, false);
        let settle = Settle { inode: f, size: 3, blocks: 8, mtime, gathered, release, close, untouched, read: None };
        assert!(bed.shard.settle(exactly, &settle, None).unwrap().settled);
        assert_eq!(bed.stat(f).unwrap().attr.mtime == written, counts, "{by:?} {later}");
        bed.turn();
        // What was set under one intent does not concern the next.
        let before = bed.write_intent(B, f).unwrap().attr.mtime;
        let exactly = bed.next(B);
        let settle = Settle { mtime: Some(TimeChange { at: Timestamp(4), before }), ..settle };
        assert!(bed.shard.settle(exactly, &settle, None).unwrap().settled);
        assert_eq!(bed.stat(f).unwrap().attr.mtime, Timestamp(4), "by a clock that is behind");
        bed.turn();
    }
}

fn tmpfile(bed: &mut Bed, parent: InodeId) -> InodeId {
    let exactly = bed.next(A);
    let view = bed.shard.tmpfile(exactly, parent, 0o666, Credentials { umask: 0o22, ..CRED }, true).expect("made");
    assert!(view.exclusive && view.layout.is_some());
    assert_eq!((view.attr.nlink, view.attr.mode), (0, 0o644));
    // Asked again, it is the same one.
    assert_eq!(bed.shard.tmpfile(exactly, parent, 0o666, CRED, true).expect("made").attr.inode, view.attr.inode);
    view.attr.inode
}

#[test]
fn a_file_without_a_name_goes_with_its_last_close() {
    let mut bed = Bed::in_objects();
    let d = bed.dir(ROOT, "d");
    let before = bed.shard.inode_count();
    let f = tmpfile(&mut bed, d);
    bed.turn();
    assert_eq!(bed.shard.inode_count(), before + 1);
    assert!(bed.names(d).is_empty());
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    assert_eq!(bed.shard.inode_count(), before);
    let exactly = bed.next(A);
    assert_eq!(refused(bed.shard.tmpfile(exactly, f, 0, CRED, false)), Errno::ENOENT);
}

#[test]
fn a_file_without_a_name_may_get_one_and_then_stays() {
    let mut bed = Bed::in_objects();
    let d = bed.dir(ROOT, "d");
    let f = tmpfile(&mut bed, ROOT);
    bed.turn();
    assert_eq!(bed.link(f, d, "f").unwrap().attr.nlink, 1);
    bed.turn();
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert_eq!(bed.lookup(d, "f").unwrap(), f);
    bed.rename((d, "f"), (ROOT, "g"), 0).unwrap();
    bed.turn();
    // It had a name: without it, it gets none again.
    bed.shard.open_inode(A, f, false).unwrap();
    bed.unlink(ROOT, "g").unwrap();
    assert_eq!(refused(bed.link(f, d, "f")), Errno::ENOENT);
    bed.turn();
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert!(bed.stat(f).is_err());
}

#[test]
fn a_file_without_a_name_outlives_a_restart_with_its_session_alone() {
    let mut bed = Bed::in_objects();
    let (f, g) = (tmpfile(&mut bed, ROOT), tmpfile(&mut bed, ROOT));
    bed.turn();
    bed.restart();
    let held = |inode| namespace::view::HeldOpen { inode, write_intent: true, draft: false };
    bed.shard.session_tell(A, b"a", &Telling::whole(&[held(f), held(g)], &[])).unwrap();
    bed.shard.session_open(B, b"b").unwrap();
    bed.link(f, ROOT, "f").unwrap();
    bed.turn();
    bed.wait_ms(EXPIRY_MS + 1);
    bed.tick();
    bed.turn();
    assert_eq!(bed.lookup(ROOT, "f").unwrap(), f);
    assert_eq!(refused(bed.stat(g)), Errno::ESTALE, "its session has ended");
    assert!(!bed.shard.touch(SessionId(1)));
}

#[test]
fn access_times_change_as_relatime_says() {
    const DAY: i64 = 24 * 3600 * 1_000_000_000;
    let mut bed = Bed::in_objects();
    let d = bed.dir(ROOT, "d");
    let atime = |bed: &mut Bed, inode| bed.stat(inode).unwrap().attr.atime.0;
    bed.turn();
    bed.turn();
    let made = atime(&mut bed, d);
    bed.shard.accessed(crate::common::A, d, AccessTimes::Relatime).unwrap();
    let first = bed.now;
    assert!(first > made && atime(&mut bed, d) == first);
    bed.turn();
    bed.shard.accessed(crate::common::A, d, AccessTimes::Relatime).unwrap();
    assert!(bed.shard.is_clean(), "it is younger than the last change");
    bed.file(d, "f");
    bed.turn();
    bed.shard.accessed(crate::common::A, d, AccessTimes::Relatime).unwrap();
    assert_eq!(atime(&mut bed, d), bed.now);
    bed.now += DAY;
    bed.turn();
    bed.shard.accessed(crate::common::A, d, AccessTimes::Relatime).unwrap();
    assert_eq!(atime(&mut bed, d), bed.now);
    bed.turn();
    bed.shard.accessed(crate::common::A, InodeId(0xffff), AccessTimes::Relatime).unwrap();
    bed.shard.accessed(crate::common::A, d, AccessTimes::Relatime).unwrap();
    assert!(bed.shard.is_clean());
    bed.shard.accessed(crate::common::A, d, AccessTimes::Strictatime).unwrap();
    assert_eq!(atime(&mut bed, d), bed.now, "each access");
    bed.file(d, "g");
    bed.turn();
    bed.shard.accessed(crate::common::A, d, AccessTimes::Noatime).unwrap();
    assert!(bed.shard.is_clean(), "none");
}

#[test]
fn a_read_that_is_told_at_the_close_does_not_undo_what_was_set_meanwhile() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    let view = bed.shard.open_inode(A, f, false).unwrap();
    let before = view.attr.atime;
    bed.turn();
    // Also while it stays open, and when it is told twice.
    bed.shard.was_read(A, f, TimeChange { at: Timestamp(777), before }).unwrap();
    bed.shard.close_inode(A, f, Some(TimeChange { at: Timestamp(777), before })).unwrap();
    let after = bed.stat(f).unwrap().attr;
    assert_eq!((after.atime, after.ctime), (Timestamp(777), view.attr.ctime));
    bed.turn();
    bed.shard.open_inode(B, f, false).unwrap();
    bed.set(f, SetAttr { atime: Some(SetTime::At(Timestamp(5))), ..SetAttr::default() }).unwrap();
    bed.shard.close_inode(B, f, Some(TimeChange { at: Timestamp(888), before: Timestamp(777) })).unwrap();
    assert_eq!(bed.stat(f).unwrap().attr.atime, Timestamp(5));
    bed.turn();
}
