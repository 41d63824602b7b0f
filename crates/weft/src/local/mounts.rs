//! Mounts of Weft on this machine, as the kernel lists them.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

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

/// All mounts of Weft that this process can see, in the order of mounting.
pub(crate) fn list() -> Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(text.split(|&b| b == b'\n').filter_map(parse).collect())
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
    let text = fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let itself = place(path).and_then(|place| holder(&text, &place));
    Ok(itself.or_else(|| holder(&text, &resolve(path))))
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

/// The mount among the lines of mountinfo in `text` that a path without links lies on.
fn holder(text: &[u8], path: &Path) -> Option<Mount> {
    // Of any type: another file system may be mounted inside of ours.
    let deepest = text
        .split(|&b| b == b'\n')
        .filter(|line| field(line, 4).is_some_and(|point| path.starts_with(&point)))
        .max_by_key(|line| field(line, 4).map_or(0, |point| point.as_os_str().len()));
    deepest.and_then(parse)
}

/// Takes the mount away: at once where nobody uses it, or `lazily` from sight and for good when its last user is gone.
///
/// # Errors
/// `ResourceBusy` where it is in use.
pub(crate) fn unmount(point: &Path, lazily: bool) -> io::Result<()> {
    let path = CString::new(point.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: `path` is a string that ends in zero and lives through the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    // Users unmount what is theirs through the helper that has the right to.
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(point);
    let output = command.output().map_err(|_| error)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let busy = text.contains("busy");
    let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, text.trim().to_owned()))
}

/// What a mount answers whose process is gone; `ECANCELED` to who was being served by io_uring when it went.
pub(crate) fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
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

/// One line of mountinfo, `None` where it is no mount of ours.
fn parse(line: &[u8]) -> Option<Mount> {
    let separator = line.windows(3).position(|window| window == b" - ")?;
    let mut tail = line[separator + 3..].split(|&b| b == b' ');
    if tail.next()? != FS_TYPE.as_bytes() {
        return None;
    }
    let source = unescape(tail.next()?);
    let mgmtd = source.to_str()?.strip_prefix(SOURCE_PREFIX)?.to_owned();
    let options = field(line, 5)?.to_str()?.to_owned();
    Some(Mount { point: field(line, 4)?, mgmtd, options })
}

fn field(line: &[u8], number: usize) -> Option<PathBuf> {
    line.split(|&b| b == b' ').nth(number).map(|bytes| PathBuf::from(unescape(bytes)))
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(bytes: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
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
    fn reads_our_lines_and_no_others() {
        let ours = br"36 35 0:33 / /mnt/a\040b rw,nosuid shared:5 - fuse.weft weft@127.0.0.1:7610 rw,user_id=0";
        let mount = parse(ours).expect("it is ours");
        let options = "rw,nosuid".to_owned();
        assert_eq!(mount, Mount { point: "/mnt/a b".into(), mgmtd: "127.0.0.1:7610".into(), options });
        assert_eq!(parse(b"36 35 0:33 / /mnt rw - fuse.other weft@127.0.0.1:7610 rw"), None);
        assert_eq!(parse(b"36 35 0:33 / /mnt rw - ext4 /dev/vda rw"), None);
        assert_eq!(parse(b""), None);
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
        let lines = format!("1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / {} rw - fuse.weft weft@h:1 rw\n", real.display());
        let holds = |path: &Path| place(path).is_some_and(|place| holder(lines.as_bytes(), &place).is_some());
        assert!(holds(&real.join("same/out")) && holds(&real) && !holds(&folder.path().join("..").join("x")));
    }

    #[test]
    fn the_root_is_no_mount_of_ours() {
        assert_eq!(containing(Path::new("/")).expect("readable"), None);
    }
}
