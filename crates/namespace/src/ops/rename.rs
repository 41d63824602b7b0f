//! Moving an entry: within a directory or between two, over what is there or not, or exchanging both.

use kv::Kv;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;

use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::ops::remove::Fate;
use crate::ops::{NewInode, Place};
use crate::schema::edge::Edge;
use crate::schema::inode::{self, Body, Inode};
use crate::view::Rename;

/// Directories above a directory. A path that a kernel resolves is far shorter; more is a loop, so damage.
const DEPTH_MAX: u32 = 1 << 20;

type Occupant = (Edge, Inode);

/// A new inode that takes the place of one that is moved.
pub(crate) struct Whiteout {
    pub(crate) id: InodeId,
    pub(crate) new: NewInode,
}

impl Whiteout {
    pub(crate) fn edge(&self) -> Edge {
        Edge { child: self.id, kind: FileType::CharDevice }
    }
}

impl<K: Kv> Namespace<K> {
    /// What became of the replaced inode, if there was one. `held` asks whether somebody has it open.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` (a parent is none, or a directory would replace another kind), `EISDIR` (another kind would
    /// replace a directory), `EEXIST` (NOREPLACE), `ENOTEMPTY`, `EINVAL` (a directory into itself, or flags), `EMLINK`,
    /// `ENOSPC` (too many names of one hash), `EPERM` (flags).
    pub fn rename(&mut self, rename: &Rename<'_>, held: impl FnOnce(InodeId) -> bool) -> Result<Fate> {
        rename.check_flags()?;
        let source = self.place(rename.source_parent, rename.source_name)?;
        let target = self.place(rename.target_parent, rename.target_name)?;
        let moved = self.occupant(&source)?;
        target.must_live()?;
        if target.edge.is_none() {
            if rename.exchanges() {
                return Err(Errno::ENOENT.into());
            }
            return self.move_to_vacancy(&source, &target, moved, rename.whiteout());
        }
        if !rename.replaces() {
            return Err(Errno::EEXIST.into());
        }
        let other = self.occupant(&target)?;
        if rename.exchanges() {
            return self.exchange(&source, &target, moved, other);
        }
        self.move_over(&source, &target, moved, (other, rename.whiteout()), held)
    }

    fn move_to_vacancy(
        &mut self,
        source: &Place<'_>,
        target: &Place<'_>,
        moved: Occupant,
        whiteout: Option<Credentials>,
    ) -> Result<Fate> {
        self.check_no_loop(source, target, &moved)?;
        source.may_lose(&moved.1)?;
        target.may_enter()?;
        if (source.parent, source.hash) != (target.parent, target.hash) || whiteout.is_some() {
            self.has_room(target)?;
        }
        if moved.1.is_dir() && source.parent != target.parent {
            self.can_have_subdir(&target.directory)?;
        }
        let whiteout = self.whiteout(source, whiteout)?;
        self.leave_behind(source, moved.0.kind, whiteout);
        self.enter(target, moved.0);
        self.moved(moved.0.child, moved.1, target.visible());
        Ok(Fate::Lives)
    }

    fn move_over(
        &mut self,
        source: &Place<'_>,
        target: &Place<'_>,
        moved: Occupant,
        (other, whiteout): (Occupant, Option<Credentials>),
        held: impl FnOnce(InodeId) -> bool,
    ) -> Result<Fate> {
        self.check_no_loop(source, target, &moved)?;
        // The target directory holds the source: so it is not empty, whatever the source is.
        let crosses = source.parent != target.parent;
        if crosses && other.1.is_dir() && self.is_within(source.parent, other.0.child)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        if moved.0.child == other.0.child {
            return Ok(Fate::Lives);
        }
        source.may_lose(&moved.1)?;
        target.may_lose(&other.1)?;
        match (moved.1.is_dir(), other.1.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR.into()),
            (false, true) => return Err(Errno::EISDIR.into()),
            (true, true) if other.1.entries() != 0 => return Err(Errno::ENOTEMPTY.into()),
            (true, true) | (false, false) => {}
        }
        let loss = self.prepare_loss(other.0.child, other.1, held)?;
        let whiteout = self.whiteout(source, whiteout)?;
        self.leave_behind(source, moved.0.kind, whiteout);
        self.replace(target, other.0.kind, moved.0);
        self.moved(moved.0.child, moved.1, target.visible());
        Ok(self.lose(loss))
    }

    /// What is left at `source`, if anything is to be.
    pub(crate) fn whiteout(&mut self, source: &Place<'_>, cred: Option<Credentials>) -> Result<Option<Whiteout>> {
        let Some(cred) = cred else { return Ok(None) };
        let new = self.new_inode(source.home(), FileType::CharDevice, 0, cred, Body::Other)?;
        Ok(Some(Whiteout { id: self.new_id()?, new }))
    }

    fn leave_behind(&mut self, source: &Place<'_>, kind: FileType, whiteout: Option<Whiteout>) {
        let Some(whiteout) = whiteout else { return self.leave(source, kind) };
        self.replace(source, kind, whiteout.edge());
        self.add_new_inode(whiteout.id, whiteout.new);
    }

    fn exchange(&mut self, source: &Place<'_>, target: &Place<'_>, moved: Occupant, other: Occupant) -> Result<Fate> {
        self.check_no_loop(source, target, &moved)?;
        self.check_no_loop(target, source, &other)?;
        source.must_live()?;
        if moved.0.child == other.0.child {
            return Ok(Fate::Lives);
        }
        source.may_lose(&moved.1)?;
        target.may_lose(&other.1)?;
        if source.parent != target.parent {
            match (moved.1.is_dir(), other.1.is_dir()) {
                (true, false) => self.can_have_subdir(&target.directory)?,
                (false, true) => self.can_have_subdir(&source.directory)?,
                (true, true) | (false, false) => {}
            }
        }
        self.replace(target, other.0.kind, moved.0);
        self.replace(source, moved.0.kind, other.0);
        self.moved(moved.0.child, moved.1, target.visible());
        self.moved(other.0.child, other.1, source.visible());
        Ok(Fate::Lives)
    }

    /// `EINVAL` where a directory would come to lie within itself.
    fn check_no_loop(&mut self, source: &Place<'_>, target: &Place<'_>, moved: &Occupant) -> Result<()> {
        let crosses = source.parent != target.parent;
        if crosses && moved.1.is_dir() && self.is_within(target.parent, moved.0.child)? {
            return Err(Errno::EINVAL.into());
        }
        Ok(())
    }

    /// `directory` is `ancestor` or lies below it.
    fn is_within(&mut self, directory: InodeId, ancestor: InodeId) -> Result<bool> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == ancestor {
                return Ok(true);
            }
            if at == InodeId::ROOT {
                return Ok(false);
            }
            match self.find(at)? {
                Some(inode) if inode.is_dir() => at = inode.parent,
                _ => break,
            }
        }
        inode::ser_key(&mut self.key, directory);
        Err(Damage::new("a directory that does not lie below root", &self.key).into())
    }

    /// The moved inode has a new parent, unless it has several.
    pub(crate) fn moved(&mut self, id: InodeId, inode: Inode, parent: InodeId) {
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.ctime = now;
        if inode.parent != InodeId(0) {
            inode.parent = parent;
        }
    }
}
