//! What a worker's folder must hold, as follows from the calls that were answered.

use std::collections::BTreeMap;

use super::operation::Operation;
use super::seen::{Seen, SeenFile};

/// Of one file, whatever names it has.
pub(super) type FileId = u64;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    File(FileId),
    Folder,
    Symlink(String),
}

/// `None` where nobody has set it since it changed by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct FileState {
    pub(super) content: Vec<u8>,
    mode: Option<u32>,
    /// Nanoseconds since 1970.
    mtime: Option<i64>,
    /// Of the one extended attribute that files may have here; `None` where they have it not.
    xattr: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// By path below the worker's folder.
    names: BTreeMap<String, Entry>,
    /// Also of files that are only held open.
    files: BTreeMap<FileId, FileState>,
    next: FileId,
}

impl Picture {
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.names.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// Every name of a file, with the file.
    pub(super) fn file_names(&self) -> impl Iterator<Item = (&String, FileId)> {
        self.names.iter().filter_map(|(name, entry)| match entry {
            Entry::File(id) => Some((name, *id)),
            Entry::Folder | Entry::Symlink(_) => None,
        })
    }

    pub(super) fn id(&self, name: &str) -> Option<FileId> {
        match self.names.get(name) {
            Some(Entry::File(id)) => Some(*id),
            Some(Entry::Folder | Entry::Symlink(_)) | None => None,
        }
    }

    pub(super) fn content(&self, id: FileId) -> &[u8] {
        self.files.get(&id).map_or(&[], |file| &file.content)
    }

    /// The content of the file with this name; nothing where there is none.
    pub(super) fn content_of(&self, name: &str) -> &[u8] {
        self.id(name).map_or(&[], |id| self.content(id))
    }

    pub(super) fn has_xattr(&self, name: &str) -> bool {
        self.id(name).is_some_and(|id| self.files[&id].xattr.is_some())
    }

    /// Some name of the file.
    pub(super) fn name_of(&self, id: FileId) -> Option<&String> {
        self.file_names().find(|(_, other)| *other == id).map(|(name, _)| name)
    }

    /// A file whose content came about in another way than by one whole call.
    pub(super) fn set_content(&mut self, id: FileId, content: Vec<u8>) {
        let file = self.files.entry(id).or_default();
        file.content = content;
        file.mtime = None;
    }

    /// The same for a name, which is made where it was not there.
    pub(super) fn set_content_of(&mut self, name: &str, content: Vec<u8>) {
        let id = self.id(name).unwrap_or_else(|| self.make(name));
        self.set_content(id, content);
    }

    /// Files without a name are gone but for those that are held.
    pub(super) fn forget_nameless(&mut self, held: impl Fn(FileId) -> bool) {
        let named: Vec<FileId> = self.file_names().map(|(_, id)| id).collect();
        self.files.retain(|id, _| named.contains(id) || held(*id));
    }

    /// Writes through a handle; there may be no name.
    pub(super) fn write(&mut self, id: FileId, offset: u64, data: &[u8]) {
        let mut content = self.content(id).to_vec();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(data);
        self.set_content(id, content);
    }

    /// What a whole call changes.
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(name, data) => {
                self.make(name);
                self.set_content_of(name, data.clone());
            }
            Operation::Write(name, offset, data) => self.write_to(name, *offset, data),
            Operation::Append(name, data) => self.write_to(name, self.content_of(name).len() as u64, data),
            Operation::Truncate(name, len) => {
                let mut content = self.content_of(name).to_vec();
                content.resize(*len as usize, 0);
                self.set_content_of(name, content);
            }
            Operation::Chmod(name, mode) => self.change(name, |file| file.mode = Some(*mode)),
            Operation::Utimens(name, mtime) => self.change(name, |file| file.mtime = Some(*mtime)),
            Operation::SetXattr(name, value) => self.change(name, |file| file.xattr = Some(value.clone())),
            Operation::RemoveXattr(name) => self.change(name, |file| file.xattr = None),
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::Exchange(one, other) => self.exchange(one, other),
            Operation::Link(from, to) => {
                if let Some(entry) = self.names.get(from).cloned() {
                    self.names.insert(to.clone(), entry);
                }
            }
            Operation::Symlink(name, target) => {
                self.names.insert(name.clone(), Entry::Symlink(target.clone()));
            }
            Operation::Unlink(name) | Operation::Rmdir(name) => {
                self.names.remove(name);
            }
            Operation::Mkdir(name) => {
                self.names.insert(name.clone(), Entry::Folder);
            }
            Operation::Sync(_) | Operation::Read(_) => {}
        }
    }

    fn make(&mut self, name: &str) -> FileId {
        self.next += 1;
        self.files.insert(self.next, FileState::default());
        self.names.insert(name.to_owned(), Entry::File(self.next));
        self.next
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut FileState)) {
        if let Some(file) = self.id(name).and_then(|id| self.files.get_mut(&id)) {
            change(file);
        }
    }

    fn write_to(&mut self, name: &str, offset: u64, data: &[u8]) {
        if let Some(id) = self.id(name) {
            self.write(id, offset, data);
        }
    }

    /// Between two names of one file it changes nothing.
    fn rename(&mut self, from: &str, to: &str) {
        let is_one_file = self.id(from).is_some() && self.id(from) == self.id(to);
        if from != to
            && !is_one_file
            && let Some(moved) = self.names.remove(from)
        {
            self.names.insert(to.to_owned(), moved);
        }
    }

    fn exchange(&mut self, one: &str, other: &str) {
        if let (Some(a), Some(b)) = (self.names.get(one).cloned(), self.names.get(other).cloned()) {
            self.names.insert(one.to_owned(), b);
            self.names.insert(other.to_owned(), a);
        }
    }

    /// Whether this is what the name must stand for.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn compare(&self, name: &str, seen: Option<&Seen>) -> Result<(), String> {
        match (self.names.get(name), seen) {
            (None, None) | (Some(Entry::Folder), Some(Seen::Folder)) => Ok(()),
            (Some(Entry::Symlink(target)), Some(Seen::Symlink(seen))) if target == seen => Ok(()),
            (Some(Entry::File(id)), Some(Seen::File(seen))) => {
                let links = self.file_names().filter(|(_, other)| other == id).count() as u64;
                self.files[id].compare(links, seen).map_err(|why| format!("{name} {why}"))
            }
            (expected, seen) => {
                let seen = seen.map_or("nothing", Seen::kind);
                Err(format!("{name} is {seen}, and should be {expected:?}"))
            }
        }
    }
}

impl FileState {
    fn compare(&self, links: u64, seen: &SeenFile) -> Result<(), String> {
        let Self { content, mode, mtime, xattr } = self;
        if seen.content != *content {
            let pairs = seen.content.iter().zip(content);
            let at = pairs.clone().position(|(a, b)| a != b).unwrap_or(pairs.len());
            let (has, should) = (seen.content.len(), content.len());
            return Err(format!("has {has} bytes and should have {should}; they differ from {at} on"));
        }
        if seen.links != links {
            return Err(format!("has {} links and should have {links}", seen.links));
        }
        if mode.is_some_and(|mode| mode != seen.mode) {
            return Err(format!("has mode {:o} and should have {:o}", seen.mode, mode.unwrap_or_default()));
        }
        if mtime.is_some_and(|mtime| mtime != seen.mtime) {
            return Err(format!("was changed at {} and should say {mtime:?}", seen.mtime));
        }
        if *xattr != seen.xattr {
            let (has, should) = (seen.xattr.as_ref().map(Vec::len), xattr.as_ref().map(Vec::len));
            return Err(format!("has an attribute of {has:?} bytes and should have one of {should:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(name: &str, data: &[u8]) -> Operation {
        Operation::Create(name.into(), data.to_vec())
    }

    #[test]
    fn names_of_one_file_share_what_is_written() {
        let mut picture = Picture::default();
        picture.apply(&create("a", b"one"));
        picture.apply(&Operation::Link("a".into(), "b".into()));
        picture.apply(&Operation::Append("b".into(), b"two".to_vec()));
        assert_eq!(picture.content_of("a"), b"onetwo");
        picture.apply(&Operation::Rename("a".into(), "b".into()));
        assert_eq!(picture.names().collect::<Vec<_>>(), ["a", "b"], "POSIX: nothing happens");
        picture.apply(&Operation::Unlink("a".into()));
        assert_eq!((picture.content_of("a"), picture.content_of("b")), (&b""[..], &b"onetwo"[..]));
    }

    #[test]
    fn an_exchange_moves_both_or_nothing() {
        let mut picture = Picture::default();
        picture.apply(&create("a", b"one"));
        picture.apply(&Operation::Exchange("a".into(), "b".into()));
        assert_eq!(picture.names().collect::<Vec<_>>(), ["a"]);
        picture.apply(&Operation::Mkdir("b".into()));
        picture.apply(&Operation::Exchange("a".into(), "b".into()));
        assert_eq!((picture.entry("a"), picture.content_of("b")), (Some(&Entry::Folder), &b"one"[..]));
    }

    #[test]
    fn what_is_held_is_remembered_without_a_name() {
        let mut picture = Picture::default();
        picture.apply(&create("a", b"one"));
        let id = picture.id("a").expect("a file");
        picture.apply(&Operation::Unlink("a".into()));
        picture.forget_nameless(|held| held == id);
        picture.write(id, 1, b"x");
        assert_eq!(picture.content(id), b"oxe");
        picture.forget_nameless(|_| false);
        assert_eq!(picture.content(id), b"");
    }

    #[test]
    fn every_difference_shows() {
        let mut picture = Picture::default();
        picture.apply(&create("a", b"one"));
        picture.apply(&Operation::Chmod("a".into(), 0o640));
        picture.apply(&Operation::Utimens("a".into(), 77));
        picture.apply(&Operation::SetXattr("a".into(), b"v".to_vec()));
        let right = SeenFile { content: b"one".to_vec(), mode: 0o640, mtime: 77, links: 1, xattr: Some(b"v".to_vec()) };
        let compare = |seen: SeenFile| picture.compare("a", Some(&Seen::File(seen)));
        assert_eq!(compare(right.clone()), Ok(()));
        assert!(compare(SeenFile { content: b"onE".to_vec(), ..right.clone() }).is_err());
        assert!(compare(SeenFile { mode: 0o600, ..right.clone() }).is_err());
        assert!(compare(SeenFile { mtime: 78, ..right.clone() }).is_err());
        assert!(compare(SeenFile { links: 2, ..right.clone() }).is_err());
        assert!(compare(SeenFile { xattr: None, ..right }).is_err());
        assert!(picture.compare("a", None).is_err() && picture.compare("b", Some(&Seen::Folder)).is_err());
        // What was written since has a time of its own.
        picture.apply(&Operation::Append("a".into(), b"!".to_vec()));
        let later =
            SeenFile { content: b"one!".to_vec(), mode: 0o640, mtime: 99, links: 1, xattr: Some(b"v".to_vec()) };
        assert_eq!(picture.compare("a", Some(&Seen::File(later))), Ok(()));
    }
}
