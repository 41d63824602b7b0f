//! The parts that an operation over several shards consists of. Each concerns one inode or one name, and so one shard.

use types::attr::FileType;
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
    /// A part of a split directory follows a change of that.
    Conform(Conformed),
}

/// What a part of a split directory has to have as that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conformed {
    pub part: InodeId,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
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
    pub time: Timestamp,
    pub policy: LayoutPolicy,
    /// What it inherits: its ACLs, as they are stored.
    pub access: Option<Vec<u8>>,
    pub default: Option<Vec<u8>>,
    /// It is this part of `parent`, and gets no name.
    pub part: Option<PartNumber>,
}

/// A shard's promise to do a part if told so, and what it found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vote {
    /// What the name leads to.
    Entry(Option<Edge>),
    /// The new directory's id.
    Made(InodeId),
    Inode(FileType),
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
            Self::Made(_) | Self::Inode(_) | Self::Token | Self::Parts(_) => None,
        }
    }
}

impl Part {
    /// Where it is to be done; `None` of what has no place yet.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Self::Entry { parent, .. } => Some(parent.home()),
            Self::Make(_) => None,
            Self::Link { inode, .. } | Self::Unlink(inode) | Self::Rmdir(inode) | Self::Move { inode, .. } => {
                Some(inode.home())
            }
            Self::Divide { inode, .. } | Self::Hold(inode) => Some(inode.home()),
            Self::Conform(conformed) => Some(conformed.part.home()),
            Self::Token => Some(InodeId::ROOT.home()),
        }
    }

    /// What it changes: whoever believes any of it has to be told before.
    pub(crate) fn touches(&self) -> impl Iterator<Item = Touched<'_>> {
        let touched = match self {
            Self::Entry { parent, name, .. } => [Some(Touched::inode(*parent)), Some(Touched::name(*parent, name))],
            Self::Link { inode, .. } | Self::Unlink(inode) | Self::Rmdir(inode) | Self::Move { inode, .. } => {
                [Some(Touched::inode(*inode)), None]
            }
            Self::Divide { inode, .. } | Self::Hold(inode) => [Some(Touched::inode(*inode)), None],
            Self::Conform(conformed) => [Some(Touched::inode(conformed.part)), None],
            // Nobody knows of it yet.
            Self::Make(_) | Self::Token => [None, None],
        };
        touched.into_iter().flatten()
    }
}
