//! Who takes a last name is told what it stood for, unless that has data: it may be in use without being open.

use namespace::view::{RENAME_EXCHANGE, Rename};
use types::attr::{Attr, FileType};
use types::time::Timestamp;

use crate::common::{A, Bed, CRED, ROOT, name};

fn rename_new_to(bed: &mut Bed, target: &str, flags: u32) -> Option<Box<Attr>> {
    let exactly = bed.next(A);
    let (source, target) = (name("new"), name(target));
    let rename = Rename {
        source_parent: ROOT,
        source_name: &source,
        target_parent: ROOT,
        target_name: &target,
        flags,
        cred: CRED,
    };
    bed.shard.rename(exactly, &rename).expect("renamed").removed
}

#[test]
fn who_takes_the_last_name_of_what_has_no_data_is_told_what_it_was() {
    let mut bed = Bed::new();
    let pipe = bed.make(ROOT, "pipe", FileType::Fifo, false, true).unwrap().attr;
    let exactly = bed.next(A);
    bed.shard.link(exactly, pipe.inode, ROOT, &name("other")).unwrap();
    bed.file(ROOT, "file");
    bed.turn();
    let unlink = |bed: &mut Bed, text| {
        let exactly = bed.next(A);
        bed.shard.unlink(exactly, ROOT, &name(text)).unwrap().removed
    };
    assert_eq!(unlink(&mut bed, "pipe"), None, "it has another name");
    let told = unlink(&mut bed, "other").unwrap();
    assert_eq!((told.inode, told.kind, told.mode, told.nlink), (pipe.inode, FileType::Fifo, pipe.mode, 0));
    assert_eq!(told.ctime, Timestamp(bed.now));
    assert_eq!(unlink(&mut bed, "file"), None);
    let link = bed.symlink(ROOT, "link", b"x").unwrap().attr.inode;
    bed.file(ROOT, "new");
    let told = rename_new_to(&mut bed, "link", 0).unwrap();
    assert_eq!((told.inode, told.kind, told.nlink), (link, FileType::Symlink, 0));
    bed.turn();
}

#[test]
fn who_removes_or_replaces_a_directory_is_told_what_it_was() {
    let mut bed = Bed::new();
    let (removed, replaced) = (bed.dir(ROOT, "removed"), bed.dir(ROOT, "replaced"));
    let before = bed.stat(removed).unwrap().attr;
    bed.turn();
    let exactly = bed.next(A);
    let told = bed.shard.rmdir(exactly, ROOT, &name("removed")).unwrap().removed.unwrap();
    assert_eq!((told.inode, told.mode, told.nlink), (removed, before.mode, 0));
    assert!(told.ctime > before.ctime && told.mtime == before.mtime);
    bed.dir(ROOT, "new");
    assert_eq!(rename_new_to(&mut bed, "replaced", RENAME_EXCHANGE), None, "it is still there");
    let other = bed.lookup(ROOT, "replaced").unwrap();
    assert_eq!(rename_new_to(&mut bed, "replaced", 0).map(|attr| (attr.inode, attr.nlink)), Some((other, 0)));
    assert_eq!(bed.lookup(ROOT, "replaced").unwrap(), replaced);
    bed.turn();
}

/// The shard keeps all inodes then, until all sessions have told what they have open.
#[test]
fn so_is_who_removes_or_replaces_it_after_a_restart() {
    let mut bed = Bed::new();
    let pipe = bed.make(ROOT, "pipe", FileType::Fifo, false, true).unwrap().attr.inode;
    let link = bed.symlink(ROOT, "link", b"x").unwrap().attr.inode;
    bed.file(ROOT, "new");
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    let exactly = bed.next(A);
    let told = bed.shard.unlink(exactly, ROOT, &name("pipe")).unwrap().removed;
    assert_eq!(told.map(|attr| (attr.inode, attr.nlink)), Some((pipe, 0)));
    let told = rename_new_to(&mut bed, "link", 0);
    assert_eq!(told.map(|attr| (attr.inode, attr.nlink)), Some((link, 0)));
}
