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
/// Who has not come by then does not come, or so late that less is to be asked for ahead.
const KEEP: Duration = Duration::from_secs(5);
/// Who comes later gets no more asked for ahead: that would be kept in vain.
const EARLY: Duration = Duration::from_millis(2500);

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

    /// Forgets those to which nobody has come.
    fn expire(&self, now: Instant) -> Vec<InodeId> {
        let is_late = |one: &mut Asked| now.saturating_duration_since(one.at) >= KEEP;
        self.asked().extract_if(.., is_late).map(|one| one.directory).collect()
    }

    /// `None` where it is asked for already, or too many are: then it may be once more a listing later.
    fn ask(&self, directory: InodeId, now: Instant) -> Option<Errand<Coming>> {
        let mut asked = self.asked();
        if asked.len() >= PAGES_MAX || asked.iter().any(|one| one.directory == directory) {
            return None;
        }
        let promise = Arc::default();
        let errand = Errand::new(&promise);
        asked.push(Asked { directory, at: now, promise });
        Some(errand)
    }

    fn take(&self, directory: InodeId) -> Option<Asked> {
        let mut asked = self.asked();
        let at = asked.iter().position(|one| one.directory == directory)?;
        Some(asked.swap_remove(at))
    }
}

impl Client {
    /// A program begins to list `directory`.
    pub(crate) fn begins_listing(&self, directory: InodeId) {
        self.shared.list_ahead.tours().begins(directory);
    }

    /// It is given this page. `ahead`: of how many entries a page is to be that is asked for ahead; `None` to ask for none.
    pub(crate) fn has_listed(&self, directory: InodeId, page: &Listing, ahead: Option<u32>) {
        let (list_ahead, now) = (&self.shared.list_ahead, Instant::now());
        let late = if ahead.is_some() { list_ahead.expire(now) } else { Vec::new() };
        let next = {
            let mut tours = list_ahead.tours();
            tours.were_too_far(&late);
            let directories = page.entries.iter().filter(|entry| entry.kind == FileType::Directory);
            tours.finds(directory, directories.map(|entry| entry.inode), page.end);
            if ahead.is_some() { tours.next(directory) } else { Vec::new() }
        };
        let Some(count) = ahead else { return };
        for directory in next {
            if let Some(errand) = list_ahead.ask(directory, now) {
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
        let Some(Asked { at, promise, .. }) = self.shared.list_ahead.take(directory) else { return Ok(None) };
        // Before the wait for a page that is on its way: the farther the shard is, the more is to be.
        let is_early = at.elapsed() < EARLY;
        let ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
        let page = until_ending(caller, &ladder, pin!(promise.outcome()), || {}).await?.flatten();
        drop(promise);
        let (listings, board, now) = (&self.shared.listings, &self.shared.board, Instant::now());
        let page = page.filter(|page| listings.goes_on(board, directory, page.begun, page.changes, now));
        if page.is_some() && is_early {
            self.shared.list_ahead.tours().was_right(directory);
        }
        Ok(page.map(|page| Arc::try_unwrap(page).map_or_else(|page| page.listing.clone(), |page| page.listing)))
    }
}

#[cfg(test)]
mod tests {
    use types::attr::Attr;
    use types::name::Name;
    use wire::v1::meta::{DirectoryReply, Standing};

    use super::*;
    use crate::directory::Entry;
    use crate::shared::Shared;
    use crate::test_client;
    use crate::tours::AHEAD_MIN;

    const ROOT: InodeId = InodeId(1);

    #[test]
    fn a_directory_is_asked_for_once_and_no_more_than_so_many() {
        let (ahead, now) = (ListAhead::default(), Instant::now());
        let all: Vec<_> = (1..=PAGES_MAX as u64).map(InodeId).collect();
        let errands: Vec<_> = all.iter().map(|&directory| ahead.ask(directory, now).expect("room")).collect();
        assert!(ahead.ask(InodeId(99), now).is_none());
        assert!(ahead.take(all[3]).is_some() && ahead.take(all[3]).is_none());
        assert!(ahead.ask(all[4], now).is_none(), "it is asked for");
        assert!(ahead.ask(all[3], now).is_some());
        assert!(ahead.expire(now + KEEP / 2).is_empty());
        assert_eq!(ahead.expire(now + KEEP).len(), PAGES_MAX, "nobody came");
        assert!(ahead.ask(all[4], now + KEEP).is_some() && ahead.expire(now + KEEP).is_empty());
        assert_eq!(ahead.asked().len(), 1);
        drop(errands);
    }

    fn listing(directories: &[InodeId]) -> Listing {
        let entries = directories.iter().zip(1..).map(|(&inode, cookie)| Entry {
            name: Name::new(format!("d{cookie}").as_bytes()).expect("a name"),
            inode,
            kind: FileType::Directory,
            cookie,
            named: None,
        });
        Listing { entries: entries.collect(), end: true, parent: ROOT }
    }

    fn list(client: &Client, directory: InodeId, found: &[InodeId]) {
        client.begins_listing(directory);
        client.has_listed(directory, &listing(found), Some(10));
    }

    fn grows_old(client: &Client, age: Duration) {
        client.shared.list_ahead.asked().iter_mut().for_each(|one| one.at -= age);
    }

    #[test]
    fn who_walks_slowly_gets_less_asked_for_ahead() {
        test_client::run(async |client| {
            let list_ahead = &client.shared.list_ahead;
            let all: Vec<_> = (1000..1100).map(InodeId).collect();
            list(&client, ROOT, &all);
            all[..2].iter().for_each(|&directory| list(&client, directory, &[]));
            (0..AHEAD_MAX).for_each(|_| list_ahead.tours().was_right(ROOT));
            for (at, expected) in [(2, AHEAD_MAX), (3, AHEAD_MAX / 2), (4, AHEAD_MAX / 4)] {
                list(&client, all[at], &[]);
                assert_eq!(list_ahead.asked().len(), expected);
                grows_old(&client, KEEP);
            }
        });
    }

    #[test]
    fn only_what_is_used_early_makes_more_be_asked_for_ahead() {
        test_client::run(async |client| {
            let (Shared { list_ahead, listings, board, .. }, caller) =
                (&*client.shared, Caller::patient(Credentials::default()));
            let all: Vec<_> = (1000..1100).map(InodeId).collect();
            list(&client, ROOT, &all);
            all[..3].iter().for_each(|&directory| list(&client, directory, &[]));
            list_ahead.asked().clear();
            for (directory, age, expected) in [(all[3], EARLY, AHEAD_MIN), (all[4], Duration::ZERO, AHEAD_MIN + 1)] {
                let errand = list_ahead.ask(directory, Instant::now()).expect("room");
                grows_old(&client, age);
                let attr = Attr { kind: FileType::Directory, ..test_client::reply(directory).attr };
                let told = DirectoryReply { attr, standing: Standing { order: 1, empty: true }, lease_ms: 10_000 };
                let begun = Listed::told(board.ticket(), &told);
                let page = Page { listing: listing(&[]), begun, changes: listings.changes(directory) };
                errand.ends(Some(Arc::new(page)));
                client.begins_listing(directory);
                let page = client.listed_ahead(&caller, directory).await.expect("nobody ends");
                list_ahead.asked().clear();
                client.has_listed(directory, &page.expect("it is good"), Some(10));
                assert_eq!(list_ahead.asked().len(), expected);
                list_ahead.asked().clear();
            }
        });
    }
}
