//! Flags of files (`chattr`): told, set, and obeyed where the shard is not asked each time.
//!
//! The shard refuses write intents, truncates, and writes to contents in the metadata. Who has an intent already when a flag is
//! set elsewhere, or set-user-id, hears of it by a recall: then it asks for them before it writes again.

use types::attr::SetAttr;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;
use wire::v1::meta;

use crate::caller::Caller;
use crate::file::File;
use crate::router::{Client, Destination};
use crate::set_ids::Permissions;

/// What is known of an open file's flags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownFlags {
    flags: FileFlags,
    /// How often what is known of the file was recalled or told otherwise, and how often it had been when the flags were
    /// asked for.
    recalls: u32,
    asked_after: u32,
}

impl KnownFlags {
    pub(crate) fn new(flags: FileFlags) -> Self {
        Self { flags, ..Self::default() }
    }

    /// With an answer, which may be older than the last one: where it says something else, the shard is to be asked.
    pub(crate) fn told(&mut self, flags: FileFlags) {
        if flags != self.flags {
            self.flags = flags;
            self.recalled();
        }
    }

    pub(crate) fn recalled(&mut self) {
        self.recalls = self.recalls.wrapping_add(1);
    }

    /// The answer to a question that was asked after so many recalls.
    fn asked(&mut self, flags: FileFlags, recalls: u32) {
        (self.flags, self.asked_after) = (flags, recalls);
    }

    fn are_doubtful(self) -> bool {
        self.recalls != self.asked_after
    }

    pub(crate) fn keep_access_time(self) -> bool {
        self.flags.has(FileFlags::NOATIME)
    }
}

impl File {
    /// Who may do what, where the shard has not told of a change since it was asked.
    pub(crate) fn known_permissions(&self) -> Option<Permissions> {
        (!self.flags.are_doubtful()).then_some(self.permissions)
    }
}

impl Client {
    /// # Errors
    /// `ESTALE` where the inode is gone.
    pub async fn flags(&self, caller: &Caller<'_>, inode: InodeId) -> Result<FileFlags, Errno> {
        match self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await {
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Ok(FileFlags::NONE),
            reply => Ok(reply?.flags),
        }
    }

    /// Sets all flags of a file or directory. What was kept back of it is written before.
    ///
    /// # Errors
    /// `ESTALE`, `EOPNOTSUPP` of what is neither; those of the storage.
    pub async fn set_flags(&self, caller: &Caller<'_>, inode: InodeId, flags: FileFlags) -> Result<(), Errno> {
        self.publish(caller, inode).await?;
        self.write_out(caller, inode).await?;
        let change = SetAttr { flags: Some(flags), ..SetAttr::default() };
        self.set_at_shard(caller, inode, change, false).await.map(drop)
    }

    /// [`Client::open`] for writing, by one who only appends or not.
    ///
    /// # Errors
    /// As that, and `EPERM` by the file's flags.
    pub async fn open_to_write(&self, caller: &Caller<'_>, inode: InodeId, appends: bool) -> Result<(), Errno> {
        self.open(caller, inode, true).await?;
        if !self.shared.kept.is_enabled() {
            // Nobody tells this client of changes.
            self.shared.with_file(inode, |file| file.flags.recalled());
        }
        let permitted = self.may_be_written(caller, inode, appends).await;
        if permitted.is_err() {
            self.close_now(caller, inode, true).await;
        }
        permitted
    }

    /// Before the contents of an open file are changed: only at the end where somebody `appends`.
    ///
    /// # Errors
    /// `EPERM` by the file's flags.
    pub async fn may_be_written(&self, caller: &Caller<'_>, inode: InodeId, appends: bool) -> Result<(), Errno> {
        let Some((flags, _)) = self.rights(caller, inode).await? else { return Ok(()) };
        if flags.permit_writes(appends) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Of a file that is open here: its flags, and who may do what. The shard is asked where it told of a change.
    pub(crate) async fn rights(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
    ) -> Result<Option<(FileFlags, Permissions)>, Errno> {
        let Some(known) = self.shared.with_file(inode, |file| file.flags) else { return Ok(None) };
        if known.are_doubtful() {
            let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
            self.shared.with_file(inode, |file| {
                file.told_rights(&reply);
                file.flags.asked(reply.flags, known.recalls);
            });
        }
        Ok(self.shared.with_file(inode, |file| (file.flags.flags, file.permissions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_doubtful_from_a_recall_until_they_are_asked_for() {
        let mut known = KnownFlags::new(FileFlags::NOATIME);
        assert!(!known.are_doubtful() && known.keep_access_time());
        known.recalled();
        let recalls = known.recalls;
        known.told(FileFlags::NONE);
        assert!(known.are_doubtful(), "told of what was before the recall, perhaps");
        known.recalled();
        known.asked(FileFlags::IMMUTABLE, recalls);
        assert!(known.are_doubtful(), "recalled again meanwhile");
        known.asked(FileFlags::IMMUTABLE, known.recalls);
        assert!(!known.are_doubtful() && known.flags == FileFlags::IMMUTABLE);
        known.told(FileFlags::IMMUTABLE);
        assert!(!known.are_doubtful(), "nothing new");
        known.told(FileFlags::NONE);
        assert!(known.are_doubtful(), "an answer that was overtaken, perhaps");
    }
}
