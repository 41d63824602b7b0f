//! Where a target lies: what its benchmark tells of its file system, so that one which is not set up as the others is found.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use wire::codec::Bytes;
use wire::v1::bench::BenchPlace;

use crate::target::statvfs;

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    point: PathBuf,
    file_system: String,
    source: String,
}

/// Looks at the file system under `path`. May block for as long as its disk does. `reserve`: bytes that stay free.
///
/// # Errors
/// Where the directory cannot be reached.
pub(super) fn look(path: &Path, reserve: u64) -> io::Result<BenchPlace> {
    let path = fs::canonicalize(path)?;
    let device = fs::metadata(&path)?.dev();
    let root = fs::metadata("/").map(|root| root.dev()).ok();
    let statvfs = statvfs(&path)?;
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    // Any mount point of the host may be no text.
    let mount = mount_of(&String::from_utf8_lossy(&mounts), &path);
    let mount = mount.unwrap_or(Mount { point: PathBuf::new(), file_system: String::new(), source: String::new() });
    Ok(BenchPlace {
        path: bytes(path),
        file_system: Bytes(mount.file_system.into_bytes()),
        mount_point: bytes(mount.point),
        source: Bytes(mount.source.into_bytes()),
        device,
        on_root: root == Some(device),
        read_only: statvfs.f_flag & libc::ST_RDONLY != 0,
        total_bytes: statvfs.f_blocks * statvfs.f_frsize,
        free_bytes: statvfs.f_bavail * statvfs.f_frsize,
        reserve_bytes: reserve,
        total_inodes: statvfs.f_files,
        free_inodes: statvfs.f_favail,
    })
}

fn bytes(path: PathBuf) -> Bytes {
    Bytes(path.into_os_string().into_encoded_bytes())
}

/// Bytes that may still be written to the file system of `path` without being root.
///
/// # Errors
/// Where it cannot be reached.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    statvfs(path).map(|statvfs| statvfs.f_bavail * statvfs.f_frsize)
}

/// The mount that `path`, absolute and without links, lies on: the one with the longest mount point above it, and of
/// several on the same point the last, which hides the others.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let above = mountinfo.lines().filter_map(parse).filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// `36 35 98:0 /subtree /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw`, with any number of words before the dash.
fn parse(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let point = front.split(' ').nth(4)?;
    let mut back = back.split(' ');
    let (file_system, source) = (back.next()?, back.next()?);
    Some(Mount { point: unescape(point).into(), file_system: file_system.to_owned(), source: unescape(source) })
}

/// Blanks and backslashes stand there as three octal digits.
fn unescape(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 7:0 / /data/a rw - xfs /dev/sdb rw
31 22 7:1 / /data/with\\040blank rw shared:2 master:3 - btrfs /dev/sdc rw
32 30 7:2 / /data/a rw - ext4 /dev/sdd rw
";

    #[test]
    fn the_nearest_and_last_mount_counts() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).map(|mount| (mount.file_system, mount.source));
        let found = |kind: &str, source: &str| Some((kind.to_owned(), source.to_owned()));
        assert_eq!(of("/data/b/target"), found("ext4", "/dev/vda1"));
        assert_eq!(of("/data/a"), found("ext4", "/dev/sdd"), "it lies over the xfs");
        assert_eq!(of("/data/ab"), found("ext4", "/dev/vda1"), "not below /data/a");
        assert_eq!(of("/data/with blank/t"), found("btrfs", "/dev/sdc"));
        assert_eq!(mount_of("nonsense\n\n1 2 3\n", Path::new("/")), None);
        let strange = [&b"21 1 0:5 / /mnt/\xff rw - tmpfs none rw\n"[..], MOUNTS.as_bytes()].concat();
        let found = mount_of(&String::from_utf8_lossy(&strange), Path::new("/data/a"));
        assert_eq!(found.map(|mount| mount.file_system), Some("ext4".to_owned()));
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape("a\\040b\\134c"), "a b\\c");
        assert_eq!(unescape("a\\x"), "a\\x");
    }

    #[test]
    fn a_directory_is_told_with_its_file_system() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = look(dir.path(), 7).expect("it is there");
        assert!(!place.file_system.0.is_empty() && !place.mount_point.0.is_empty());
        assert!(place.total_bytes >= place.free_bytes && place.free_bytes > 0);
        assert_eq!(place.reserve_bytes, 7);
        assert!(look(&dir.path().join("absent"), 0).is_err());
    }
}
