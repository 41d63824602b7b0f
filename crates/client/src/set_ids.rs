//! What depends on who changes a file, by the rules of Linux: which of set-user-id and set-group-id goes, and what is for the
//! owner alone.

use types::attr::{Attr, S_ISGID, S_ISUID, S_IXGRP, SetAttr, SetTime};
use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::router::Client;

/// What has to be known of who asks; found out only where it matters.
pub trait Standing {
    fn uid(&self) -> u32;
    /// Its writes leave both bits as they are (`CAP_FSETID`).
    fn is_privileged(&self) -> bool;
    /// Has this right over what belongs to this other user and this group.
    fn has_over(&self, uid: u32, gid: u32, right: Right) -> bool;
    fn is_in_group(&self, gid: u32) -> bool;
}

/// What an owner may, and others by their capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// To change mode, times, access control lists and flags (`CAP_FOWNER`).
    Own,
    /// To give it to another user or group (`CAP_CHOWN`).
    Chown,
}

/// Who may do what with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Permissions {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid }
    }

    fn has_set_ids(self) -> bool {
        self.mode & (S_ISUID | S_ISGID) != 0
    }

    /// A change by `who`, without privileges, takes set-group-id though the group may not execute.
    fn loses_sgid(self, who: &impl Standing) -> bool {
        self.mode & S_ISGID != 0 && self.mode & S_IXGRP == 0 && !who.is_in_group(self.gid)
    }
}

/// Clears, and changes nothing else.
const KILL: SetAttr = SetAttr {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: None,
    mtime: None,
    kill_suid_sgid: true,
    kill_sgid: false,
    flags: None,
};

impl Client {
    /// Before `who` changes the contents of an open file: clears what has to go. False where nothing has.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub async fn kill_suid_sgid(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        who: &impl Standing,
    ) -> Result<bool, Errno> {
        let permissions = self.permissions(caller, inode).await?;
        if !permissions.has_set_ids() {
            return Ok(false);
        }
        let change = SetAttr { kill_sgid: permissions.loses_sgid(who), ..KILL };
        if change.left_of(permissions.mode) == permissions.mode || who.is_privileged() {
            return Ok(false);
        }
        self.set(caller, inode, change).await.map(|_| true)
    }

    /// Changes attributes for `who`; where that clears set-user-id, also set-group-id where that has to go with it.
    ///
    /// A change that clears and names nothing else comes of a `chown` to what is so already, which the kernel does not check,
    /// or before a change of contents, which clears by itself: it is for the owner and the privileged.
    ///
    /// # Errors
    /// As [`Client::setattr`], and those of [`Client::owned`].
    pub async fn setattr_for(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        mut change: SetAttr,
        who: &impl Standing,
    ) -> Result<Attr, Errno> {
        if change.kill_suid_sgid && !who.is_privileged() {
            let permissions = self.permissions(caller, inode).await?;
            if change == KILL && permissions.uid != who.uid() {
                return self.getattr(caller, inode).await.map(|known| known.attr);
            }
            change.kill_sgid = permissions.loses_sgid(who);
        }
        if gives_away(&change) {
            self.permits(caller, inode, who, Right::Chown).await?;
        }
        if is_for_the_owner(&change) {
            self.permits(caller, inode, who, Right::Own).await?;
        }
        self.setattr(caller, inode, change).await
    }

    /// Before a change that is for the owner alone: whoever checked that before may not know yet that another client has given
    /// the file away.
    ///
    /// # Errors
    /// `EPERM` where it is not `who`'s, and as [`Client::getattr`].
    pub async fn owned(&self, caller: &Caller<'_>, inode: InodeId, who: &impl Standing) -> Result<(), Errno> {
        self.permits(caller, inode, who, Right::Own).await
    }

    async fn permits(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        who: &impl Standing,
        right: Right,
    ) -> Result<(), Errno> {
        if who.uid() == 0 {
            return Ok(());
        }
        let (uid, gid) = self.owners(caller, inode).await?;
        if uid == who.uid() || who.has_over(uid, gid, right) { Ok(()) } else { Err(Errno::EPERM) }
    }

    async fn permissions(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Permissions, Errno> {
        match self.rights(caller, inode).await? {
            Some((_, permissions)) => Ok(permissions),
            None => self.getattr(caller, inode).await.map(|known| Permissions::of(&known.attr)),
        }
    }
}

/// Times of now are set also by those who may write.
fn is_for_the_owner(change: &SetAttr) -> bool {
    let is_given = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
    change.mode.is_some() || is_given(change.atime) || is_given(change.mtime)
}

/// To whom, the kernel has looked.
fn gives_away(change: &SetAttr) -> bool {
    change.uid.is_some() || change.gid.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Member(u32);

    impl Standing for Member {
        fn uid(&self) -> u32 {
            1
        }

        fn is_privileged(&self) -> bool {
            false
        }

        fn has_over(&self, _: u32, _: u32, _: Right) -> bool {
            false
        }

        fn is_in_group(&self, gid: u32) -> bool {
            gid == self.0
        }
    }

    #[test]
    fn strangers_take_set_group_id_where_the_group_may_not_execute() {
        for (mode, gid, loses) in
            [(0o2766, 5, true), (0o2766, 6, false), (0o2777, 5, false), (0o4766, 5, false), (0o6600, 5, true)]
        {
            assert_eq!(Permissions { mode, uid: 1, gid }.loses_sgid(&Member(6)), loses, "{mode:o} of group {gid}");
        }
    }
}
