//! Checking a part in its shard, and doing it.

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::parts::PartNumber;

use crate::error::{Error, Result};
use crate::ops::remove::Loss;
use crate::ops::{NewInode, Place, flags_of_acls};
use crate::schema::edge::Edge;
use crate::schema::inode::{Body, Inode, Role};
use crate::shard::Shard;
use crate::transaction::part::{Conformed, Moved, NewDirectory, Part, Vote};

/// A part with all that doing it needs: nothing can fail from here on.
pub(super) enum Loaded<'a> {
    Entry(Place<'a>, Option<Edge>),
    Make(&'a NewDirectory),
    Link(InodeId, Inode, InodeId),
    Loss(Loss),
    Move(InodeId, Inode, InodeId),
    Divide(InodeId, Inode, &'a [InodeId]),
    Conform(Inode, &'a Conformed),
    Give(InodeId, Inode, &'a Moved),
    Take(InodeId, Inode, &'a Moved),
    Nothing,
}

impl<K: Kv> Shard<K> {
    /// Whether the part can be done, and what is there before. A new directory gets its id.
    pub(super) fn check_part(&mut self, part: &mut Part) -> Result<Vote> {
        match part {
            Part::Entry { parent, name, becomes } => {
                let place = self.namespace.place(*parent, name)?;
                // One that stays as it is, is neither lost nor changed.
                if place.edge.is_some() && place.edge != *becomes {
                    place.may_leave()?;
                }
                if let Some(edge) = becomes {
                    place.must_live()?;
                    if place.edge.is_none() {
                        place.may_enter()?;
                        // Nobody else makes a name of this hash until it is done: locks are on hashes.
                        self.namespace.has_room(&place)?;
                    }
                    let is_dir = |edge: &Edge| edge.kind == FileType::Directory;
                    if is_dir(edge) && !place.edge.as_ref().is_some_and(is_dir) {
                        self.namespace.can_have_subdir(&place.directory)?;
                    }
                }
                let (there, of) = (place.edge, place.visible());
                Ok(if of == *parent { Vote::Entry(there) } else { Vote::EntryOfPart { there, of } })
            }
            Part::Make(new) => {
                if new.id.0 == 0 {
                    new.id = self.namespace.new_id()?;
                } else if self.is_elsewhere(new.id) {
                    return Err(Errno::EINVAL.into());
                } else if self.namespace.find(new.id)?.is_some() {
                    return Err(Errno::EEXIST.into());
                }
                Ok(Vote::Made(new.id))
            }
            Part::Link { inode, .. } => {
                let found = self.namespace.existing(*inode)?;
                self.namespace.can_be_linked(&found)?;
                Ok(Vote::Inode(found.kind))
            }
            Part::Unlink(inode) => self.check_unlink(*inode),
            Part::Rmdir(inode) => {
                let found = self.named(*inode)?;
                found.must_be_free()?;
                match found.entries() {
                    _ if !found.is_dir() => Err(Errno::ENOTDIR.into()),
                    0 if found.is_split() => Ok(Vote::Parts(self.namespace.parts(*inode, &found)?)),
                    0 => Ok(Vote::Inode(found.kind)),
                    _ => Err(Errno::ENOTEMPTY.into()),
                }
            }
            Part::Move { inode, .. } => {
                let found = self.named(*inode)?;
                found.must_be_free()?;
                Ok(Vote::Inode(found.kind))
            }
            Part::Divide { inode, .. } => Ok(Vote::Inode(self.namespace.can_be_split(*inode)?.kind)),
            Part::Hold(inode) => Ok(Vote::Inode(self.named(*inode)?.kind)),
            Part::Conform(conformed) => Ok(Vote::Inode(self.named(conformed.part)?.kind)),
            Part::Give { directory: id, moved } | Part::Take { part: id, moved } => {
                Ok(Vote::Inode(self.moving(*id, moved)?.kind))
            }
            Part::Token => Ok(Vote::Token),
            Part::By { part, .. } => self.check_part(part),
        }
    }

    fn check_unlink(&mut self, inode: InodeId) -> Result<Vote> {
        let found = self.named(inode)?;
        found.must_be_free()?;
        match found.kind {
            FileType::Directory => Err(Errno::EISDIR.into()),
            kind if kind == FileType::Regular || found.nlink > 1 => Ok(Vote::Inode(kind)),
            _ => Ok(Vote::Last(Box::new(found.attr(inode)))),
        }
    }

    /// The directory that gives or takes these names next. `Again` where others have gone or come meanwhile.
    fn moving(&mut self, id: InodeId, moved: &Moved) -> Result<Inode> {
        let is_next = |inode: &Inode| inode.nlink > 0 && inode.role().moves_from() == Some(moved.from);
        self.namespace.find(id)?.filter(is_next).ok_or(Error::Again)
    }

    /// An inode that a name leads to. `EIO` where it is not there: the name is damaged.
    fn named(&mut self, inode: InodeId) -> Result<Inode> {
        self.namespace.find(inode)?.filter(|found| found.nlink > 0).ok_or_else(|| Errno::EIO.into())
    }

    /// Does all of them, or nothing. `mover` has moved what new entries lead to.
    pub(super) fn apply_parts(&mut self, parts: &[Part], mover: Option<SessionId>) -> Result<()> {
        let loaded = self.load_parts(parts)?;
        self.apply_loaded(loaded, parts, mover);
        Ok(())
    }

    pub(super) fn load_parts<'a>(&mut self, parts: &'a [Part]) -> Result<Vec<Loaded<'a>>> {
        parts.iter().map(|part| self.load_part(part)).collect()
    }

    /// Does `parts`, which are loaded.
    pub(super) fn apply_loaded(&mut self, loaded: Vec<Loaded<'_>>, parts: &[Part], mover: Option<SessionId>) {
        for part in loaded {
            self.apply_part(part);
        }
        for part in parts {
            if let (Part::Entry { parent, name, becomes: Some(_) }, Some(session)) = (part, mover) {
                self.lease_arrived(session, *parent, name);
            }
        }
    }

    fn load_part<'a>(&mut self, part: &'a Part) -> Result<Loaded<'a>> {
        Ok(match part {
            Part::Entry { parent, name, becomes } => match self.namespace.place(*parent, name)? {
                place if place.edge == *becomes => Loaded::Nothing,
                place => Loaded::Entry(place, *becomes),
            },
            // Made at once.
            Part::Make(new) if self.namespace.find(new.id)?.is_some() => Loaded::Nothing,
            Part::Make(new) => Loaded::Make(new),
            // It may have no name yet.
            Part::Link { inode, parent } => Loaded::Link(*inode, self.namespace.existing(*inode)?, *parent),
            Part::Unlink(inode) | Part::Rmdir(inode) => {
                let found = self.named(*inode)?;
                let (grace, holds) = (self.grace_until_ms.is_some(), &self.holds);
                Loaded::Loss(self.namespace.prepare_loss(*inode, found, |id| grace || holds.is_open(id))?)
            }
            Part::Move { inode, parent } => Loaded::Move(*inode, self.named(*inode)?, *parent),
            Part::Divide { inode, parts } => Loaded::Divide(*inode, self.named(*inode)?, parts),
            Part::Conform(conformed) => Loaded::Conform(self.named(conformed.part)?, conformed),
            Part::Give { directory: id, moved } => Loaded::Give(*id, self.moving(*id, moved)?, moved),
            Part::Take { part: id, moved } => Loaded::Take(*id, self.moving(*id, moved)?, moved),
            Part::By { part, .. } => self.load_part(part)?,
            Part::Token | Part::Hold(_) => Loaded::Nothing,
        })
    }

    fn apply_part(&mut self, part: Loaded<'_>) {
        let namespace = &mut self.namespace;
        match part {
            Loaded::Entry(place, becomes) => match (place.edge, becomes) {
                (None, Some(new)) => namespace.enter(&place, new),
                (Some(old), None) => namespace.leave(&place, old.kind),
                (Some(old), Some(new)) => namespace.replace(&place, old.kind, new),
                (None, None) => {}
            },
            Loaded::Make(new) => namespace.add_new_inode(new.id, new.new_inode()),
            Loaded::Link(id, inode, parent) => {
                namespace.linked(id, inode, parent);
                self.adopted(id);
            }
            Loaded::Loss(loss) => {
                let fate = namespace.lose(loss);
                self.account(fate);
            }
            Loaded::Move(id, inode, parent) => namespace.moved(id, inode, parent),
            Loaded::Divide(id, inode, parts) => {
                if namespace.divide(id, inode, parts) {
                    self.splitting.begin(id);
                }
            }
            Loaded::Conform(inode, conformed) => namespace.conform(inode, conformed),
            Loaded::Give(id, inode, moved) => namespace.give(id, inode, moved),
            Loaded::Take(id, inode, moved) => namespace.take(id, inode, moved),
            Loaded::Nothing => {}
        }
    }
}

impl NewDirectory {
    /// `None` of what is no directory.
    pub(crate) fn of(new: NewInode) -> Option<Self> {
        let NewInode { inode, access, default } = new;
        let Inode { mode, uid, gid, parent, btime: time, body: Body::Directory { policy, .. }, .. } = inode else {
            return None;
        };
        let (id, flags) = (InodeId(0), inode.file_flags);
        let (part, fills, at_once) = (None, false, false);
        Some(Self { id, parent, mode, uid, gid, flags, time, policy, access, default, part, fills, at_once })
    }

    pub(super) fn new_inode(&self) -> NewInode {
        NewInode { inode: self.inode(), access: self.access.clone(), default: self.default.clone() }
    }

    pub(crate) fn inode(&self) -> Inode {
        let Self { parent, mode, uid, gid, flags: file_flags, time, policy, part, fills, .. } = *self;
        let role = |part: PartNumber| {
            if fills { Role::Filling { part, until: part.begin() } } else { Role::Part(part) }
        };
        Inode {
            kind: FileType::Directory,
            mode,
            flags: flags_of_acls(self.access.as_deref(), self.default.as_deref()),
            file_flags,
            uid,
            gid,
            nlink: 2,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent,
            body: Body::Directory { entries: 0, policy, role: part.map_or(Role::Whole, role) },
        }
    }
}
