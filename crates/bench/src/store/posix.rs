//! System calls on whatever file system a directory is in.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use anyhow::Result;
use conf::file_system::statvfs;

use super::{Entry, Free, Store};
use crate::work::pattern::Pages;

pub(crate) struct Posix {
    folder: PathBuf,
    /// Files are opened with `O_DIRECT`: buffers and places are whole blocks.
    direct: bool,
}

impl Posix {
    /// In this folder, which need not be there yet.
    pub(crate) fn open(folder: &std::path::Path, direct: bool) -> Self {
        Self { folder: folder.to_owned(), direct }
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        options
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.folder.clone() } else { self.folder.join(path) }
    }
}

/// Part of some pages.
pub(crate) struct Filling {
    pages: Pages,
    len: usize,
}

impl Deref for Filling {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.bytes()[..self.len]
    }
}

impl DerefMut for Filling {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[..self.len]
    }
}

impl Store for Posix {
    type File = File;
    type Filling = Filling;

    fn make_directory(&mut self, path: &str) -> io::Result<()> {
        fs::create_dir(self.path(path))
    }

    fn create(&mut self, path: &str) -> io::Result<File> {
        self.options().write(true).create_new(true).open(self.path(path))
    }

    fn open_to_write(&mut self, path: &str) -> io::Result<File> {
        self.options().write(true).create(true).truncate(false).open(self.path(path))
    }

    fn open_to_read(&mut self, path: &str) -> io::Result<File> {
        self.options().read(true).open(self.path(path))
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn read_at(&mut self, file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    fn filling(&mut self, pages: Pages, len: usize) -> Filling {
        Filling { pages, len }
    }

    fn write_filling(&mut self, file: &File, filling: Filling, offset: u64) -> io::Result<Filling> {
        self.write_at(file, &filling, offset).map(|()| filling)
    }

    fn read_in_place(
        &mut self,
        file: &File,
        into: &mut [u8],
        offset: u64,
        mut look: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<usize> {
        let read = self.read_at(file, into, offset)?;
        look(&into[..read], offset)?;
        Ok(read)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_data(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// By hand, since dropping a file tells no error.
    fn close(&mut self, file: File) -> io::Result<()> {
        // SAFETY: the descriptor is ours alone, and is used no more.
        match unsafe { libc::close(file.into_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn size(&mut self, path: &str) -> io::Result<u64> {
        let found = fs::symlink_metadata(self.path(path))?;
        if found.is_file() { Ok(found.len()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn remove_directory(&mut self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))
    }

    fn list(&mut self, path: &str) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| io::Error::from_raw_os_error(libc::EILSEQ))?;
            Ok(Entry { name, is_directory: entry.file_type()?.is_dir() })
        };
        fs::read_dir(self.path(path))?.map(entry).collect()
    }

    fn free(&mut self) -> io::Result<Free> {
        let found = statvfs(&self.folder)?;
        Ok(Free::new(found.f_bavail.saturating_mul(found.f_frsize), found.f_favail))
    }
}
