//! The work of a process that `kill_tests` ends in the midst of it, the log of what it has begun and what was acknowledged
//! to it, and what the object may hold by that log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::buf::Slice;
use serde::{Deserialize, Serialize};
use types::allocation::Allocation;
use types::error::Errno;
use types::id::{InodeId, ObjectId};

use super::files::{Files, Options};
use super::sums_tests::{Dice, OBJECT, check_all, sidecar};
use super::tests::{bytes, object, open, target};
use super::{Data, ObjectStore, copy};

/// Bytes.
const BLOCK: u64 = 4096;
/// Bytes. What the object may hold is known for each slot.
pub(super) const SLOT: u64 = 16;
const SLOTS_PER_BLOCK: u64 = BLOCK / SLOT;
/// Changes at once, each of blocks that are its own.
const TASKS: u64 = 4;
const SLOTS_PER_TASK: u64 = 96 * SLOTS_PER_BLOCK;
/// Of the object, at most.
pub(super) const SLOTS: u64 = TASKS * SLOTS_PER_TASK;
/// Changes of a task, until all of them have ended and something is done to the object as a whole.
const STEPS: u64 = 12;

/// Is copied from, and never changed.
pub(super) const SOURCE: ObjectId = ObjectId { inode: InodeId(2), stripe: 0 };
/// Inodes of objects that are only read, so that others have to be closed for them.
pub(super) const OTHERS: Range<u64> = 10..15;
/// What each of them holds.
pub(super) fn other() -> Vec<u8> {
    bytes(10, 1)
}

/// What a slot holds where nothing was written, or it was taken away.
const ZEROS: u64 = 0;
/// What a slot of [`SOURCE`] holds.
pub(super) const COPIED: u64 = 1;

/// A slot holds the number of the change that has written it, and that mixed with its place.
pub(super) fn filled(slots: Range<u64>, number: u64) -> Vec<u8> {
    let check = |slot| if number == ZEROS { 0 } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ slot };
    slots.flat_map(|slot| [number.to_le_bytes(), u64::to_le_bytes(check(slot))]).flatten().collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    Write,
    Zero,
    Punch,
    Copy,
    Cut,
}

/// A line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Record {
    /// From here on the slots may hold `value`.
    Begun { number: u64, kind: Kind, slots: Range<u64>, value: u64 },
    /// `durable`: also after a loss of power.
    Done { number: u64, durable: bool },
    /// For lack of space: any part of it may have been done.
    Refused { number: u64 },
    /// All that was done before is on the disk.
    Synced,
}

impl Record {
    fn append(&self, mut log: &File) {
        let mut line = serde_json::to_vec(self).expect("plain");
        line.push(b'\n');
        log.write_all(&line).expect("the log has room");
    }

    /// Who was killed while it wrote a line has not said it.
    pub(super) fn all(log: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(log).expect("readable");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
    }

    /// Those of changes of any of these slots, and of syncs.
    pub(super) fn history(records: &[Self], slots: &Range<u64>) -> String {
        let mut numbers = Vec::new();
        let concerns = |record: &&Self| match record {
            Self::Begun { number, slots: changed, .. } => {
                let meets = changed.start < slots.end && slots.start < changed.end;
                numbers.extend(meets.then_some(*number));
                meets
            }
            Self::Done { number, .. } | Self::Refused { number } => numbers.contains(number),
            Self::Synced => true,
        };
        records.iter().filter(concerns).map(|record| format!("\n  {record:?}")).collect()
    }
}

/// What each slot may hold.
pub(super) struct Model {
    now: Vec<Vec<u64>>,
    /// After a loss of power.
    on_disk: Vec<Vec<u64>>,
    under_way: BTreeMap<u64, (Range<u64>, u64)>,
}

impl Model {
    /// Of an object that is not there.
    pub(super) fn new() -> Self {
        let nothing = vec![vec![ZEROS]; SLOTS as usize];
        Self { now: nothing.clone(), on_disk: nothing, under_way: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            Record::Begun { number, slots, value, .. } => {
                for slot in slots.clone() {
                    for held in [&mut self.now[slot as usize], &mut self.on_disk[slot as usize]] {
                        if !held.contains(value) {
                            held.push(*value);
                        }
                    }
                }
                self.under_way.insert(*number, (slots.clone(), *value));
            }
            Record::Done { number, durable } => {
                let (slots, value) = self.under_way.remove(number).expect("it was begun");
                for slot in slots {
                    self.now[slot as usize] = vec![value];
                    if *durable {
                        self.on_disk[slot as usize] = vec![value];
                    }
                }
            }
            Record::Refused { number } => drop(self.under_way.remove(number)),
            Record::Synced => self.on_disk.clone_from(&self.now),
        }
    }

    /// The process has ended.
    pub(super) fn end(&mut self) {
        self.under_way.clear();
    }

    /// The first slot of the object that holds what it cannot hold. What the others hold, they hold from here on.
    pub(super) fn find_wrong(&mut self, seen: &[u8], lost_power: bool) -> Option<Wrong> {
        for (slot, seen) in (0..SLOTS).zip(seen.chunks(SLOT as usize)) {
            let may_hold = if lost_power { &self.on_disk } else { &self.now };
            let may_hold = &may_hold[slot as usize];
            let fits = |number: &u64| filled(slot..slot + 1, *number) == seen;
            let Some(value) = may_hold.iter().copied().find(fits) else {
                return Some(Wrong { slot, seen: seen.to_vec(), may_hold: may_hold.clone() });
            };
            self.now[slot as usize] = vec![value];
            if lost_power {
                self.on_disk[slot as usize] = vec![value];
            }
        }
        None
    }
}

#[derive(Debug)]
#[expect(dead_code, reason = "shown where a test fails")]
pub(super) struct Wrong {
    pub(super) slot: u64,
    seen: Vec<u8>,
    may_hold: Vec<u64>,
}

/// An engine of one life: over the lives, all its ways to do the same are gone.
pub(super) fn engine(dir: &Path, life: u64) -> Files {
    let options = Options {
        open_files_max: [2, 100][(life % 2) as usize],
        write_in_place_max: [0, 64 << 10, 1 << 20][(life % 3) as usize],
        direct_min: [256 << 10, 8 << 10][(life / 2 % 2) as usize],
        checksums: true,
    };
    let store = open(&target(dir, 0), &Rc::default(), options);
    let now = Instant::now();
    if life % 5 == 4 {
        // The disk is slow: helpers make the calls.
        store.pace.record(now, now + Duration::from_secs(3600));
    }
    if life % 4 == 3 {
        // The page cache is dear: long requests go past it.
        store.cache_cost.record(1, now, now + Duration::from_secs(1));
    }
    store
}

/// What a process is told that is to be ended.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) target: PathBuf,
    /// Elsewhere: it loses no power.
    pub(super) log: PathBuf,
    pub(super) life: u64,
    pub(super) seed: u64,
    /// Changes may be refused.
    pub(super) is_full: bool,
}

/// A file of the target that only tells whether its disk lives.
pub(super) const ALIVE: &str = "alive";

/// Works until it is killed.
pub(super) async fn work(task: &Task) {
    let open = |path: &Path| File::open(path).expect("there");
    let log = File::options().append(true).open(&task.log).expect("there");
    let (store, alive) = (engine(&task.target, task.life), open(&task.target.join(ALIVE)));
    let worker = Worker { store, log, alive, is_full: task.is_full };
    let mut dice = Dice(task.seed);
    // No two changes of all lives have the same.
    let mut number = task.life << 32;
    loop {
        // What was cut off or punched has its space again.
        worker.store.target.probe(&task.target);
        let seeds: Vec<u64> = (0..TASKS).map(|_| dice.below(1 << 31)).collect();
        let tasks = (0..TASKS).zip(seeds).map(|(task, seed)| worker.task(task, Dice(seed), number + task * STEPS));
        ring::join_all(tasks).await;
        number += TASKS * STEPS;
        worker.whole(&mut dice, number).await;
        number += 1;
    }
}

struct Worker {
    store: Files,
    log: File,
    alive: File,
    is_full: bool,
}

impl Worker {
    fn say(&self, record: &Record) {
        record.append(&self.log);
    }

    /// What the engine has answered; `None` where there was no space.
    ///
    /// An answer counts only if the disk is alive after it. One that comes while the power is being cut can be wrong through
    /// no fault of the engine's: an fsync that began before ext4's shutdown, and finds the transaction that it waits for gone
    /// from an aborted journal, takes it for committed. ext4 refuses every read once its shutdown has begun, which is before
    /// the journal is aborted; so what was answered before a read that succeeds was answered by a whole file system.
    async fn answer<T>(&self, outcome: Result<T, Errno>) -> Option<T> {
        if self.alive.read_at(&mut [0], 0).is_err() {
            // Nothing that comes is of interest.
            std::future::pending::<()>().await;
        }
        match outcome {
            Ok(answer) => Some(answer),
            Err(Errno::ENOSPC) if self.is_full => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    async fn task(&self, task: u64, mut dice: Dice, first: u64) {
        let own = task * SLOTS_PER_TASK..(task + 1) * SLOTS_PER_TASK;
        for number in first..first + STEPS {
            let slots = some_slots(&mut dice, &own);
            let (offset, len) = (slots.start * SLOT, (slots.end - slots.start) * SLOT);
            match dice.below(11) {
                0 => self.change(number, Kind::Zero, slots, false).await,
                1 => self.change(number, Kind::Punch, slots, false).await,
                2 => self.change(number, Kind::Copy, slots, false).await,
                3 => {
                    let other = object(OTHERS.start + dice.below(OTHERS.end - OTHERS.start), 0);
                    drop(self.answer(self.store.read(other, 0, 10, None).await).await);
                }
                4 => drop(self.answer(self.store.read(OBJECT, offset, len as u32, None).await).await),
                roll => self.change(number, Kind::Write, slots, roll < 7).await,
            }
        }
    }

    async fn change(&self, number: u64, kind: Kind, slots: Range<u64>, durable: bool) {
        let value = match kind {
            Kind::Write => number,
            Kind::Copy => COPIED,
            Kind::Zero | Kind::Punch | Kind::Cut => ZEROS,
        };
        let (offset, len) = (slots.start * SLOT, (slots.end - slots.start) * SLOT);
        self.say(&Record::Begun { number, kind, slots: slots.clone(), value });
        let allocate = async |what| self.store.allocate(OBJECT, offset, len, what).await.map(|_| false);
        let outcome = match kind {
            Kind::Write => {
                let data = Data { durable, ..Slice::from_vec(filled(slots, number)).into() };
                self.store.write(OBJECT, offset, data).await.map(|written| written.durable)
            }
            Kind::Zero => allocate(Allocation::Zero { keep_size: true }).await,
            Kind::Punch => allocate(Allocation::Punch).await,
            Kind::Copy => {
                let range = copy::Range { source_offset: offset, offset, len };
                self.store.copy(SOURCE, OBJECT, range).await.map(|_| false)
            }
            Kind::Cut => self.store.truncate(OBJECT, offset).await.map(|()| false),
        };
        self.say(&match self.answer(outcome).await {
            Some(durable) => Record::Done { number, durable },
            None => Record::Refused { number },
        });
    }

    /// Alone on the object.
    async fn whole(&self, dice: &mut Dice, number: u64) {
        match dice.below(8) {
            0 => self.store.clean(Instant::now()).await,
            1 => {
                let checked = self.answer(self.store.check(OBJECT, 0, SLOTS * SLOT).await).await.expect("readable");
                assert!(checked.corrupt.is_empty(), "{checked:?}");
                if checked.unwritten.is_none() {
                    self.answer(self.store.believe(OBJECT, self.store.going_over()).await).await;
                }
            }
            2 | 3 => self.change(number, Kind::Cut, dice.below(SLOTS)..SLOTS, false).await,
            4 | 5 => {
                let synced = self.store.sync(OBJECT).await;
                self.answer(synced).await.expect("what was acknowledged has its space");
                self.say(&Record::Synced);
            }
            _ => {}
        }
    }
}

/// Of all lengths, at the beginnings of blocks and anywhere.
fn some_slots(dice: &mut Dice, within: &Range<u64>) -> Range<u64> {
    if dice.below(8) == 0 {
        // Where they lie within the object, they are written in parts.
        let start = within.start + SLOTS_PER_BLOCK * dice.below(32);
        return start..start + SLOTS_PER_BLOCK * 64;
    }
    let grain = [1, 1, 32, SLOTS_PER_BLOCK][dice.below(4) as usize];
    let start = within.start + dice.below(within.end - within.start) / grain * grain;
    let len = match dice.below(4) {
        0 => 1 + dice.below(8),
        1 => dice.below(2 * SLOTS_PER_BLOCK),
        2 => dice.below(16 * SLOTS_PER_BLOCK),
        _ => SLOTS_PER_BLOCK * (1 + dice.below(30)),
    };
    start..(start + (len / grain * grain).max(grain)).min(within.end)
}

/// Nothing of the object reads as corrupt. It becomes clean, also on the disk: the next change has to say there that it is not.
pub(super) async fn go_over(store: &Files, dir: &Path) {
    let checked = check_all(store, OBJECT).await;
    assert!(checked.corrupt.is_empty(), "{checked:?}");
    if checked.unwritten.is_none() {
        store.believe(OBJECT, store.going_over()).await.expect("believed");
        store.clean(Instant::now()).await;
        let header = sidecar(dir, OBJECT);
        // There is none as long as there is no object.
        File::open(header).map_or(Ok(()), |header| header.sync_all()).expect("synced");
    }
}
