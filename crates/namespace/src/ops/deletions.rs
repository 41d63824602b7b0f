//! Objects of removed files on their way out.

use std::ops::ControlFlow;

use kv::Kv;
use types::id::InodeId;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::deletion;
use crate::view::Deletion;

impl<K: Kv> Namespace<K> {
    /// At most `count` committed ones in order of (inode, stripe), after the one given.
    ///
    /// # Errors
    /// Where the store fails or a record is damaged.
    pub fn deletions(&mut self, after: Option<(InodeId, u32)>, count: usize) -> Result<Vec<Deletion>> {
        let mut found = Ok(Vec::new());
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
            let Ok(list) = &mut found else { return ControlFlow::Break(()) };
            if list.len() >= count {
                return ControlFlow::Break(());
            }
            match deletion::deser(key, value) {
                Ok(deletion) => list.push(deletion),
                Err(damage) => found = Err(damage),
            }
            ControlFlow::Continue(())
        })?;
        Ok(found?)
    }

    /// The objects are gone from their groups.
    pub fn deletions_done(&mut self, done: &[Deletion]) {
        for deletion in done {
            deletion::ser_key(&mut self.key, deletion.inode, deletion.stripe);
            self.cold.delete(&self.key);
        }
    }
}
