//! Whether a write is kept back, or goes through.

use std::time::Instant;

use layout::{Extent, extents, object_size};
use ring::buf::Slice;
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;

use super::landing::Landings;
use super::{MARGIN, Unwritten};
use crate::caller::Caller;
use crate::file::File;
use crate::looks::Looks;
use crate::router::Client;
use crate::shared::Shared;

/// Whether an object can have what is farther from the file's end, bytes, only its target's file system knows...
const FAR: u64 = 64 << 20;
/// ...and whether it can be longer than this.
pub(super) const OBJECT_LONG: u64 = 1 << 40;
/// Longest write that is gathered with others, bytes; a longer one stays as it came...
pub(super) const GATHER_MAX: usize = 256 << 10;
/// ...up to this. It is kept back where one rail leads to its objects, since over several it goes in parts, and while long
/// pieces go to fewer other files than the mount has threads: else all CPUs have something to do, and would have more to do for
/// the memory that is kept.
const WRITE_MAX: usize = 2 << 20;
/// With so much of a file, whoever writes a long piece waits...
const LONG_FILE_MAX: usize = 4 << 20;
/// ...and with so much, whoever writes more.
const FILE_MAX: usize = 8 << 20;

/// What became of a write.
pub(super) enum Kept {
    Yes {
        watch: bool,
        write: bool,
    },
    No,
    /// It may be worth asking the shard.
    Ask,
    /// Too much is here already.
    Full,
    Lost,
}

impl Unwritten {
    /// How many bytes may be kept back for these pieces of the file to be written in time.
    fn lands_in_time(&mut self, landings: &Landings, now: Instant, mut pieces: impl Iterator<Item = Extent>) -> usize {
        let Some(first) = pieces.next().map(|piece| piece.group) else { return 0 };
        let others: Vec<GroupId> = pieces.map(|piece| piece.group).collect();
        let known = self.in_time.filter(|&(group, _)| group == first && others.is_empty() && !self.is_clean());
        if let Some((_, in_time)) = known {
            return in_time;
        }
        let term = self.lease.term();
        let in_time = landings.allowed(now, term, others.iter().copied().chain([first]));
        self.in_time = others.is_empty().then_some((first, in_time));
        in_time
    }
}

impl File {
    /// A target may refuse this for good, and with it all that is written together with it.
    fn may_not_have(&self, layout: &Layout, offset: u64, len: u64) -> bool {
        if offset.saturating_add(len) <= OBJECT_LONG {
            return offset > self.size.saturating_add(FAR);
        }
        // Where there are holes the size does not tell how long an object is.
        let is_there = |stripe, end| !self.uneven && end <= object_size(layout, stripe, self.size);
        let grows_long = extents(layout, offset, len).any(|piece| {
            let end = piece.object_offset + u64::from(piece.len);
            end > OBJECT_LONG && !is_there(piece.stripe, end)
        });
        grows_long || offset > self.size.saturating_add(FAR)
    }
}

impl Client {
    /// Keeps `data` back, if it may; false: it has to be written now.
    ///
    /// # Errors
    /// `EIO` where something that was kept back of this file is lost, `EINTR`.
    pub(crate) async fn keep_back(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        offset: u64,
        data: &Slice,
    ) -> Result<bool, Errno> {
        if self.shared.config.write_back == 0 || data.len() > WRITE_MAX {
            return Ok(false);
        }
        let mut looks = Looks::default();
        loop {
            match self.try_to_keep_back(inode, layout, offset, data)? {
                Kept::Yes { watch, write } => {
                    if watch {
                        self.watch_unwritten(inode);
                    }
                    if write {
                        self.write_on(inode);
                    }
                    return Ok(true);
                }
                Kept::No => return Ok(false),
                Kept::Ask => {
                    if self.has_room(inode) {
                        self.ask_if_alone(inode);
                    }
                    return Ok(false);
                }
                Kept::Full => self.make_room(caller, inode, &mut looks).await?,
                Kept::Lost => return Err(Errno::EIO),
            }
        }
    }

    pub(super) fn try_to_keep_back(
        &self,
        inode: InodeId,
        layout: &Layout,
        offset: u64,
        data: &Slice,
    ) -> Result<Kept, Errno> {
        let (shared, now) = (&self.shared, Instant::now());
        let is_long = data.len() > GATHER_MAX;
        if is_long && (shared.crowds(inode, now) || !self.has_one_way(inode, layout, offset, data.len())) {
            return Ok(Kept::No);
        }
        let kept = shared.with_file(inode, |file| {
            let (is_exclusive, is_settling) = (file.is_exclusive(), file.settling);
            let is_near = offset <= file.size;
            let is_doubtful = file.may_not_have(layout, offset, data.len() as u64);
            let unwritten = &mut file.unwritten;
            if unwritten.lost {
                return Kept::Lost;
            }
            if !is_exclusive || is_settling || is_doubtful {
                return Kept::No;
            }
            if !shared.board.holds_for(unwritten.lease, now, MARGIN) {
                return if unwritten.patience.goes_without(now) { Kept::Ask } else { Kept::No };
            }
            // Who looks after the file has asked before, if it is written steadily.
            if shared.board.is_to_be_renewed(unwritten.lease, now) {
                return if unwritten.patience.may_ask(now) { Kept::Ask } else { Kept::No };
            }
            if unwritten.short {
                return Kept::No;
            }
            let mut pieces = extents(layout, offset, data.len() as u64);
            let is_fresh = unwritten.fresh && is_near;
            if !pieces.all(|piece| is_fresh || unwritten.versions.contains_key(&piece.stripe)) {
                return Kept::No;
            }
            let in_time = unwritten.lands_in_time(&shared.landings, now, extents(layout, offset, data.len() as u64));
            let before = unwritten.weight();
            let room = in_time.min(if is_long { LONG_FILE_MAX } else { FILE_MAX });
            if before + data.len() > room {
                return if data.len() > in_time { Kept::No } else { Kept::Full };
            }
            // All that is kept back may be asked for at once.
            if shared.metrics.unwritten.get() + data.len() > in_time.min(shared.config.write_back) {
                return Kept::No;
            }
            if is_long {
                unwritten.waiting.put_whole(offset, data.clone().into_common());
            } else {
                unwritten.waiting.put(offset, data);
            }
            unwritten.kept += 1;
            shared.metrics.unwritten.change(before, unwritten.weight());
            let write = unwritten.is_due(now);
            let watch = !std::mem::replace(&mut unwritten.watched, true);
            // Also for those who look when it has been written: that may be much later.
            let at = file.time_of_write(Shared::wall_clock());
            file.unwritten.at = at;
            file.end.versions.clear();
            file.wrote(offset, data.len() as u64, at);
            Kept::Yes { watch, write }
        });
        kept.ok_or(Errno::EBADF)
    }

    fn has_one_way(&self, inode: InodeId, layout: &Layout, offset: u64, len: usize) -> bool {
        let mut pieces = extents(layout, offset, len as u64);
        pieces.all(|piece| self.width(piece.group, ObjectId { inode, stripe: piece.stripe }) <= 1)
    }
}
