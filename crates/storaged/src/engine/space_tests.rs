//! What is refused where space is short, and what is not.

use std::path::Path;

use types::allocation::Allocation;
use types::error::Errno;
use types::id::ObjectId;

use super::ObjectStore;
use super::copy::Range;
use super::files::Files;
use super::sums_tests::{sidecar, store};
use super::tests::{bytes, object, on_ring, store_of, target, write};

const BLOCK: u64 = 4096;
const LEN: u64 = 4 * BLOCK;
const RESERVE: Allocation = Allocation::Reserve { keep_size: false };

/// Of the same directory, and all of it reserved for others.
fn full(dir: &Path) -> Files {
    store_of(&target(dir, u64::MAX), 10, 0)
}

fn is_there(store: &Files, dir: &Path, object: ObjectId) -> bool {
    store.object_path(object).exists() || sidecar(dir, object).exists()
}

fn whole(len: u64) -> Range {
    Range { source_offset: 0, offset: 0, len }
}

#[test]
fn what_is_refused_for_lack_of_space_makes_no_object() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        write(&store(dir.path()), object(1, 0), 0, &bytes(LEN as usize, 1)).await.expect("written");
        let full = full(dir.path());
        let new = object(2, 0);
        assert_eq!(write(&full, new, 0, b"x").await, Err(Errno::ENOSPC));
        assert_eq!(full.copy(object(1, 0), new, whole(LEN)).await, Err(Errno::ENOSPC));
        assert_eq!(full.allocate(new, 0, LEN, RESERVE).await, Err(Errno::ENOSPC));
        assert!(!is_there(&full, dir.path(), new));
        full.truncate(new, 100).await.expect("made, without data");
        assert_eq!(write(&full, new, 0, b"x").await, Err(Errno::ENOSPC));
    });
}
