//! Requests to a shard and their replies.
//!
//! A request that changes anything carries `Exactly`: a retry after a lost connection or a restart gets the answer of
//! its first execution.

use types::attr::{Attr, FileType, SetAttr};
use types::cred::{Conditions, Credentials};
use types::flags::FileFlags;
use types::id::{GroupId, InodeId, PoolId, ShardId};
use types::layout::{Layout, LayoutPolicy};
use types::name::Name;
use types::placement::Placement;
use types::time::{AccessTimes, Timestamp};
use types::walk::{WalkEnd, WalkNames};

use crate::codec::{Bytes, messages};

messages! {
    /// Identity of one change within the connection's session.
    Exactly {
        /// From 1, raised by one per new change of this session on this shard; a retry repeats it.
        sequence: u64,
        /// All changes with a lower sequence have been answered to the client: their stored replies may go.
        answered_below: u64,
    }

    /// What a client needs to know of an inode.
    InodeReply {
        attr: Attr,
        /// The objects know better than the inode (`size`, `blocks`, `mtime`): somebody has a write intent on it, or
        /// died with one. The client asks the storage groups of `layout`. Of a directory: it is split, and its parts know its
        /// times and links; the lease is on the rest.
        unsettled: bool,
        /// Of an unsettled file: what its objects say of the last write counts if it is later than this. Absent: than `ctime`.
        written_after: Option<Timestamp>,
        /// Somebody is cutting the objects (`WriteIntent::cuts`): what they say and hold is of no moment. Ask again soon.
        cutting: bool,
        /// Another number since somebody has begun to do so, or the shard to run.
        cuts: u64,
        /// The asking session alone holds the write intent: its own knowledge of size and mtime is exact.
        exclusive: bool,
        /// That, and no other session has the file open: under a lease on its attributes the session may keep back what it
        /// writes. Whoever asks for the file, or opens it, takes that lease back first.
        alone: bool,
        /// The file is the asking session's draft: since the session has made it nobody else was told of it, and under a
        /// lease on its attributes the session may keep back all that is done to it until `Settle::drafted`: what it knows
        /// itself goes over these attributes. Whoever asks for the file, or changes it, takes that lease back first.
        draft: bool,
        /// Objects may exist: false until the first write intent. Reads of such a file need no storage group.
        has_objects: bool,
        /// Raised whenever a session gets a write intent on the inode; see `Settle::gathered`.
        intents: u64,
        /// There are no extended attributes, ACLs among them.
        bare: bool,
        /// Regular files only. Always there in replies to `Open`, `Create`, `WriteIntent`, and where `unsettled`.
        layout: Option<Layout>,
        /// The inode is at home in another shard: only its id and kind are told here, the rest there.
        elsewhere: bool,
        /// For so long, in ms from the request on, the session may believe the attributes, unless they are recalled
        /// (see `Recalls`). 0: not beyond this answer.
        lease_ms: u32,
        /// For so long, in ms from the request on, the session may believe that the name which the request gave stands
        /// for this inode, unless that is recalled. 0: not beyond this answer.
        name_lease_ms: u32,
        /// Of a directory that was asked for by its id, or that was made.
        standing: Option<Standing>,
        /// Replies to changes that make a name: what the change made of its directory, as in `ChangeReply`.
        parent: Option<Box<DirectoryReply>>,
        /// Regular files: the contents are in the metadata until they would be longer than this, bytes. 0: they are in
        /// objects, and stay there.
        inline_limit: u32,
        /// All of them, where an `Open` asked for them and they are in the metadata.
        contents: Option<Bytes>,
        /// Who has the file open for writing obeys them as well.
        flags: FileFlags,
        /// It has `security.capability`. Who has it open for writing sees to it that this goes with its writes.
        capability: bool,
    }

    /// How far a directory has come.
    Standing {
        /// Later answers of a shard about a directory have a higher one, also over the shard's restarts.
        order: u64,
        /// There are no entries.
        empty: bool,
    }

    /// A directory after a change in it.
    DirectoryReply {
        attr: Attr,
        standing: Standing,
        /// As in `InodeReply`; never 0.
        lease_ms: u32,
    }

    /// What a change that takes or moves names made of directories, for a session that keeps what it knows of them. What
    /// is not told it has to ask for.
    ChangeReply {
        /// The directory of the name, of a rename the source's.
        parent: Option<Box<DirectoryReply>>,
        /// Of a rename into another directory: that one.
        target: Option<Box<DirectoryReply>>,
        /// Directories that were themselves removed, replaced or moved.
        others: Vec<InodeId>,
        /// There are no others than these.
        told: bool,
        /// The directory, symbolic link, FIFO, socket or device that was removed or replaced, as it is without a name: its id
        /// is never asked for with success again. Absent also of a directory that was at home in another shard.
        removed: Option<Box<Attr>>,
    }

    /// Replied with `LookupReply`; `ENOENT` where the directory is gone.
    Lookup { parent: InodeId, name: Name }
    LookupReply {
        /// `None`: the name is absent.
        found: Option<Box<InodeReply>>,
        /// For so long, in ms from the request on, the session may believe that it is absent.
        absent_lease_ms: u32,
    }
    /// Replied with `InodeReply`, or `ENOENT`/`ESTALE`.
    GetAttr { inode: InodeId }
    /// Replied with `InodeReply`. `size` only after the objects were truncated under a write intent; or `inline`: the
    /// contents are in the metadata, and are truncated with it. `EOPNOTSUPP` where they are not, or no longer fit, or
    /// where there are objects and the session has no write intent. `ECANCELED` where it is not as `given`, as that of the
    /// changes below.
    Set { exactly: Exactly, inode: InodeId, change: SetAttr, inline: bool, given: Conditions }

    /// Makes a regular file, device node, fifo or socket; replied with `InodeReply`.
    Create {
        exactly: Exactly,
        parent: InodeId,
        name: Name,
        kind: FileType,
        mode: u32,
        rdev: u32,
        cred: Credentials,
        /// Regular files: also register an open, as `Open` does.
        open: bool,
        /// With `open`: also give the write intent, as `WriteIntent` does, since who makes a file mostly writes it. Not
        /// where its contents begin in the metadata (`inline_limit`).
        write_intent: bool,
        /// An existing name is `EEXIST` (`O_EXCL`). Otherwise an existing regular file is opened, which is no error.
        exclusive: bool,
        /// With `write_intent` and `exclusive`: where its contents begin in the metadata, the session wants to keep back what
        /// is done to it. Whether it may, `InodeReply::draft` says.
        draft: bool,
    }
    /// Makes and opens a regular file without a name, that a file made in `parent` would be like. `Link` may give it one
    /// while it is open. Replied with `InodeReply`.
    TmpFile { exactly: Exactly, parent: InodeId, mode: u32, cred: Credentials, write_intent: bool }
    Mkdir { exactly: Exactly, parent: InodeId, name: Name, mode: u32, cred: Credentials }
    Symlink { exactly: Exactly, parent: InodeId, name: Name, target: Bytes, cred: Credentials }
    /// Replied with `InodeReply` of the linked inode.
    Link { exactly: Exactly, inode: InodeId, parent: InodeId, name: Name }
    /// Replied with `ChangeReply`, as are the next two.
    Unlink { exactly: Exactly, parent: InodeId, name: Name, given: Conditions }
    Rmdir { exactly: Exactly, parent: InodeId, name: Name, given: Conditions }
    Rename {
        exactly: Exactly,
        source_parent: InodeId,
        source_name: Name,
        target_parent: InodeId,
        target_name: Name,
        /// `RENAME_NOREPLACE` = 1, `RENAME_EXCHANGE` = 2, `RENAME_WHITEOUT` = 4, as in `<linux/fs.h>`; others are `EINVAL`, and
        /// so are the last two together.
        flags: u32,
        /// Whose a whiteout is.
        cred: Credentials,
        /// Also of what is at the target.
        given: Conditions,
    }
    /// Replied with `Symlink target` as `Bytes` in `ReadlinkReply`. `accesses`: whether that changes the access time.
    Readlink { inode: InodeId, accesses: AccessTimes }
    ReadlinkReply { target: Bytes }

    /// Entries of a directory in a stable order, from the one after `cookie`; 0 is the beginning. A cookie stays good
    /// while entries come and go: an entry there before and after the listing shows exactly once.
    ReadDir {
        inode: InodeId,
        cookie: u64,
        /// Entries, at most 4096; the reply may have fewer for its size.
        count: u32,
        /// Also the attributes of each entry that is at home in this shard.
        attributes: bool,
        /// Whether a listing that begins changes the access time.
        accesses: AccessTimes,
    }
    ReadDirReply {
        entries: Vec<DirEntry>,
        /// No entry comes after these.
        end: bool,
        /// The directory's own parent, for `..`.
        parent: InodeId,
        /// With the first page, the directory itself as it was then, where the session gets a lease on it.
        directory: Option<Box<DirectoryReply>>,
    }
    DirEntry {
        name: Name,
        inode: InodeId,
        kind: FileType,
        /// To go on after this entry. From 1.
        cookie: u64,
        attributes: Option<Box<InodeReply>>,
    }

    /// Registers that this session has the inode open, once however many handles it has; replied with `InodeReply`.
    Open {
        inode: InodeId,
        /// Who opens it is going to read it: the contents may come along.
        contents: bool,
    }
    /// The session's last handle is gone. Answers `Empty`. Not a change that needs `Exactly`: closing twice is harmless.
    /// `read`: when the session read the file last, where its rule for access times (`AccessTimes`) says that this is
    /// noted; the shard takes it over unless somebody else has changed the access time.
    Close { inode: InodeId, read: Option<TimeChange> }
    /// What `Close` tells of reads, by a session that goes on having the inode open. Answers `Empty`. Harmless twice.
    WasRead { inode: InodeId, read: TimeChange }
    /// What a session's reads or writes made of one of a file's times.
    TimeChange {
        at: Timestamp,
        /// The time that the session knew. Where it is another one now, somebody else has changed it.
        before: Timestamp,
    }

    /// Before its first write or truncate since the last `Settle`: from here on the objects know the size. Must be
    /// answered before a write is acknowledged. Contents in the metadata are first moved to objects, where they stay.
    /// `cuts`: the session is going to truncate the objects. That ends with its `Set` of the size, with another `WriteIntent`
    /// that does not say so, and with the intent. Replied with `InodeReply`, whose attributes are those before.
    /// `draft`: only while the file is the session's draft, which it stays; else `ECANCELED`. The answer brings a lease on the
    /// attributes then, since that of the file's making may be over.
    WriteIntent { exactly: Exactly, inode: InodeId, cuts: bool, draft: bool }
    /// The session's writes are in the objects: what they came to. Ends its write intent if `release`. Replied with
    /// `SettleReply`.
    Settle {
        exactly: Exactly,
        inode: InodeId,
        size: u64,
        blocks: u64,
        /// Of the last write; absent where there was none since the times were set explicitly. Where somebody else has set
        /// them, they go over writes before that.
        mtime: Option<TimeChange>,
        /// The session asked the objects under this epoch of intents (from the last `InodeReply` or `SettleReply`);
        /// `None` where it was exclusive; 0, which is no epoch, where it has not asked them, for it was not alone.
        gathered: Option<u64>,
        release: bool,
        /// Also end the session's open, as `Close` does, whether settled or not.
        close: bool,
        /// Nothing was written since the file was made: it has no objects.
        untouched: bool,
        /// With `close`, as in `Close`.
        read: Option<TimeChange>,
        /// The file is the session's draft: what has come of it. It is a draft no more. `ECANCELED`, and nothing of all this is
        /// done, where it is none: others were told of the file without this.
        drafted: Option<Box<Drafted>>,
    }
    /// What a session has kept back of its draft: see `InodeReply::draft`.
    Drafted {
        /// All of them. Absent where the file has a write intent: then the objects have them.
        contents: Option<Bytes>,
        /// Permission bits.
        mode: u32,
        uid: u32,
        gid: u32,
        atime: Timestamp,
        mtime: Timestamp,
        ctime: Timestamp,
    }
    SettleReply {
        /// False: others wrote meanwhile (or the intent was lost in a restart): ask the objects and settle again with
        /// `gathered = Some(intents)`. With `intents = 0` others intend to write it: the last of them settles it.
        settled: bool,
        intents: u64,
    }

    /// Writes contents that are in the metadata. `EOPNOTSUPP` where they are not, or would pass the limit: then it needs
    /// a `WriteIntent`.
    WriteInline {
        exactly: Exactly,
        inode: InodeId,
        offset: u64,
        /// At the end of the file as it is then; `offset` does not count.
        append: bool,
        bytes: Bytes,
    }
    WriteInlineReply {
        /// Whose attributes are those after.
        inode: Box<InodeReply>,
        /// Where the first byte was written.
        offset: u64,
    }
    /// Reads contents that are in the metadata. `EOPNOTSUPP` where they are not.
    ReadInline { inode: InodeId, offset: u64, length: u32 }
    ReadInlineReply {
        inode: Box<InodeReply>,
        /// What there is of those asked for.
        bytes: Bytes,
    }

    GetXattr { inode: InodeId, name: Bytes }
    XattrReply { value: Bytes }
    /// Replied with `Empty`.
    SetXattr {
        exactly: Exactly,
        inode: InodeId,
        name: Bytes,
        value: Bytes,
        /// `XATTR_CREATE` = 1, `XATTR_REPLACE` = 2, as in `<linux/xattr.h>`; `KILL_SGID` = 0x100: an access ACL from one
        /// who is not in the file's group, so set-group-id goes.
        flags: u32,
        given: Conditions,
    }
    /// Replied with `XattrNames`.
    ListXattr { inode: InodeId }
    XattrNames { names: Vec<Bytes> }
    RemoveXattr { exactly: Exactly, inode: InodeId, name: Bytes, given: Conditions }

    /// Makes durable on disk all that was answered before; answers `Empty`. `inline`: so are the file's contents, which
    /// are in the metadata; `EOPNOTSUPP` where they are not.
    Fsync { inode: InodeId, inline: bool }
    /// The shard's own counts; capacity comes from the targets.
    StatFs {}
    StatFsReply {
        inodes: u64,
        /// Bytes of the metadata target's file system.
        total_bytes: u64,
        free_bytes: u64,
    }

    /// What `entry info` shows of one inode.
    EntryInfo { inode: InodeId }
    EntryInfoReply {
        inode: Box<InodeReply>,
        parent: Option<InodeId>,
        shard: ShardId,
        group: GroupId,
        /// The pool and desired striping: of a directory, what its new files get; of a file, its directory's.
        policy: LayoutPolicy,
        /// The directory sets it itself rather than taking it from its parent at its creation.
        policy_is_own: bool,
    }
    /// Sets what new files of a directory get; what is `None` stays. Replied with `EntryInfoReply`.
    SetPolicy {
        exactly: Exactly,
        inode: InodeId,
        chunk_size: Option<u32>,
        stripe_count: Option<u16>,
        pool: Option<PoolId>,
        directories: Option<Placement>,
        inline_limit: Option<u32>,
    }

    /// What a directory is split into; asked for where a request about its names was answered with `EREMOTE`.
    Parts {
        inode: InodeId,
        /// The directory is about to be listed: its access time is noted where that is due by `accesses`.
        lists: bool,
        accesses: AccessTimes,
    }
    PartsReply {
        /// Directories that have the entries, in the order of their ranges of the names' hashes (see
        /// `types::parts`); none where the directory has them itself. They never change.
        parts: Vec<InodeId>,
        /// It is being split: names whose hashes are below this are in the parts, the others in the directory itself. 0: all
        /// are in the parts. It rises.
        cursor: u64,
        /// The directory's own parent, for `..`.
        parent: InodeId,
    }
    /// Splits a directory into `count` parts, each in another shard. What entries it has go there one after the other.
    Split { exactly: Exactly, inode: InodeId, count: u16 }

    /// Raw records for a check of the whole cluster, in key order from after `after` (an opaque token; empty is the
    /// beginning).
    Scan { after: Bytes, count: u32 }
    ScanReply { records: Vec<ScanRecord>, next: Option<Bytes> }
    /// One inode, edge, deletion or contents as the check sees it, or one that cannot be read: exactly one of the five is
    /// there.
    ScanRecord {
        inode: Option<ScanInode>,
        edge: Option<ScanEdge>,
        deletion: Option<ScanDeletion>,
        contents: Option<ScanContents>,
        damage: Option<ScanDamage>,
    }
    ScanInode {
        reply: Box<InodeReply>,
        /// Unlinked but held open by this many sessions.
        orphan_holders: u32,
        orphan: bool,
    }
    ScanEdge { parent: InodeId, name: Name, child: InodeId, kind: FileType }
    ScanDeletion { inode: InodeId, stripe: u32, group: GroupId }
    /// `length` bytes of contents of a file.
    ScanContents { inode: InodeId, length: u32 }
    ScanDamage {
        /// That the record is, or belongs to: of an edge the directory.
        inode: InodeId,
        /// It is the inode itself, or what one cannot be without.
        is_inode: bool,
        /// What is wrong with which record, in words: UTF-8.
        what: Bytes,
    }

    /// Looks up names one after the other, each in the directory that the one before leads to, as far as this shard has
    /// them. Replied with `WalkReply`; for the first name refused as a `Lookup`.
    Walk {
        /// A directory, or a part of one.
        start: InodeId,
        names: WalkNames,
        /// The session keeps what it is told: each step bears the leases that a `LookupReply` does.
        leases: bool,
    }
    WalkReply {
        /// What the first names lead to, each as `found` of a `LookupReply`.
        steps: Vec<Box<InodeReply>>,
        end: WalkEnd,
    }
}
