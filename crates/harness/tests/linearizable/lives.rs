//! Files that come and go: made, opened, written, read, measured, closed, renamed and removed, by two programs on each of two
//! mounts. What is open stays there whatever becomes of its name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use harness::dice::Dice;
use harness::linear::Thing;

use crate::contents::{SLOT_LEN, read_slot};
use crate::{Arena, CLIENTS, Floor, errno};

const NAMES: usize = 2;
const SLOTS: usize = 3;
/// Bytes from one slot to the next. In the metadata; growing out of them; over several targets.
const STRIDES: [u64; 3] = [8, 3000, 20_000];
/// How often the kernel may give up an open.
const STALE_MAX: usize = 100;

#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
struct Contents {
    /// Zero where nothing was written.
    slots: [u64; SLOTS],
    /// The file's end is that of this many slots.
    filled: usize,
    /// It has a name that nobody else uses.
    is_aside: bool,
}

/// All files that have a name or are open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lives {
    /// By the order in which they were made.
    files: Vec<Contents>,
    names: [Option<usize>; NAMES],
    open: [Option<usize>; CLIENTS],
    stride: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// It must not be there.
    Make(usize, Result<(), i32>),
    /// It is made where it is not there.
    Ensure(usize),
    Open(usize, Result<(), i32>),
    Remove(usize, Result<(), i32>),
    /// To a name that nobody else uses.
    Rename(usize, Result<(), i32>),
    /// A file that was written under such a name gets this one.
    Replace(usize, u64),
    Close,
    Write(usize, u64),
    /// `None` beyond the end; an error where part of it was read.
    Read(usize, Result<Option<u64>, usize>),
    Len(u64),
    Links(u64),
}
use Operation::{Close, Ensure, Len, Links, Make, Open, Read, Remove, Rename, Replace, Write};

impl Lives {
    fn make(&mut self, name: usize, contents: Contents) -> Option<usize> {
        self.names[name] = Some(self.files.len());
        self.files.push(contents);
        self.names[name]
    }

    /// What `client` has open.
    fn held(&mut self, client: usize) -> Option<&mut Contents> {
        self.open[client].and_then(|file| self.files.get_mut(file))
    }

    fn links(&self, client: usize) -> u64 {
        let Some(file) = self.open[client] else { return 0 };
        u64::from(self.files[file].is_aside || self.names.contains(&Some(file)))
    }
}

impl Thing for Lives {
    type Operation = Operation;

    fn after(&self, client: usize, operation: &Operation) -> impl IntoIterator<Item = Self> {
        self.after_one(client, operation)
    }
}

impl Lives {
    fn after_one(&self, client: usize, operation: &Operation) -> Option<Self> {
        let mut after = self.clone();
        let missing = |name: usize| if self.names[name].is_some() { Ok(()) } else { Err(libc::ENOENT) };
        let is_right = match *operation {
            Make(name, result) => {
                if result.is_ok() {
                    after.open[client] = after.make(name, Contents::default());
                }
                result == if self.names[name].is_none() { Ok(()) } else { Err(libc::EEXIST) }
            }
            Ensure(name) => {
                after.open[client] = self.names[name].or_else(|| after.make(name, Contents::default()));
                true
            }
            Open(name, result) => {
                after.open[client] = result.ok().and(self.names[name]);
                result == missing(name)
            }
            Remove(name, result) => {
                after.names[name] = None;
                result == missing(name)
            }
            Rename(name, result) => {
                if let Some(file) = after.names[name].take() {
                    after.files[file].is_aside = true;
                }
                result == missing(name)
            }
            Replace(name, value) => {
                let mut contents = Contents { filled: 1, ..Contents::default() };
                contents.slots[0] = value;
                after.make(name, contents);
                true
            }
            Close => {
                after.open[client] = None;
                true
            }
            Write(slot, value) => {
                let held = after.held(client)?;
                held.slots[slot] = value;
                held.filled = held.filled.max(slot + 1);
                true
            }
            Read(slot, read) => {
                let held = after.held(client)?;
                read == Ok((slot < held.filled).then(|| held.slots[slot]))
            }
            Len(len) => {
                let filled = after.held(client)?.filled;
                len == if filled == 0 { 0 } else { (filled as u64 - 1) * self.stride + SLOT_LEN }
            }
            Links(links) => links == self.links(client),
        };
        is_right.then_some(after)
    }
}

pub(crate) struct Hands {
    folder: PathBuf,
    held: Option<File>,
    stride: u64,
    /// Of the next value: no other is the same.
    next: u64,
}

impl Hands {
    /// Where others replace twice what is being opened, the kernel gives up: see docs/semantics.md.
    fn open(&mut self, options: &OpenOptions, path: &Path, fine: &[i32]) -> Result<(), i32> {
        let is_stale =
            |opened: &io::Result<File>| opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE));
        let mut opened = options.open(path);
        for _ in 0..STALE_MAX {
            if !is_stale(&opened) {
                break;
            }
            opened = options.open(path);
        }
        errno(opened, fine).map(|file| self.held = Some(file))
    }
}

impl Arena for Lives {
    type Hands = Hands;

    fn prepare(floor: &Floor, round: u64) -> (Self, Vec<Hands>) {
        let stride = STRIDES[round as usize % STRIDES.len()];
        let folder = format!("one/lives-{round}");
        floor.cluster.folder(&folder);
        let hands = |client: usize| Hands {
            folder: floor.mounts[client / 2].join(&folder),
            held: None,
            stride,
            next: (client as u64 + 1) * 1_000_000,
        };
        (
            Self { files: Vec::new(), names: [None; NAMES], open: [None; CLIENTS], stride },
            (0..CLIENTS).map(hands).collect(),
        )
    }

    fn act(hands: &mut Hands, dice: &mut Dice) -> Operation {
        let name = dice.index(NAMES);
        let path = hands.folder.join(format!("n{name}"));
        let aside = hands.folder.join(hands.next.to_string());
        match dice.roll(16) {
            0 => return Remove(name, errno(fs::remove_file(path), &[libc::ENOENT])),
            1 => {
                hands.next += 1;
                return Rename(name, errno(fs::rename(path, aside), &[libc::ENOENT]));
            }
            2 => {
                hands.next += 1;
                fs::write(&aside, hands.next.to_le_bytes()).unwrap();
                fs::rename(aside, path).unwrap();
                return Replace(name, hands.next);
            }
            _ => {}
        }
        let Some(file) = &hands.held else {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            return match dice.roll(3) {
                0 => Make(name, hands.open(options.create_new(true), &path, &[libc::EEXIST])),
                1 => {
                    let ensured = hands.open(options.create(true), &path, &[]);
                    ensured.map(|()| Ensure(name)).unwrap()
                }
                _ => Open(name, hands.open(&options, &path, &[libc::ENOENT])),
            };
        };
        let slot = dice.index(SLOTS);
        let offset = slot as u64 * hands.stride;
        match dice.roll(8) {
            0..2 => {
                hands.held = None;
                Close
            }
            2..4 => {
                hands.next += 1;
                file.write_all_at(&hands.next.to_le_bytes(), offset).unwrap();
                Write(slot, hands.next)
            }
            4..6 => Read(slot, read_slot(file, offset)),
            6 => Len(file.metadata().unwrap().len()),
            _ => Links(file.metadata().unwrap().nlink()),
        }
    }
}
