//! What the kernel tells of file systems: which are mounted where, and how full one is.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount, as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// `major:minor` of the file system.
    pub device: String,
    pub point: PathBuf,
    /// Of the mount itself: `rw,nosuid,relatime`.
    pub options: String,
    /// Type of the file system, such as `ext4`.
    pub kind: String,
    pub source: OsString,
}

/// All mounts that this process can see, in the order of mounting. Asks nothing of the file systems themselves, so a dead one
/// cannot block.
///
/// # Errors
/// Where there is no `/proc`.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The mount that `path`, absolute and without links, lies on: the one with the longest mount point above it, and of several
/// on the same point the last, which hides the others.
#[must_use]
pub fn holder<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len())
}

/// What `statvfs` says of the file system of `path`.
///
/// # Errors
/// Where the path is gone, or its file system fails.
pub fn statvfs(path: &Path) -> io::Result<libc::statvfs> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends in zero, `answer` has room for what the call writes, and both live through it.
    match unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) } {
        // SAFETY: zeroed is a valid statvfs, and the call has filled it.
        0 => Ok(unsafe { answer.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `36 35 98:0 /subtree /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw`, with any number of words before the dash.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ').map(unescape).skip(2);
    let device = words.next()?;
    let point = words.nth(1)?;
    let options = words.next()?;
    let mut words = words.skip_while(|word| word != "-").skip(1);
    let kind = words.next()?;
    let source = words.next()?;
    let text = |word: OsString| word.to_string_lossy().into_owned();
    Some(Mount { device: text(device), point: point.into(), options: text(options), kind: text(kind), source })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(word: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|b| (b'0'..=b'7').contains(b)));
        if let Some(digits) = digits {
            out.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = &after[3..];
        } else {
            out.push(first);
            rest = after;
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_from_its_line() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b rw,noatime master:1 shared:2 - fuse.x x@\040h:1 rw,errors=continue";
        let (point, source) = ("/mnt/a b".into(), "x@ h:1".into());
        let (device, options, kind) = ("98:0".to_owned(), "rw,noatime".to_owned(), "fuse.x".to_owned());
        assert_eq!(parse(line), Some(Mount { device, point, options, kind, source }));
        assert_eq!(parse(b"36 35 0:33 / /mnt rw - ext4 /dev/vda rw").map(|mount| mount.kind), Some("ext4".to_owned()));
        let strange = parse(b"21 1 0:5 / /mnt/\xff rw - tmpfs none rw").expect("a mount point that is no text");
        assert_eq!(strange.point.as_os_str().as_bytes(), b"/mnt/\xff");
        for nonsense in
            ["", "1 2 3", "36 35 98:0 /mnt1", "36 35 98:0 / /mnt rw shared:1", "36 35 98:0 / /mnt rw - ext4"]
        {
            assert_eq!(parse(nonsense.as_bytes()), None, "{nonsense}");
        }
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(br"/a\040b\134"), r"/a b\");
        for plain in [r"/plain\9", r"a\04", r"a\x", r"a\+12", r"a\081"] {
            assert_eq!(unescape(plain.as_bytes()), plain);
        }
    }

    #[test]
    fn the_nearest_and_last_mount_counts() {
        let mounts: Vec<Mount> = [
            "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw",
            "30 22 7:0 / /data/a rw - xfs /dev/sdb rw",
            r"31 22 7:1 / /data/with\040blank rw shared:2 master:3 - btrfs /dev/sdc rw",
            "32 30 7:2 / /data/a rw - ext4 /dev/sdd rw",
        ]
        .iter()
        .filter_map(|line| parse(line.as_bytes()))
        .collect();
        let of = |path: &str| holder(&mounts, Path::new(path)).map(|mount| mount.source.to_str().expect("text"));
        assert_eq!(of("/data/b/target"), Some("/dev/vda1"));
        assert_eq!(of("/data/a"), Some("/dev/sdd"), "it lies over the xfs");
        assert_eq!(of("/data/ab"), Some("/dev/vda1"), "not below /data/a");
        assert_eq!(of("/data/with blank/t"), Some("/dev/sdc"));
        assert_eq!(holder(&[], Path::new("/")), None);
    }

    #[test]
    fn the_root_is_mounted_and_has_room() {
        let mounts = mounts().expect("there is a /proc");
        let root = holder(&mounts, Path::new("/")).expect("something is mounted on /");
        assert!(root.device.contains(':') && !root.kind.is_empty(), "{root:?}");
        let dir = tempfile::tempdir().expect("a directory");
        assert!(statvfs(dir.path()).expect("it is there").f_blocks > 0);
        let gone = statvfs(&dir.path().join("gone")).expect_err("it is not there");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
