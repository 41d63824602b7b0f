//! The cluster key: 32 secret bytes that every member and every client of one cluster holds.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use thiserror::Error;

/// Bytes of a key.
const KEY_LEN: usize = 32;
/// Bits that give the file to anyone but its owner.
const OTHERS: u32 = 0o077;

/// The secret that both sides of a connection prove to hold; it never crosses the wire. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_LEN]);

/// Why there is no key to be had from a file. Every text names the path and, where one exists, the cure.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("cluster key {path}: {error}")]
    Io { path: String, error: io::Error },
    #[error(
        "cluster key {path} is open to others than its owner (mode {mode:04o}): run `chmod 600 {path}`, and make a new key if anyone may have read it"
    )]
    Permissions { path: String, mode: u32 },
    #[error("cluster key {path} is not a file of {} hexadecimal digits", KEY_LEN * 2)]
    Format { path: String },
}

impl ClusterKey {
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// A new key from the operating system's entropy.
    ///
    /// # Errors
    /// Where the operating system gives none.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; KEY_LEN];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Reads 64 hexadecimal digits, with or without a newline after them.
    ///
    /// # Errors
    /// Where the file cannot be read, others than its owner may use it, or it holds anything else.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let io_error = |error| KeyError::Io { path: path.display().to_string(), error };
        let file = OpenOptions::new().read(true).open(path).map_err(io_error)?;
        let mode = file.metadata().map_err(io_error)?.mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(KeyError::Permissions { path: path.display().to_string(), mode });
        }
        // One byte more than the longest good file, so that a longer one is noticed and never read whole.
        let mut text = Vec::new();
        file.take(KEY_LEN as u64 * 2 + 2).read_to_end(&mut text).map_err(io_error)?;
        let digits = text.strip_suffix(b"\n").unwrap_or(&text);
        Self::from_hex(digits).ok_or_else(|| KeyError::Format { path: path.display().to_string() })
    }

    /// Makes the file, readable by its owner alone, and syncs it. An existing file stays as it is, and of one that cannot be
    /// written whole nothing stays: it would be taken for a key that somebody has damaged.
    ///
    /// # Errors
    /// Where the file exists or cannot be written.
    pub fn write_file(&self, path: &Path) -> Result<(), KeyError> {
        let fill = |mut file: File| {
            file.write_all(format!("{}\n", self.to_hex()).as_bytes())?;
            file.sync_all()
        };
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = made.and_then(|file| fill(file).inspect_err(|_| drop(std::fs::remove_file(path))));
        written.map_err(|error| KeyError::Io { path: path.display().to_string(), error })
    }

    /// `None` for anything but exactly 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        if digits.len() != KEY_LEN * 2 {
            return None;
        }
        let digit = |at: usize| (digits[at] as char).to_digit(16).map(|value| value as u8);
        let mut bytes = [0; KEY_LEN];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (digit(at * 2)? << 4) | digit(at * 2 + 1)?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_written_key_is_read_back_and_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = ClusterKey::generate().unwrap();
        key.write_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ClusterKey::from_file(&path).unwrap(), key);
        assert!(key.write_file(&path).is_err(), "an existing key is never overwritten");
        assert_ne!(ClusterKey::generate().unwrap(), key);
    }

    #[test]
    fn a_key_that_others_can_use_is_refused_with_the_cure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        ClusterKey::generate().unwrap().write_file(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let text = ClusterKey::from_file(&path).unwrap_err().to_string();
            assert!(text.contains("chmod 600") && text.contains(path.to_str().unwrap()), "{text}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert!(ClusterKey::from_file(&path).is_ok());
    }

    #[test]
    fn anything_but_64_digits_is_refused() {
        let good = "ab".repeat(32);
        assert!(ClusterKey::from_hex(good.as_bytes()).is_some());
        for bad in ["", &good[1..], &format!("{good}0"), &good.replace('a', "g"), &good.replace('a', "+")] {
            assert!(ClusterKey::from_hex(bad.as_bytes()).is_none(), "{bad}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        for bad in [String::new(), format!("{good}\n\n"), format!("{good}{good}")] {
            std::fs::write(&path, bad).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(ClusterKey::from_file(&path), Err(KeyError::Format { .. })));
        }
        assert!(matches!(ClusterKey::from_file(&dir.path().join("none")), Err(KeyError::Io { .. })));
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        assert_eq!(format!("{:?}", ClusterKey::from_bytes([0xab; 32])), "ClusterKey(..)");
    }
}
