//! Flags of files (`chattr`) at one shard: what they forbid, who hears of them, and that they stay.

use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::view::{RENAME_EXCHANGE, TimeChange, WriteInline};
use types::attr::{FileType, SetAttr, SetTime};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, SessionId};
use types::time::{AccessTimes, Timestamp};
use types::xattr::{ACCESS_ACL, CAPABILITY};

use crate::common::{A, B, Bed, CRED, ROOT, config, refused};

const NONE: SetAttr = SetAttr {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: None,
    mtime: None,
    kill_suid_sgid: false,
    kill_sgid: false,
    flags: None,
};

fn flag(bed: &mut Bed, inode: InodeId, flags: FileFlags) {
    let view = bed.set(inode, SetAttr { flags: Some(flags), ..NONE }).expect("set");
    assert_eq!(view.flags, flags);
}

fn write(bed: &mut Bed, inode: InodeId, append: bool) -> Result<()> {
    let exactly = bed.next(A);
    bed.shard.write_inline(exactly, &WriteInline { inode, offset: 0, append, bytes: b"x" }).map(drop)
}

fn tmpfile(bed: &mut Bed, parent: InodeId) -> Result<InodeId> {
    let exactly = bed.next(A);
    bed.shard.tmpfile(exactly, parent, 0o600, CRED, false).map(|view| view.attr.inode)
}

/// What is done to `/d/f`, or in `/d`; there are `/d/e`, an empty directory, and `/f`.
type Act = fn(&mut Bed, [InodeId; 2]) -> Result<()>;

/// Each with what it comes to where `/d/f` is immutable, or append only, and where `/d` is.
const ACTS: &[(&str, Act, [bool; 2], [bool; 2])] = &[
    ("chmod", |bed, [f, _]| bed.set(f, SetAttr { mode: Some(0o600), ..NONE }).map(drop), [false; 2], [true; 2]),
    ("chown", |bed, [f, _]| bed.set(f, SetAttr { uid: Some(7), ..NONE }).map(drop), [false; 2], [true; 2]),
    (
        "touch",
        |bed, [f, _]| bed.set(f, SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..NONE }).map(drop),
        [false, true],
        [true; 2],
    ),
    (
        "utimens",
        |bed, [f, _]| bed.set(f, SetAttr { mtime: Some(SetTime::At(Timestamp(5))), ..NONE }).map(drop),
        [false; 2],
        [true; 2],
    ),
    ("truncate", |bed, [f, _]| bed.set(f, SetAttr { size: Some(1), ..NONE }).map(drop), [false; 2], [true; 2]),
    ("write", |bed, [f, _]| write(bed, f, false), [false; 2], [true; 2]),
    ("append", |bed, [f, _]| write(bed, f, true), [false, true], [true; 2]),
    ("intent", |bed, [f, _]| bed.write_intent(A, f).map(drop), [false, true], [true; 2]),
    (
        "intent to cut",
        |bed, [f, _]| {
            let exactly = bed.next(A);
            bed.shard.write_intent(exactly, f, true).map(drop)
        },
        [false; 2],
        [true; 2],
    ),
    ("setxattr", |bed, [f, _]| bed.set_xattr(f, b"user.b", b"", 0), [false; 2], [true; 2]),
    ("removexattr", |bed, [f, _]| bed.remove_xattr(f, b"user.a"), [false; 2], [true; 2]),
    ("read", |bed, [f, _]| bed.stat(f).map(drop), [true; 2], [true; 2]),
    ("link", |bed, [f, _]| bed.link(f, ROOT, "g").map(drop), [false; 2], [true; 2]),
    ("unlink", |bed, [_, d]| bed.unlink(d, "f"), [false; 2], [false; 2]),
    ("rename", |bed, [_, d]| bed.rename((d, "f"), (d, "g"), 0), [false; 2], [false; 2]),
    ("rename out", |bed, [_, d]| bed.rename((d, "f"), (ROOT, "g"), 0), [false; 2], [false; 2]),
    ("replace", |bed, [_, d]| bed.rename((ROOT, "f"), (d, "f"), 0), [false; 2], [false; 2]),
    ("exchange", |bed, [_, d]| bed.rename((ROOT, "f"), (d, "f"), RENAME_EXCHANGE), [false; 2], [false; 2]),
    ("exchange back", |bed, [_, d]| bed.rename((d, "f"), (ROOT, "f"), RENAME_EXCHANGE), [false; 2], [false; 2]),
    ("create", |bed, [_, d]| bed.create(d, "new").map(drop), [true; 2], [false, true]),
    (
        "open what is there",
        |bed, [_, d]| bed.make(d, "f", FileType::Regular, true, false).map(drop),
        [true; 2],
        [true; 2],
    ),
    ("mknod", |bed, [_, d]| bed.make(d, "new", FileType::Fifo, false, true).map(drop), [true; 2], [false, true]),
    ("mkdir", |bed, [_, d]| bed.mkdir(d, "new").map(drop), [true; 2], [false, true]),
    ("symlink", |bed, [_, d]| bed.symlink(d, "new", b"x").map(drop), [true; 2], [false, true]),
    (
        "link into",
        |bed, [_, d]| {
            let f = bed.lookup(ROOT, "f")?;
            bed.link(f, d, "new").map(drop)
        },
        [true; 2],
        [false, true],
    ),
    ("rename into", |bed, [_, d]| bed.rename((ROOT, "f"), (d, "new"), 0), [true; 2], [false, true]),
    ("make without a name", |bed, [_, d]| tmpfile(bed, d).map(drop), [true; 2], [false, true]),
    (
        "name what had none",
        |bed, [_, d]| {
            let made = tmpfile(bed, ROOT)?;
            bed.link(made, d, "new").map(drop)
        },
        [true; 2],
        [false, true],
    ),
    ("rmdir", |bed, [_, d]| bed.rmdir(d, "e"), [true; 2], [false; 2]),
    (
        "chmod of the directory",
        |bed, [_, d]| bed.set(d, SetAttr { mode: Some(0), ..NONE }).map(drop),
        [true; 2],
        [false; 2],
    ),
    (
        "list",
        |bed, [_, d]| {
            bed.names(d);
            Ok(())
        },
        [true; 2],
        [true; 2],
    ),
];

/// A world for one act: `/d/f` and `/d`.
fn world() -> (Bed, [InodeId; 2]) {
    let mut bed = Bed::new();
    let d = bed.dir(ROOT, "d");
    let f = bed.file(d, "f");
    bed.dir(d, "e");
    bed.file(ROOT, "f");
    bed.set_xattr(f, b"user.a", b"", 0).expect("set");
    (bed, [f, d])
}

fn outcome(result: Result<()>) -> Option<Errno> {
    match result {
        Ok(()) => None,
        Err(Error::Growing) => None,
        refused_by_rule => Some(refused(refused_by_rule)),
    }
}

#[test]
fn flags_forbid_what_they_forbid_elsewhere() {
    let fixing = [FileFlags::IMMUTABLE, FileFlags::APPEND];
    let harmless = FileFlags::NODUMP.with(FileFlags::NOATIME);
    for (what, act, of_file, of_directory) in ACTS {
        let (mut bed, ids) = world();
        assert_eq!(outcome(act(&mut bed, ids)), None, "{what} without flags");
        for (at, permitted) in [(0, of_file), (1, of_directory)] {
            for (flags, permits) in fixing.iter().zip(permitted).chain([(&harmless, &true)]) {
                let (mut bed, ids) = world();
                flag(&mut bed, ids[at], *flags);
                let expected = if *permits { None } else { Some(Errno::EPERM) };
                assert_eq!(
                    outcome(act(&mut bed, ids)),
                    expected,
                    "{what}, {} of {}",
                    flags,
                    ["the file", "its directory"][at]
                );
                if !permits {
                    flag(&mut bed, ids[at], FileFlags::NONE);
                    assert_eq!(outcome(act(&mut bed, ids)), None, "{what} after it");
                }
                bed.turn();
            }
        }
    }
}

#[test]
fn flags_are_of_files_and_directories_and_change_the_time_of_the_inode() {
    let (mut bed, [f, _]) = world();
    let before = bed.stat(f).expect("there").attr;
    bed.turn();
    flag(&mut bed, f, FileFlags::IMMUTABLE);
    let after = bed.stat(f).expect("there").attr;
    assert!(after.ctime > before.ctime && after.mtime == before.mtime);
    let made = bed.make(ROOT, "fifo", FileType::Fifo, false, true).expect("made").attr.inode;
    let link = bed.symlink(ROOT, "link", b"x").expect("made").attr.inode;
    for other in [made, link] {
        let flags = Some(FileFlags::NODUMP);
        assert_eq!(refused(bed.set(other, SetAttr { flags, ..NONE })), Errno::EOPNOTSUPP);
    }
}

#[test]
fn what_is_made_inherits_some() {
    let (mut bed, [_, d]) = world();
    let all = FileFlags::from_bits(0xe0).expect("all but one");
    flag(&mut bed, d, all);
    let inherited = FileFlags::NODUMP.with(FileFlags::NOATIME);
    let made = [
        bed.create(d, "file").expect("made"),
        bed.mkdir(d, "directory").expect("made"),
        bed.symlink(d, "link", b"x").expect("made"),
        bed.make(d, "fifo", FileType::Fifo, false, true).expect("made"),
    ];
    for view in made {
        assert_eq!(view.flags, inherited, "{:?}", view.attr.kind);
    }
    let unnamed = tmpfile(&mut bed, d).expect("made");
    assert_eq!(bed.stat(unnamed).expect("there").flags, inherited);
    bed.turn();
}

#[test]
fn flags_outlive_a_restart() {
    let (mut bed, [f, d]) = world();
    flag(&mut bed, f, FileFlags::IMMUTABLE);
    flag(&mut bed, d, FileFlags::APPEND.with(FileFlags::NODUMP));
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"a").expect("back");
    assert_eq!(bed.stat(f).expect("there").flags, FileFlags::IMMUTABLE);
    assert_eq!(refused(bed.unlink(d, "e")), Errno::EPERM);
    assert_eq!(refused(bed.set(f, SetAttr { mode: Some(0), ..NONE })), Errno::EPERM);
}

#[test]
fn reading_leaves_access_times_where_a_flag_says_so() {
    let (mut bed, [f, d]) = world();
    flag(&mut bed, d, FileFlags::NOATIME);
    let before = [bed.stat(f).expect("there").attr.atime, bed.stat(d).expect("there").attr.atime];
    bed.turn();
    bed.shard.accessed(A, d, AccessTimes::Strictatime).expect("noted or not");
    bed.shard.open_inode(A, f, false).expect("open");
    flag(&mut bed, f, FileFlags::NOATIME);
    bed.shard.close_inode(A, f, Some(TimeChange { at: Timestamp(777), before: before[0] })).expect("closed");
    assert_eq!([f, d].map(|inode| bed.stat(inode).expect("there").attr.atime), before);
}

#[test]
fn who_has_a_file_open_hears_that_it_must_not_be_written_any_more() {
    let mut bed = Bed::with(Config { lease_term_ms: 3_000, ..config() });
    let others = [B, SessionId(3)];
    bed.shard.session_open(SessionId(3), b"c").expect("session");
    for session in [A, B, SessionId(3)] {
        bed.shard.listen(session, true);
    }
    let file = bed.file(ROOT, "f");
    // Two writers: neither holds a lease.
    for session in others {
        bed.shard.open_inode(session, file, false).expect("open");
    }
    let heard = |bed: &mut Bed, session| {
        let recalls = bed.shard.recalls(session);
        let ids: Vec<_> = recalls.iter().map(|recall| recall.id).collect();
        bed.shard.acknowledge_recalls(session, &ids);
        recalls.iter().any(|recall| recall.inode == file && recall.name.is_none())
    };
    for session in others {
        heard(&mut bed, session);
    }
    bed.wait_ms(10_000);
    for (flags, is_told) in [
        (FileFlags::NODUMP, false),
        (FileFlags::IMMUTABLE, true),
        (FileFlags::IMMUTABLE, false),
        (FileFlags::NONE, false),
        (FileFlags::APPEND, true),
    ] {
        flag(&mut bed, file, flags);
        assert_eq!(others.map(|session| heard(&mut bed, session)), [is_told; 2], "{flags}");
        assert!(!heard(&mut bed, A), "its own change");
    }
    // The permission bits follow an access control list: whether a write clears set-group-id, too.
    flag(&mut bed, file, FileFlags::NONE);
    bed.set(file, SetAttr { mode: Some(0o2666), ..NONE }).expect("set");
    assert_eq!(others.map(|session| heard(&mut bed, session)), [true; 2]);
    let list = |group: u16| {
        let entry = |(tag, may): (u16, u16)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &[0xff; 4]].concat();
        [2u32.to_le_bytes().to_vec(), [(1, 6), (4, group), (0x20, 6)].map(entry).concat()].concat()
    };
    for (group, is_told) in [(6, false), (7, true)] {
        bed.set_xattr(file, ACCESS_ACL, &list(group), 0).expect("set");
        assert_eq!(others.map(|session| heard(&mut bed, session)), [is_told; 2], "{group}");
        assert_eq!(bed.stat(file).expect("there").attr.mode, 0o2606 | u32::from(group) << 3);
    }
    // And whether it takes a capability.
    for is_told in [true, false] {
        bed.set_xattr(file, CAPABILITY, b"may", 0).expect("set");
        assert_eq!(others.map(|session| heard(&mut bed, session)), [is_told; 2]);
    }
    bed.set(file, SetAttr { mode: Some(0o644), ..NONE }).expect("set");
    // Who has an intent already keeps it until it has settled, and may end a cut.
    loop {
        match bed.write_intent(B, file) {
            Err(Error::Growing | Error::Recalling) => {
                drop(bed.shard.end_growth(file, namespace::shard::inline::Grown::Done))
            }
            given => break drop(given.expect("given")),
        }
        bed.turn();
    }
    flag(&mut bed, file, FileFlags::IMMUTABLE);
    assert_eq!(others.map(|session| heard(&mut bed, session)), [true; 2]);
    assert!(bed.write_intent(B, file).is_ok());
    assert_eq!(refused(bed.write_intent(A, file)), Errno::EPERM);
    let exactly = bed.next(B);
    assert_eq!(refused(bed.shard.write_intent(exactly, file, true)), Errno::EPERM);
    assert!(bed.settle(B, file, 3, None, true).settled);
    assert_eq!(refused(bed.write_intent(B, file)), Errno::EPERM);
    assert!(bed.names(ROOT).contains(&"f".to_owned()) && bed.lookup(ROOT, "f").is_ok());
}
