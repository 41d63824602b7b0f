//! Names in two directories of different shards, or in the parts of a split one: made, removed, renamed, linked, looked up.
//!
//! Of a rename the kernel looks up both names, one after the other, before it asks for anything. What it decides by
//! itself on what it has seen may never have been so at one moment, and is taken as right where each half was.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use harness::dice::Dice;
use harness::linear::Thing;
use harness::syscall;
use libc::{EEXIST, EISDIR, ENOENT, ENOTDIR, ESTALE};

use crate::{Arena, Floor, SPLIT, errno};

const NAMES: usize = 4;
/// Files with names of their own beside those.
const HELD: usize = 2;
const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const NOREPLACE: u32 = libc::RENAME_NOREPLACE;

/// What each of the names leads to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Names {
    entries: [Option<Entry>; NAMES],
    /// The names that have led to the same inode since it was there, as bits: of each entry.
    been: [u8; NAMES],
    held: [u64; HELD],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Entry {
    File(u64),
    /// With its number where somebody has seen it.
    Directory(Option<u64>),
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Create(usize, Result<u64, i32>),
    Mkdir(usize, Result<(), i32>),
    Unlink(usize, Result<(), i32>),
    Rmdir(usize, Result<(), i32>),
    Rename {
        from: usize,
        to: usize,
        flags: u32,
        result: Result<(), i32>,
    },
    /// Of a held file to a name.
    Link(usize, usize, Result<(), i32>),
    /// The inode's number, and whether it is a directory.
    Lookup(usize, Result<(u64, bool), i32>),
    /// Of a held file.
    LinkCount(usize, u64),
}
use Operation::{Create, Link, LinkCount, Lookup, Mkdir, Rename, Rmdir, Unlink};

impl Thing for Names {
    type Operation = Operation;

    fn after(&self, _client: usize, operation: &Operation) -> impl IntoIterator<Item = Self> {
        if let Rename { from, to, flags, result } = operation {
            let nothing = self.may_do_nothing(*from, *to, *flags, *result).then(|| self.clone());
            return nothing.into_iter().chain(self.after_rename(*from, *to, *flags, *result)).collect::<Vec<_>>();
        }
        self.after_one(operation).into_iter().collect()
    }
}

impl Names {
    /// After anything but a rename.
    fn after_one(&self, operation: &Operation) -> Option<Self> {
        match operation {
            Create(name, Err(ESTALE)) | Lookup(name, Err(ESTALE)) => self.at_old_place(*name),
            Mkdir(name, Err(ESTALE)) | Unlink(name, Err(ESTALE)) | Rmdir(name, Err(ESTALE)) => self.at_old_place(*name),
            Create(name, Ok(inode)) => self.with_new(*name, Entry::File(*inode)),
            Mkdir(name, Ok(())) => self.with_new(*name, Entry::Directory(None)),
            Link(held, name, Ok(())) => self.with_new(*name, Entry::File(self.held[*held])),
            Create(name, Err(errno)) | Mkdir(name, Err(errno)) | Link(_, name, Err(errno)) => {
                (*errno == EEXIST && self.entries[*name].is_some()).then(|| self.clone())
            }
            Unlink(name, result) => match (&self.entries[*name], *result) {
                (None, Err(ENOENT)) | (Some(Entry::Directory(_)), Err(EISDIR)) => Some(self.clone()),
                (Some(Entry::File(_)), Ok(())) => Some(self.without(*name)),
                _ => None,
            },
            Rmdir(name, result) => match (&self.entries[*name], *result) {
                (None, Err(ENOENT)) | (Some(Entry::File(_)), Err(ENOTDIR)) => Some(self.clone()),
                (Some(Entry::Directory(_)), Ok(())) => Some(self.without(*name)),
                _ => None,
            },
            Lookup(name, Err(errno)) => (*errno == ENOENT && self.entries[*name].is_none()).then(|| self.clone()),
            Lookup(name, Ok((inode, is_directory))) => match (&self.entries[*name], is_directory) {
                (Some(Entry::File(there)), false) | (Some(Entry::Directory(Some(there))), true) => {
                    (there == inode).then(|| self.clone())
                }
                (Some(Entry::Directory(None)), true) => {
                    let mut after = self.clone();
                    after.entries[*name] = Some(Entry::Directory(Some(*inode)));
                    Some(after)
                }
                _ => None,
            },
            LinkCount(held, count) => {
                let links = self.entries.iter().flatten().filter(|entry| **entry == Entry::File(self.held[*held]));
                (links.count() as u64 + 1 == *count).then(|| self.clone())
            }
            Rename { .. } => None,
        }
    }

    /// The kernel answers `ESTALE` by itself where it knows a directory at its old place still: see docs/semantics.md. Of
    /// anything else that is wrong.
    fn at_old_place(&self, name: usize) -> Option<Self> {
        self.is_directory(name).then(|| self.clone())
    }

    fn is_directory(&self, name: usize) -> bool {
        matches!(self.entries[name], Some(Entry::Directory(_)))
    }

    fn without(&self, name: usize) -> Self {
        let mut after = self.clone();
        (after.entries[name], after.been[name]) = (None, 0);
        after
    }

    fn with_new(&self, name: usize, entry: Entry) -> Option<Self> {
        if self.entries[name].is_some() {
            return None;
        }
        let mut after = self.clone();
        let is_other_name =
            |other: &usize| entry != Entry::Directory(None) && self.entries[*other].as_ref() == Some(&entry);
        after.been[name] = (0..NAMES).filter(is_other_name).fold(1 << name, |been, other| been | self.been[other]);
        after.entries[name] = Some(entry);
        Some(after)
    }

    /// The kernel may have answered by itself, by what it has seen of both names.
    fn may_do_nothing(&self, from: usize, to: usize, flags: u32, result: Result<(), i32>) -> bool {
        match (&self.entries[to], result) {
            (_, Err(ESTALE)) => self.is_directory(from) || self.is_directory(to),
            // Both seemed to be the same.
            (Some(_), Ok(())) => flags != NOREPLACE && self.been[to] & 1 << from != 0,
            (Some(_), Err(EEXIST)) => flags == NOREPLACE,
            (Some(Entry::Directory(_)), Err(EISDIR)) | (Some(Entry::File(_)), Err(ENOTDIR)) => true,
            _ => false,
        }
    }

    fn after_rename(&self, from: usize, to: usize, flags: u32, result: Result<(), i32>) -> Option<Self> {
        let (source, target) = (&self.entries[from], &self.entries[to]);
        let is_directory = |entry: &Entry| matches!(entry, Entry::Directory(_));
        let is_right = match (source, target) {
            (None, _) => result == Err(ENOENT),
            (Some(_), None) if flags == EXCHANGE => result == Err(ENOENT),
            (Some(_), Some(_)) if flags == NOREPLACE => false,
            (Some(source), Some(target)) if flags == 0 => {
                result.is_ok() && is_directory(source) == is_directory(target)
            }
            _ => result.is_ok(),
        };
        if !is_right {
            return None;
        }
        let is_one_file = source == target && source.as_ref().is_some_and(|source| !is_directory(source));
        if result.is_err() || from == to || is_one_file {
            return Some(self.clone());
        }
        let mut after = self.without(from);
        after.entries[to].clone_from(source);
        after.been[to] = self.been[from] | 1 << to;
        if flags == EXCHANGE {
            after.entries[from].clone_from(target);
            after.been[from] = self.been[to] | 1 << from;
        }
        Some(after)
    }
}

pub(crate) struct Hands {
    paths: [PathBuf; NAMES],
    held: [File; HELD],
}

impl Arena for Names {
    type Hands = Hands;

    fn prepare(floor: &Floor, round: u64) -> (Self, Vec<Hands>) {
        // One that is split is split for good: all rounds share it.
        let folders = [("one", round % 3 == 1), ("two", !round.is_multiple_of(3))].map(|(folder, is_split)| {
            let fresh = format!("{folder}/names-{round}");
            if is_split { SPLIT.to_owned() } else { fresh }
        });
        for folder in folders.iter().filter(|folder| *folder != SPLIT) {
            floor.cluster.folder(folder);
        }
        let held = [0, 1].map(|held| format!("{}/held-{round}-{held}", folders[held]));
        let inodes = held.each_ref().map(|path| {
            fs::write(floor.cluster.path(path), b"held").unwrap();
            fs::metadata(floor.cluster.path(path)).unwrap().ino()
        });
        let hands = floor.mounts.iter().map(|mount| Hands {
            paths: [0, 1, 2, 3].map(|name| mount.join(&folders[name % 2]).join(format!("name-{round}-{name}"))),
            held: held.each_ref().map(|path| File::open(mount.join(path)).unwrap()),
        });
        (Self { entries: [const { None }; NAMES], been: [0; NAMES], held: inodes }, hands.collect())
    }

    fn act(hands: &mut Hands, dice: &mut Dice) -> Operation {
        let (name, other, held) = (dice.index(NAMES), dice.index(NAMES), dice.index(HELD));
        let path = &hands.paths[name];
        match dice.roll(20) {
            0..3 => {
                let made = File::options().create_new(true).write(true).open(path);
                Create(name, errno(made, &[EEXIST, ESTALE]).map(|file| file.metadata().unwrap().ino()))
            }
            3..5 => Mkdir(name, errno(fs::create_dir(path), &[EEXIST, ESTALE])),
            5..7 => Unlink(name, errno(fs::remove_file(path), &[ENOENT, EISDIR, ESTALE])),
            7..9 => Rmdir(name, errno(fs::remove_dir(path), &[ENOENT, ENOTDIR, ESTALE])),
            9..13 => {
                let flags = *dice.pick(&[0, 0, NOREPLACE, EXCHANGE]);
                let result = syscall::rename(path, &hands.paths[other], flags);
                let result = errno(result, &[ENOENT, EEXIST, EISDIR, ENOTDIR, ESTALE]);
                Rename { from: name, to: other, flags, result }
            }
            13..15 => {
                let linked = link(&hands.held[held], path);
                Link(held, name, errno(linked, &[EEXIST]))
            }
            15..18 => {
                let found = errno(fs::symlink_metadata(path), &[ENOENT, ESTALE]);
                Lookup(name, found.map(|found| (found.ino(), found.is_dir())))
            }
            _ => LinkCount(held, hands.held[held].metadata().unwrap().nlink()),
        }
    }
}

/// Another name for an open file.
fn link(file: &File, path: &Path) -> io::Result<()> {
    syscall::link_followed(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), path)
}
