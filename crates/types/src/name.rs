//! Names of directory entries.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::error::Errno;

/// Longest name of one directory entry, in bytes (POSIX `NAME_MAX` on Linux).
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes (Linux `PATH_MAX` less the terminating zero).
pub const SYMLINK_MAX: usize = 4095;

/// A valid name of a directory entry: 1 to 255 bytes, no `/`, no zero byte, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes, `EINVAL` for an empty name, `.`, `..`, or a byte that no name may hold.
    pub fn new(bytes: &[u8]) -> Result<Self, Errno> {
        if bytes.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Errno::EINVAL);
        }
        Ok(Self(bytes.into()))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_entry_may_be_called() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(Errno::EINVAL));
        }
        assert_eq!(Name::new(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(Name::new(b"\xff...").is_ok());
    }
}
