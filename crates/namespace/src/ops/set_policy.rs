//! What new files of a directory get.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::layout::LayoutPolicy;
use types::placement::Placement;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::{Body, Inode, POLICY_IS_OWN};
use crate::view::PolicyChange;

impl<K: Kv> Namespace<K> {
    /// Files that are there keep their layout, directories that are there their policy.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`, `EINVAL` (values out of range, or a pool or shard that is not there).
    pub fn set_policy(&mut self, id: InodeId, change: &PolicyChange) -> Result<()> {
        let inode = self.existing(id)?;
        let policy = self.changed_policy(&inode, change)?;
        if *change == PolicyChange::default() {
            return Ok(());
        }
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        if let Body::Directory { policy: place, .. } = &mut inode.body {
            *place = policy;
        }
        inode.flags |= POLICY_IS_OWN;
        inode.ctime = now;
        Ok(())
    }

    /// What a directory's policy is going to be. Errors as of `set_policy`.
    pub(crate) fn changed_policy(&self, directory: &Inode, change: &PolicyChange) -> Result<LayoutPolicy> {
        let Body::Directory { mut policy, .. } = directory.body else {
            return Err(Errno::ENOTDIR.into());
        };
        policy.chunk_size = change.chunk_size.unwrap_or(policy.chunk_size);
        policy.stripe_count = change.stripe_count.unwrap_or(policy.stripe_count);
        policy.pool = change.pool.unwrap_or(policy.pool);
        policy.directories = change.directories.unwrap_or(policy.directories);
        policy.inline_limit = change.inline_limit.unwrap_or(policy.inline_limit);
        policy.validate()?;
        if let Some(Placement::Shard(shard)) = change.directories
            && !self.homes.all.contains(&shard)
        {
            return Err(Errno::EINVAL.into());
        }
        if change.pool.is_some() && !self.placement.knows(policy.pool) {
            return Err(Errno::EINVAL.into());
        }
        Ok(policy)
    }
}
