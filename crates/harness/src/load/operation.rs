//! The calls that workers make: which, on what, and how.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use crate::dice::Dice;
use crate::syscall;

use super::picture::{Entry, Picture};
use super::seen::{Seen, XATTR};

/// Longest file, in bytes: several chunks where the folder's are small.
const LEN_MAX: u64 = 400_000;
/// Bounds of what one call writes, in bytes.
const LENGTHS: [usize; 4] = [100, 3_000, 30_000, 200_000];
/// Names in each folder, so few that operations meet each other.
const NAMES: u64 = 12;
/// The folders of a worker, in which its names are: also on different shards where there are several.
pub(super) const FOLDERS: [&str; 2] = ["left", "right"];

/// One call, as the log has it. Names are paths below the worker's folder.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Create(String, Vec<u8>),
    Write(String, u64, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String, u64),
    Chmod(String, u32),
    /// Nanoseconds since 1970.
    Utimens(String, i64),
    SetXattr(String, Vec<u8>),
    RemoveXattr(String),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    Symlink(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Sync(String),
    Read(String),
}

impl Operation {
    /// One that must succeed on this folder.
    pub(super) fn choose(picture: &Picture, dice: &mut Dice) -> Self {
        let mut any_name = || format!("{}/name-{}", dice.pick(&FOLDERS), dice.roll(NAMES));
        let (name, other) = (any_name(), any_name());
        match picture.entry(&name) {
            None => Self::making(picture, name, other, dice),
            Some(Entry::Folder) => match picture.entry(&other) {
                None | Some(Entry::Folder) if dice.roll(2) == 0 => Self::Rename(name, other),
                _ => Self::Rmdir(name),
            },
            Some(Entry::Symlink(_)) => match dice.roll(4) {
                0 => Self::Unlink(name),
                1 => Self::Read(name),
                _ => Self::moving(picture, name, other, dice),
            },
            Some(Entry::File(_)) => Self::on_file(picture, name, other, dice),
        }
    }

    /// Of a name that is not there; `other` may be.
    fn making(picture: &Picture, name: String, other: String, dice: &mut Dice) -> Self {
        match dice.roll(10) {
            0 => Self::Mkdir(name),
            1 => Self::Symlink(name, format!("somewhere-{}", dice.roll(1000))),
            2 | 3 if picture.id(&other).is_some() => Self::Link(other, name),
            _ => Self::Create(name, data(dice)),
        }
    }

    fn on_file(picture: &Picture, name: String, other: String, dice: &mut Dice) -> Self {
        let len = picture.content_of(&name).len() as u64;
        if len > LEN_MAX {
            return Self::Truncate(name, dice.roll(LEN_MAX));
        }
        match dice.roll(20) {
            0..=3 => Self::Write(name, dice.roll(len + 5000), data(dice)),
            4..=6 => Self::Append(name, data(dice)),
            7 => Self::Truncate(name, dice.roll(LEN_MAX)),
            8 => Self::Sync(name),
            9 => Self::Read(name),
            10 | 11 => Self::Unlink(name),
            12 => Self::Chmod(name, 0o400 | dice.roll(0o400) as u32),
            13 => Self::Utimens(name, dice.roll(2_000_000_000_000_000_000).cast_signed()),
            14 if picture.has_xattr(&name) => Self::RemoveXattr(name),
            14 | 15 => {
                let len = dice.index(300);
                Self::SetXattr(name, dice.bytes(len))
            }
            _ => Self::moving(picture, name, other, dice),
        }
    }

    /// Of what is no folder.
    fn moving(picture: &Picture, name: String, other: String, dice: &mut Dice) -> Self {
        match picture.entry(&other) {
            Some(_) if other != name && dice.roll(3) == 0 => Self::Exchange(name, other),
            Some(Entry::Folder) => Self::Read(name),
            Some(Entry::File(_) | Entry::Symlink(_)) | None => Self::Rename(name, other),
        }
    }

    /// Makes the call below `folder`. What is read is compared with `picture`.
    pub(super) fn perform(&self, folder: &Path, picture: &Picture) -> io::Result<()> {
        let path = |name: &String| folder.join(name);
        let open = |name: &String| File::options().read(true).write(true).open(path(name));
        match self {
            Self::Create(name, data) => {
                let file = File::options().write(true).create_new(true).open(path(name))?;
                file.write_all_at(data, 0)?;
                syscall::close(file)
            }
            Self::Write(name, offset, data) => {
                let file = open(name)?;
                file.write_all_at(data, *offset)?;
                syscall::close(file)
            }
            Self::Append(name, data) => {
                let mut file = File::options().append(true).open(path(name))?;
                file.write_all(data)?;
                syscall::close(file)
            }
            Self::Truncate(name, len) => open(name)?.set_len(*len),
            Self::Chmod(name, mode) => fs::set_permissions(path(name), fs::Permissions::from_mode(*mode)),
            Self::Utimens(name, mtime) => syscall::utimens(&path(name), *mtime, *mtime),
            Self::SetXattr(name, value) => syscall::setxattr(&path(name), XATTR, value, 0),
            Self::RemoveXattr(name) => syscall::removexattr(&path(name), XATTR),
            Self::Rename(from, to) => fs::rename(path(from), path(to)),
            Self::Exchange(one, other) => syscall::rename(&path(one), &path(other), libc::RENAME_EXCHANGE),
            Self::Link(from, to) => fs::hard_link(path(from), path(to)),
            Self::Symlink(name, target) => symlink(target, path(name)),
            Self::Unlink(name) => fs::remove_file(path(name)),
            Self::Mkdir(name) => fs::create_dir(path(name)),
            Self::Rmdir(name) => fs::remove_dir(path(name)),
            Self::Sync(name) => open(name)?.sync_all(),
            Self::Read(name) => {
                let seen = Seen::look(&path(name))?;
                picture.compare(name, seen.as_ref()).map_err(io::Error::other)
            }
        }
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Create(name, data) => format!("making {name} of {} bytes", data.len()),
            Self::Write(name, offset, data) => format!("writing {} bytes at {offset} of {name}", data.len()),
            Self::Append(name, data) => format!("appending {} bytes to {name}", data.len()),
            Self::Truncate(name, len) => format!("truncating {name} to {len}"),
            Self::Chmod(name, mode) => format!("setting the mode of {name} to {mode:o}"),
            Self::Utimens(name, mtime) => format!("setting the times of {name} to {mtime}"),
            Self::SetXattr(name, value) => format!("giving {name} an attribute of {} bytes", value.len()),
            Self::RemoveXattr(name) => format!("taking the attribute from {name}"),
            Self::Rename(from, to) => format!("renaming {from} to {to}"),
            Self::Exchange(one, other) => format!("exchanging {one} and {other}"),
            Self::Link(from, to) => format!("linking {from} to {to}"),
            Self::Symlink(name, target) => format!("making the symbolic link {name} to {target}"),
            Self::Unlink(name) => format!("removing {name}"),
            Self::Mkdir(name) => format!("making the folder {name}"),
            Self::Rmdir(name) => format!("removing the folder {name}"),
            Self::Sync(name) => format!("syncing {name}"),
            Self::Read(name) => format!("reading {name}"),
        }
    }

    /// Names that it concerns.
    pub(super) fn names(&self) -> Vec<&String> {
        match self {
            Self::Rename(one, other) | Self::Exchange(one, other) | Self::Link(one, other) => vec![one, other],
            Self::Create(name, _)
            | Self::Write(name, ..)
            | Self::Append(name, _)
            | Self::Truncate(name, _)
            | Self::Chmod(name, _)
            | Self::Utimens(name, _)
            | Self::SetXattr(name, _)
            | Self::RemoveXattr(name)
            | Self::Symlink(name, _)
            | Self::Unlink(name)
            | Self::Mkdir(name)
            | Self::Rmdir(name)
            | Self::Sync(name)
            | Self::Read(name) => vec![name],
        }
    }

    /// The file whose content it changes, which may be done in part. All else happens or does not.
    pub(super) fn changes_content_of(&self) -> Option<&String> {
        match self {
            Self::Create(name, _) | Self::Write(name, ..) | Self::Append(name, _) | Self::Truncate(name, _) => {
                Some(name)
            }
            _ => None,
        }
    }
}

fn data(dice: &mut Dice) -> Vec<u8> {
    let most = *dice.pick(&LENGTHS);
    let len = dice.index(most) + 1;
    dice.bytes(len)
}
