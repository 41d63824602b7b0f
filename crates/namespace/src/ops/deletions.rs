//! Objects of removed files on their way out.

use std::ops::ControlFlow;

use kv::Kv;
use types::id::InodeId;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::deletion;
use crate::view::{Deletion, DeletionPage};

impl<K: Kv> Namespace<K> {
    /// At most `count` committed ones in order of (inode, stripe), after the one given. What is damaged is passed over: the
    /// objects of others do not stay for it.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn deletions(&mut self, after: Option<(InodeId, u32)>, count: usize) -> Result<DeletionPage> {
        let mut page = DeletionPage::default();
        match after {
            // The least key that is greater: the same and a zero byte.
            Some((inode, stripe)) => {
                deletion::ser_key(&mut self.key, inode, stripe);
                self.key.push(0);
            }
            None => {
                self.key.clear();
                self.key.push(deletion::PREFIX);
            }
        }
        self.kv.scan(&self.key, &[deletion::PREFIX + 1], |key, value| {
            if page.deletions.len() >= count {
                return ControlFlow::Break(());
            }
            match deletion::deser(key, value) {
                Ok(deletion) => page.deletions.push(deletion),
                Err(damage) => {
                    page.damaged += 1;
                    page.first_damage.get_or_insert(damage);
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(page)
    }

    /// The objects are gone from their groups.
    pub fn deletions_done(&mut self, done: &[Deletion]) {
        for deletion in done {
            deletion::ser_key(&mut self.key, deletion.inode, deletion.stripe);
            self.cold.delete(&self.key);
        }
    }
}
