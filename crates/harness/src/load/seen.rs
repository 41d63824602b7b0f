//! What there is under a name, and whether content may have come about by calls that did not end.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::syscall;

/// The extended attribute that files may have here.
pub(super) const XATTR: &str = "user.load";
const PERMISSIONS: u32 = 0o7777;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    File(SeenFile),
    Folder,
    Symlink(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenFile {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
    /// Nanoseconds since 1970.
    pub(super) mtime: i64,
    pub(super) links: u64,
    pub(super) xattr: Option<Vec<u8>>,
}

impl Seen {
    /// `None` where there is no such name.
    pub(super) fn look(path: &Path) -> io::Result<Option<Self>> {
        let meta = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            meta => meta?,
        };
        if meta.is_dir() {
            return Ok(Some(Self::Folder));
        }
        if meta.is_symlink() {
            return Ok(Some(Self::Symlink(fs::read_link(path)?.to_string_lossy().into_owned())));
        }
        let xattr = match syscall::getxattr(path, XATTR) {
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => None,
            value => Some(value?),
        };
        let (mode, links) = (meta.mode() & PERMISSIONS, meta.nlink());
        let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        Ok(Some(Self::File(SeenFile { content: fs::read(path)?, mode, mtime, links, xattr })))
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "a file",
            Self::Folder => "a folder",
            Self::Symlink(_) => "a symbolic link",
        }
    }
}

/// Each byte as before or as after, or a zero where the file grew or shrank in part; as long as one of both, or between.
pub(super) fn is_mixture(seen: &[u8], old: &[u8], new: &[u8]) -> bool {
    let (shortest, longest) = (old.len().min(new.len()), old.len().max(new.len()));
    let fits = |(at, byte): (usize, &u8)| *byte == 0 || old.get(at) == Some(byte) || new.get(at) == Some(byte);
    let constant = |at: usize| old[at] != new[at] || seen[at] == old[at];
    (shortest..=longest).contains(&seen.len()) && seen.iter().enumerate().all(fits) && (0..shortest).all(constant)
}

/// Each byte as in one of the states, or a zero where it was not there in all; as long as one of them, or between.
pub(super) fn is_of(seen: &[u8], states: &[Vec<u8>]) -> bool {
    let lengths = || states.iter().map(Vec::len);
    let fits = |(at, byte): (usize, &u8)| states.iter().any(|state| state.get(at).copied().unwrap_or(0) == *byte);
    let is_between = lengths().min() <= Some(seen.len()) && Some(seen.len()) <= lengths().max();
    is_between && seen.iter().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixtures_are_of_both_and_nothing_else() {
        assert!(is_mixture(b"abXd", b"abcd", b"aXXd"));
        assert!(is_mixture(b"ab\0", b"ab", b"abcd"));
        assert!(!is_mixture(b"abYd", b"abcd", b"aXXd"));
        assert!(!is_mixture(b"a\0cd", b"abcd", b"abXd"), "what neither wrote is as it was");
        assert!(!is_mixture(b"a", b"ab", b"abcd"));
    }

    #[test]
    fn what_was_written_in_part_is_of_its_states() {
        let states = [b"ab".to_vec(), b"aXc".to_vec(), b"aYcd".to_vec()];
        for seen in [b"ab".as_slice(), b"aXc", b"aY", b"aY\0d", b"abcd"] {
            assert!(is_of(seen, &states), "{seen:?}");
        }
        for never in [b"a".as_slice(), b"aZ", b"ab\0dd", b"b\0c"] {
            assert!(!is_of(never, &states), "{never:?}");
        }
    }
}
