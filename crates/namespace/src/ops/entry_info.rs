//! What an administrator wants to know of an inode.

use kv::Kv;
use types::id::InodeId;
use types::layout::LayoutPolicy;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::{Body, Inode, POLICY_IS_OWN};

/// Where an inode belongs, and what policy holds there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Belongs {
    pub inode: Inode,
    /// `None` of root, and of a file that has or had several names.
    pub parent: Option<InodeId>,
    pub policy: LayoutPolicy,
    pub policy_is_own: bool,
}

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ESTALE`.
    pub fn belongs(&mut self, id: InodeId) -> Result<Belongs> {
        let inode = self.existing(id)?;
        let parent =
            Some(inode.parent).filter(|&parent| parent != InodeId(0) && id != InodeId::ROOT && inode.nlink > 0);
        let body = match (inode.body, parent) {
            (Body::File(_) | Body::Other, Some(parent)) => self.find(parent)?.map_or(Body::Other, |parent| parent.body),
            (body, _) => body,
        };
        let policy = match body {
            Body::Directory { policy, .. } => policy,
            Body::File(_) | Body::Other => LayoutPolicy::default(),
        };
        Ok(Belongs { inode, parent, policy, policy_is_own: inode.has(POLICY_IS_OWN) })
    }
}
