//! A directory and its name, which may come to be another's.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory that had this name at some moment. None that has it later is taken for it as long as something in it is
/// open, such as its lock: until then its number is given to no other. A file system that is unmounted meanwhile and comes
/// back from the same device is still the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Place {
    /// The directory that has this name now.
    ///
    /// # Errors
    /// Where none has it, or its disk fails.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it still has its name, and no other one. May block for as long as the disk does.
    ///
    /// # Errors
    /// Where none has it, or the disk fails.
    pub fn is_kept(&self) -> io::Result<bool> {
        Ok(Self::of(&self.path)? == *self)
    }

    /// # Errors
    /// As [`Self::is_kept`], and where another directory has its name.
    pub fn check(&self) -> io::Result<()> {
        if self.is_kept()? { Ok(()) } else { Err(io::Error::other("another directory is in its place")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_of_the_same_name_is_told_apart() {
        let root = tempfile::tempdir().expect("a directory");
        let (name, aside) = (root.path().join("name"), root.path().join("aside"));
        fs::create_dir(&name).expect("made");
        fs::write(name.join("file"), "same").expect("written");
        let place = Place::of(&name).expect("there");
        place.check().expect("it is there");
        fs::rename(&name, &aside).expect("moved");
        assert_eq!(place.check().expect_err("nothing is there").kind(), io::ErrorKind::NotFound);
        fs::create_dir(&name).expect("made");
        fs::write(name.join("file"), "same").expect("written");
        assert_eq!(place.check().expect_err("a copy").to_string(), "another directory is in its place");
        fs::rename(&name, root.path().join("copy")).expect("moved");
        fs::rename(&aside, &name).expect("moved back");
        place.check().expect("it is there again");
    }
}
