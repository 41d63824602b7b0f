//! What goes into operations and what comes out of them: plain values, without the protocol's clothes.

use types::attr::{Attr, FileType};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{GroupId, InodeId, PoolId, SessionId};
use types::layout::{Layout, LayoutPolicy};
use types::name::Name;
use types::placement::Placement;
use types::time::Timestamp;
use types::walk::WalkEnd;

use crate::error::{Damage, Error};
pub use crate::leases::{Awaited, Recall};
use crate::locks::HeldLock;
pub use crate::ops::scan::Damaged;

/// Identity of one change: whoever repeats it gets the first answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exactly {
    pub session: SessionId,
    /// From 1, raised by one per new change of this session on this shard; a retry repeats it.
    pub sequence: u64,
    /// All changes with a lower sequence have been answered to the client: their stored replies may go.
    pub answered_below: u64,
    /// What it was permitted for.
    pub given: Conditions,
}

/// What a session is told of an inode. See `InodeReply` of the protocol for the meaning of each field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeView {
    pub attr: Attr,
    /// Also of a directory that is split: its parts know its times and links.
    pub unsettled: bool,
    pub written_after: Option<Timestamp>,
    pub cutting: bool,
    pub cuts: u64,
    pub exclusive: bool,
    pub alone: bool,
    pub draft: bool,
    pub has_objects: bool,
    pub intents: u64,
    pub bare: bool,
    /// Regular files only; always there where `unsettled`, and in answers to open, create and write intent.
    pub layout: Option<Layout>,
    /// At home in another shard: of `attr`, only the inode's id and kind count.
    pub elsewhere: bool,
    /// The session's lease on the attributes, in ms; 0: none.
    pub lease_ms: u32,
    /// Its lease on the name that it asked with, in ms.
    pub name_lease_ms: u32,
    /// Of a directory that was asked for by its id, or made.
    pub standing: Option<Standing>,
    /// What a change that makes a name made of its directory.
    pub parent: Option<Box<DirectoryView>>,
    /// Of a file with its contents in the metadata, how long they may become, bytes; else 0.
    pub inline_limit: u32,
    /// These, where they were asked for.
    pub contents: Option<Vec<u8>>,
    pub flags: FileFlags,
    pub capability: bool,
}

/// How far a directory has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Raised with everything that is told: also over restarts of the shard.
    pub order: u64,
    /// There are no entries.
    pub empty: bool,
}

/// A directory after a change in it, with a lease on it for who made the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryView {
    pub attr: Attr,
    pub standing: Standing,
    pub lease_ms: u32,
}

/// What a change that takes or moves names made of directories. What is not told, nobody may keep.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// The directory of the name, of a rename the source's.
    pub parent: Option<Box<DirectoryView>>,
    /// Of a rename into another directory: that one.
    pub target: Option<Box<DirectoryView>>,
    /// Directories that were themselves removed, replaced or moved. `None`: it is not known which.
    pub others: Option<Vec<InodeId>>,
    /// What was removed or replaced, if that was no regular file, as it is without a name. Of a directory where it was
    /// at home here.
    pub removed: Option<Box<Attr>>,
}

impl InodeView {
    /// What is known here of an inode at home in another shard.
    #[must_use]
    pub fn elsewhere(inode: InodeId, kind: FileType) -> Self {
        let zero = Timestamp(0);
        let attr = Attr {
            inode,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            btime: zero,
        };
        Self {
            attr,
            unsettled: false,
            written_after: None,
            cutting: false,
            cuts: 0,
            exclusive: false,
            alone: false,
            draft: false,
            has_objects: false,
            intents: 0,
            bare: false,
            layout: None,
            elsewhere: true,
            lease_ms: 0,
            name_lease_ms: 0,
            standing: None,
            parent: None,
            inline_limit: 0,
            contents: None,
            flags: FileFlags::NONE,
            capability: false,
        }
    }
}

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "most names are found, and a box costs each lookup an allocation")]
pub enum Looked {
    Found(InodeView),
    /// The session's lease on its absence, in ms.
    Absent {
        lease_ms: u32,
    },
}

impl Looked {
    /// For those who want it to be there.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn found(self) -> crate::error::Result<InodeView> {
        match self {
            Self::Found(view) => Ok(view),
            Self::Absent { .. } => Err(types::error::Errno::ENOENT.into()),
        }
    }
}

/// What names that were looked up one after the other lead to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Of the names from the first on, one for each that was found.
    pub steps: Vec<InodeView>,
    pub end: WalkEnd,
}

/// A new regular file, device node, fifo or socket.
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    pub parent: InodeId,
    pub name: &'a Name,
    /// `EINVAL` for a directory or a symlink: they have their own operations.
    pub kind: FileType,
    /// Only the bits in `0o7777` count. The umask of `cred` or the directory's default ACL takes some away.
    pub mode: u32,
    /// Kept for device nodes only.
    pub rdev: u32,
    pub cred: Credentials,
    /// Also register an open for the session.
    pub open: bool,
    /// With `open`, for a regular file: also give the session its write intent.
    pub write_intent: bool,
    /// An existing name is `EEXIST`; otherwise an existing regular file is taken as it is.
    pub exclusive: bool,
    /// With the last two: the session wants to keep back what is done to the file, where it may.
    pub draft: bool,
}

/// Bytes for contents in the metadata.
#[derive(Clone, Copy, Debug)]
pub struct WriteInline<'a> {
    pub inode: InodeId,
    pub offset: u64,
    /// At the end, wherever that is; `offset` does not count.
    pub append: bool,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    pub source_parent: InodeId,
    pub source_name: &'a Name,
    pub target_parent: InodeId,
    pub target_name: &'a Name,
    /// `RENAME_NOREPLACE` = 1, `RENAME_EXCHANGE` = 2, `RENAME_WHITEOUT` = 4; others are `EINVAL`, and so are the last two
    /// together.
    pub flags: u32,
    /// Whose a whiteout is.
    pub cred: Credentials,
}

pub const RENAME_NOREPLACE: u32 = 1;
pub const RENAME_EXCHANGE: u32 = 2;
/// A whiteout is left where the entry was, as upper layers of overlays have them: a character device with the number 0.
pub const RENAME_WHITEOUT: u32 = 4;

impl Rename<'_> {
    pub(crate) fn check_flags(&self) -> Result<(), Errno> {
        match self.flags & !RENAME_WHITEOUT {
            0 | RENAME_NOREPLACE => Ok(()),
            RENAME_EXCHANGE if self.whiteout().is_none() => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn replaces(&self) -> bool {
        self.flags & RENAME_NOREPLACE == 0
    }

    pub(crate) fn exchanges(&self) -> bool {
        self.flags & RENAME_EXCHANGE != 0
    }

    /// Whose the whiteout is that is left behind.
    pub(crate) fn whiteout(&self) -> Option<Credentials> {
        (self.flags & RENAME_WHITEOUT != 0).then_some(self.cred)
    }
}

pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;
/// With an access ACL: set-group-id goes, since who sets it is not in the file's group.
pub const XATTR_KILL_SGID: u32 = types::xattr::KILL_SGID;

/// What a session's reads or writes made of one of a file's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeChange {
    pub at: Timestamp,
    /// The time that the session knew. Where it is another one now, somebody else has changed it.
    pub before: Timestamp,
}

/// What a session's writes came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settle {
    pub inode: InodeId,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Of the modification time, by the last write that the times were not set after.
    pub mtime: Option<TimeChange>,
    /// `Some(intents)` where the session asked the objects; `None` where it was exclusive; `Some(0)` where it was neither.
    pub gathered: Option<u64>,
    /// Also end the session's write intent, whether settled or not.
    pub release: bool,
    /// Also end the session's open, whether settled or not.
    pub close: bool,
    /// Nothing was written since the file was made: it has no objects.
    pub untouched: bool,
    /// With `close`: of the access time, by the session's last read.
    pub read: Option<TimeChange>,
}

/// What a session has kept back of its draft (`shard/drafts.rs`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drafted {
    /// All of them; `None` where the objects have them.
    pub contents: Option<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    pub settled: bool,
    /// Where it is not settled, [`Settled::LEFT_TO_OTHERS`] where others intend to write it.
    pub intents: u64,
}

impl Settled {
    /// No epoch of intents is this one.
    pub const LEFT_TO_OTHERS: u64 = 0;
}

/// One page of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirPage {
    pub entries: Vec<DirEntry>,
    /// No entry comes after these.
    pub end: bool,
    /// The directory's own parent (root's is root), for `..`.
    pub parent: InodeId,
    /// With the first page, the directory itself, where the session gets a lease on it.
    pub directory: Option<Box<DirectoryView>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: Name,
    pub inode: InodeId,
    pub kind: FileType,
    /// To go on after this entry; at least 16, less than 2^63.
    pub cookie: u64,
    pub attributes: Option<InodeView>,
}

/// What a split directory consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// In their order; none of a directory that has its entries itself.
    pub parts: Vec<InodeId>,
    /// Of a directory that is being split: names whose hashes are below this are in its parts, the others in itself. 0: all
    /// are in parts.
    pub cursor: u64,
    /// The directory's own parent (root's is root), for `..`.
    pub parent: InodeId,
}

/// What an administrator sees of one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryInfo {
    pub inode: InodeView,
    /// `None` where a file has or had several links, and for root.
    pub parent: Option<InodeId>,
    pub policy: LayoutPolicy,
    pub policy_is_own: bool,
}

/// A change of what new files of a directory get; `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyChange {
    /// Bytes.
    pub chunk_size: Option<u32>,
    pub stripe_count: Option<u16>,
    pub pool: Option<PoolId>,
    pub directories: Option<Placement>,
    /// Bytes.
    pub inline_limit: Option<u32>,
}

/// An object that is to be removed from its storage group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deletion {
    pub inode: InodeId,
    pub stripe: u32,
    pub group: GroupId,
}

/// Objects to remove.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeletionPage {
    /// In order of (inode, stripe); none at the end.
    pub deletions: Vec<Deletion>,
    /// Records among them that cannot be read, and what is wrong with the first one.
    pub damaged: usize,
    pub first_damage: Option<Damage>,
}

/// Raw records for a check of the whole cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    pub records: Vec<ScanRecord>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScanRecord {
    Inode {
        view: InodeView,
        /// Of an inode without a name: how many sessions hold it open.
        orphan: Option<u32>,
    },
    Edge {
        parent: InodeId,
        name: Name,
        child: InodeId,
        kind: FileType,
    },
    Deletion(Deletion),
    /// Contents in the metadata, of so many bytes.
    Contents {
        inode: InodeId,
        length: u32,
    },
    Damaged(Damaged),
}

/// One inode that a session holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldOpen {
    pub inode: InodeId,
    pub write_intent: bool,
    pub draft: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOpened {
    /// Greater than at the session's opening before where the shard has forgotten since then what the session held: it
    /// was started again, or the session had expired. The client then opens it once more with its `opens`.
    pub incarnation: u64,
    /// What an incarnation before this one has answered, and no fsync has covered, may be lost: the power went.
    pub kept_since: u64,
    pub expiry_ms: u64,
    /// The write intents that it tells of are its own still: it has not ended since it got them.
    pub keeps_intents: bool,
}

/// What a session tells that it holds, or a piece of that.
#[derive(Clone, Copy, Default, Debug)]
pub struct Telling<'a> {
    pub opens: &'a [HeldOpen],
    pub locks: &'a [HeldLock],
    /// More is to come.
    pub more: bool,
    /// The one that the session tells; 0: any.
    pub incarnation: u64,
}

impl<'a> Telling<'a> {
    /// All at once, to whichever incarnation.
    #[must_use]
    pub fn whole(opens: &'a [HeldOpen], locks: &'a [HeldLock]) -> Self {
        Self { opens, locks, ..Self::default() }
    }
}

/// What came of a session's telling what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retold {
    pub opened: SessionOpened,
    /// Of its locks: those that others have got since.
    pub lost: Vec<HeldLock>,
    /// Why what it has open cannot be read, where that is so: for the log.
    pub unreadable: Vec<Error>,
}

/// How full a group's targets are: new files avoid `Low`, and use `Emergency` only where nothing else is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SpaceClass {
    Normal,
    Low,
    Emergency,
}

/// A storage group as placement sees it. Leave out groups that cannot take new files at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSpace {
    pub group: GroupId,
    pub class: SpaceClass,
    /// Weight of the random choice.
    pub free_bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolSpace {
    pub pool: PoolId,
    pub groups: Vec<GroupSpace>,
}
