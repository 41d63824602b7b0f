//! Why there is no connection, or no answer.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;
use types::error::Errno;
use wire::frame::Status;

use crate::handshake::HandshakeError;

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    #[error("{address}: {error}")]
    Io { address: SocketAddr, kind: io::ErrorKind, error: String },
    #[error("{address}: {error}")]
    Handshake { address: SocketAddr, error: HandshakeError },
    /// Several hosts have the address, or it leads elsewhere from here.
    #[error("another node answers at {address}: {found}, not {wanted}")]
    Stranger { address: SocketAddr, found: String, wanted: String },
    #[error("no address to connect to, or none that the chosen interfaces reach")]
    NoAddress,
}

impl ConnectError {
    pub(super) fn io(address: SocketAddr, error: &io::Error) -> Self {
        Self::Io { address, kind: error.kind(), error: error.to_string() }
    }

    pub(crate) fn lost(address: SocketAddr, error: &CallError) -> Self {
        Self::Io { address, kind: io::ErrorKind::ConnectionReset, error: error.to_string() }
    }

    /// Waiting does not help: the two sides disagree about key, cluster or version.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Stranger { .. } | Self::NoAddress => false,
            Self::Handshake { error, .. } => error.is_permanent(),
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// The connection is gone. The request may or may not have been executed.
    #[error("connection lost: {0}")]
    Closed(String),
    /// The other side's own answer.
    #[error("answered with {0:?}")]
    Status(Status),
    /// The two sides do not understand each other; asking again gives the same.
    #[error("protocol error: {0}")]
    Protocol(String),
}

impl CallError {
    /// The error number for an application, where the caller has nothing better to do.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Closed(_) => Errno::EIO,
            Self::Protocol(_) => Errno::EPROTO,
            Self::Status(Status::Errno(errno)) => *errno,
            Self::Status(Status::StaleMap | Status::NoSession) => Errno::ESTALE,
            Self::Status(Status::Busy) => Errno::EAGAIN,
            Self::Status(Status::Ok) => Errno::EIO,
        }
    }
}
