//! Files that a worker holds open, perhaps without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::picture::FileId;

/// Writes of a held file before it is synced.
const UNSYNCED_MAX: usize = 8;

pub(super) struct Held {
    pub(super) file: File,
    pub(super) id: FileId,
    /// What its content was before each of the writes that end with the mount if this is killed: those after which it was
    /// neither synced nor closed, nor read.
    pub(super) unsynced: Vec<Vec<u8>>,
}

impl Held {
    pub(super) fn new(file: File, id: FileId) -> Self {
        Self { file, id, unsynced: Vec::new() }
    }

    pub(super) fn sync(&mut self) -> Result<(), String> {
        if !self.unsynced.is_empty() {
            self.file.sync_data().map_err(|error| format!("syncing an open file: {error}"))?;
            self.unsynced.clear();
        }
        Ok(())
    }

    /// Writes, with what the content was `before`.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], before: Vec<u8>) -> io::Result<()> {
        let written = self.file.write_all_at(data, offset);
        self.unsynced.push(before);
        written
    }

    pub(super) fn is_due(&self) -> bool {
        self.unsynced.len() >= UNSYNCED_MAX
    }

    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut content, 0)?;
        self.unsynced.clear();
        Ok(content)
    }
}
