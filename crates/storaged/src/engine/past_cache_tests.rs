//! Requests that go past the page cache, on real directories.

use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use types::error::Errno;

use super::files::Files;
use super::tests::{bytes, object, on_ring, read, store_of, target, write};
use super::{Data, ObjectStore, Written};
use crate::direct::{self, Direct};
use crate::open_files::OpenFile;

fn size(written: Written) -> u64 {
    written.size
}

async fn file(store: &Files, inode: u64) -> Rc<OpenFile> {
    store.open_existing(object(inode, 0)).await.expect("openable").expect("there")
}

/// Whether it is on the disk with the answer.
async fn write_durably(store: &Files, inode: u64, offset: u64, data: &[u8]) -> Result<bool, Errno> {
    let data = Data { durable: true, ..Slice::from_vec(data.to_vec()).into() };
    store.write(object(inode, 0), offset, data).await.map(|written| written.durable)
}

#[test]
fn what_is_synced_block_by_block_is_on_the_disk_with_the_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    on_ring(async {
        let store = store_of(&target(dir.path(), 0), 100, 64 << 10);
        let mut expected = bytes(1 << 20, 3);
        assert_eq!(write_durably(&store, 1, 0, &expected).await, Ok(false), "it has no blocks yet");
        assert_eq!(write_durably(&store, 1, 4096, &expected[4096..8192]).await, Ok(false), "it is being written");
        store.sync(object(1, 0)).await.expect("synced");
        let file = file(&store, 1).await;
        assert!(file.durability.is_complete());
        for block in [0, 7, 255, 7, 0] {
            let data = bytes(4096, block as u8);
            let at = block * 4096;
            expected[at..at + 4096].copy_from_slice(&data);
            assert_eq!(write_durably(&store, 1, at as u64, &data).await, Ok(true), "block {block}");
            assert_eq!(direct::cached(file.fd(), at as u64, 4096).expect("told").pages, 0);
        }
        assert!(file.durability.is_complete(), "nothing is left to be synced");
        assert!(read(&store, object(1, 0), 0, 2 << 20).await == expected);

        assert_eq!(write_durably(&store, 1, 100, b"part of a block").await, Ok(false));
        assert!(!file.durability.is_complete());
        expected[100..115].copy_from_slice(b"part of a block");
        assert_eq!(write_durably(&store, 1, 8192, &expected[8192..12288]).await, Ok(true));
        assert!(!file.durability.is_complete(), "the write before it is not on the disk");
        assert_eq!(write_durably(&store, 1, 1 << 20, &[1; 4096]).await, Ok(false), "beyond the end");
        assert!(read(&store, object(1, 0), 0, 1 << 20).await == expected);
    });
}

#[test]
fn large_requests_go_past_the_cache_and_meet_the_small_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = target(dir.path(), 0);
    let file = std::fs::File::create(dir.path().join("probe")).expect("made");
    assert!(Direct::open(file.as_raw_fd(), true).is_some(), "run this where a file can be opened with O_DIRECT");
    on_ring(async {
        let store = store_of(&target, 100, 64 << 10);
        let now = Instant::now();
        store.cache_cost.record(1, now, now + Duration::from_secs(1));
        let large = Buf::from_slice(&bytes(1 << 20, 3)).freeze();
        assert_eq!(store.write(object(1, 0), 0, large.clone().into()).await.map(size), Ok(1 << 20));
        let is_cached = async |offset, len| {
            let file = store.open_existing(object(1, 0)).await.expect("openable").expect("there");
            direct::cached(file.fd(), offset, len).expect("told").pages > 0
        };
        assert!(!is_cached(0, 1 << 20).await);
        assert!(read(&store, object(1, 0), 0, 1 << 20).await == large[..]);
        assert!(!is_cached(0, 1 << 20).await);
        // The end of a file is seldom aligned.
        assert_eq!(write(&store, object(1, 0), 1 << 20, b"tail").await, Ok((1 << 20) + 4));
        store.sync(object(1, 0)).await.expect("synced");
        let all = read(&store, object(1, 0), 512 << 10, 1 << 20).await;
        assert!(all.len() == (512 << 10) + 4 && all.ends_with(b"tail") && all[..512 << 10] == large[512 << 10..]);
        assert!(!is_cached(0, 1 << 20).await);

        assert_eq!(write(&store, object(1, 0), 700_000, b"small").await, Ok((1 << 20) + 4));
        let mut expected = large.to_vec();
        expected[700_000..700_005].copy_from_slice(b"small");
        assert!(read(&store, object(1, 0), 0, 1 << 20).await == expected);
        assert_eq!(store.write(object(1, 0), 0, large.clone().into()).await.map(size), Ok((1 << 20) + 4));
        assert!(read(&store, object(1, 0), 0, 1 << 20).await == large[..]);
    });
}

#[test]
fn large_and_small_requests_in_any_order_are_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = target(dir.path(), 0);
    on_ring(async {
        let store = store_of(&target, 100, 64 << 10);
        let now = Instant::now();
        store.cache_cost.record(1, now, now + Duration::from_secs(1));
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut model: Vec<u8> = Vec::new();
        for step in 0..400u64 {
            // Mostly on the borders of blocks, as large requests are.
            let grain = [4096, 4096, 512, 1][random(4) as usize];
            let offset = random(3 << 20) / grain * grain;
            let longest = [700 << 10, 16 << 10][random(2) as usize];
            let len = (random(longest) / grain * grain).max(grain);
            let (from, to) = (offset as usize, (offset + len) as usize);
            match random(9) {
                8 => store.sync(object(1, 0)).await.expect("synced"),
                0 => {
                    store.truncate(object(1, 0), offset).await.expect("cut");
                    model.resize(from, 0);
                }
                1..4 => {
                    let data = Buf::from_slice(&bytes(len as usize, step as u8));
                    model.resize(model.len().max(to), 0);
                    model[from..to].copy_from_slice(&data);
                    let data = Data { durable: random(2) == 0, ..data.freeze().into() };
                    let written = store.write(object(1, 0), offset, data).await;
                    assert_eq!(written.map(size), Ok(model.len() as u64), "step {step}");
                }
                _ => {
                    let seen = read(&store, object(1, 0), offset, len as u32).await;
                    let expected = &model[from.min(model.len())..to.min(model.len())];
                    assert!(seen == expected, "step {step}: {len} bytes at {offset} of {}", model.len());
                }
            }
        }
    });
}
