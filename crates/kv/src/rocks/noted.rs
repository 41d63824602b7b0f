//! What the log held when it was last synced, noted beside the database.
//!
//! RocksDB takes up a log to its first record that is not whole, and cannot tell what a power cut never let reach the disk from
//! what was there and is damaged or gone since. The note tells: it is written after each sync and is never itself synced, so
//! that it may lag behind the log and is never ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Kept;

/// In the database's directory; RocksDB passes over names that are not its own.
pub const NOTE_FILE: &str = "SYNCED";

const FIELDS: usize = 4;
const NOTE_BYTES: usize = FIELDS * size_of::<u64>();

/// Numbers of changes are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Noted {
    /// The last change that a sync has covered.
    pub(super) synced: u64,
    /// The last change of a store that was closed, and all of it synced; else 0.
    pub(super) ended: u64,
    /// Names the time within which the page cache is not lost.
    pub(super) epoch: u64,
}

impl Noted {
    /// What is to be noted where the page cache may have lost something in this epoch: any other one does.
    pub(super) fn lost_since(self, epoch: u64) -> Self {
        Self { ended: 0, epoch: !epoch, ..self }
    }

    fn bytes(self) -> [u8; NOTE_BYTES] {
        let Self { synced, ended, epoch } = self;
        let mut bytes = [0; NOTE_BYTES];
        let fields = [synced, ended, epoch, check(synced, ended, epoch)];
        for (field, at) in fields.into_iter().zip(bytes.chunks_exact_mut(size_of::<u64>())) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// `None` where it is not whole: a power cut came before it was on the disk.
    fn from_bytes(bytes: &[u8; NOTE_BYTES]) -> Option<Self> {
        let mut fields = [0; FIELDS];
        for (field, at) in fields.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *field = u64::from_le_bytes(at.try_into().ok()?);
        }
        let [synced, ended, epoch, sum] = fields;
        (sum == check(synced, ended, epoch)).then_some(Self { synced, ended, epoch })
    }

    /// What a store that is opened in `epoch` has of what was committed before, where its last change is `found` and none is
    /// missing that this says was synced.
    pub(super) fn kept(self, found: u64, epoch: u64) -> Kept {
        // Whoever opens a store changes it at once: with no more changes than at its end, it was not open since.
        if self.epoch == epoch || self.ended == found { Kept::All } else { Kept::Synced }
    }
}

/// Of blocks that never reached the disk, all zeros, it is not right.
fn check(synced: u64, ended: u64, epoch: u64) -> u64 {
    !(synced ^ ended.rotate_left(21) ^ epoch.rotate_left(42))
}

pub(super) struct Note(File);

impl Note {
    /// Makes it where there is none.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join(NOTE_FILE)).map(Self)
    }

    /// What is noted there.
    pub(super) fn read(dir: &Path) -> Option<Noted> {
        File::open(dir.join(NOTE_FILE)).ok().and_then(|file| Self(file).get())
    }

    pub(super) fn get(&self) -> Option<Noted> {
        let mut bytes = [0; NOTE_BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Noted::from_bytes(&bytes)
    }

    pub(super) fn set(&self, noted: Noted) -> io::Result<()> {
        self.0.write_all_at(&noted.bytes(), 0)
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
        let noted = Noted { synced: 7, ended: 5, epoch: 9 };
        note.set(noted).expect("is written");
        assert_eq!(Note::open(dir.path()).expect("opens").get(), Some(noted));
        for at in 0..NOTE_BYTES as u64 {
            note.0.write_all_at(&[77], at).expect("is written");
            assert_eq!(note.get(), None);
            note.set(noted).expect("is written");
        }
        note.0.write_all_at(&[0; NOTE_BYTES], 0).expect("is written");
        assert_eq!(note.get(), None, "as blocks are that never reached the disk");
        note.set(noted).expect("is written");
        note.0.set_len(NOTE_BYTES as u64 - 1).expect("is cut");
        assert_eq!(note.get(), None);
    }

    #[test]
    fn what_a_power_cut_may_have_taken_is_known() {
        let noted = Noted { synced: 7, ended: 0, epoch: 9 };
        assert_eq!((noted.kept(12, 9), noted.kept(12, 8)), (Kept::All, Kept::Synced));
        let ended = Noted { ended: 12, synced: 12, ..noted };
        assert_eq!((ended.kept(12, 8), ended.kept(13, 8)), (Kept::All, Kept::Synced));
    }
}
