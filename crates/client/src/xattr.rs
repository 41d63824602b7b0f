//! Extended attributes.

use std::time::Instant;

use types::error::Errno;
use types::id::InodeId;
use types::xattr::{ACCESS_ACL, CAPABILITY, check_name};
use wire::codec::Bytes;
use wire::v1::meta;

use crate::caller::Caller;
use crate::given_up::Concerned;
use crate::router::{Client, Destination};

impl Client {
    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn getxattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if self.is_bare(inode) {
            check_name(name)?;
            return Err(Errno::ENODATA);
        }
        let request = meta::GetXattr { inode, name: Bytes(name.to_vec()) };
        match self.call(caller, Destination::home(inode), &request).await {
            // What it had is not known: above all, no list for the kernel, which asks for one at each path from there.
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Err(check_name(name).err().unwrap_or(Errno::ENODATA)),
            reply => Ok(reply?.value.0),
        }
    }

    /// It was removed here, and may still be used.
    pub(crate) fn is_in_grave(&self, inode: InodeId) -> bool {
        self.shared.graves.attr(inode).is_some()
    }

    /// `flags` as in `setxattr(2)`.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as the flags demand, `EOPNOTSUPP` for an unknown name space, `E2BIG`.
    pub async fn setxattr(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        self.publish(caller, inode).await?;
        let numbered = self.shared.begin_change(inode.home());
        let (exactly, value) = (numbered.exactly.clone(), Bytes(value.to_vec()));
        let request =
            meta::SetXattr { exactly, inode, name: Bytes(name.to_vec()), value, flags, given: caller.given() };
        let concerned = || Concerned::inode(inode);
        let result = self.change(caller, Destination::home(inode), &numbered, &request, concerned).await;
        self.parts_changed(inode);
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        self.rights_changed(inode, name);
        result?;
        self.shared.record_changed(inode);
        Ok(())
    }

    /// The permission bits follow an access control list: who writes the file asks for them before the next write, as
    /// that may have to clear set-group-id. It may have to take a capability as well.
    fn rights_changed(&self, inode: InodeId, name: &[u8]) {
        if [ACCESS_ACL, CAPABILITY].contains(&name) {
            self.shared.with_file(inode, |file| file.flags.recalled());
        }
    }

    /// It is known to have none. Own changes of them end what is known before they are answered.
    fn is_bare(&self, inode: InodeId) -> bool {
        self.shared.look_for_sleep();
        let (lease, board) = (self.shared.bare.lease(inode), &self.shared.board);
        self.shared.contents.holds(board, lease, Instant::now())
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn listxattr(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        if self.is_bare(inode) {
            return Ok(Vec::new());
        }
        match self.call(caller, Destination::home(inode), &meta::ListXattr { inode }).await {
            Err(Errno::ESTALE) if self.is_in_grave(inode) => Ok(Vec::new()),
            reply => Ok(reply?.names.into_iter().map(|name| name.0).collect()),
        }
    }

    /// # Errors
    /// `ENODATA` where there is no such attribute.
    pub async fn removexattr(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> Result<(), Errno> {
        self.publish(caller, inode).await?;
        let numbered = self.shared.begin_change(inode.home());
        let (exactly, name_sent) = (numbered.exactly.clone(), Bytes(name.to_vec()));
        let request = meta::RemoveXattr { exactly, inode, name: name_sent, given: caller.given() };
        let concerned = || Concerned::inode(inode);
        let result = self.change(caller, Destination::home(inode), &numbered, &request, concerned).await;
        self.parts_changed(inode);
        self.shared.kept.changed(&self.shared.board, inode, &result, Instant::now());
        self.shared.contents.forget(inode);
        result?;
        self.shared.record_changed(inode);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use types::attr::{Attr, FileType};
    use types::cred::Credentials;
    use types::flags::FileFlags;
    use wire::op::Op;

    use super::*;
    use crate::test_cluster::{self, join};
    use crate::{set_ids, test_client};

    const INODE: InodeId = InodeId(77);

    #[test]
    fn a_removed_directory_has_no_attributes_but_its_own() {
        let caller = Caller::patient(Credentials::default());
        test_cluster::run(async |shard, [client, _]| {
            let attr = Attr { kind: FileType::Directory, nlink: 0, ..test_client::reply(INODE).attr };
            let asks = async {
                let list = async || client.getxattr(&caller, INODE, ACCESS_ACL).await;
                assert_eq!(list().await, Err(Errno::ESTALE), "somebody else has removed it");
                client.shared.graves.dig(attr);
                assert_eq!(list().await, Err(Errno::ENODATA));
                assert_eq!(client.listxattr(&caller, INODE).await, Ok(Vec::new()));
                assert_eq!(client.flags(&caller, INODE).await, Ok(FileFlags::NONE));
            };
            let answers = async {
                shard.opens_session(1).await;
                for op in [Op::GetXattr, Op::GetXattr, Op::ListXattr, Op::GetAttr] {
                    shard.refuses(op, Errno::ESTALE).await;
                }
            };
            join(asks, answers).await;
        });
    }

    /// Neither owner nor privileged, and in every group.
    struct Writer;

    impl set_ids::Standing for Writer {
        fn uid(&self) -> u32 {
            5
        }
        fn is_privileged(&self) -> bool {
            false
        }
        fn has_over(&self, _: u32, _: u32, _: set_ids::Right) -> bool {
            false
        }
        fn is_in_group(&self, _: u32) -> bool {
            true
        }
        fn may_fix(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_write_after_a_list_was_set_asks_who_may_do_what() {
        let caller = Caller::patient(Credentials::default());
        test_cluster::run(async |shard, [client, _]| {
            let of_mode = |mode| {
                let reply = test_client::reply(INODE);
                wire::v1::meta::InodeReply { attr: Attr { mode, ..reply.attr }, ..reply }
            };
            let file = || crate::file::File::new(&of_mode(0o2666), test_client::layout());
            client.shared.with_new_file(INODE, file, |file| file.add_handle(true));
            let writes = async {
                let clears = async || client.kill_suid_sgid(&caller, INODE, &Writer).await;
                assert_eq!(clears().await, Ok(false), "the group may not execute it");
                client.setxattr(&caller, INODE, b"user.x", b"", 0).await.expect("set");
                assert_eq!(clears().await, Ok(false), "nobody has to be asked");
                client.setxattr(&caller, INODE, ACCESS_ACL, b"a list", 0).await.expect("set");
                assert_eq!(clears().await, Ok(true));
                client.setxattr(&caller, INODE, CAPABILITY, b"may", 0).await.expect("set");
                assert_eq!(clears().await, Ok(true), "it goes with the write");
                assert_eq!(clears().await, Ok(false), "it has gone");
            };
            let answers = async {
                shard.opens_session(1).await;
                shard.does(Op::SetXattr).await;
                shard.does(Op::SetXattr).await;
                shard.next(Op::GetAttr).await.responder.reply(&of_mode(0o2676));
                shard.next(Op::Set).await.responder.reply(&of_mode(0o676));
                shard.does(Op::SetXattr).await;
                let capable = wire::v1::meta::InodeReply { capability: true, ..of_mode(0o676) };
                shard.next(Op::GetAttr).await.responder.reply(&capable);
                shard.next(Op::Set).await.responder.reply(&of_mode(0o676));
                shard.next(Op::GetAttr).await.responder.reply(&of_mode(0o676));
            };
            join(writes, answers).await;
        });
    }
}
