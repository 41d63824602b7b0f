//! What the log held when it was last synced, noted beside the database.
//!
//! RocksDB takes up to a log's first record that is not whole, and cannot tell what a power cut never let reach the disk from
//! what was there and is damaged or gone since. The note tells: it is written after each sync and is never itself synced, so
//! that it may lag behind the log and is never ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// In the database's directory; RocksDB passes over names that are not its own.
pub const NOTE_FILE: &str = "SYNCED";

/// RocksDB's number of a change, and that number's complement.
const NOTE_BYTES: usize = 16;

pub(super) struct Note(File);

impl Note {
    /// Makes it where there is none.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join(NOTE_FILE)).map(Self)
    }

    /// `None` where nothing was noted, or a power cut came before that was on the disk.
    pub(super) fn get(&self) -> Option<u64> {
        let mut bytes = [0; NOTE_BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let (noted, complement) = bytes.split_at(NOTE_BYTES / 2);
        let [noted, complement] = [noted, complement].map(|half| half.try_into().map(u64::from_le_bytes));
        let (noted, complement) = (noted.ok()?, complement.ok()?);
        (noted == !complement).then_some(noted)
    }

    pub(super) fn set(&self, synced: u64) -> io::Result<()> {
        let mut bytes = [0; NOTE_BYTES];
        let (noted, complement) = bytes.split_at_mut(NOTE_BYTES / 2);
        noted.copy_from_slice(&synced.to_le_bytes());
        complement.copy_from_slice(&(!synced).to_le_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_says_nothing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let note = Note::open(dir.path()).expect("is made");
        assert_eq!(note.get(), None);
        note.set(7).expect("is written");
        assert_eq!(Note::open(dir.path()).expect("opens").get(), Some(7));
        note.0.write_all_at(&[9], 0).expect("is written");
        assert_eq!(note.get(), None);
        note.0.write_all_at(&[0; NOTE_BYTES], 0).expect("is written");
        assert_eq!(note.get(), None, "as blocks are that never reached the disk");
        note.set(u64::MAX).expect("is written");
        assert_eq!(note.get(), Some(u64::MAX));
        note.0.set_len(NOTE_BYTES as u64 - 1).expect("is cut");
        assert_eq!(note.get(), None);
    }
}
