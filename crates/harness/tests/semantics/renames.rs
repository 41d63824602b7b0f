//! Renames of anything: directories, links, open files, and what the flags of `renameat2` make of them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use harness::syscall;

use crate::{Place, errno, open};

const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const NOREPLACE: u32 = libc::RENAME_NOREPLACE;
const WHITEOUT: u32 = libc::RENAME_WHITEOUT;

pub(super) fn rename_flags(place: &Place) {
    let ((a, b), (c, d)) = (place.both("a"), place.both("c"));
    fs::write(&a, "a").unwrap();
    fs::create_dir(&c).unwrap();
    assert_eq!(errno(syscall::rename(&a, &c, NOREPLACE)), libc::EEXIST);
    syscall::rename(&a, &c, EXCHANGE).unwrap();
    assert!(b.is_dir() && d.is_file());
    assert_eq!(errno(syscall::rename(&a, &place.here.join("x"), EXCHANGE)), libc::ENOENT);
    assert_eq!(errno(syscall::rename(&c, &place.here.join("x"), EXCHANGE | NOREPLACE)), libc::EINVAL);
    syscall::rename(&c, &place.here.join("moved"), NOREPLACE).unwrap();
    assert_eq!(fs::read(place.there.join("moved")).unwrap(), b"a");
    assert!(!d.exists());
}

pub(super) fn renames_leave_whiteouts(place: &Place) {
    let ((file, seen), (sub, _)) = (place.both("file"), place.both("sub"));
    fs::write(&file, "moved").unwrap();
    fs::create_dir(&sub).unwrap();
    let is_whiteout = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        found.file_type().is_char_device() && (found.rdev(), found.mode() & 0o7777, found.nlink()) == (0, 0, 1)
    };
    assert_eq!(errno(syscall::rename(&file, &sub, WHITEOUT | NOREPLACE)), libc::EEXIST);
    assert_eq!(errno(syscall::rename(&file, &sub, WHITEOUT | EXCHANGE)), libc::EINVAL);
    assert!(seen.is_file());
    syscall::rename(&file, &sub.join("file"), WHITEOUT).unwrap();
    assert!(is_whiteout(&file) && is_whiteout(&seen));
    assert_eq!(fs::read(place.there.join("sub/file")).unwrap(), b"moved");
    // In its place, and of a directory.
    syscall::rename(&sub, &place.here.join("other"), WHITEOUT | NOREPLACE).unwrap();
    assert!(is_whiteout(&place.there.join("sub")) && place.there.join("other/file").is_file());
    syscall::rename(&place.here.join("other/file"), &file, WHITEOUT).unwrap();
    assert_eq!(fs::read(&seen).unwrap(), b"moved");
    assert!(is_whiteout(&place.there.join("other/file")));
    fs::remove_dir_all(place.here.join("other")).unwrap();
    fs::remove_file(&sub).unwrap();
    assert_eq!(fs::read_dir(&place.there).unwrap().count(), 1);
}

fn links(path: &Path) -> u64 {
    fs::metadata(path).unwrap().nlink()
}

/// Inode of the directory above, as the directory itself knows it.
fn parent(path: &Path) -> u64 {
    fs::metadata(path.join("..")).unwrap().ino()
}

pub(super) fn directories_are_moved_and_exchanged_whole(place: &Place) {
    let (left, right) = (place.here.join("left"), place.here.join("right"));
    for (side, name) in [(&left, "a"), (&right, "b")] {
        fs::create_dir_all(side.join(name).join("deep/er")).unwrap();
        fs::write(side.join(name).join("deep/f"), name).unwrap();
    }
    // Two trees change places, each with all that is below it.
    syscall::rename(&left.join("a"), &right.join("b"), EXCHANGE).unwrap();
    for (side, name, text) in [("left", "a", "b"), ("right", "b", "a")] {
        let there = place.there.join(side).join(name);
        assert_eq!(fs::read_to_string(there.join("deep/f")).unwrap(), text);
        assert_eq!(parent(&there), fs::metadata(place.there.join(side)).unwrap().ino());
        assert_eq!((links(&there), links(&place.there.join(side))), (3, 3));
    }
    // A directory and a file: the one who gets the directory counts it.
    fs::write(right.join("f"), "file").unwrap();
    syscall::rename(&left.join("a"), &right.join("f"), EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(place.there.join("left/a")).unwrap(), "file");
    assert_eq!(fs::read_to_string(place.there.join("right/f/deep/f")).unwrap(), "b");
    assert_eq!((links(&place.there.join("left")), links(&place.there.join("right"))), (2, 4));
    // Neither into itself, nor with what is above it.
    let inner = right.join("f/deep/er");
    assert_eq!(errno(syscall::rename(&right.join("f"), &inner, EXCHANGE)), libc::EINVAL);
    assert_eq!(errno(syscall::rename(&inner, &right.join("f"), EXCHANGE)), libc::EINVAL);
    assert_eq!(errno(fs::rename(&right, inner.join("x"))), libc::EINVAL);
    // An empty directory is replaced, what is not empty or of another kind is not.
    assert_eq!(errno(fs::rename(right.join("b"), right.join("f"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(right.join("b"), left.join("a"))), libc::ENOTDIR);
    assert_eq!(errno(fs::rename(left.join("a"), right.join("b"))), libc::EISDIR);
    fs::create_dir(left.join("empty")).unwrap();
    assert_eq!(errno(syscall::rename(&right.join("b"), &left.join("empty"), NOREPLACE)), libc::EEXIST);
    fs::rename(right.join("b"), left.join("empty")).unwrap();
    assert_eq!(fs::read_to_string(place.there.join("left/empty/deep/f")).unwrap(), "a");
    assert_eq!((links(&place.there.join("left")), links(&place.there.join("right"))), (3, 3));
}

pub(super) fn renames_between_names_of_one_file(place: &Place) {
    fs::create_dir(place.here.join("d")).unwrap();
    let ((a, b), (c, d)) = (place.both("a"), place.both("d/c"));
    fs::write(&a, "one").unwrap();
    fs::hard_link(&a, &c).unwrap();
    // POSIX: nothing happens, and both stay.
    fs::rename(&a, &c).unwrap();
    syscall::rename(&a, &c, EXCHANGE).unwrap();
    assert_eq!(errno(syscall::rename(&a, &c, NOREPLACE)), libc::EEXIST);
    assert_eq!((links(&b), links(&d)), (2, 2));
    // One of two names is replaced: the other one stays, and counts itself alone.
    fs::write(place.here.join("new"), "new").unwrap();
    fs::rename(place.here.join("new"), &c).unwrap();
    assert_eq!((links(&b), fs::read_to_string(&d).unwrap().as_str()), (1, "new"));
    // A link and the file it points to: the link itself is moved.
    symlink("a", place.here.join("l")).unwrap();
    syscall::rename(&place.here.join("l"), &c, EXCHANGE).unwrap();
    assert_eq!(fs::read_link(&d).unwrap(), Path::new("a"));
    assert_eq!(fs::read_to_string(place.there.join("l")).unwrap(), "new");
}

fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

pub(super) fn renames_take_open_files_along(place: &Place) {
    fs::create_dir(place.here.join("d")).unwrap();
    let ((a, b), (c, d)) = (place.both("a"), place.both("d/c"));
    // Long enough to lie on the targets, or short enough for the metadata.
    for (len, flags) in [(3, EXCHANGE), (700_000, EXCHANGE), (3, 0), (700_000, 0)] {
        fs::write(&a, "a".repeat(len)).unwrap();
        fs::write(&c, "c".repeat(len)).unwrap();
        let (mine, others) = (open(&a), open(&d));
        syscall::rename(&a, &c, flags).unwrap();
        // Each open file is what it was, under whatever name, or none.
        assert_eq!((text(&mine), text(&others)), ("a".repeat(len), "c".repeat(len)));
        mine.write_all_at(b"A", 0).unwrap();
        others.write_all_at(b"C", 0).unwrap();
        assert_eq!(&fs::read(&d).unwrap()[..2], b"Aa");
        if flags == EXCHANGE {
            assert_eq!(&fs::read(&b).unwrap()[..2], b"Cc");
            assert_eq!((mine.metadata().unwrap().nlink(), others.metadata().unwrap().nlink()), (1, 1));
        } else {
            assert!(!b.exists());
            assert_eq!((mine.metadata().unwrap().nlink(), others.metadata().unwrap().nlink()), (1, 0));
        }
        assert_eq!(text(&others).as_bytes()[..2], *b"Cc");
        fs::remove_file(&c).unwrap();
        fs::remove_file(&a).unwrap_or_default();
    }
    // A directory that is open, and a file that is open below it.
    fs::create_dir(place.here.join("from")).unwrap();
    fs::write(place.here.join("from/f"), "below").unwrap();
    let (dir, file) = (File::open(place.here.join("from")).unwrap(), open(&place.there.join("from/f")));
    syscall::rename(&place.here.join("from"), &place.here.join("d/to"), NOREPLACE).unwrap();
    assert_eq!(text(&file), "below");
    file.write_all_at(b"B", 0).unwrap();
    assert_eq!(fs::read_to_string(place.there.join("d/to/f")).unwrap(), "Below");
    assert_eq!(dir.metadata().unwrap().ino(), fs::metadata(place.there.join("d/to")).unwrap().ino());
    assert_eq!(text(&syscall::open_at(&dir, Path::new("f")).unwrap()), "Below");
}
