//! What a client wants to be on disk.

use namespace::error::Error;
use types::id::{InodeId, SessionId};
use types::time::Timestamp;

use super::Sim;

impl Sim {
    /// Asks the inode's shard until that says that it is on disk, as `fsync` does.
    pub(crate) fn fsync(&mut self, inode: InodeId) {
        let home = usize::from(inode.home().0);
        for _ in 0..10_000 {
            let (now_ms, node) = (self.now_ms, &mut self.nodes[home]);
            node.shard.begin_turn(Timestamp(now_ms as i64), now_ms);
            match node.shard.may_sync(inode) {
                Ok(()) => return self.sync(home),
                Err(Error::Blocked(transaction)) => node.shard.await_end(transaction),
                Err(error) => panic!("{inode}: {error}"),
            }
            self.hand_out(home);
            self.step();
        }
        panic!("{inode} never comes to be on disk");
    }

    /// Asks once. What is on disk by that: the inode, and what the names in it lead to.
    pub(crate) fn try_fsync(&mut self, inode: InodeId) -> Vec<InodeId> {
        let home = usize::from(inode.home().0);
        let (now_ms, node) = (self.now_ms, &mut self.nodes[home]);
        node.shard.begin_turn(Timestamp(now_ms as i64), now_ms);
        let may = node.shard.may_sync(inode);
        if let Err(Error::Blocked(transaction)) = may {
            node.shard.await_end(transaction);
        }
        self.hand_out(home);
        if may.is_err() {
            return Vec::new();
        }
        self.sync(home);
        let page = self.nodes[home].shard.readdir(SessionId(0), inode, 0, 1000, false);
        let entries = page.map_or_else(|_| Vec::new(), |page| page.entries);
        entries.into_iter().map(|entry| entry.inode).chain([inode]).collect()
    }

    /// Clients know nothing any more of parts of directories: a power cut may have taken some that were not durable.
    pub(crate) fn forget_parts(&mut self) {
        self.splits.clear();
    }

    /// A power cut that takes all that was not synced.
    pub(crate) fn cut(&mut self, index: usize) {
        self.nodes[index].kv.crash_keeping(0);
        self.restart(index);
    }

    /// Its shard has it, whatever names there are.
    pub(crate) fn has(&mut self, inode: InodeId) -> bool {
        self.nodes[usize::from(inode.home().0)].shard.getattr(SessionId(0), inode).is_ok()
    }
}
