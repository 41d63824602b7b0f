//! Telling a shard when a file was read last.

use types::error::Errno;
use types::id::InodeId;
use wire::v1::meta::{self, TimeChange};

use crate::caller::Caller;
use crate::router::{Client, Destination};

impl Client {
    pub(crate) async fn was_read(&self, caller: &Caller<'_>, inode: InodeId, read: TimeChange) -> Result<(), Errno> {
        let request = meta::WasRead { inode, read };
        self.call(caller, Destination::home(inode), &request).await?;
        self.shared.contents.was_read(inode, &request.read);
        self.shared.has_told_of_read(inode, Some(&request.read));
        Ok(())
    }

    /// Before a close and not with it, since the shard keeps that waiting for others who believe the access time that there is:
    /// a close that is given up here and carried out there would end the open of who has opened the file again since.
    pub(crate) async fn tell_of_read(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let Some(read) = self.shared.in_file(inode, |file| file.read_time()) else { return Ok(()) };
        let told = self.was_read(caller, inode, read).await;
        if told.is_err() {
            // Nobody knows which access time it has now.
            self.shared.contents.forget(inode);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use types::cred::Credentials;
    use types::time::Timestamp;
    use wire::codec::decode_body;
    use wire::op::Op;
    use wire::v1::session::Empty;

    use super::*;
    use crate::test_client;
    use crate::test_cluster::{self, join};

    const FILE: InodeId = InodeId(77);

    #[test]
    fn a_close_waits_at_the_shard_for_nobody() {
        test_cluster::run(async |shard, [client, _]| {
            client.shared.with_new_file(
                FILE,
                || test_client::file(FILE),
                |open| {
                    open.add_handle(false);
                    open.read_at = Some(Timestamp(i64::MAX));
                },
            );
            let closing = async { client.close_now(&Caller::patient(Credentials::default()), FILE, false).await };
            let answering = async {
                shard.opens_session(1).await;
                let told = shard.next(Op::WasRead).await;
                shard.nothing_comes().await;
                told.responder.reply(&Empty {});
                let close = shard.next(Op::Close).await;
                let message: meta::Close = decode_body(&close.body).expect("a close");
                assert_eq!(message, meta::Close { inode: FILE, read: None }, "of a read the shard tells others first");
                close.responder.reply(&Empty {});
            };
            join(closing, answering).await;
            assert_eq!(client.shared.with_file(FILE, |_| ()), None);
        });
    }
}
