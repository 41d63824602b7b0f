//! Reading of files that are open for writing: ahead, and without writing first what is kept back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::cluster::Cluster;
use harness::dice::{Dice, scale, seed};
use harness::{metrics, syscall, wait};

const SOON: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn requests(cluster: &Cluster, op: &str) -> f64 {
    metrics::sum(cluster, "storage", "weft_request_seconds_count", &[&format!("op=\"{op}\"")])
}

fn read(file: &File, offset: usize, len: usize) -> Vec<u8> {
    let mut seen = vec![0; len];
    let mut count = 0;
    while count < len {
        match file.read_at(&mut seen[count..], (offset + count) as u64).unwrap() {
            0 => break,
            some => count += some,
        }
    }
    seen.truncate(count);
    seen
}

/// How many requests it takes to read all of the file in pieces of 4 KiB.
fn requests_to_read(cluster: &Cluster, file: &File, expected: &[u8]) -> f64 {
    let before = requests(cluster, "Read");
    for offset in (0..expected.len()).step_by(4 * KIB) {
        assert!(read(file, offset, 4 * KIB) == expected[offset..offset + 4 * KIB], "at {offset}");
    }
    requests(cluster, "Read") - before
}

#[test]
fn files_open_for_writing_are_read_ahead() {
    let cluster = Cluster::start();
    let folder = cluster.folder("d");
    cluster.wait_for_leases(&folder);
    let mut expected = Dice::new(seed()).bytes(4 * MIB);
    let pieces = (expected.len() / (4 * KIB)) as f64;
    let path = folder.join("f");
    let writer = open(&path);
    writer.write_all_at(&expected, 0).unwrap();
    writer.sync_all().unwrap();
    let asked = requests_to_read(&cluster, &writer, &expected);
    assert!(asked < pieces / 10.0, "{asked} requests by who has written it");
    expected[..100].fill(1);
    writer.write_all_at(&expected[..100], 0).unwrap();
    let asked = requests_to_read(&cluster, &writer, &expected);
    assert!(asked < pieces / 10.0, "{asked} requests after one more write");
    drop(writer);

    let reader = open(&path);
    wait::until("it is read ahead of", SOON, || {
        (requests_to_read(&cluster, &reader, &expected) < pieces / 10.0).then_some(())
    });
}

#[test]
fn what_was_just_written_is_read_back_without_a_server() {
    const PIECES: usize = 500;
    let cluster = Cluster::start();
    let folder = cluster.folder("d");
    cluster.wait_for_leases(&folder);
    let file = open(&folder.join("f"));
    let bytes = Dice::new(seed()).bytes(PIECES * 4 * KIB);
    // Too long for the metadata.
    file.write_all_at(&bytes[..64 * KIB], 0).unwrap();
    let before = requests(&cluster, "Read") + requests(&cluster, "Write");
    for (number, piece) in bytes.chunks(4 * KIB).enumerate() {
        file.write_all_at(piece, (number * 4 * KIB) as u64).unwrap();
        let back = number.saturating_sub(1) * 4 * KIB;
        assert!(read(&file, back, 4 * KIB) == bytes[back..back + 4 * KIB], "piece {number}");
    }
    let asked = requests(&cluster, "Read") + requests(&cluster, "Write") - before;
    assert!(asked < PIECES as f64 / 4.0, "{asked} requests for {PIECES} pieces");
}

/// A file that is changed here and elsewhere, and what is to be found there.
struct Model {
    here: File,
    /// Its path on another mount.
    elsewhere: PathBuf,
    bytes: Vec<u8>,
}

impl Model {
    const SIZE_MAX: usize = 6 * MIB;

    /// A range that begins within the file, mostly where somebody who reads on from `next` comes to soon.
    fn range(&self, next: usize, dice: &mut Dice) -> (usize, usize) {
        let longest = *dice.pick(&[100, 8 * KIB, 300 * KIB]);
        let len = 1 + dice.index(longest);
        let begin = if dice.roll(4) > 0 { next + dice.index(2 * MIB) } else { dice.index(self.bytes.len() + 1) };
        (begin.min(self.bytes.len()), len)
    }

    fn change(&mut self, is_here: bool, next: usize, dice: &mut Dice) {
        let (begin, len) = self.range(next, dice);
        let end = (begin + len).min(self.bytes.len());
        let other = if is_here { None } else { Some(open(&self.elsewhere)) };
        let file = other.as_ref().unwrap_or(&self.here);
        match dice.roll(8) {
            0 if begin > MIB => {
                file.set_len(begin as u64).unwrap();
                self.bytes.truncate(begin);
            }
            1 if end > begin => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                syscall::fallocate(file, mode, begin as u64, (end - begin) as u64).unwrap();
                self.bytes[begin..end].fill(0);
            }
            2 if self.bytes.len() < Self::SIZE_MAX => {
                let size = self.bytes.len() + len;
                file.set_len(size as u64).unwrap();
                self.bytes.resize(size, 0);
            }
            _ => {
                let data = dice.bytes(len);
                file.write_all_at(&data, begin as u64).unwrap();
                self.bytes.resize(self.bytes.len().max(begin + len), 0);
                self.bytes[begin..begin + len].copy_from_slice(&data);
            }
        }
    }

    /// Reads on from `next`; where to go on then.
    fn read_on(&self, next: usize, step: usize) -> usize {
        for begin in (next..).step_by(step).take(8) {
            let seen = read(&self.here, begin, step);
            let expected = self.bytes.get(begin..self.bytes.len().min(begin + step)).unwrap_or_default();
            assert_eq!(seen.len(), expected.len(), "at {begin} of {}", self.bytes.len());
            let wrong = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
            assert_eq!(wrong, None, "of {} bytes at {begin} of {}", seen.len(), self.bytes.len());
        }
        if next + 8 * step >= self.bytes.len() { 0 } else { next + 8 * step }
    }
}

/// Whatever is done to a file while it is read on, by the same mount or by another one, the next read sees it.
#[test]
fn what_is_read_ahead_of_a_file_that_changes_is_what_it_has() {
    const TURNS: u64 = 200;
    let mut cluster = Cluster::start();
    let second = cluster.mount_again(&[]);
    let mut dice = Dice::new(seed());
    let end = Instant::now() + Duration::from_secs(scale("WEFT_TEST_CHANGES_SECONDS", 10));
    for round in 0.. {
        let name = format!("f{round}");
        let (here, elsewhere) = (open(&cluster.path(&name)), second.point.join(&name));
        let mut model = Model { here, elsewhere, bytes: dice.bytes(3 * MIB) };
        model.here.write_all_at(&model.bytes, 0).unwrap();
        let (mut next, step) = (0, *dice.pick(&[4 * KIB, 5000, 64 * KIB]));
        // Who shares a file has no lease for a while after each change by another one.
        let is_shared = round % 2 == 1;
        for _ in 0..TURNS {
            next = model.read_on(next, step);
            for _ in 0..dice.roll(3) {
                let is_here = !is_shared || dice.roll(TURNS / 3) > 0;
                model.change(is_here, next, &mut dice);
            }
        }
        if Instant::now() > end {
            break;
        }
    }
}
