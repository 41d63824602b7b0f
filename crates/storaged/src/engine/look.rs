//! What is there of objects, by their files and by their checksums.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use types::error::Errno;
use types::id::ObjectId;
use types::time::Timestamp;

use super::files::Files;
use super::{Stored, folders, lost, syscall};

/// What a look at an object has found.
#[derive(Clone, Copy, Default)]
struct Seen {
    stored: Option<Stored>,
    /// Bytes, where it should be there by its checksums, or longer.
    expected: Option<u64>,
}

impl Files {
    /// See [`super::ObjectStore::stat`].
    pub(super) async fn stat_files(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno> {
        Ok(self.look_at(objects, None).await?.into_iter().map(|seen| seen.stored).collect())
    }

    /// See [`super::ObjectStore::stat_whole`].
    pub(super) async fn stat_as_summed(&self, objects: &[ObjectId]) -> Result<Vec<Option<Stored>>, Errno> {
        let sums = self.sums.shared_root().filter(|_| self.sums.is_on());
        let mut found = Vec::with_capacity(objects.len());
        for (&object, seen) in objects.iter().zip(self.look_at(objects, sums).await?) {
            found.push(match seen.expected {
                Some(expected) => self.stat_missing(object, seen.stored, expected).await?,
                None => seen.stored,
            });
        }
        Ok(found)
    }

    /// One that is lost has the size that it had, so that its file is neither read as shorter nor settled so, and can be
    /// removed: who reads it is told. Who opens one that is there gives it its size.
    async fn stat_missing(
        &self,
        object: ObjectId,
        stored: Option<Stored>,
        expected: u64,
    ) -> Result<Option<Stored>, Errno> {
        if stored.is_none() {
            self.check_root()?;
            self.note_lost(object, expected);
            return Ok(Some(Stored { size: expected, blocks: 0, mtime: Timestamp(0) }));
        }
        let Some(file) = self.open_existing(object).await? else { return Ok(None) };
        let (stored, _) = syscall::stat(file.fd()).map_err(|errno| self.failed(errno, "stat"))?;
        Ok(Some(Stored { size: stored.size.max(file.size.get()), ..stored }))
    }

    /// `sums`: where their checksums are, if these have a say.
    async fn look_at(&self, objects: &[ObjectId], sums: Option<Arc<OwnedFd>>) -> Result<Vec<Seen>, Errno> {
        let mut found = vec![Seen::default(); objects.len()];
        let mut elsewhere = Vec::new();
        for (index, &object) in objects.iter().enumerate() {
            match self.open.borrow().get(object) {
                Some(file) => {
                    let (mut stored, _) = syscall::stat(file.fd()).map_err(|errno| self.failed(errno, "stat"))?;
                    if sums.is_some() && file.sums().is_some() {
                        // Where the file system takes no change, only we know of what is missing at the end.
                        stored.size = stored.size.max(file.size.get());
                    }
                    found[index].stored = Some(stored);
                }
                None => elsewhere.push((index, object)),
            }
        }
        if elsewhere.is_empty() {
            return Ok(found);
        }
        let root = Arc::clone(&self.root);
        let looks = self
            .unblock(move || {
                let sums = sums.as_ref().map(AsRawFd::as_raw_fd);
                let look = |(index, object)| Ok((index, look(root.as_raw_fd(), sums, object)?));
                elsewhere.into_iter().map(look).collect::<Result<Vec<_>, Errno>>()
            })
            .await
            .map_err(|errno| self.failed(errno, "stat"))?;
        for (index, look) in looks {
            found[index] = look;
        }
        if found.iter().any(|seen| seen.stored.is_none()) {
            self.check_root()?;
        }
        Ok(found)
    }
}

/// The file first: who changes it has said before that its checksums do not tell its size any more. Blocks.
fn look(root: RawFd, sums: Option<RawFd>, object: ObjectId) -> Result<Seen, Errno> {
    let stored = syscall::stat_at(root, &folders::path(object))?;
    let expected = sums.map_or(Ok(None), |sums| lost::size(sums, object))?;
    let is_missing = |expected: &u64| stored.is_none_or(|stored| stored.size < *expected);
    Ok(Seen { stored, expected: expected.filter(is_missing) })
}
