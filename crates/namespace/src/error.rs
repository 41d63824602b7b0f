//! Why an operation did not happen, as small facts. Whatever the fact, the operation left no trace.

use kv::KvError;
use thiserror::Error;
use types::error::Errno;
use types::id::TransactionId;

/// Why an operation was not done.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// The answer that the file system's rules give: nothing is wrong with the shard.
    #[error("{0}")]
    Refused(Errno),
    /// Others hold leases on what it would change. They are being recalled: ask again when `Shard::take_ended_recalls`
    /// has what `Shard::awaited` is now.
    #[error("waits for leases to be given back")]
    Recalling,
    /// A record in the store is not what it must be. Worth a line in the log: an administrator has to look at it.
    #[error("damaged record: {0}")]
    Damaged(Damage),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] KvError),
    /// A transaction has locked what the operation needs, or carries it out: to be asked again when it has ended. See
    /// `transaction`.
    #[error("transaction {0} is under way")]
    Blocked(TransactionId),
    /// The file's contents are being moved from the metadata to objects: ask again when `Shard::take_ended_growth` says so.
    #[error("waits for contents that are being moved to objects")]
    Growing,
    /// Something else came in between: to be asked again after a while.
    #[error("something else came in between")]
    Again,
}

impl Error {
    /// What was to be read is damaged, or lies where the disk gives nothing: other records can be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Store(KvError::Corrupt(_) | KvError::Io(_) | KvError::Denied(_)))
    }

    /// What the application sees.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused(errno) => *errno,
            Self::Recalling | Self::Growing => Errno::EAGAIN,
            Self::Damaged(_) => Errno::EIO,
            Self::Store(error) => store_errno(error),
            Self::Blocked(_) | Self::Again => Errno::EAGAIN,
        }
    }
}

/// The error number for a store that fails (also for a failed `commit`).
#[must_use]
pub fn store_errno(error: &KvError) -> Errno {
    match error {
        KvError::NoSpace(_) => Errno::ENOSPC,
        KvError::Corrupt(_) | KvError::Io(_) | KvError::Locked(_) | KvError::Lost(_) | KvError::Denied(_) => Errno::EIO,
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

/// What is wrong with a record, and which one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}, key {}", hex(.key))]
pub struct Damage {
    pub what: &'static str,
    /// The record's whole key.
    pub key: Box<[u8]>,
}

impl Damage {
    pub(crate) fn new(what: &'static str, key: &[u8]) -> Self {
        Self { what, key: key.into() }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub type Result<T> = std::result::Result<T, Error>;
