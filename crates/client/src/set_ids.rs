//! What depends on who changes a file, by the rules of Linux: which of set-user-id and set-group-id goes, and what is for the
//! owner alone.

use types::attr::{Attr, S_ISGID, S_ISUID, S_ISVTX, S_IXGRP, SetAttr, SetTime};
use types::cred::Conditions;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;
use types::name::Name;
use types::xattr::{ACCESS_ACL, KILL_SGID};
use wire::v1::meta::InodeReply;

use crate::caller::Caller;
use crate::names::Looked;
use crate::router::Client;

/// Of `<linux/fs.h>`.
const RENAME_NOREPLACE: u32 = 1;

/// So often a change is judged whose file others change at the same time.
const JUDGED_MAX: usize = 8;

/// What has to be known of who asks; found out only where it matters.
pub trait Standing {
    fn uid(&self) -> u32;
    /// Its writes leave both bits as they are (`CAP_FSETID`).
    fn is_privileged(&self) -> bool;
    /// Has this right over what belongs to this other user and this group.
    fn has_over(&self, uid: u32, gid: u32, right: Right) -> bool;
    fn is_in_group(&self, gid: u32) -> bool;
    /// Sets and clears the flags that keep a file as it is (`CAP_LINUX_IMMUTABLE`).
    fn may_fix(&self) -> bool;
}

/// What an owner may, and others by their capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// To change mode, times, access control lists and flags (`CAP_FOWNER`).
    Own,
    /// To give it to another user or group (`CAP_CHOWN`).
    Chown,
    /// To give it set-group-id without being in its group (`CAP_FSETID`).
    SetGroupId,
}

/// Who may do what with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    mode: u32,
    uid: u32,
    gid: u32,
    /// The program may do more than its caller, until somebody writes to it.
    has_capability: bool,
}

impl Permissions {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid, has_capability: false }
    }

    pub(crate) fn told(reply: &InodeReply) -> Self {
        Self { has_capability: reply.capability, ..Self::of(&reply.attr) }
    }

    fn has_set_ids(self) -> bool {
        self.mode & (S_ISUID | S_ISGID) != 0
    }

    /// A change by `who`, without privileges, takes set-group-id though the group may not execute.
    fn loses_sgid(self, who: &impl Standing) -> bool {
        self.may_lose_sgid() && !who.is_in_group(self.gid)
    }

    /// As that, where `who` is in another group.
    fn may_lose_sgid(self) -> bool {
        self.mode & S_ISGID != 0 && self.mode & S_IXGRP == 0
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
        if !permissions.has_set_ids() && !permissions.has_capability {
            return Ok(false);
        }
        let change = SetAttr { kill_sgid: permissions.loses_sgid(who), ..KILL };
        let takes = permissions.has_capability || change.left_of(permissions.mode) != permissions.mode;
        if !takes || who.is_privileged() {
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
        change: SetAttr,
        who: &impl Standing,
    ) -> Result<Attr, Errno> {
        judge_anew(async || self.setattr_if_given(caller, inode, change, who).await).await
    }

    async fn setattr_if_given(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        mut change: SetAttr,
        who: &impl Standing,
    ) -> Result<Attr, Errno> {
        if change.kill_suid_sgid && self.privilege_matters(inode, &change, who) && !who.is_privileged() {
            let permissions = self.permissions(caller, inode).await?;
            if change == KILL && permissions.uid != who.uid() {
                return self.getattr(caller, inode).await.map(|known| known.attr);
            }
            change.kill_sgid = permissions.loses_sgid(who);
        }
        let rights = [(gives_away(&change), Right::Chown), (is_for_the_owner(&change), Right::Own)];
        let mut given = Conditions::default();
        for (_, right) in rights.into_iter().filter(|(is_needed, _)| *is_needed) {
            given = self.permits(caller, inode, who, right).await?;
        }
        // He may be in the group that the kernel knows, and not in the file's.
        given.group = match (change.mode.filter(|mode| mode & S_ISGID != 0), given.group) {
            (Some(mode), Some(group)) => {
                let is_his = who.is_in_group(change.gid.unwrap_or(group)) || has_sgid_over(who, given);
                change.mode = Some(if is_his { mode } else { mode & !S_ISGID });
                Some(group).filter(|_| is_his && change.gid.is_none())
            }
            _ => None,
        };
        self.setattr(&caller.where_given(given), inode, change).await
    }

    /// Whether `change`, which clears set-user-id, may come out otherwise for the privileged. Each `chown` asks that, of files
    /// that mostly have no such bits, and to see whether `who` is privileged takes longer than all the rest.
    fn privilege_matters(&self, inode: InodeId, change: &SetAttr, who: &impl Standing) -> bool {
        let of_open_file = self.shared.in_file(inode, |file| file.known_permissions());
        let known = of_open_file.or_else(|| self.attr_unasked(inode).map(|known| Permissions::of(&known.attr)));
        known.is_none_or(|known| known.may_lose_sgid() || *change == KILL && known.uid != who.uid())
    }

    /// Sets an access control list for `who`.
    ///
    /// # Errors
    /// `EPERM` where it is not `who`'s file, and as [`Client::setxattr`].
    pub async fn set_acl_for(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        who: &impl Standing,
    ) -> Result<(), Errno> {
        judge_anew(async || {
            let mut given = self.permits(caller, inode, who, Right::Own).await?;
            let is_stranger = |group| !who.is_in_group(group) && !has_sgid_over(who, given);
            let takes_sgid = name == ACCESS_ACL && given.group.is_some_and(is_stranger);
            given.group = given.group.filter(|_| name == ACCESS_ACL && !takes_sgid);
            let flags = if takes_sgid { flags | KILL_SGID } else { flags };
            self.setxattr(&caller.where_given(given), inode, name, value, flags).await
        })
        .await
    }

    /// Removes an access control list for `who`.
    ///
    /// # Errors
    /// `EPERM` where it is not `who`'s file, and as [`Client::removexattr`].
    pub async fn remove_acl_for(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        name: &[u8],
        who: &impl Standing,
    ) -> Result<(), Errno> {
        judge_anew(async || {
            let given = Conditions { group: None, ..self.permits(caller, inode, who, Right::Own).await? };
            self.removexattr(&caller.where_given(given), inode, name).await
        })
        .await
    }

    /// Sets the flags of a file or directory for `who`. Whether some may be others than they were, the kernel has judged by
    /// those that it was told.
    ///
    /// # Errors
    /// `EPERM` where it is not `who`'s, or may not get such flags, and as [`Client::set_flags`].
    pub async fn set_flags_for(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        flags: FileFlags,
        who: &impl Standing,
    ) -> Result<(), Errno> {
        judge_anew(async || {
            let given = self.permits(caller, inode, who, Right::Own).await?;
            let fixed = (!who.may_fix()).then(|| flags.fixed());
            let given = Conditions { group: None, fixed, ..given };
            self.set_flags(&caller.where_given(given), inode, flags).await
        })
        .await
    }

    /// Before a change that is for the owner alone, or for who has this right: whoever checked that before may not know yet
    /// that another client has given the file away. So may it be when the change comes to the shard: it goes there with what
    /// was found out.
    async fn permits(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        who: &impl Standing,
        right: Right,
    ) -> Result<Conditions, Errno> {
        if who.uid() == 0 {
            return Ok(Conditions::default());
        }
        let (uid, gid) = self.owners(caller, inode).await?;
        if uid != who.uid() && !who.has_over(uid, gid, right) {
            return Err(Errno::EPERM);
        }
        Ok(Conditions { owner: Some(uid), group: Some(gid), ..Conditions::default() })
    }

    /// [`Client::unlink`] for `who`.
    ///
    /// # Errors
    /// As that, and `EPERM` in sticky directories.
    pub async fn unlink_for(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        who: &impl Standing,
    ) -> Result<(), Errno> {
        let unlink = async |caller: &Caller<'_>| self.unlink(caller, parent, name.clone()).await;
        self.take_for(caller, &[(parent, name.clone())], who, unlink).await
    }

    /// [`Client::rmdir`] for `who`.
    ///
    /// # Errors
    /// As that, and `EPERM` in sticky directories.
    pub async fn rmdir_for(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        who: &impl Standing,
    ) -> Result<(), Errno> {
        let rmdir = async |caller: &Caller<'_>| self.rmdir(caller, parent, name.clone()).await;
        self.take_for(caller, &[(parent, name.clone())], who, rmdir).await
    }

    /// [`Client::rename`] for `who`.
    ///
    /// # Errors
    /// As that, and `EPERM` in sticky directories.
    pub async fn rename_for(
        &self,
        caller: &Caller<'_>,
        [source, target]: [(InodeId, Name); 2],
        flags: u32,
        who: &impl Standing,
    ) -> Result<(), Errno> {
        let rename = async |caller: &Caller<'_>| self.rename(caller, source.clone(), target.clone(), flags).await;
        let names = [source.clone(), target.clone()];
        // What it does not replace goes nowhere.
        let taken = if flags & RENAME_NOREPLACE == 0 { &names[..] } else { &names[..1] };
        self.take_for(caller, taken, who, rename).await
    }

    /// Takes names away, or moves them. In a sticky directory that is for the owners, and who that is the kernel may have been
    /// told long ago; but the shard knows it. Only where that refuses, it matters whether `who` may do more than others.
    /// Who needs no such right tries again as before: it may have changed once more.
    async fn take_for(
        &self,
        caller: &Caller<'_>,
        names: &[(InodeId, Name)],
        who: &impl Standing,
        take: impl AsyncFn(&Caller<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if who.uid() == 0 {
            return take(caller).await;
        }
        let given = Conditions { remover: Some(who.uid()), ..Conditions::default() };
        judge_anew(async || {
            let taken = take(&caller.where_given(given)).await;
            if taken == Err(Errno::ECANCELED) && self.needs_right_over(caller, names, who).await? {
                return take(caller).await;
            }
            taken
        })
        .await
    }

    /// One of these names leads to what is somebody else's, in a sticky directory, and `who` has the right to take it.
    ///
    /// # Errors
    /// `EPERM` without that right.
    async fn needs_right_over(
        &self,
        caller: &Caller<'_>,
        names: &[(InodeId, Name)],
        who: &impl Standing,
    ) -> Result<bool, Errno> {
        let mut is_needed = false;
        for (parent, name) in names {
            let Looked::Found(named) = self.lookup(caller, *parent, name.clone()).await? else { continue };
            let Attr { inode, uid, gid, .. } = named.attr;
            if uid == who.uid() {
                // Perhaps it was given to `who` here, and the shard has yet to hear of that.
                self.publish(caller, inode).await?;
                continue;
            }
            let directory = self.getattr(caller, *parent).await?.attr;
            if directory.mode & S_ISVTX != 0 && directory.uid != who.uid() {
                if !who.has_over(uid, gid, Right::Own) {
                    return Err(Errno::EPERM);
                }
                is_needed = true;
            }
        }
        Ok(is_needed)
    }

    async fn permissions(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Permissions, Errno> {
        match self.rights(caller, inode).await? {
            Some((_, permissions)) => Ok(permissions),
            None => self.getattr(caller, inode).await.map(|known| Permissions::of(&known.attr)),
        }
    }
}

/// Set-group-id stays where `who` sets mode or list of what is as given, though in another group. Where the kernel alone knows
/// that, it has judged: only a group that it did not know of matters.
fn has_sgid_over(who: &impl Standing, given: Conditions) -> bool {
    given.owner.zip(given.group).is_none_or(|(uid, gid)| who.has_over(uid, gid, Right::SetGroupId))
}

/// Judges again where it was not so any more when it came to the shard.
async fn judge_anew<T>(attempt: impl AsyncFn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..JUDGED_MAX {
        match attempt().await {
            Err(Errno::ECANCELED) => {}
            result => return result,
        }
    }
    Err(Errno::EPERM)
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
    use std::cell::Cell;

    use types::attr::FileType;
    use types::cred::Credentials;
    use wire::codec::decode_body;
    use wire::frame::Status;
    use wire::op::Op;
    use wire::v1::meta;

    use super::*;
    use crate::lease::{Lease, Subject};
    use crate::test_cluster::join;
    use crate::{test_client, test_cluster};

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

        fn may_fix(&self) -> bool {
            false
        }
    }

    #[test]
    fn strangers_take_set_group_id_where_the_group_may_not_execute() {
        for (mode, gid, loses) in
            [(0o2766, 5, true), (0o2766, 6, false), (0o2777, 5, false), (0o4766, 5, false), (0o6600, 5, true)]
        {
            let permissions = Permissions { mode, uid: 1, gid, has_capability: false };
            assert_eq!(permissions.loses_sgid(&Member(6)), loses, "{mode:o} of group {gid}");
        }
    }

    const FILE: InodeId = InodeId(77);

    /// Counts how often it is looked at whether root is privileged.
    #[derive(Default)]
    struct Root(Cell<u32>);

    impl Standing for Root {
        fn uid(&self) -> u32 {
            0
        }

        fn is_privileged(&self) -> bool {
            self.0.set(self.0.get() + 1);
            true
        }

        fn has_over(&self, _: u32, _: u32, _: Right) -> bool {
            true
        }

        fn is_in_group(&self, _: u32) -> bool {
            false
        }

        fn may_fix(&self) -> bool {
            true
        }
    }

    #[test]
    fn who_gives_a_file_away_is_looked_at_only_where_it_matters() {
        test_client::run(async |client| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            let looks = |mode, uid, change: &SetAttr| {
                let permissions = Permissions { mode, uid, gid: 5, has_capability: false };
                client.shared.with_file(FILE, |file| file.permissions = permissions);
                client.privilege_matters(FILE, change, &Root::default())
            };
            let chown = SetAttr { uid: Some(1), ..KILL };
            assert!(!looks(0o644, 1, &chown) && !looks(0o6755, 1, &chown), "both bits go in any case");
            assert!(looks(0o2644, 1, &chown), "set-group-id may stay");
            assert!(looks(0o644, 1, &KILL) && !looks(0o644, 0, &KILL), "for the owner and the privileged");
            client.shared.with_file(FILE, |file| file.flags.recalled());
            assert!(client.privilege_matters(FILE, &chown, &Root::default()), "it may have changed");
            assert!(client.privilege_matters(InodeId(78), &chown, &Root::default()), "nothing is known of it");
        });
    }

    /// What tar does with each file that it has made.
    #[test]
    fn of_a_new_file_that_is_given_away_nobody_is_looked_at() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let lease = Lease::granted(client.shared.board.ticket(), Subject::inode(FILE), 100_000);
            let made = InodeReply { draft: true, inline_limit: 8, ..test_client::reply(FILE) };
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            client.begin_draft(&made, lease, client.shared.contents.renames());
            let (root, chown) = (Root::default(), SetAttr { uid: Some(1), gid: Some(2), ..KILL });
            let attr = client.setattr_for(&caller, FILE, chown, &root).await.expect("it is a draft");
            assert_eq!((attr.uid, attr.gid, root.0.get()), (1, 2, 0));
        });
    }

    fn reply(uid: u32, gid: u32) -> InodeReply {
        let reply = test_client::reply(FILE);
        InodeReply { attr: Attr { uid, gid, ..reply.attr }, lease_ms: 0, ..reply }
    }

    #[test]
    fn a_change_for_the_owner_goes_with_whose_it_was() {
        let caller = Caller::patient(Credentials::default());
        let chmod = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        test_cluster::run(async |shard, [client, _]| {
            let changes = async {
                let set = async |mode| client.setattr_for(&caller, FILE, chmod(mode), &Member(6)).await.map(drop);
                assert_eq!(set(0o2755).await, Ok(()));
                assert_eq!(set(0o2755).await, Ok(()));
                assert_eq!(set(0o4777).await, Err(Errno::EPERM));
                let set_flags = client.set_flags_for(&caller, FILE, FileFlags::NODUMP, &Member(6));
                assert_eq!(set_flags.await, Err(Errno::EPERM));
            };
            let answers = async {
                shard.opens_session(1).await;
                let owned = Conditions { owner: Some(1), ..Conditions::default() };
                let set = async || {
                    let request = shard.next(Op::Set).await;
                    let set: meta::Set = decode_body(&request.body).expect("a change");
                    (request, set.given, set.change)
                };
                for (gid, mode) in [(6, 0o2755), (5, 0o755)] {
                    shard.next(Op::GetAttr).await.responder.reply(&reply(1, gid));
                    let (request, given, change) = set().await;
                    let group = (gid == 6).then_some(6);
                    assert_eq!((given, change), (Conditions { group, ..owned }, chmod(mode)));
                    request.responder.reply(&reply(1, gid));
                }
                // Given away in between.
                shard.next(Op::GetAttr).await.responder.reply(&reply(1, 5));
                let (request, given, _) = set().await;
                assert_eq!(given, owned);
                request.responder.fail(Status::Errno(Errno::ECANCELED));
                shard.next(Op::GetAttr).await.responder.reply(&reply(2, 5));
                for _ in 0..JUDGED_MAX {
                    shard.next(Op::GetAttr).await.responder.reply(&reply(1, 5));
                    let (request, given, _) = set().await;
                    assert_eq!(given, Conditions { fixed: Some(FileFlags::NONE), ..owned });
                    request.responder.fail(Status::Errno(Errno::ECANCELED));
                }
            };
            join(changes, answers).await;
        });
    }

    /// Has the rights of an owner, and to give set-group-id, over what is this user's.
    struct Over(u32);

    impl Standing for Over {
        fn uid(&self) -> u32 {
            1
        }

        fn is_privileged(&self) -> bool {
            false
        }

        fn has_over(&self, uid: u32, _: u32, _: Right) -> bool {
            uid == self.0
        }

        fn is_in_group(&self, _: u32) -> bool {
            false
        }

        fn may_fix(&self) -> bool {
            false
        }
    }

    #[test]
    fn who_has_the_right_to_set_group_id_sets_it_for_strange_groups() {
        let caller = Caller::patient(Credentials::default());
        let chmod = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
        test_cluster::run(async |shard, [client, _]| {
            let changes = async {
                client.setattr_for(&caller, FILE, chmod, &Over(1)).await.expect("set");
                client.set_acl_for(&caller, FILE, (ACCESS_ACL, b"acl"), 0, &Over(1)).await.expect("set");
            };
            let answers = async {
                shard.opens_session(1).await;
                let owned = Conditions { owner: Some(1), group: Some(5), ..Conditions::default() };
                shard.next(Op::GetAttr).await.responder.reply(&reply(1, 5));
                let request = shard.next(Op::Set).await;
                let set: meta::Set = decode_body(&request.body).expect("a change");
                assert_eq!((set.given, set.change), (owned, chmod));
                request.responder.reply(&reply(1, 5));
                shard.next(Op::GetAttr).await.responder.reply(&reply(1, 5));
                let request = shard.next(Op::SetXattr).await;
                let set: meta::SetXattr = decode_body(&request.body).expect("a change");
                assert_eq!((set.given, set.flags), (owned, 0));
                request.responder.reply(&wire::v1::session::Empty {});
            };
            join(changes, answers).await;
        });
    }

    fn found(uid: u32) -> meta::LookupReply {
        meta::LookupReply { found: Some(Box::new(reply(uid, 5))), absent_lease_ms: 0 }
    }

    /// A directory of root's.
    fn directory(inode: InodeId, mode: u32) -> InodeReply {
        let reply = test_client::reply(inode);
        InodeReply { attr: Attr { mode, kind: FileType::Directory, ..reply.attr }, lease_ms: 0, ..reply }
    }

    #[test]
    fn who_may_not_take_a_name_away_is_told_by_the_shard() {
        let caller = Caller::patient(Credentials::default());
        test_cluster::run(async |shard, [client, _]| {
            let name = Name::new(b"f").expect("a name");
            let takes = async {
                let unlink = async || client.unlink_for(&caller, InodeId::ROOT, name.clone(), &Member(6)).await;
                assert_eq!(unlink().await, Err(Errno::EPERM));
                assert_eq!(unlink().await, Err(Errno::ENOENT));
            };
            let answers = async {
                shard.opens_session(1).await;
                let refuses = async |errno| {
                    let request = shard.next(Op::Unlink).await;
                    let unlink: meta::Unlink = decode_body(&request.body).expect("a change");
                    assert_eq!(unlink.given, Conditions { remover: Some(1), ..Conditions::default() });
                    request.responder.fail(Status::Errno(errno));
                };
                refuses(Errno::ECANCELED).await;
                shard.next(Op::Lookup).await.responder.reply(&found(2));
                shard.next(Op::GetAttr).await.responder.reply(&directory(InodeId::ROOT, 0o1777));
                // What is made there after it went is judged as well.
                refuses(Errno::ECANCELED).await;
                let absent = meta::LookupReply { found: None, absent_lease_ms: 0 };
                shard.next(Op::Lookup).await.responder.reply(&absent);
                refuses(Errno::ECANCELED).await;
                shard.next(Op::Lookup).await.responder.reply(&found(1));
                refuses(Errno::ENOENT).await;
            };
            join(takes, answers).await;
        });
    }

    #[test]
    fn only_in_sticky_directories_a_right_is_wanted() {
        let caller = Caller::patient(Credentials::default());
        test_cluster::run(async |shard, [client, _]| {
            let (sticky, plain) = (InodeId(78), InodeId(79));
            let name = Name::new(b"f").expect("a name");
            let takes = async {
                let names = [(sticky, name.clone()), (plain, name.clone())];
                let rename = client.rename_for(&caller, names, 0, &Over(2)).await;
                assert_eq!(rename, Err(Errno::ENOSPC), "it comes to the shard");
            };
            let answers = async {
                shard.opens_session(1).await;
                let refuses = async |remover, errno| {
                    let request = shard.next(Op::Rename).await;
                    let rename: meta::Rename = decode_body(&request.body).expect("a change");
                    assert_eq!(rename.given, Conditions { remover, ..Conditions::default() });
                    request.responder.fail(Status::Errno(errno));
                };
                refuses(Some(1), Errno::ECANCELED).await;
                shard.next(Op::Lookup).await.responder.reply(&found(2));
                shard.next(Op::GetAttr).await.responder.reply(&directory(sticky, 0o1777));
                shard.next(Op::Lookup).await.responder.reply(&found(3));
                shard.next(Op::GetAttr).await.responder.reply(&directory(plain, 0o777));
                refuses(None, Errno::ENOSPC).await;
            };
            join(takes, answers).await;
        });
    }
}
