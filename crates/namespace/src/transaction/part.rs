//! The parts that an operation over several shards consists of. Each concerns one inode or one name, and so one shard.

use types::attr::{Attr, FileType};
use types::flags::FileFlags;
use types::id::{InodeId, ShardId};
use types::layout::LayoutPolicy;
use types::name::Name;
use types::parts::PartNumber;
use types::time::Timestamp;

use crate::leases::Touched;
use crate::schema::edge::Edge;

/// What one shard is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The entry `name` of `parent` becomes another one, or none. What is there before is told with the vote.
    Entry { parent: InodeId, name: Name, becomes: Option<Edge> },
    /// A new directory, which gets its name in another part.
    Make(NewDirectory),
    /// A file gets a name more, in `parent`,
    Link { inode: InodeId, parent: InodeId },
    /// or one less.
    Unlink(InodeId),
    /// A directory, which must be empty, loses its name.
    Rmdir(InodeId),
    /// An inode's name is moved to `parent`.
    Move { inode: InodeId, parent: InodeId },
    /// The right to move a directory to another one: there is one such right, at the root's shard.
    Token,
    /// A directory, which must be empty, is split into these. They are known when it is decided.
    Divide { inode: InodeId, parts: Vec<InodeId> },
    /// A directory's attributes stay as they are meanwhile, but for what the coordinator decides itself.
    Hold(InodeId),
    /// A part of which it has to be so first: the inode belongs to this user, or an entry can be taken away by that user, as
    /// far as its shard can tell. It is promised as what it is beside that.
    By { user: u32, part: Box<Part> },
    /// A part of a split directory follows a change of that.
    Conform(Conformed),
    /// A directory that is being split gives up these names,
    Give { directory: InodeId, moved: Moved },
    /// and one of its parts takes them.
    Take { part: InodeId, moved: Moved },
}

/// All names of a directory with hashes from `from` to below `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    pub from: u64,
    pub to: u64,
    /// In the order of their hashes.
    pub entries: Vec<(Name, Edge)>,
}

impl Moved {
    /// Entries, and directories among them.
    pub(crate) fn counts(&self) -> (u64, u32) {
        (
            self.entries.len() as u64,
            self.entries.iter().filter(|(_, edge)| edge.kind == FileType::Directory).count() as u32,
        )
    }

    /// Whoever believes any of these names. The links of the directory that has them change with directories among them.
    fn touches(&self, directory: InodeId) -> Vec<Touched<'_>> {
        let names = self.entries.iter().map(|(name, _)| Touched::name(directory, name));
        let itself = (self.counts().1 > 0).then(|| Touched::directory(directory));
        names.chain(itself).collect()
    }
}

/// What a part of a split directory has to have as that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conformed {
    pub part: InodeId,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub flags: FileFlags,
    pub policy: LayoutPolicy,
    pub default: Option<Vec<u8>>,
    /// Where the directory's time was set.
    pub mtime: Option<Timestamp>,
}

/// All that the new inode's shard has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDirectory {
    /// Given by its shard when it is prepared; 0 before.
    pub id: InodeId,
    pub parent: InodeId,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub flags: FileFlags,
    pub time: Timestamp,
    pub policy: LayoutPolicy,
    /// What it inherits: its ACLs, as they are stored.
    pub access: Option<Vec<u8>>,
    pub default: Option<Vec<u8>>,
    /// It is this part of `parent`, and gets no name.
    pub part: Option<PartNumber>,
    /// Such a part gets names that are in `parent` now.
    pub fills: bool,
    /// It is made with the promise to make it.
    pub at_once: bool,
}

/// A shard's promise to do a part if told so, and what it found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vote {
    /// What the name leads to.
    Entry(Option<Edge>),
    /// The new directory's id.
    Made(InodeId),
    Inode(FileType),
    /// As it is before it loses its last name; no regular file or directory.
    Last(Box<Attr>),
    Token,
    /// What the name leads to, in a part of the directory `of`.
    EntryOfPart {
        there: Option<Edge>,
        of: InodeId,
    },
    /// The directory is split: it can be removed if these can.
    Parts(Vec<InodeId>),
}

impl Vote {
    /// What a name of `parent` leads to, and the directory that users see it in.
    pub(crate) fn entry(&self, parent: InodeId) -> Option<(Option<Edge>, InodeId)> {
        match self {
            Self::Entry(there) => Some((*there, parent)),
            Self::EntryOfPart { there, of } => Some((*there, *of)),
            Self::Made(_) | Self::Inode(_) | Self::Last(_) | Self::Token | Self::Parts(_) => None,
        }
    }
}

impl Part {
    /// Where it is to be done; `None` of what has no place yet.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        let of_token = matches!(self, Self::Token).then_some(InodeId::ROOT);
        self.concerns().or(of_token).map(InodeId::home)
    }

    /// The inode that is there already and that it changes, or the directory.
    pub(crate) fn concerns(&self) -> Option<InodeId> {
        match self {
            Self::Entry { parent: inode, .. }
            | Self::Link { inode, .. }
            | Self::Unlink(inode)
            | Self::Rmdir(inode)
            | Self::Move { inode, .. }
            | Self::Divide { inode, .. }
            | Self::Hold(inode)
            | Self::Conform(Conformed { part: inode, .. })
            | Self::Give { directory: inode, .. }
            | Self::Take { part: inode, .. } => Some(*inode),
            Self::By { part, .. } => part.concerns(),
            Self::Make(_) | Self::Token => None,
        }
    }

    /// Whoever promises it does it with its promise, and takes it back where nothing comes of it: a directory that nobody can
    /// know of before its name is there.
    #[must_use]
    pub fn is_done_at_once(&self) -> bool {
        matches!(self, Self::Make(new) if new.at_once)
    }

    /// It adds records where it is done, other than a rename does: that goes on without space.
    #[must_use]
    pub fn grows(&self) -> bool {
        match self {
            // One with a number was there, and is made again.
            Self::Make(new) => new.id.0 == 0,
            Self::Take { .. } => true,
            _ => false,
        }
    }

    /// Only where it may be done by `user`, if that matters.
    pub(crate) fn by(self, user: Option<u32>) -> Self {
        match user {
            Some(user) => Self::By { user, part: Box::new(self) },
            None => self,
        }
    }

    /// As it is promised, whoever it is for.
    pub(crate) fn plain(&self) -> &Self {
        match self {
            Self::By { part, .. } => part.plain(),
            part => part,
        }
    }

    /// What it changes: whoever believes any of it has to be told before.
    pub(crate) fn touches(&self) -> Vec<Touched<'_>> {
        match self {
            Self::Entry { parent, name, .. } => vec![Touched::directory(*parent), Touched::name(*parent, name)],
            Self::Link { inode, .. } | Self::Unlink(inode) | Self::Rmdir(inode) | Self::Move { inode, .. } => {
                vec![Touched::inode(*inode)]
            }
            Self::Divide { inode, .. } | Self::Hold(inode) => vec![Touched::inode(*inode)],
            Self::Conform(conformed) => vec![Touched::inode(conformed.part)],
            Self::Give { directory, moved } => moved.touches(*directory),
            Self::Take { part, moved } => moved.touches(*part),
            Self::By { part, .. } => part.touches(),
            // Nobody knows of it yet.
            Self::Make(_) | Self::Token => Vec::new(),
        }
    }
}
