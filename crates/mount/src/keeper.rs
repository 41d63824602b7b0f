//! The kernel as the keeper of what this client answers.

use std::sync::{Arc, OnceLock};

use client::Keeper;
use fuse::{Noted, Notifier};
use types::id::InodeId;
use types::name::Name;

/// Makes the kernel forget. Before the mount there is nothing to forget.
pub(crate) struct KernelCache {
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
}

impl Keeper for KernelCache {
    fn forget_inode(&self, inode: InodeId) -> bool {
        self.notifier.get().is_none_or(|notifier| notifier.forget_inode(inode) != Noted::Unknown)
    }

    fn forget_attributes(&self, inode: InodeId) {
        if let Some(notifier) = self.notifier.get()
            && notifier.is_told_of(inode)
        {
            let _ = notifier.forget_attributes(inode);
        }
    }

    fn forget_name(&self, parent: InodeId, name: &Name) {
        if let Some(notifier) = self.notifier.get() {
            // A directory that the kernel does not know has no names in it.
            let _ = notifier.forget_name(parent, name);
        }
    }

    fn doubt_all_names(&self) -> bool {
        self.notifier.get().is_none_or(Notifier::doubt_all_names)
    }

    fn forget_all(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        // On older kernels, names go with their terms alone.
        let _ = notifier.doubt_all_names();
        let inodes = notifier.told_of();
        // Attributes wait for nothing, and data only for what is being read or written.
        for &inode in &inodes {
            let _ = notifier.forget_attributes(inode);
        }
        for inode in inodes {
            let _ = notifier.forget_inode(inode);
        }
    }

    fn is_told_of(&self, inode: InodeId) -> bool {
        self.notifier.get().is_some_and(|notifier| notifier.is_told_of(inode))
    }
}
