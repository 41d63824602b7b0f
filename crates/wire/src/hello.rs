//! What both sides say inside the handshake, encrypted, before the first frame.

use thiserror::Error;

use crate::codec::{Bytes, messages};

messages! {
    /// The connecting side's.
    ClientHello {
        version_min: u16,
        version_max: u16,
        /// UUID of the cluster that it wants to talk to; empty where it does not know yet (control plane, first start).
        cluster: Bytes,
        /// For logs: what it is, such as `client host1:/mnt`.
        name: Bytes,
        /// Of a service, changes at each of its starts; of a client, its session, under which `FenceSession` ends its
        /// connections. 0 where it has none yet.
        incarnation: u64,
    }
    /// The accepting side's answer.
    ServerHello {
        /// The version that the connection will use; 0 = none in common, or refused for `refusal`.
        version: u16,
        version_min: u16,
        version_max: u16,
        cluster: Bytes,
        /// Empty, or one line that says why the connection is refused.
        refusal: Bytes,
        /// Changes at each start of the service.
        incarnation: u64,
        /// Its UUID, by which the cluster map knows it as a node; empty where it has none. Who looked for another one at
        /// this address goes elsewhere.
        node: Bytes,
    }
}

/// No version is spoken by both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the other side speaks protocol versions {their_min} to {their_max}, this side {our_min} to {our_max}: upgrade the older one"
)]
pub struct VersionMismatch {
    pub our_min: u16,
    pub our_max: u16,
    pub their_min: u16,
    pub their_max: u16,
}

/// The newest version that both ranges hold.
///
/// # Errors
/// Where they have none in common.
pub fn negotiate(ours: (u16, u16), theirs: (u16, u16)) -> Result<u16, VersionMismatch> {
    let version = ours.1.min(theirs.1);
    if version >= ours.0 && version >= theirs.0 {
        Ok(version)
    } else {
        Err(VersionMismatch { our_min: ours.0, our_max: ours.1, their_min: theirs.0, their_max: theirs.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_newest_common_version() {
        assert_eq!(negotiate((1, 3), (2, 5)), Ok(3));
        assert_eq!(negotiate((1, 1), (1, 1)), Ok(1));
        assert!(negotiate((1, 2), (3, 4)).is_err());
        assert!(negotiate((3, 4), (1, 2)).is_err());
    }
}
