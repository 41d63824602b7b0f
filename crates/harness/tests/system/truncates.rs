//! Truncates by path of a file that others open and close all the time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use harness::aio::{Aio, Pages};
use harness::cluster::Cluster;

const LEN: u64 = 100_000;

/// A truncate has a handle of its own: with the last close of somebody else's, the shard was never told of its end, and all
/// who looked at the file waited for ever.
#[test]
fn a_truncate_beside_closes_ends() {
    let cluster = Cluster::start();
    let path = cluster.path("f");
    for writes in [true, false] {
        // Too much for the metadata.
        fs::write(&path, vec![b'x'; 1_000_000]).unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        let (opens, cuts) = thread::scope(|scope| {
            let opener = scope.spawn(|| until(end, || open_and_close(&path, writes)));
            let cutter = scope.spawn(|| until(end, || [0, LEN].iter().for_each(|&len| cut(&path, len))));
            scope.spawn(|| until(end, || assert!(fs::metadata(&path).is_ok())));
            (opener.join().unwrap(), cutter.join().unwrap())
        });
        assert!(opens > 10 && cuts > 10, "{opens} opens, {cuts} truncates");
        cut(&path, LEN);
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN);
    }
}

/// The kernel waits for the truncate and for nobody else: the answers to both come in any order.
#[test]
fn a_truncate_beside_a_write_that_nobody_waits_for_leaves_a_size_that_the_file_had() {
    let cluster = Cluster::start();
    let (path, aio) = (cluster.path("f"), Aio::new().unwrap());
    let pages = Box::new(Pages([b'y'; 64 << 10]));
    let (begin, end) = (1 << 20, (1 << 20) + (64 << 10));
    let both = vec![b'x'; end as usize];
    for round in 0..300 {
        fs::write(&path, &both).unwrap();
        let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let written = aio.write_beside(&file, &pages, begin, || file.set_len(begin).unwrap()).unwrap();
        assert_eq!(written as u64, end - begin);
        drop(file);
        let content = fs::read(&path).unwrap();
        let tail = &content[begin as usize..];
        let is_whole = tail.is_empty() || tail == &pages.0[..];
        assert!(
            is_whole,
            "round {round}: {} bytes, {} of them zeros",
            tail.len(),
            tail.iter().filter(|&&b| b == 0).count()
        );
    }
    cluster.assert_sound();
}

fn until(end: Instant, mut what: impl FnMut()) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        what();
        count += 1;
    }
    count
}

fn open_and_close(path: &Path, writes: bool) {
    let file = File::options().read(true).write(writes).open(path).unwrap();
    if writes {
        file.write_all_at(&[b'y'; 5000], 2 * LEN).unwrap();
    }
}

/// Without a handle: by `truncate`.
fn cut(path: &Path, len: u64) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a live C string.
    let outcome = unsafe { libc::truncate(path.as_ptr(), len as i64) };
    assert_eq!(outcome, 0, "truncate to {len}: {}", io::Error::last_os_error());
}

/// The kernel takes back what there may be of it: it has the file cut where its end was by all that it has heard.
#[test]
fn a_write_that_nobody_waits_for_and_that_fails_cuts_off_nothing_of_what_others_have_written() {
    let mut cluster = Cluster::start();
    let other = cluster.mount_again(&[]);
    let (path, aio) = (cluster.path("f"), Aio::new().unwrap());
    let ours = File::create(&path).unwrap();
    fs::write(other.point.join("f"), vec![b'x'; 1 << 20]).unwrap();
    let beyond = 1 << 62;
    let refused = aio.write_beside(&ours, &Pages([b'y'; 64 << 10]), beyond, || {}).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EFBIG));
    for path in [&path, &other.point.join("f")] {
        let content = fs::read(path).unwrap();
        assert!(content.len() == 1 << 20 && content.iter().all(|&byte| byte == b'x'), "{} bytes", content.len());
    }
    // What a program asks for after a failed write is done.
    assert_eq!(ours.write_at(b"y", beyond).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    ours.set_len(4096).unwrap();
    assert_eq!(fs::metadata(other.point.join("f")).unwrap().len(), 4096);
}
