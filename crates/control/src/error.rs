//! Why mgmtd could not be asked, or said no.

use conf::Fatal;
use net::handshake::HandshakeError;
use thiserror::Error;
use tonic::{Code, Status};

/// What can go wrong between a service and mgmtd. Each text is one line for people.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ControlError {
    /// Trying again may help.
    #[error("no mgmtd answers at {address}: {reason}")]
    Unreachable { address: String, reason: String },
    /// Something answers, and the two sides cannot come to terms.
    #[error("mgmtd at {address}: {}", handshake_text(.error))]
    Handshake { address: String, error: HandshakeError },
    /// The connection was lost or the answer took too long: the request may have been carried out.
    #[error("lost mgmtd at {address}: {reason}")]
    Lost { address: String, reason: String },
    /// mgmtd has to hear from a node first: from one that it has not heard of since it was started, that it registers again.
    #[error("{0}")]
    NotHeard(String),
    /// The state of the cluster rules it out: mgmtd said no and will say no again.
    #[error("{0}")]
    Refused(String),
    /// What answers cannot do what it was asked for, whatever the state of the cluster.
    #[error("mgmtd at {address} {reason}")]
    Unfit { address: String, reason: String },
    /// mgmtd answered what this release does not understand.
    #[error("mgmtd at {address} sent what this release cannot read: {reason}")]
    Incomprehensible { address: String, reason: String },
    /// Watch anew, for whole maps.
    #[error("mgmtd at {address} told changes of another map than the one that is known here")]
    Misfit { address: String },
}

impl ControlError {
    /// Trying again without a change by people gives the same.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } | Self::NotHeard(_) | Self::Misfit { .. } => false,
            Self::Handshake { error, .. } => handshake_is_permanent(error),
            Self::Refused(_) | Self::Unfit { .. } | Self::Incomprehensible { .. } => true,
        }
    }

    /// mgmtd itself has decided so. All else may come from whatever listens at its address for a while: it is no reason to
    /// end for what has been part of the cluster already.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    pub(crate) fn from_status(address: &str, status: &Status) -> Self {
        let reason = status.message().to_owned();
        let unfit = |reason| Self::Unfit { address: address.to_owned(), reason };
        match status.code() {
            Code::Unavailable
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Aborted
            | Code::Internal
            | Code::ResourceExhausted
            | Code::PermissionDenied => Self::Lost { address: address.to_owned(), reason: innermost(status) },
            NOT_HEARD => Self::NotHeard(reason),
            REFUSED => Self::Refused(reason),
            Code::Unimplemented => unfit("is older than this release: upgrade it".to_owned()),
            code => unfit(format!("says: {reason} ({code:?})")),
        }
    }
}

impl From<ControlError> for Fatal {
    fn from(error: ControlError) -> Self {
        if error.is_permanent() { Fatal::usage(error.to_string()) } else { Fatal::failed(error.to_string()) }
    }
}

/// The code of [`ControlError::NotHeard`].
const NOT_HEARD: Code = Code::NotFound;
/// That of all other refusals.
const REFUSED: Code = Code::FailedPrecondition;

/// A refusal of the state machine as it goes over the wire.
#[must_use]
pub fn refusal_status(refusal: &cluster::refusal::Refusal) -> Status {
    let code = if refusal.is_permanent() { REFUSED } else { NOT_HEARD };
    Status::new(code, refusal.to_string())
}

fn handshake_text(error: &HandshakeError) -> String {
    match error {
        HandshakeError::Key => "wrong cluster key: it and this side have different ones".to_owned(),
        HandshakeError::Cluster { ours, theirs } => format!("belongs to cluster {theirs}, not {ours}"),
        other => other.to_string(),
    }
}

fn handshake_is_permanent(error: &HandshakeError) -> bool {
    match error {
        // A service that stops, or a network that fails, ends a handshake anywhere.
        HandshakeError::Ended | HandshakeError::TimedOut => false,
        HandshakeError::Foreign
        | HandshakeError::HandshakeVersion(_)
        | HandshakeError::Key
        | HandshakeError::Forged
        | HandshakeError::Length(_)
        | HandshakeError::Malformed(_)
        | HandshakeError::Version(_)
        | HandshakeError::Cluster { .. }
        | HandshakeError::Refused(_) => true,
    }
}

/// The text of the error at the bottom, which names the cause; those above only say "transport error".
fn innermost(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = std::error::Error::source(status);
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    text
}
