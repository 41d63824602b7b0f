//! Listing ahead for who walks through a tree and wants nothing but names: the directories that are expected next
//! ([`crate::tours`]) are asked for while the program is busy with the present one.
//!
//! A page that was asked for ahead is given only where it is what a server would say now: under the lease on its directory no
//! other client has changed anything, and no own change has ended since it was asked for. Where a listing would change the
//! access time there is no such page, since nobody may ever come to the directory.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::directory::Listing;
use crate::listings::Listed;
use crate::mutex::lock;
use crate::promise::{Errand, Promise};
use crate::retry::Ladder;
use crate::router::{Client, until_ending};
use crate::tours::{AHEAD_MAX, Tours};

/// So many directories are asked for ahead for all walks together, and so many entries of each: twenty megabytes
/// where all are large.
const PAGES_MAX: usize = 4 * AHEAD_MAX;
const ENTRIES_MAX: u32 = 1024;
/// Who has not come by then does not come.
const KEEP: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct ListAhead {
    tours: Mutex<Tours>,
    asked: Mutex<Vec<Asked>>,
}

struct Asked {
    directory: InodeId,
    at: Instant,
    promise: Arc<Promise<Coming>>,
}

/// `None`: there is none that could be given.
type Coming = Option<Arc<Page>>;

/// The first page of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) listing: Listing,
    pub(crate) begun: Listed,
    /// Own changes of the directory that had ended before it was asked for.
    pub(crate) changes: u64,
}

impl ListAhead {
    fn tours(&self) -> MutexGuard<'_, Tours> {
        lock(&self.tours)
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        lock(&self.asked)
    }

    /// `None` where it is asked for already, or too many are: then it may be once more a listing later.
    fn ask(&self, directory: InodeId, now: Instant) -> Option<Errand<Coming>> {
        let mut asked = self.asked();
        asked.retain(|one| now.saturating_duration_since(one.at) < KEEP);
        if asked.len() >= PAGES_MAX || asked.iter().any(|one| one.directory == directory) {
            return None;
        }
        let promise = Arc::default();
        let errand = Errand::new(&promise);
        asked.push(Asked { directory, at: now, promise });
        Some(errand)
    }

    fn take(&self, directory: InodeId) -> Option<Arc<Promise<Coming>>> {
        let mut asked = self.asked();
        let at = asked.iter().position(|one| one.directory == directory)?;
        Some(asked.swap_remove(at).promise)
    }
}

impl Client {
    /// A program begins to list `directory`.
    pub(crate) fn begins_listing(&self, directory: InodeId) {
        self.shared.list_ahead.tours().begins(directory);
    }

    /// It is given this page. `ahead`: of how many entries a page is to be that is asked for ahead; `None` to ask for none.
    pub(crate) fn has_listed(&self, directory: InodeId, page: &Listing, ahead: Option<u32>) {
        let next = {
            let mut tours = self.shared.list_ahead.tours();
            let directories = page.entries.iter().filter(|entry| entry.kind == FileType::Directory);
            tours.finds(directory, directories.map(|entry| entry.inode), page.end);
            if ahead.is_some() { tours.next(directory) } else { Vec::new() }
        };
        let Some(count) = ahead else { return };
        for directory in next {
            if let Some(errand) = self.shared.list_ahead.ask(directory, Instant::now()) {
                self.list_later(directory, count.clamp(1, ENTRIES_MAX), errand);
            }
        }
    }

    fn list_later(&self, directory: InodeId, count: u32, errand: Errand<Coming>) {
        self.in_background(async move |client| {
            let caller = Caller::patient(Credentials::default());
            let page = client.list_for_later(&caller, directory, count).await;
            if let Ok(None) = page {
                client.shared.list_ahead.tours().was_in_vain(directory);
            }
            errand.ends(page.ok().flatten().map(Arc::new));
        });
    }

    /// The first page of `directory`, where it was asked for ahead and is as it is now.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn listed_ahead(&self, caller: &Caller<'_>, directory: InodeId) -> Result<Option<Listing>, Errno> {
        let Some(promise) = self.shared.list_ahead.take(directory) else { return Ok(None) };
        let ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
        let page = until_ending(caller, &ladder, pin!(promise.outcome()), || {}).await?.flatten();
        drop(promise);
        let (listings, board, now) = (&self.shared.listings, &self.shared.board, Instant::now());
        let page = page.filter(|page| listings.goes_on(board, directory, page.begun, page.changes, now));
        if page.is_some() {
            self.shared.list_ahead.tours().was_right(directory);
        }
        Ok(page.map(|page| Arc::try_unwrap(page).map_or_else(|page| page.listing.clone(), |page| page.listing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_asked_for_once_and_no_more_than_so_many() {
        let (ahead, now) = (ListAhead::default(), Instant::now());
        let all: Vec<_> = (1..=PAGES_MAX as u64).map(InodeId).collect();
        let errands: Vec<_> = all.iter().map(|&directory| ahead.ask(directory, now).expect("room")).collect();
        assert!(ahead.ask(InodeId(99), now).is_none());
        assert!(ahead.take(all[3]).is_some() && ahead.take(all[3]).is_none());
        assert!(ahead.ask(all[4], now).is_none(), "it is asked for");
        assert!(ahead.ask(all[3], now).is_some());
        assert!(ahead.ask(all[4], now + KEEP).is_some(), "nobody came");
        assert_eq!(ahead.asked().len(), 1);
        drop(errands);
    }
}
