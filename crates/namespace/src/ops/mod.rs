//! The operations, one file each with its whole story.
//!
//! Each first reads and checks, with `?`, and then changes, where nothing can fail. Permission bits are not looked at:
//! the caller's kernel did. Flags of files are ([`flags`]).

use kv::Kv;
use types::attr::{FileType, PERMISSION_BITS, S_ISGID};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::time::Timestamp;

use crate::acl;
use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::edge::{self, Edge};
use crate::schema::inode::{Body, HAS_ACCESS_ACL, HAS_DEFAULT_ACL, HAS_XATTRS, Inode, Role};
use types::name_hash::{SAME_HASH_MAX, name_hash};
use types::parts::PartNumber;

pub mod access;
pub mod create;
pub mod deletions;
pub mod entry_info;
pub mod flags;
pub mod inline;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod parts;
pub mod readdir;
pub mod remove;
pub mod rename;
pub mod rmdir;
pub mod scan;
pub mod set;
pub mod set_policy;
pub mod settle;
pub mod symlink;
pub mod tmpfile;
pub mod unlink;
pub mod xattr;

/// A name in a directory that was found to be one.
pub(crate) struct Place<'a> {
    pub(crate) parent: InodeId,
    /// The directory as it was when found.
    pub(crate) directory: Inode,
    pub(crate) name: &'a Name,
    pub(crate) hash: u64,
    /// What is there.
    pub(crate) edge: Option<Edge>,
}

impl<K: Kv> Namespace<K> {
    /// `ENOENT` where the directory is gone, `ENOTDIR` where it is none, `EREMOTE` where another one has the name.
    pub(crate) fn place<'a>(&mut self, parent: InodeId, name: &'a Name) -> Result<Place<'a>> {
        let directory = self.directory(parent)?;
        let hash = name_hash(name);
        directory.must_have(hash)?;
        let edge = if directory.entries() == 0 { None } else { self.edges.get(&self.kv, parent, hash, name)? };
        Ok(Place { parent, directory, name, hash, edge })
    }

    /// As `place`, for a new entry that is to be made unless there is one. `ENOSPC` as of `has_room`, `EPERM` in a
    /// directory that is immutable.
    pub(crate) fn place_for_new<'a>(&mut self, parent: InodeId, name: &'a Name) -> Result<Place<'a>> {
        let directory = self.directory(parent)?;
        if directory.nlink == 0 {
            // It was removed but is held open.
            return Err(Errno::ENOENT.into());
        }
        let hash = name_hash(name);
        directory.must_have(hash)?;
        let edge = if directory.entries() == 0 {
            self.edges.is_empty(parent);
            None
        } else {
            self.edges.get_new(&self.kv, parent, hash, name)?
        };
        let place = Place { parent, directory, name, hash, edge };
        if edge.is_none() {
            place.may_enter()?;
            self.has_room(&place)?;
        }
        Ok(place)
    }

    /// `ENOSPC` where the directory has as many names of this hash as a listing can tell apart. By chance no directory comes
    /// to three; but names can be made for it, and then nobody could list it any more.
    pub(crate) fn has_room(&mut self, place: &Place<'_>) -> Result<()> {
        if place.directory.entries() < SAME_HASH_MAX as u64 {
            return Ok(());
        }
        let count = self.edges.count(&self.kv, place.parent, place.hash, SAME_HASH_MAX)?;
        if count < SAME_HASH_MAX { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    pub(crate) fn directory(&mut self, id: InodeId) -> Result<Inode> {
        let directory = self.find(id)?.ok_or(Errno::ENOENT)?;
        if directory.is_dir() { Ok(directory) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// A place for a new entry. `ENOENT` in a directory that was removed but is held open, `EEXIST` where the name is
    /// taken, `EPERM` in one that is immutable.
    pub(crate) fn vacancy<'a>(&mut self, parent: InodeId, name: &'a Name) -> Result<Place<'a>> {
        let place = self.place_for_new(parent, name)?;
        if place.edge.is_some() { Err(Errno::EEXIST.into()) } else { Ok(place) }
    }

    /// The edge and the inode at `place`: `ENOENT` where there is none.
    pub(crate) fn occupant(&mut self, place: &Place<'_>) -> Result<(Edge, Inode)> {
        let edge = place.edge.ok_or(Errno::ENOENT)?;
        match self.find(edge.child)? {
            Some(inode) if inode.kind == edge.kind => Ok((edge, inode)),
            Some(_) => Err(self.edge_damage(place, "an edge to an inode of another kind")),
            None => Err(self.edge_damage(place, "an edge to an inode that is not there")),
        }
    }

    fn edge_damage(&mut self, place: &Place<'_>, what: &'static str) -> crate::error::Error {
        edge::ser_key(&mut self.key, place.parent, place.hash, place.name);
        Damage::new(what, &self.key).into()
    }

    /// A directory can have a subdirectory more.
    pub(crate) fn can_have_subdir(&self, directory: &Inode) -> Result<()> {
        if directory.nlink >= self.links_max { Err(Errno::EMLINK.into()) } else { Ok(()) }
    }

    /// Puts `edge` at `place`, which is vacant.
    pub(crate) fn enter(&mut self, place: &Place<'_>, edge: Edge) {
        self.edges.set(place.parent, place.hash, place.name, Some(edge));
        let (now, split_above) = (self.now, self.split_above);
        let directory = self.inodes.modify(place.parent, place.directory);
        directory.count_entry(edge.kind, true, now);
        let is_large = split_above > 0 && directory.entries() > split_above && directory.role() == Role::Whole;
        if is_large && self.homes.are_several() {
            self.overgrown.insert(place.parent);
        }
        self.busy.note(place.parent);
    }

    /// Takes the edge at `place` away.
    pub(crate) fn leave(&mut self, place: &Place<'_>, kind: FileType) {
        self.edges.set(place.parent, place.hash, place.name, None);
        let now = self.now;
        self.inodes.modify(place.parent, place.directory).count_entry(kind, false, now);
        self.busy.note(place.parent);
    }

    /// Leads the edge at `place` to another inode.
    pub(crate) fn replace(&mut self, place: &Place<'_>, old: FileType, new: Edge) {
        self.edges.set(place.parent, place.hash, place.name, Some(new));
        let now = self.now;
        let directory = self.inodes.modify(place.parent, place.directory);
        directory.count_entry(old, false, now);
        directory.count_entry(new.kind, true, now);
        self.busy.note(place.parent);
    }

    /// An inode of `kind` about to be made in `directory`: POSIX ownership, and the BSD rule where the directory has
    /// the set-group-id bit: the group is the directory's, and subdirectories get the bit too. Its permissions are what
    /// the directory's default ACL leaves of `mode`, or else the umask.
    pub(crate) fn new_inode(
        &mut self,
        (parent, directory): (InodeId, &Inode),
        kind: FileType,
        mode: u32,
        cred: Credentials,
        body: Body,
    ) -> Result<NewInode> {
        let inherits = u32::from(directory.mode) & S_ISGID != 0;
        let acls = self.inherited_acls((parent, directory), kind, mode & PERMISSION_BITS, cred.umask)?;
        let mut mode = acls.mode;
        if inherits && kind == FileType::Directory {
            mode |= S_ISGID;
        }
        let inode = Inode {
            kind,
            mode: mode as u16,
            flags: flags_of_acls(acls.access.as_deref(), acls.default.as_deref()),
            file_flags: directory.file_flags.inherited(),
            uid: cred.uid,
            gid: if inherits { directory.gid } else { cred.gid },
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            parent: directory.visible(parent),
            body,
        };
        Ok(NewInode { inode, access: acls.access, default: acls.default })
    }

    /// What a new inode gets of its directory's default ACL; a symlink gets nothing.
    fn inherited_acls(
        &mut self,
        (parent, directory): (InodeId, &Inode),
        kind: FileType,
        mode: u32,
        umask: u32,
    ) -> Result<InheritedAcls> {
        if kind == FileType::Symlink {
            return Ok(InheritedAcls { mode, access: None, default: None });
        }
        let Some((value, acl)) = self.acl(parent, directory, acl::DEFAULT)? else {
            return Ok(InheritedAcls { mode: mode & !umask, access: None, default: None });
        };
        let inherited = acl.inherited(mode);
        Ok(InheritedAcls {
            mode: (mode & !0o777) | inherited.mode,
            access: inherited.access.map(|acl| acl.to_bytes()),
            default: (kind == FileType::Directory).then_some(value),
        })
    }

    /// Adds a new inode with its ACLs.
    pub(crate) fn add_new_inode(&mut self, id: InodeId, new: NewInode) {
        for (name, value) in [(acl::ACCESS, new.access), (acl::DEFAULT, new.default)] {
            if let Some(value) = value {
                self.put_xattr(id, name, &value);
            }
        }
        self.add_inode(id, new.inode);
    }
}

/// A new inode, and the ACLs that it inherits.
pub(crate) struct NewInode {
    pub(crate) inode: Inode,
    pub(crate) access: Option<Vec<u8>>,
    pub(crate) default: Option<Vec<u8>>,
}

/// What a directory leaves to an inode that is made in it.
struct InheritedAcls {
    mode: u32,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

/// The marks of an inode that is made with these ACLs.
pub(crate) fn flags_of_acls(access: Option<&[u8]>, default: Option<&[u8]>) -> u16 {
    let access = if access.is_some() { HAS_XATTRS | HAS_ACCESS_ACL } else { 0 };
    let default = if default.is_some() { HAS_XATTRS | HAS_DEFAULT_ACL } else { 0 };
    access | default
}

impl Place<'_> {
    /// Where something made here is at home.
    pub(crate) fn home(&self) -> (InodeId, &Inode) {
        (self.parent, &self.directory)
    }

    /// The directory that users see the name in.
    pub(crate) fn visible(&self) -> InodeId {
        self.directory.visible(self.parent)
    }

    /// `ENOENT` in a directory without a name.
    pub(crate) fn must_live(&self) -> Result<()> {
        if self.directory.nlink == 0 { Err(Errno::ENOENT.into()) } else { Ok(()) }
    }
}

impl Inode {
    /// `EREMOTE` where names of this hash are in a part of the directory, in another part, or still in the directory.
    fn must_have(&self, hash: u64) -> Result<()> {
        match self.role() {
            Role::Whole => Ok(()),
            Role::Part(part) if PartNumber::of_hash(hash, part.count) == part => Ok(()),
            Role::Splitting { cursor, .. } if hash >= cursor => Ok(()),
            Role::Filling { part, until } if hash < until && PartNumber::of_hash(hash, part.count) == part => Ok(()),
            Role::Part(_) | Role::Split(_) | Role::Splitting { .. } | Role::Filling { .. } => {
                Err(Errno::EREMOTE.into())
            }
        }
    }

    /// A directory got an entry of `kind` (`added`), or lost one.
    fn count_entry(&mut self, kind: FileType, added: bool, now: Timestamp) {
        let step = |count: u64| if added { count + 1 } else { count.saturating_sub(1) };
        if let Body::Directory { entries, .. } = &mut self.body {
            *entries = step(*entries);
        }
        if kind == FileType::Directory {
            self.nlink = if added { self.nlink + 1 } else { self.nlink.saturating_sub(1) };
        }
        self.mtime = now;
        self.ctime = now;
    }
}
