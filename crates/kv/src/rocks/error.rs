//! RocksDB's errors come as text; this is the one place that reads it.

use rocksdb::ErrorKind;

use crate::KvError;

/// What the C library's `strerror` says for `ENOSPC` and `EDQUOT`, which RocksDB puts into its text.
const NO_SPACE: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
/// And for `EACCES`, `EPERM` and `EROFS`.
const DENIED: [&str; 3] = ["Permission denied", "Operation not permitted", "Read-only file system"];
/// How RocksDB names its lock file's errors, of another process and of its own.
const LOCKED: [&str; 2] = ["While lock file:", "lock hold by current process"];

pub(super) fn from_rocksdb(error: rocksdb::Error) -> KvError {
    let kind = error.kind();
    classify(kind, error.into_string())
}

/// Of every call while a reopening has not succeeded.
pub(super) fn closed() -> KvError {
    KvError::Io("the store is closed: opening it again has not succeeded yet".into())
}

fn classify(kind: ErrorKind, text: String) -> KvError {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
    if says(&NO_SPACE) {
        KvError::NoSpace(text)
    } else if says(&DENIED) {
        KvError::Denied(text)
    } else if says(&LOCKED) {
        KvError::Locked(text)
    } else if kind == ErrorKind::Corruption {
        KvError::Corrupt(text)
    } else {
        KvError::Io(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_facts() {
        let io = |text: &str| classify(ErrorKind::IOError, text.into());
        assert!(matches!(io("IO error: No space left on device: While appending to file"), KvError::NoSpace(_)));
        assert!(matches!(
            io("IO error: While lock file: /x/LOCK: Resource temporarily unavailable"),
            KvError::Locked(_)
        ));
        assert!(matches!(io("IO error: lock hold by current process, acquire time 1"), KvError::Locked(_)));
        assert!(matches!(io("IO error: While lock file: /x/LOCK: Permission denied"), KvError::Denied(_)));
        assert!(matches!(io("IO error: While open a file: /x/1.log: Read-only file system"), KvError::Denied(_)));
        assert!(matches!(io("IO error: Input/output error: While fdatasync"), KvError::Io(_)));
        assert!(matches!(classify(ErrorKind::Corruption, "Corruption: bad block".into()), KvError::Corrupt(_)));
    }
}
