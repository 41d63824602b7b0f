//! Long writes over what is there, made part by part, on real files.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::buf::Slice;
use types::error::Errno;

use super::ObjectStore;
use super::failed_tests::fill;
use super::files::{Files, Options};
use super::in_place::PARTS;
use super::sums_tests::{Dice, OBJECT, check_all, flip};
use super::tests::{Mounted, bytes, on_ring, open, options, read, target, write};
use crate::sums::Trust;

const BLOCK: u64 = 4096;
const K: usize = 1 << 10;
const LEN: usize = 1024 * K;

fn store(dir: &Path) -> Files {
    open(&target(dir, 0), &Rc::default(), Options { write_in_place_max: LEN, ..options(true) })
}

/// The test had to wait for its disk, or for a CPU: then writes go the usual way.
fn is_held_up(store: &Files) -> bool {
    !store.pace.is_calm(Instant::now())
}

async fn trust(store: &Files) -> Trust {
    store.open_existing(OBJECT).await.expect("openable").expect("there").sums().expect("kept").trust()
}

#[test]
fn what_is_written_over_in_parts_reads_back_and_has_right_sums() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let mut expected = bytes(LEN + 100, 1);
        write(&store(dir.path()), OBJECT, 0, &expected).await.expect("written");
        let mut dice = Dice(7);
        for life in 0..6 {
            // Where an earlier process has left it dirty, each block is looked at before.
            let store = store(dir.path());
            let (now, parts) = (Instant::now(), PARTS.get());
            if life % 3 == 1 {
                store.cache_cost.record(1, now, now + Duration::from_secs(1));
            } else if life % 3 == 2 {
                store.pace.record(now, now + Duration::from_secs(3600));
            }
            for n in 0..20u8 {
                let offset = dice.below(100) as usize * BLOCK as usize + usize::from(n % 4 == 3);
                let len = [256 * K, 257 * K, 400 * K, LEN + 100 - offset][dice.below(4) as usize].min(LEN);
                let data = bytes(len, 2 * n + life);
                let size = write(&store, OBJECT, offset as u64, &data).await;
                assert_eq!(size, Ok(expected.len() as u64));
                expected[offset..offset + len].copy_from_slice(&data);
            }
            assert!(life % 3 > 0 || PARTS.get() > parts || is_held_up(&store), "{life}");
            assert!(read(&store, OBJECT, 0, 2 * LEN as u32).await == expected, "{life}");
            let checked = check_all(&store, OBJECT).await;
            assert_eq!((checked.corrupt, checked.adopted), (Vec::new(), 0), "{life}");
        }
    });
}

#[test]
fn where_the_disk_does_not_keep_up_any_more_all_goes_the_usual_way() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store(dir.path());
        write(&store, OBJECT, 0, &bytes(LEN, 1)).await.expect("written");
        let file = store.open_existing(OBJECT).await.expect("openable").expect("there");
        let changing = store.begin_change(OBJECT, &file).await.expect("begun").expect("kept");
        let now = Instant::now();
        store.pace.record(now, now + Duration::from_secs(3600));
        let data = Slice::from_vec(bytes(LEN, 2)).into();
        assert_eq!(store.write_in_parts(OBJECT, &file, &changing.sums, 0, data).await, Ok(false));
        assert_eq!(PARTS.get(), 0);
        drop(changing);
        assert!(read(&store, OBJECT, 0, LEN as u32).await == bytes(LEN, 2));
        assert_eq!(check_all(&store, OBJECT).await.corrupt, Vec::<u64>::new());
    });
}

#[test]
fn where_a_later_part_fails_those_before_it_are_right_and_those_after_it_as_they_were() {
    let Some(mounted) = Mounted::of_whole_blocks(32) else { return };
    on_ring(async {
        let (store, there, last) = (store(&mounted.path()), 400 * K, LEN as u64 - BLOCK);
        write(&store, OBJECT, 0, &bytes(there, 1)).await.expect("written");
        write(&store, OBJECT, last, &bytes(BLOCK as usize, 1)).await.expect("written");
        store.sync_all().await;
        // The first is written over. The last is not reached.
        flip(&store, OBJECT, BLOCK + 7);
        flip(&store, OBJECT, last + 7);
        fill(&mounted);
        assert_eq!(write(&store, OBJECT, 0, &bytes(LEN, 2)).await, Err(Errno::ENOSPC));
        assert!(PARTS.get() > 1 || is_held_up(&store));
        assert_eq!(check_all(&store, OBJECT).await.corrupt, [last]);
        assert_eq!(trust(&store).await, Trust::Exact);
        assert!(read(&store, OBJECT, 0, there as u32).await == bytes(there, 2));
        let hole = read(&store, OBJECT, last - BLOCK, BLOCK as u32).await;
        assert!(hole.iter().all(|&byte| byte == 0), "nothing was written there");
        std::fs::remove_file(mounted.path().join("filler")).expect("removed");
        assert_eq!(write(&store, OBJECT, 0, &bytes(LEN, 3)).await, Ok(LEN as u64));
        assert!(read(&store, OBJECT, 0, LEN as u32).await == bytes(LEN, 3));
    });
}
