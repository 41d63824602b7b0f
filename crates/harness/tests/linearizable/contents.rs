//! One file that is open through all mounts: written in places, read, made shorter and longer, measured; its mode.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use harness::dice::Dice;
use harness::linear::Thing;

use crate::{Arena, Floor, Trouble};

const SLOTS: usize = 4;
/// Bytes from one slot to the next. In the metadata; growing out of them; over several targets.
const STRIDES: [u64; 3] = [8, 3000, 20_000];
pub(crate) const SLOT_LEN: u64 = 8;

/// The file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Contents {
    /// Zero where nothing was written, and beyond `filled`.
    slots: [u64; SLOTS],
    /// The file's end is that of this many slots.
    filled: usize,
    mode: u32,
    stride: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Write(usize, u64),
    /// `None` beyond the end; an error where part of it was read.
    Read(usize, Result<Option<u64>, usize>),
    /// To the end of so many slots.
    Truncate(usize),
    Len(u64),
    Chmod(u32),
    Mode(u32),
}
use Operation::{Chmod, Len, Mode, Read, Truncate, Write};

impl Contents {
    fn len(&self) -> u64 {
        len_of(self.filled, self.stride)
    }
}

/// Of so many slots, in bytes.
fn len_of(slots: usize, stride: u64) -> u64 {
    if slots == 0 { 0 } else { (slots as u64 - 1) * stride + SLOT_LEN }
}

impl Thing for Contents {
    type Operation = Operation;

    fn after(&self, _client: usize, operation: &Operation) -> impl IntoIterator<Item = Self> {
        let mut after = self.clone();
        let is_right = match operation {
            Write(slot, value) => {
                after.slots[*slot] = *value;
                after.filled = self.filled.max(slot + 1);
                true
            }
            Read(slot, read) => *read == Ok((*slot < self.filled).then(|| self.slots[*slot])),
            Truncate(filled) => {
                after.filled = *filled;
                after.slots[*filled..].fill(0);
                true
            }
            Len(len) => *len == self.len(),
            Chmod(mode) => {
                after.mode = *mode;
                true
            }
            Mode(mode) => *mode == self.mode,
        };
        is_right.then_some(after)
    }
}

pub(crate) struct Hands {
    file: File,
    stride: u64,
    may_write: bool,
    may_cut: bool,
    /// Of the next value: no other is the same.
    next: u64,
}

impl Arena for Contents {
    type Hands = Hands;

    fn prepare(floor: &Floor, round: u64) -> (Self, Vec<Hands>) {
        let stride = STRIDES[round as usize % STRIDES.len()];
        let name = format!("one/contents-{round}");
        let made = File::create_new(floor.cluster.path(&name)).unwrap();
        made.set_permissions(Permissions::from_mode(0o600)).unwrap();
        // Objects are cut one after the other, which those who write meanwhile may see, and all after a restart of the shard
        // (docs/semantics.md); contents in the metadata are one.
        let turn = round as usize / STRIDES.len();
        let has_cutter = floor.trouble == Trouble::None && turn.is_multiple_of(2);
        let cutter = turn / 2 % floor.mounts.len();
        let open = |(client, mount): (usize, &std::path::PathBuf)| Hands {
            file: File::options().read(true).write(true).open(mount.join(&name)).unwrap(),
            stride,
            may_write: stride == STRIDES[0] || !has_cutter || client == cutter,
            may_cut: stride == STRIDES[0] || has_cutter && client == cutter,
            next: (client as u64 + 1) * 1_000_000,
        };
        let hands = floor.mounts.iter().enumerate().map(open).collect();
        (Self { slots: [0; SLOTS], filled: 0, mode: 0o600, stride }, hands)
    }

    fn act(hands: &mut Hands, dice: &mut Dice) -> Operation {
        let (file, slot) = (&hands.file, dice.index(SLOTS));
        let offset = slot as u64 * hands.stride;
        match dice.roll(16) {
            0..4 if hands.may_write => {
                hands.next += 1;
                file.write_all_at(&hands.next.to_le_bytes(), offset).unwrap();
                Write(slot, hands.next)
            }
            0..9 => Read(slot, read_slot(file, offset)),
            9..11 if hands.may_cut => {
                let filled = dice.index(SLOTS + 1);
                file.set_len(len_of(filled, hands.stride)).unwrap();
                Truncate(filled)
            }
            9..13 => Len(file.metadata().unwrap().len()),
            13 => {
                let mode = 0o600 + dice.roll(0o100) as u32;
                file.set_permissions(Permissions::from_mode(mode)).unwrap();
                Chmod(mode)
            }
            _ => Mode(file.metadata().unwrap().mode() & 0o7777),
        }
    }
}

/// What is there; `None` beyond the end, and an error where part of it was read.
pub(crate) fn read_slot(file: &File, offset: u64) -> Result<Option<u64>, usize> {
    let mut bytes = [0; SLOT_LEN as usize];
    match file.read_at(&mut bytes, offset).unwrap() {
        0 => Ok(None),
        8 => Ok(Some(u64::from_le_bytes(bytes))),
        part => Err(part),
    }
}
