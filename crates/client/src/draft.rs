//! What a client keeps back of a file that it has just made: all that programs have done to it. Pure.
//!
//! See `publish.rs` for when that is told.

use std::sync::Arc;

use types::attr::{Attr, SetAttr, SetTime};
use types::time::Timestamp;
use wire::codec::Bytes;
use wire::v1::meta::{self, InodeReply};

use crate::lease::Lease;
use crate::publish::Publication;

/// So long contents may become here that objects are to have, until these can be written: bytes.
const GROWN_MAX: usize = 256 << 10;

/// As the shard will be told.
#[derive(Debug)]
pub(crate) struct Draft {
    /// While it is held, nobody else is told of the file.
    pub(crate) lease: Lease,
    /// Where the contents are in objects, their size and the times of writes stand beside it, in the file.
    attr: Attr,
    /// All of them, unless they are in `telling`; `None` otherwise: in objects, as far as they are written.
    contents: Option<Vec<u8>>,
    /// How long they may be in the metadata, bytes.
    limit: usize,
    /// When they were last written.
    written: Timestamp,
    /// Something was done to it that the shard was not told.
    changed: bool,
    /// More than its contents and their times was changed.
    reformed: bool,
    /// Own changes of names, of which there had been so many when it was made, may have changed its links.
    renamed: u64,
    /// What is being told, as it was when that began: nothing else may be done to it until the answer is here.
    telling: Option<Arc<Publication>>,
    /// A task tells it.
    pub(crate) busy: bool,
    /// A task asks whether objects may have the contents. Meanwhile these may grow.
    pub(crate) asking: bool,
    early: Early,
}

/// Whether what objects are to have is written before anybody waits for it. A program that sets attributes after it has
/// written is nearly always done with that; one that is not would have many short requests made, so each file has one chance.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Early {
    #[default]
    Unused,
    /// Attributes were set, and the contents are on their way to where objects are written from.
    Due,
    Used,
}

impl Draft {
    pub(crate) fn new(reply: &InodeReply, lease: Lease, renamed: u64) -> Self {
        Self {
            lease,
            attr: reply.attr,
            contents: Some(Vec::new()),
            limit: reply.inline_limit as usize,
            written: reply.attr.mtime,
            changed: false,
            reformed: false,
            renamed,
            telling: None,
            busy: false,
            asking: false,
            early: Early::default(),
        }
    }

    pub(crate) fn attr(&self) -> &Attr {
        &self.attr
    }

    pub(crate) fn contents(&self) -> Option<&[u8]> {
        self.contents.as_deref().or_else(|| self.telling.as_ref()?.contents())
    }

    /// Bytes of memory.
    pub(crate) fn weight(&self) -> usize {
        self.contents().map_or(0, <[u8]>::len)
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// It is known how many links it has, where so many changes of names were made here by now.
    pub(crate) fn knows_links(&self, renamed: u64) -> bool {
        self.renamed == renamed
    }

    /// May be changed: nobody tells it.
    pub(crate) fn is_free(&self) -> bool {
        !self.busy && self.telling.is_none()
    }

    /// Whether contents of `len` bytes more at `offset`, or at the end, would still be here.
    pub(crate) fn fits(&self, offset: Option<u64>, len: usize) -> bool {
        let Some(contents) = self.contents() else { return false };
        let begin = offset.unwrap_or(contents.len() as u64);
        let end = begin.saturating_add(len as u64);
        end <= self.limit as u64 || (self.asking && begin <= contents.len() as u64 && end <= GROWN_MAX as u64)
    }

    /// Whether they would be while objects are asked for. What leaves a hole goes to these at once.
    pub(crate) fn may_grow(&self, offset: Option<u64>, len: usize) -> bool {
        let len_now = self.weight() as u64;
        let begin = offset.unwrap_or(len_now);
        self.is_free() && begin <= len_now && begin.saturating_add(len as u64) <= GROWN_MAX as u64
    }

    /// The metadata cannot have the contents.
    pub(crate) fn is_long(&self) -> bool {
        self.weight() > self.limit
    }

    pub(crate) fn written(&self) -> Timestamp {
        self.written
    }

    /// At `offset`, or the end. It fits.
    pub(crate) fn write(&mut self, offset: Option<u64>, bytes: &[u8], now: Timestamp) {
        let Some(contents) = &mut self.contents else { return };
        if bytes.is_empty() {
            return;
        }
        let begin = offset.map_or(contents.len(), |offset| offset as usize);
        if contents.len() < begin {
            contents.resize(begin, 0);
        }
        let (over, behind) = bytes.split_at(bytes.len().min(contents.len() - begin));
        contents[begin..begin + over.len()].copy_from_slice(over);
        contents.extend_from_slice(behind);
        self.attr.size = contents.len() as u64;
        self.attr.blocks = self.attr.size.div_ceil(512);
        (self.attr.mtime, self.written) = (now, now);
        if self.early == Early::Due {
            self.early = Early::Unused;
        }
        self.touch(now);
    }

    /// Changes anything but the size and the flags.
    pub(crate) fn set(&mut self, change: &SetAttr, now: Timestamp) {
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if *change == SetAttr::default() {
            return;
        }
        let attr = &mut self.attr;
        attr.mode = change.mode_of_file(attr.mode);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.atime = change.atime.map_or(attr.atime, time);
        attr.mtime = change.mtime.map_or(attr.mtime, time);
        self.reformed = true;
        self.touch(now);
    }

    /// Attributes were set. True where what is kept back for objects (`is_any`) is to be written from now on.
    pub(crate) fn begins_early(&mut self, is_any: bool) -> bool {
        match self.early {
            Early::Unused if self.asking && self.weight() > 0 => self.early = Early::Due,
            Early::Unused if self.contents.is_none() && is_any => self.early = Early::Used,
            Early::Unused | Early::Due | Early::Used => return false,
        }
        self.early == Early::Used
    }

    /// The contents are where objects are written from. True where they are to be written from now on.
    pub(crate) fn goes_on_early(&mut self) -> bool {
        let is_due = self.early == Early::Due;
        if is_due {
            self.early = Early::Used;
        }
        is_due
    }

    fn touch(&mut self, now: Timestamp) {
        // A clock that is behind the shard's takes nothing back.
        self.attr.ctime = self.attr.ctime.max(now);
        self.changed = true;
    }

    /// The contents go to objects from here on: these are what there was.
    pub(crate) fn leave_metadata(&mut self) -> Vec<u8> {
        self.changed = self.reformed;
        self.contents.take().unwrap_or_default()
    }

    /// What is being told, where that has begun.
    pub(crate) fn telling(&self) -> Option<&Arc<Publication>> {
        self.telling.as_ref()
    }

    /// For the shard, and for [`Self::tell`]: the contents move there. `written`: the time of the last write to objects.
    pub(crate) fn drafted(&mut self, written: Option<Timestamp>) -> meta::Drafted {
        let written = written.filter(|_| self.contents.is_none());
        let Attr { mode, uid, gid, atime, mtime, ctime, .. } = self.attr;
        let (mtime, ctime) = written.map_or((mtime, ctime), |written| (written, ctime.max(written)));
        meta::Drafted { contents: self.contents.take().map(Bytes), mode, uid, gid, atime, mtime, ctime }
    }

    /// Begins to tell this, which has the contents from here on.
    pub(crate) fn tell(&mut self, publication: Arc<Publication>) {
        self.telling = Some(publication);
    }

    /// The shard does not take it as it is, and has changed nothing.
    pub(crate) fn take_back(&mut self) {
        if let Some(publication) = self.telling.take() {
            self.contents = publication.contents().map(<[u8]>::to_vec);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::id::InodeId;

    use super::*;
    use crate::test_client;

    const LIMIT: u32 = 100;

    fn draft() -> Draft {
        let (time, whole) = (Timestamp(1000), test_client::reply(InodeId(7)));
        let attr = Attr { uid: 1, gid: 2, atime: time, mtime: time, ctime: time, btime: time, ..whole.attr };
        let reply = InodeReply {
            attr,
            draft: true,
            has_objects: false,
            bare: true,
            layout: None,
            inline_limit: LIMIT,
            ..whole
        };
        Draft::new(&reply, Lease::NONE, 5)
    }

    #[test]
    fn contents_are_those_of_a_file_that_is_written_anywhere() {
        let (mut draft, mut expected) = (draft(), Vec::new());
        assert!(!draft.is_changed() && draft.contents().is_some_and(<[u8]>::is_empty));
        let mut number = 1u64;
        for round in 0..300 {
            // A linear congruential generator, of Knuth's MMIX.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (offset, len) = ((number >> 33) % 90, (number >> 50) as usize % 30);
            let offset = (round % 3 > 0).then_some(offset);
            let begin = offset.map_or(expected.len(), |offset| offset as usize);
            let fits = begin + len <= LIMIT as usize;
            assert_eq!(draft.fits(offset, len), fits);
            if !fits {
                continue;
            }
            let bytes = vec![round as u8; len];
            let now = Timestamp(2000 + round);
            draft.write(offset, &bytes, now);
            if len > 0 {
                expected.resize(expected.len().max(begin + len), 0);
                expected[begin..begin + len].copy_from_slice(&bytes);
                assert_eq!((draft.attr().mtime, draft.attr().ctime), (now, now));
            }
            assert_eq!(draft.contents(), Some(&expected[..]));
            assert_eq!(
                (draft.attr().size, draft.attr().blocks),
                (expected.len() as u64, (expected.len() as u64).div_ceil(512))
            );
        }
        assert!(expected.len() > 50);
        assert!(!draft.fits(Some(u64::MAX), 1));
        assert!(draft.is_changed());
        assert_eq!(draft.drafted(Some(Timestamp(9000))).contents, Some(Bytes(expected)));
    }

    #[test]
    fn attributes_are_set_as_the_shard_would() {
        let mut draft = draft();
        draft.set(&SetAttr::default(), Timestamp(1));
        assert!(!draft.is_changed(), "nothing is set");
        draft.set(&SetAttr { mode: Some(0o106_755), ..SetAttr::default() }, Timestamp(2000));
        assert_eq!((draft.attr().mode, draft.attr().ctime), (0o6755, Timestamp(2000)));
        draft.set(&SetAttr { uid: Some(8), kill_suid_sgid: true, ..SetAttr::default() }, Timestamp(2001));
        assert_eq!((draft.attr().mode, draft.attr().uid, draft.attr().gid), (0o755, 8, 2));
        let (atime, mtime) = (Some(SetTime::Now), Some(SetTime::At(Timestamp(5))));
        draft.set(&SetAttr { atime, mtime, ..SetAttr::default() }, Timestamp(500));
        let told = draft.drafted(None);
        assert_eq!((told.atime, told.mtime), (Timestamp(500), Timestamp(5)));
        assert_eq!(told.ctime, Timestamp(2001), "never back");
        assert_eq!((told.mode, told.uid, told.gid), (0o755, 8, 2));
    }

    #[test]
    fn what_has_left_the_metadata_is_told_with_the_last_write() {
        let mut draft = draft();
        draft.write(None, b"abc", Timestamp(2000));
        assert_eq!(draft.leave_metadata(), b"abc");
        assert!(!draft.is_changed() && !draft.fits(None, 0), "objects tell of writes");
        draft.set(&SetAttr { gid: Some(9), ..SetAttr::default() }, Timestamp(2001));
        assert!(draft.is_changed());
        let told = draft.drafted(Some(Timestamp(3000)));
        assert_eq!((told.contents, told.mtime, told.ctime), (None, Timestamp(3000), Timestamp(3000)));
        assert_eq!(draft.drafted(None).mtime, Timestamp(2000));
    }

    #[test]
    fn contents_grow_while_objects_are_asked_for() {
        let mut draft = draft();
        draft.write(None, &[1; 90], Timestamp(2000));
        assert!(!draft.fits(None, 11) && draft.may_grow(None, 11) && !draft.is_long());
        assert!(!draft.may_grow(Some(91), 11), "a hole");
        assert!(!draft.may_grow(None, GROWN_MAX - 89) && !draft.may_grow(Some(u64::MAX), 2));
        draft.asking = true;
        assert!(draft.fits(None, GROWN_MAX - 90) && !draft.fits(None, GROWN_MAX - 89));
        assert!(!draft.fits(Some(91), 11) && draft.fits(Some(91), 9), "in the metadata holes are no matter");
        draft.write(None, &[2; 11], Timestamp(3000));
        assert!(draft.is_long());
        draft.set(&SetAttr { mtime: Some(SetTime::At(Timestamp(5))), ..SetAttr::default() }, Timestamp(4000));
        assert_eq!(
            (draft.written(), draft.attr().mtime, draft.attr().ctime),
            (Timestamp(3000), Timestamp(5), Timestamp(4000))
        );
        assert_eq!(draft.leave_metadata().len(), 101);
        assert!(!draft.is_long() && draft.is_changed());
    }

    #[test]
    fn attributes_after_contents_begin_the_writing_once() {
        let mut draft = draft();
        draft.write(None, &[1; 90], Timestamp(2000));
        assert!(!draft.begins_early(true) && !draft.goes_on_early(), "the metadata may have them");
        draft.asking = true;
        assert!(!draft.begins_early(false));
        draft.write(None, &[1; 90], Timestamp(2001));
        assert!(!draft.goes_on_early(), "there is more to come");
        assert!(!draft.begins_early(false) && draft.goes_on_early());
        draft.leave_metadata();
        assert!(!draft.begins_early(true), "it has begun");
    }

    #[test]
    fn attributes_begin_the_writing_of_what_is_there() {
        let mut draft = draft();
        draft.asking = true;
        assert!(!draft.begins_early(false) && !draft.goes_on_early(), "nothing is");
        (draft.asking, _) = (false, draft.leave_metadata());
        assert!(!draft.begins_early(false), "nothing is");
        assert!(draft.begins_early(true) && !draft.begins_early(true));
    }

    #[test]
    fn own_changes_of_names_put_the_number_of_links_in_doubt() {
        assert!(draft().knows_links(5) && !draft().knows_links(6));
    }
}
