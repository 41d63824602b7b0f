//! Sessions and what they hold open.

use kv::Kv;
use types::error::Errno;
use types::id::{InodeId, SessionId};

use crate::error::Result;
use crate::shard::Shard;
use crate::view::{HeldOpen, InodeView, SessionOpened};

impl<K: Kv> Shard<K> {
    /// Registers `session`, or takes it up again. What `opens` names is added to what the session is known to hold;
    /// nothing is taken away. Inodes that are gone are passed over.
    ///
    /// # Errors
    /// `EINVAL` for session 0, `EBUSY` with too many sessions or opens.
    pub fn session_open(
        &mut self,
        _session: SessionId,
        _description: &[u8],
        _opens: &[HeldOpen],
    ) -> Result<SessionOpened> {
        Err(Errno::ENOSYS.into())
    }

    /// Ends the session and releases what it held. Closing one that is not there is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn session_close(&mut self, _session: SessionId) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// Some request of `session` came in: it lives. False where it is not open here.
    pub fn touch(&mut self, _session: SessionId) -> bool {
        false
    }

    /// Registers that `session` has the inode open, once however many handles it has.
    ///
    /// # Errors
    /// `ESTALE` where the inode is gone, `ENOTCONN` without the session, `EBUSY` with too many opens.
    pub fn open_inode(&mut self, _session: SessionId, _inode: InodeId) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// The session's last handle is gone; so is its write intent if it still had one. Harmless twice.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn close_inode(&mut self, _session: SessionId, _inode: InodeId) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
}
