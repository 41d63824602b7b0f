//! The kernel as the keeper of what this client answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::Keeper;
use fuse::{Noted, Notifier};
use types::id::InodeId;
use types::name::Name;

/// When answers were passed on is noted by inode number modulo this.
const PLACES: usize = 1 << 12;

/// When the kernel was last told of each inode, for those who have to make it forget one that it may be about to learn
/// of. Shared by all loops.
pub(crate) struct Told {
    begun: Instant,
    /// Milliseconds after `begun`, plus one; 0: never.
    places: Box<[AtomicU64]>,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn tell(&self, inode: InodeId, now: Instant) {
        let ms = u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX - 1);
        self.place(inode).store(ms + 1, Ordering::Relaxed);
    }

    fn last(&self, inode: InodeId) -> Option<Instant> {
        let ms = self.place(inode).load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.begun + Duration::from_millis(ms))
    }

    fn place(&self, inode: InodeId) -> &AtomicU64 {
        &self.places[inode.0 as usize % PLACES]
    }
}

/// Makes the kernel forget. Before the mount there is nothing to forget.
pub(crate) struct KernelCache {
    pub(crate) told: Arc<Told>,
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
}

impl Keeper for KernelCache {
    fn forget_inode(&self, inode: InodeId) -> bool {
        self.notifier.get().is_none_or(|notifier| notifier.forget_inode(inode) != Noted::Unknown)
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

    fn told_of(&self, inode: InodeId) -> Option<Instant> {
        self.told.last(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_when_an_inode_was_told_of() {
        let told = Told::new();
        let now = told.begun + Duration::from_millis(1234);
        assert_eq!(told.last(InodeId(5)), None);
        told.tell(InodeId(5), now);
        assert_eq!(told.last(InodeId(5)), Some(now));
    }
}
