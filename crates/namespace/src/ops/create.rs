//! New regular files, device nodes, fifos and sockets.

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::{GroupId, InodeId};

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::edge::Edge;
use crate::schema::inode::{Body, GROUPS_INLINE, Inode, Striping};
use crate::schema::layout;
use crate::view::Create;

impl<K: Kv> Namespace<K> {
    /// The new inode, or the regular file that is there where the request does not insist on making one.
    ///
    /// # Errors
    /// `ENOENT` (no such directory, or it was removed), `ENOTDIR`, `EEXIST`; `EISDIR` or `ELOOP` where the request does
    /// not insist and a directory or a symlink is there; `EINVAL` for a directory or symlink; `EPERM` in an immutable
    /// directory; `ENOSPC` where the pool
    /// has no group, or the directory too many names of this hash.
    pub fn create(&mut self, create: &Create<'_>) -> Result<InodeId> {
        if matches!(create.kind, FileType::Directory | FileType::Symlink) {
            return Err(Errno::EINVAL.into());
        }
        let place = self.place_for_new(create.parent, create.name)?;
        if let Some(edge) = place.edge {
            may_take(create, edge)?;
            if edge.child.home() == self.shard {
                self.occupant(&place)?;
            }
            return Ok(edge.child);
        }
        let (body, wide) = match create.kind {
            FileType::Regular => self.stripe(&place.directory)?,
            _ => (Body::Other, None),
        };
        let id = self.new_id()?;
        let mut new = self.new_inode(place.home(), create.kind, create.mode, create.cred, body)?;
        if matches!(create.kind, FileType::CharDevice | FileType::BlockDevice) {
            new.inode.rdev = create.rdev;
        }
        self.keep_layout(id, wide);
        self.add_new_inode(id, new);
        self.enter(&place, Edge { child: id, kind: create.kind });
        Ok(id)
    }

    /// A new file's striping by its directory's policy, and its groups where the inode has no room for them.
    pub(crate) fn stripe(&mut self, directory: &Inode) -> Result<(Body, Option<Vec<GroupId>>)> {
        let Body::Directory { policy, .. } = &directory.body else {
            return Err(Errno::ENOTDIR.into());
        };
        let chosen = self.placement.choose(policy)?;
        let mut groups = [GroupId(0); GROUPS_INLINE];
        let inline = groups.get_mut(..chosen.len()).map(|inline| inline.copy_from_slice(chosen));
        let wide = if inline.is_none() { Some(chosen.to_vec()) } else { None };
        let stripes = chosen.len() as u16;
        let striping = Striping { chunk_size: policy.chunk_size, stripes, groups, inline_limit: policy.inline_limit };
        Ok((Body::File(striping), wide))
    }

    /// Keeps the groups that the inode has no room for.
    pub(crate) fn keep_layout(&mut self, id: InodeId, wide: Option<Vec<GroupId>>) {
        if let Some(groups) = wide {
            let mut value = Vec::new();
            layout::ser_value(&mut value, &groups);
            layout::ser_key(&mut self.key, id);
            self.cold.put(&self.key, &value);
        }
    }
}

/// Whether what is there will do instead of a new one.
fn may_take(create: &Create<'_>, edge: Edge) -> Result<()> {
    if create.exclusive || create.kind != FileType::Regular {
        return Err(Errno::EEXIST.into());
    }
    match edge.kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Errno::EISDIR.into()),
        FileType::Symlink => Err(Errno::ELOOP.into()),
        FileType::Fifo | FileType::CharDevice | FileType::BlockDevice | FileType::Socket => Err(Errno::EEXIST.into()),
    }
}
