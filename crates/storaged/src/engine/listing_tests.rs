//! What listings, and scrubs, say of a target that goes away under them, or of which the disk does not give some.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use types::error::Errno;
use wire::v1::scrub::{ScrubRun, ScrubStart};
use wire::v1::storage::List;

use super::ObjectStore;
use super::ahead_tests::served;
use super::files::Files;
use super::folders::Folder;
use super::sums_tests::store;
use super::tests::{ALL, object, on_ring, write};
use crate::scrub;
use crate::served::Served;

/// In a folder each.
async fn with_three_objects(dir: &Path) -> Files {
    let store = store(dir);
    for number in 0..3 {
        write(&store, object(number << 10, 0), 0, b"x").await.expect("written");
    }
    store
}

/// With something that happens as soon as it has begun.
async fn scrub(served: &Rc<Served<Files>>, happens: impl FnOnce()) -> ScrubRun {
    scrub::start(served, &ScrubStart { run: 1, rate: 0, targets: 1 });
    happens();
    loop {
        let run = served.scrub.status().run.expect("begun");
        if !run.running {
            return run;
        }
        ring::next_turn().await;
    }
}

/// Requests still find them: who lists a disk that was unmounted while it was in use is not to take it for empty.
#[test]
fn a_listing_shows_what_requests_find_though_the_directory_was_moved() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("target");
    fs::create_dir(&dir).expect("made");
    on_ring(async {
        let store = with_three_objects(&dir).await;
        fs::rename(&dir, root.path().join("moved")).expect("renamed");
        assert_eq!(store.list(None, 10, ALL).await.expect("listed").objects.len(), 3);
        assert_eq!(store.list_checksums(None, 10, ALL).await.expect("listed").objects.len(), 3);
        fs::remove_dir_all(root.path().join("moved")).expect("removed");
        assert_eq!(store.list(None, 10, ALL).await.expect_err("gone"), Errno::EIO);
    });
}

#[test]
fn a_scrub_of_a_target_that_goes_away_is_not_finished() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let served = Rc::new(served(dir.path(), with_three_objects(dir.path()).await));
        let run = scrub(&served, || served.target.note_vanished("test")).await;
        assert!(!run.failure.0.is_empty() && run.objects == 0, "{run:?}");
    });
}

#[test]
fn a_scrub_goes_over_what_the_disk_gives_and_says_that_it_is_not_all() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = with_three_objects(dir.path()).await;
        // Something else stands in the place of a folder.
        let folder = dir.path().join("objects").join(Folder::of(object(1 << 10, 0)).path());
        fs::remove_dir_all(&folder).expect("removed");
        fs::write(&folder, "").expect("written");
        let served = Rc::new(served(dir.path(), store));
        let run = scrub(&served, || ()).await;
        assert_eq!((run.objects, run.objects_total), (2, 2));
        assert!(!run.failure.0.is_empty());
        let page = served.list(&List { after: None, count: 10 }).await;
        assert_eq!(page.map(|_| ()), Err(Errno::ENOTDIR), "who asks takes what is not named for not there");
    });
}
