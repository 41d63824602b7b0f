//! Where a target lies: what its benchmark tells of its file system, so that one which is not set up as the others is found.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use conf::file_system::{holder, mounts, statvfs};
use wire::codec::Bytes;
use wire::v1::bench::BenchPlace;

/// Looks at the file system under `path`. May block for as long as its disk does. `reserve`: bytes that stay free.
///
/// # Errors
/// Where the directory cannot be reached.
pub(super) fn look(path: &Path, reserve: u64) -> io::Result<BenchPlace> {
    let path = fs::canonicalize(path)?;
    let device = fs::metadata(&path)?.dev();
    let root = fs::metadata("/").map(|root| root.dev()).ok();
    let statvfs = statvfs(&path)?;
    let mounts = mounts().unwrap_or_default();
    let mount = holder(&mounts, &path);
    Ok(BenchPlace {
        path: bytes(&path),
        file_system: mount.map(|mount| bytes(&mount.kind)).unwrap_or_default(),
        mount_point: mount.map(|mount| bytes(&mount.point)).unwrap_or_default(),
        source: mount.map(|mount| bytes(&mount.source)).unwrap_or_default(),
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

fn bytes(text: impl AsRef<OsStr>) -> Bytes {
    Bytes(text.as_ref().as_bytes().to_vec())
}

/// Bytes that may still be written to the file system of `path` without being root.
///
/// # Errors
/// Where it cannot be reached.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    statvfs(path).map(|statvfs| statvfs.f_bavail * statvfs.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

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
