//! Mounts of Weft on this machine, as the kernel lists them.

use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use conf::file_system::{self, holder};

/// File system type of our mounts in mountinfo.
const FS_TYPE: &str = "fuse.weft";
/// Our mounts' source is this and the address of mgmtd.
const SOURCE_PREFIX: &str = "weft@";

/// One mount of a Weft cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// `host:port` of the cluster's mgmtd.
    pub(crate) mgmtd: String,
    /// Of the mount itself, as the kernel shows them: `rw,nosuid,relatime`.
    pub(crate) options: String,
}

impl Mount {
    /// Whether it is of the cluster whose mgmtd is at `mgmtd`, also where one of both names that by its host's name. (Who is to
    /// unmount it compares the words alone.)
    pub(crate) fn is_of(&self, mgmtd: &str) -> bool {
        let addresses = |at: &str| at.to_socket_addrs().map(Vec::from_iter).unwrap_or_default();
        self.mgmtd == mgmtd || {
            let asked = addresses(mgmtd);
            addresses(&self.mgmtd).iter().any(|address| asked.contains(address))
        }
    }
}

/// All mounts of Weft that this process can see, in the order of mounting.
pub(crate) fn list() -> Result<Vec<Mount>> {
    Ok(all()?.iter().filter_map(ours).collect())
}

fn all() -> Result<Vec<file_system::Mount>> {
    file_system::mounts().context("cannot read /proc/self/mountinfo")
}

/// The mount that is exactly at `point`, or `None`. Asks nothing of the file system there, so a dead one cannot block.
pub(crate) fn at(point: &Path) -> Result<Option<Mount>> {
    let point = resolve(point);
    Ok(list()?.into_iter().rfind(|mount| mount.point == point))
}

/// As [`at`], where it is one of the cluster whose mgmtd is at `mgmtd`: anybody may have mounted another one there since.
pub(crate) fn of_cluster(point: &Path, mgmtd: &str) -> Result<Option<Mount>> {
    Ok(at(point)?.filter(|mount| mount.mgmtd == mgmtd))
}

/// The mount that `path` lies on, or `None` where it lies on another file system. A symbolic link lies where it is; one that
/// is on no mount, where it leads to.
pub(crate) fn containing(path: &Path) -> Result<Option<Mount>> {
    // Of any type: another file system may be mounted inside of ours.
    let all = all()?;
    let on = |path: &Path| holder(&all, path).and_then(ours);
    Ok(place(path).and_then(|place| on(&place)).or_else(|| on(&resolve(path))))
}

/// Where the last component of `path` is, which may be a link; `None` where the path says that it means what that leads to.
fn place(path: &Path) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return None;
    }
    let absolute = std::path::absolute(path).ok()?;
    Some(resolve(absolute.parent()?).join(absolute.file_name()?))
}

/// `path` without symbolic links as far as it exists. The last component is not asked for its attributes: a dead mount
/// there would answer with an error.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match fs::canonicalize(&absolute) {
        Ok(path) => path,
        Err(_) => match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => resolve(parent).join(name),
            _ => absolute,
        },
    }
}

/// `None` where it is no mount of ours.
fn ours(mount: &file_system::Mount) -> Option<Mount> {
    if mount.kind != FS_TYPE {
        return None;
    }
    let mgmtd = mount.source.to_str()?.strip_prefix(SOURCE_PREFIX)?.to_owned();
    Some(Mount { point: mount.point.clone(), mgmtd, options: mount.options.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &Path, kind: &str, source: &str) -> file_system::Mount {
        let (device, options) = ("0:33".to_owned(), "rw,nosuid".to_owned());
        file_system::Mount { device, point: point.into(), options, kind: kind.to_owned(), source: source.into() }
    }

    #[test]
    fn takes_our_mounts_and_no_others() {
        let of = |kind, source| ours(&mount(Path::new("/mnt/a b"), kind, source));
        let (point, mgmtd, options) = ("/mnt/a b".into(), "127.0.0.1:7610".to_owned(), "rw,nosuid".to_owned());
        assert_eq!(of("fuse.weft", "weft@127.0.0.1:7610"), Some(Mount { point, mgmtd, options }));
        assert_eq!(of("fuse.other", "weft@127.0.0.1:7610"), None);
        assert_eq!(of("fuse.weft", "127.0.0.1:7610"), None);
        assert_eq!(of("ext4", "/dev/vda"), None);
    }

    #[test]
    fn a_mount_is_of_the_cluster_that_it_names_otherwise() {
        let of = |source| ours(&mount(Path::new("/m"), FS_TYPE, source)).expect("it is ours");
        assert!(of("weft@localhost:7").is_of("localhost:7") && of("weft@localhost:7").is_of("127.0.0.1:7"));
        assert!(of("weft@no-such-host.invalid:7").is_of("no-such-host.invalid:7"));
        assert!(
            !of("weft@localhost:7").is_of("127.0.0.1:8") && !of("weft@127.0.0.1:7").is_of("no-such-host.invalid:7")
        );
    }

    #[test]
    fn a_path_that_is_not_there_resolves_as_far_as_it_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("it is there");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("linkable");
        assert_eq!(resolve(&real.join("link/none/at-all")), real.join("none/at-all"));
    }

    #[test]
    fn a_link_is_where_it_is_unless_its_end_is_meant() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("it is there");
        std::os::unix::fs::symlink("/proc", real.join("out")).expect("linkable");
        std::os::unix::fs::symlink(&real, real.join("same")).expect("linkable");
        assert_eq!(place(&real.join("same/out")), Some(real.join("out")));
        for text in ["out/", "out/.", "out/.."] {
            assert_eq!(place(&real.join(text)), None, "{text}");
        }
        let all = [mount(Path::new("/"), "ext4", "x"), mount(&real, "fuse.weft", "weft@h:1")];
        let on_ours = |place: &Path| holder(&all, place).and_then(ours).is_some();
        let holds = |path: &Path| place(path).is_some_and(|place| on_ours(&place));
        assert!(holds(&real.join("same/out")) && holds(&real) && !holds(&folder.path().join("..").join("x")));
    }

    #[test]
    fn the_root_is_no_mount_of_ours() {
        assert_eq!(containing(Path::new("/")).expect("readable"), None);
    }
}
