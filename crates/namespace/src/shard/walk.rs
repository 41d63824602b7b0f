//! Several names at once: a path, as far as this shard has it.

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::name::Name;
use types::name_hash::name_hash;
use types::parts::PartNumber;
use types::walk::{WalkEnd, WalkNames};

use crate::error::Result;
use crate::leases::Room;
use crate::schema::inode::Role;
use crate::shard::Shard;
use crate::view::Walked;

impl<K: Kv> Shard<K> {
    /// Looks up each name in the directory that the one before leads to, the first in `start`, until one is for another
    /// shard. Each step is what `lookup` answers at this moment, by the same rules: nobody's permissions are looked at, since
    /// neither does that (the caller's kernel does; who walks without one is told the modes of all directories on the way).
    ///
    /// `leases`: each step bears those of a lookup. Who does not keep what is on the way is not to ask for them: every change
    /// of one of these directories would have to wait until it has given them back. That a name is absent bears none: it is
    /// the end of the way, of which nothing is left to keep.
    ///
    /// # Errors
    /// Of the first name, as `lookup`: `ENOENT` without the directory, `ENOTDIR`, `EREMOTE` where `start` is a part that does
    /// not have it. Of any, what makes a lookup wait: the walk is to be asked for again as a whole.
    pub fn walk(&mut self, session: SessionId, start: InodeId, names: &WalkNames, leases: bool) -> Result<Walked> {
        let mut steps = Vec::with_capacity(names.len());
        let mut directory = start;
        for (name, left) in names.iter().zip((0..names.len()).rev()) {
            let place = self.keeper(directory, name)?;
            if place != directory && self.is_elsewhere(place) {
                return Ok(Walked { steps, end: WalkEnd::GoOn(place) });
            }
            let Some(mut view) = self.look(session, place, name)? else {
                return Ok(Walked { steps, end: WalkEnd::Absent });
            };
            if leases {
                self.lease_found(session, (place, name), &mut view, Room::Whole);
            }
            let (found, kind, elsewhere) = (view.attr.inode, view.attr.kind, view.elsewhere);
            steps.push(view);
            match kind {
                _ if left == 0 => break,
                FileType::Directory if elsewhere => return Ok(Walked { steps, end: WalkEnd::GoOn(found) }),
                FileType::Directory => directory = found,
                FileType::Symlink => return Ok(Walked { steps, end: WalkEnd::Symlink }),
                _ => return Ok(Walked { steps, end: WalkEnd::NotDirectory }),
            }
        }
        Ok(Walked { steps, end: WalkEnd::Found })
    }

    /// Where the entry `name` of a directory of this shard is to be looked up: there, or in one of its parts.
    fn keeper(&mut self, directory: InodeId, name: &Name) -> Result<InodeId> {
        if self.is_spread() {
            self.transactions.locks.may_read_name(directory, name)?;
        }
        let inode = self.namespace.directory(directory)?;
        let hash = name_hash(name);
        let count = match inode.role() {
            Role::Split(count) => count,
            Role::Splitting { count, cursor } if hash < cursor => count,
            _ => return Ok(directory),
        };
        let parts = self.namespace.parts(directory, &inode)?;
        let number = PartNumber::of_hash(hash, count);
        parts.get(usize::from(number.index)).copied().ok_or_else(|| Errno::EIO.into())
    }
}
