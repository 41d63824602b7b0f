//! What a client knows of a file that it has open. Pure bookkeeping, shared by the threads of a mount.

use types::attr::Attr;
use types::id::InodeId;
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::meta::InodeReply;

/// One open file, however many handles it has.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) layout: Layout,
    /// Handles of all kinds, and those that may write.
    pub(crate) handles: u32,
    pub(crate) writers: u32,
    pub(crate) intent: Intent,
    /// The intent came with the file's making, and nothing was written under it.
    pub(crate) untouched: bool,
    /// Permission bits as of the last answer of the shard.
    pub(crate) mode: u32,
    /// The best known size: exact under an exclusive intent, else a hint.
    pub(crate) size: u64,
    /// Allocation as of the last answer of the shard or the objects.
    pub(crate) blocks: u64,
    /// The time of the last write that no settling has told the shard, unless the times were set explicitly since.
    pub(crate) mtime: Option<Timestamp>,
    /// A settling is on its way to the shard.
    pub(crate) settling: bool,
    /// The last handle went, and the shard is being told: a new one has to wait.
    pub(crate) closing: bool,
    /// The file may have holes, so that its size does not tell its blocks.
    pub(crate) holes: bool,
}

/// The state of this session's write intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    None,
    Held { exclusive: bool, intents: u64 },
}

impl File {
    pub(crate) fn new(reply: &InodeReply, layout: Layout) -> Self {
        Self {
            layout,
            handles: 0,
            writers: 0,
            intent: Intent::None,
            untouched: false,
            mode: reply.attr.mode,
            size: reply.attr.size,
            blocks: reply.attr.blocks,
            mtime: None,
            settling: false,
            closing: false,
            holes: has_holes(&reply.attr),
        }
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.intent, Intent::Held { exclusive: true, .. })
    }

    /// From here on the objects have to be asked.
    pub(crate) fn lose_exclusivity(&mut self) {
        if let Intent::Held { exclusive, .. } = &mut self.intent {
            *exclusive = false;
        }
    }

    /// The shard granted (or confirmed) the write intent.
    pub(crate) fn granted(&mut self, reply: &InodeReply) {
        self.mode = reply.attr.mode;
        let first = self.intent == Intent::None;
        self.intent = Intent::Held { exclusive: reply.exclusive, intents: reply.intents };
        // Under an exclusive intent the size grows by our own writes alone, which may have begun before a second
        // thread's grant came back.
        if first {
            self.size = reply.attr.size;
            self.blocks = reply.attr.blocks;
            self.holes = has_holes(&reply.attr);
        }
    }

    pub(crate) fn wrote(&mut self, offset: u64, len: u64, now: Timestamp) {
        self.holes |= offset > self.size;
        self.size = self.size.max(offset + len);
        self.mtime = Some(now);
    }

    pub(crate) fn truncated(&mut self, size: u64) {
        self.holes = size != 0 && (self.holes || size > self.size);
        self.size = size;
        // The shard sets the times of a truncate.
        self.mtime = None;
    }

    /// What the size tells of the allocation, where there are no holes. Units of 512 bytes.
    pub(crate) fn estimated_blocks(&self) -> Option<u64> {
        (!self.holes).then(|| self.size.div_ceil(4096) * 8)
    }

    /// Puts what only this client knows over the shard's attributes.
    pub(crate) fn overlay(&self, attr: &mut Attr) {
        attr.size = self.size;
        attr.blocks = self.estimated_blocks().unwrap_or(self.blocks);
        if let Some(mtime) = self.mtime {
            attr.mtime = attr.mtime.max(mtime);
            attr.ctime = attr.ctime.max(mtime);
        }
    }
}

fn has_holes(attr: &Attr) -> bool {
    attr.blocks.saturating_mul(512) < attr.size
}

/// Where the file of one inode is kept among the parts of the table.
pub(crate) fn shard_of(inode: InodeId, parts: usize) -> usize {
    (inode.counter() % parts as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::attr::FileType;
    use types::id::GroupId;

    fn reply(size: u64, blocks: u64, exclusive: bool) -> InodeReply {
        let time = Timestamp(5);
        InodeReply {
            attr: Attr {
                inode: InodeId(99),
                kind: FileType::Regular,
                mode: 0o644,
                uid: 0,
                gid: 0,
                nlink: 1,
                rdev: 0,
                size,
                blocks,
                atime: time,
                mtime: time,
                ctime: time,
                btime: time,
            },
            unsettled: false,
            exclusive,
            has_objects: true,
            intents: 1,
            layout: None,
            lease_ms: 0,
            name_lease_ms: 0,
        }
    }

    fn file(size: u64, blocks: u64) -> File {
        File::new(&reply(size, blocks, false), Layout { chunk_size: 4096, groups: vec![GroupId(1)] })
    }

    #[test]
    fn own_writes_extend_the_size_and_show_in_stat() {
        let mut file = file(0, 0);
        file.granted(&reply(100, 8, true));
        file.wrote(100, 50, Timestamp(9));
        let mut attr = reply(100, 8, true).attr;
        file.overlay(&mut attr);
        assert_eq!((attr.size, attr.blocks, attr.mtime), (150, 8, Timestamp(9)));
        // A second grant does not take the writes back.
        file.granted(&reply(100, 8, true));
        assert_eq!(file.size, 150);
    }

    #[test]
    fn a_gap_makes_the_allocation_unknown() {
        let mut file = file(0, 0);
        file.granted(&reply(0, 0, true));
        file.wrote(0, 10, Timestamp(1));
        assert_eq!(file.estimated_blocks(), Some(8));
        file.wrote(1 << 20, 10, Timestamp(1));
        assert_eq!(file.estimated_blocks(), None);
        file.truncated(0);
        assert_eq!(file.estimated_blocks(), Some(0));
        file.truncated(4096);
        assert_eq!(file.estimated_blocks(), None);
    }
}
