//! Files with their contents in the metadata: they are read and written there, in one request each.
//!
//! What a shard told of that, a client believes until the shard refuses something with `EOPNOTSUPP`: contents may have left
//! the metadata at any time, and never come back. What does not fit there gets a write intent, and that moves them.

use std::ops::Range;
use std::sync::Arc;

use ring::buf::{Buf, Slice};
use types::attr::{Attr, SetAttr};
use types::error::Errno;
use types::id::InodeId;
use types::layout::INLINE_MAX;
use wire::codec::Bytes;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::file::File;
use crate::lease::{Lease, Subject};
use crate::router::{Client, Destination};

impl File {
    /// Contents in the metadata were changed: what the shard says of it then.
    fn changed_inline(&mut self, reply: &InodeReply) {
        self.unsynced.record_changed();
        self.meets(&mut reply.attr.clone(), reply.written_after);
        self.told_rights(reply);
        self.told_size(&reply.attr);
    }
}

impl Client {
    /// How long the contents may become where they are, bytes; 0: they are in objects.
    pub(crate) fn inline_limit(&self, inode: InodeId) -> u64 {
        self.shared.with_file(inode, |file| u64::from(file.inline_limit)).unwrap_or(0)
    }

    fn has_left_metadata(&self, inode: InodeId) {
        self.shared.with_file(inode, |file| file.inline_limit = 0);
    }

    /// Writes to the metadata; false where this has to go to objects.
    pub(crate) async fn write_inline(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        offset: u64,
        data: &Slice,
        append: bool,
    ) -> Result<bool, Errno> {
        let begin = if append { 0 } else { offset };
        if begin.saturating_add(data.len() as u64) > self.inline_limit(inode) {
            return Ok(false);
        }
        self.must_have_kept_locks(caller, inode).await?;
        self.must_not_be_lost(inode)?;
        let numbered = self.shared.begin_change(inode.home());
        let (exactly, bytes) = (numbered.exactly.clone(), Bytes(data.to_vec()));
        let request = meta::WriteInline { exactly, inode, offset, append, bytes };
        let written = self.call(caller, Destination::home(inode), &request).await;
        self.shared.contents.forget(inode);
        match written {
            Ok(reply) => {
                self.shared.with_file(inode, |file| file.changed_inline(&reply.inode));
                Ok(true)
            }
            Err(Errno::EOPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Reads from the metadata; `None` where the objects have it. Keeps what a lease allows.
    pub(crate) async fn read_inline(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        range: Range<u64>,
    ) -> Result<Option<Vec<Slice>>, Errno> {
        if self.inline_limit(inode) == 0 {
            return Ok(None);
        }
        let (asked, ticket) = (self.shared.contents.asks(inode), self.shared.board.ticket());
        let keeps = self.shared.may_keep(inode);
        let (offset, length) = if keeps { (0, INLINE_MAX) } else { (range.start, (range.end - range.start) as u32) };
        let request = meta::ReadInline { inode, offset, length };
        let reply = match self.call(caller, Destination::home(inode), &request).await {
            Ok(reply) => reply,
            Err(Errno::EOPNOTSUPP) => {
                self.has_left_metadata(inode);
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        };
        let mut bytes = reply.bytes.0;
        if keeps {
            let lease = Lease::granted(ticket, Subject::inode(inode), reply.inode.lease_ms);
            self.shared.learn(asked, lease, reply.inode.attr, Some(Arc::from(&bytes[..])));
            bytes.truncate(range.end.min(bytes.len() as u64) as usize);
            bytes.drain(..range.start.min(bytes.len() as u64) as usize);
        }
        Ok(Some(if bytes.is_empty() { Vec::new() } else { vec![Slice::from_vec(bytes)] }))
    }

    /// Truncates in the metadata; `None` where the objects have to be.
    pub(crate) async fn truncate_inline(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Option<Attr>, Errno> {
        let limit = self.inline_limit(inode);
        if limit == 0 || size > limit {
            return Ok(None);
        }
        self.must_have_kept_locks(caller, inode).await?;
        match self.set_at_shard(caller, inode, SetAttr { size: Some(size), ..change }, true).await {
            Ok(reply) => {
                let attr = self.attr_of(caller, reply).await?;
                self.shared.with_file(inode, |file| file.told_size(&attr));
                Ok(Some(attr))
            }
            Err(Errno::EOPNOTSUPP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes contents durable that are in the metadata; false where they are in objects.
    pub(crate) async fn fsync_inline(&self, caller: &Caller<'_>, inode: InodeId) -> Result<bool, Errno> {
        if self.inline_limit(inode) == 0 {
            return Ok(false);
        }
        match self.sync_record(caller, inode, true).await {
            Ok(()) => Ok(true),
            Err(Errno::EOPNOTSUPP) => {
                self.has_left_metadata(inode);
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Copies where either end is in the metadata and stays there; `None` where the objects do it.
    pub(crate) async fn copy_inline(
        &self,
        caller: &Caller<'_>,
        (source, source_offset): (InodeId, u64),
        (target, target_offset): (InodeId, u64),
        len: u64,
    ) -> Result<Option<u64>, Errno> {
        let stays = target_offset.saturating_add(len) <= self.inline_limit(target);
        if self.inline_limit(source) == 0 && !stays {
            return Ok(None);
        }
        let len = len.min(u64::from(INLINE_MAX)) as u32;
        let parts = self.read(caller, source, source_offset, len, true).await?;
        let mut bytes = Vec::with_capacity(len as usize);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        if !bytes.is_empty() {
            self.write(caller, target, target_offset, &Buf::from_slice(&bytes).freeze(), false).await?;
        }
        Ok(Some(bytes.len() as u64))
    }
}
