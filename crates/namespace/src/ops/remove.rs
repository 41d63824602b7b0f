//! What happens to an inode that lost a name, for unlink, rmdir and rename alike.

use kv::Kv;
use types::error::Errno;
use types::id::{GroupId, InodeId};

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::{Body, HAS_OBJECTS, HAS_XATTRS, Inode};
use crate::schema::{contents, deletion, layout, parts, symlink, xattr};

/// What became of an inode whose name was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has other names.
    Lives,
    /// It has no name, but is held open: the caller keeps account of the holders, and calls `reap` after the last.
    Orphaned(InodeId),
    /// It is gone with all its records.
    Gone(InodeId),
}

/// A checked loss of a name, to be carried out.
pub(crate) struct Loss {
    id: InodeId,
    inode: Inode,
    /// `None` where the inode stays.
    remains: Option<Remains>,
}

/// The records of an inode beside itself.
#[derive(Default)]
struct Remains {
    keys: Vec<Vec<u8>>,
    /// Of the objects to remove, in stripe order.
    groups: Vec<GroupId>,
}

impl<K: Kv> Namespace<K> {
    /// Looks up all that `lose` will need: after this, nothing can fail. `held` asks whether somebody has the inode
    /// open, where this is its last name.
    pub(crate) fn prepare_loss(
        &mut self,
        id: InodeId,
        inode: Inode,
        held: impl FnOnce(InodeId) -> bool,
    ) -> Result<Loss> {
        let last = inode.is_dir() || inode.nlink <= 1;
        let remains = if last && !held(id) { Some(self.remains(id, &inode)?) } else { None };
        Ok(Loss { id, inode, remains })
    }

    pub(crate) fn lose(&mut self, loss: Loss) -> Fate {
        let Loss { id, inode, remains } = loss;
        if let Some(remains) = remains {
            self.bury(id, remains);
            return Fate::Gone(id);
        }
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.ctime = now;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        if inode.nlink == 0 { Fate::Orphaned(id) } else { Fate::Lives }
    }

    /// Removes an orphan that nobody holds any more. One that is gone already is no error.
    ///
    /// # Errors
    /// Where the store fails; nothing happened then.
    pub fn reap(&mut self, id: InodeId) -> Result<()> {
        let Some(inode) = self.find(id)? else {
            return Ok(());
        };
        if inode.nlink != 0 {
            return Err(Errno::EBUSY.into());
        }
        let remains = self.remains(id, &inode)?;
        self.bury(id, remains);
        Ok(())
    }

    fn remains(&mut self, id: InodeId, inode: &Inode) -> Result<Remains> {
        let mut remains = Remains::default();
        if inode.has(HAS_OBJECTS)
            && let Some(layout) = self.layout(id, inode)?
        {
            remains.groups = layout.groups;
        }
        let key = &mut self.key;
        if let Body::File(striping) = &inode.body
            && striping.inline().is_none()
        {
            layout::ser_key(key, id);
            remains.keys.push(key.clone());
        }
        if inode.inline_limit().is_some() && inode.size > 0 {
            contents::ser_key(key, id);
            remains.keys.push(key.clone());
        }
        if inode.kind == types::attr::FileType::Symlink {
            symlink::ser_key(key, id);
            remains.keys.push(key.clone());
        }
        if inode.is_split() {
            parts::ser_key(key, id);
            remains.keys.push(key.clone());
        }
        if inode.has(HAS_XATTRS) {
            let mut end = Vec::new();
            xattr::ser_key(key, id, b"");
            xattr::ser_end(&mut end, id);
            remains.keys.extend(self.cold.lengths(&self.kv, key, &end)?.into_keys());
        }
        Ok(remains)
    }

    fn bury(&mut self, id: InodeId, remains: Remains) {
        for key in remains.keys {
            self.cold.delete(&key);
        }
        if !remains.groups.is_empty() {
            self.buried.push(id);
        }
        for (stripe, group) in remains.groups.into_iter().enumerate() {
            deletion::ser_key(&mut self.key, id, stripe as u32);
            self.cold.put(&self.key, &deletion::ser_value(group));
        }
        self.edges.forget_directory(id);
        self.remove_inode(id);
    }
}
