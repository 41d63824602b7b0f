//! Random changes of an object, with crashes between any two steps: what a process or a power supply leaves behind never
//! reads as corrupt, and what was flipped on the disk does.
//!
//! The steps are those of `engine/checked.rs`, `sidecar.rs` and `settle.rs`; the rules are the real ones. A block has two
//! halves, so that a write can keep one.

use super::header::{Header, Owner, State};
use super::{Entry, Trust, Verdict, judge, must_look, trust};

const BLOCKS: usize = 6;

type Block = [u16; 2];

fn sum(block: Block) -> u32 {
    let value = u32::from(block[0]) << 16 | u32::from(block[1]);
    // One to one, and 0 for zeros.
    value.wrapping_mul(0x9e37_79b1)
}

/// A part of a file that reaches the disk as a whole.
#[derive(Clone)]
struct Cell<T> {
    /// What it has been since it was last forced to the disk.
    past: Vec<T>,
    /// The disk has refused it, and the kernel takes it for written.
    is_refused: bool,
}

impl<T: Clone + PartialEq> Cell<T> {
    fn new(past: Vec<T>) -> Self {
        Self { past, is_refused: false }
    }

    fn get(&self) -> T {
        self.past.last().expect("never empty").clone()
    }

    fn set(&mut self, value: T) {
        self.past.push(value);
        self.is_refused = false;
    }

    fn sync(&mut self) {
        if !self.is_refused {
            self.past = vec![self.get()];
        }
    }

    /// The sync fails for this one, or for another.
    fn fail_to_sync(&mut self, dice: &mut Dice) {
        if dice.below(2) == 0 {
            self.is_refused = self.past.len() > 1;
        } else {
            self.sync();
        }
    }

    /// The page cache gives up what it takes for written.
    fn forget(&mut self, dice: &mut Dice) {
        if self.is_refused && dice.below(2) == 0 {
            self.lose_power(dice);
        }
    }

    fn lose_power(&mut self, dice: &mut Dice) {
        *self = Self::new(vec![self.past[dice.below(self.past.len())].clone()]);
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// What is in the page cache and, some of it, on the disk.
#[derive(Clone)]
struct Files {
    blocks: Vec<Cell<Block>>,
    /// In blocks.
    size: Cell<usize>,
    entries: Vec<Cell<Entry>>,
    header: Cell<Option<Header>>,
}

impl Files {
    fn block(&self, at: usize) -> Block {
        if at < self.size.get() { self.blocks[at].get() } else { [0; 2] }
    }

    fn sync_all(&mut self) {
        self.blocks.iter_mut().for_each(Cell::sync);
        self.size.sync();
        self.sync_sums();
    }

    fn sync_sums(&mut self) {
        self.entries.iter_mut().for_each(Cell::sync);
        self.header.sync();
    }

    /// Data that the disk refuses is the matter of who syncs it.
    fn fail_to_sync(&mut self, dice: &mut Dice) {
        self.blocks.iter_mut().for_each(Cell::sync);
        self.size.sync();
        self.entries.iter_mut().for_each(|cell| cell.fail_to_sync(dice));
        self.header.fail_to_sync(dice);
    }

    fn forget(&mut self, dice: &mut Dice) {
        self.entries.iter_mut().for_each(|cell| cell.forget(dice));
        self.header.forget(dice);
    }

    fn lose_power(&mut self, dice: &mut Dice) {
        self.blocks.iter_mut().for_each(|cell| cell.lose_power(dice));
        self.entries.iter_mut().for_each(|cell| cell.lose_power(dice));
        self.size.lose_power(dice);
        self.header.lose_power(dice);
    }
}

/// It died before this step.
#[derive(Debug)]
struct Crash;

/// A process that has the object open.
struct Process {
    files: Files,
    me: Owner,
    trust: Trust,
    clean: bool,
    durable: bool,
    owner: Owner,
    inherited: Option<std::ops::Range<u64>>,
    /// A sync has failed, which who comes next is told.
    has_failed: bool,
    /// Steps that it has to live.
    left: usize,
}

impl Process {
    fn open(files: Files, me: Owner) -> Self {
        let header = files.header.get();
        let trust = trust(header.as_ref(), me);
        let (clean, owner, inherited) = match header.map(|header| header.state) {
            Some(State::Clean { size }) => {
                assert_eq!(size as usize, files.size.get(), "clean, and of another size");
                (true, me, None)
            }
            Some(State::Dirty { owner, pending }) => (false, owner, pending),
            None => (false, Owner::NOBODY, None),
        };
        let durable = !clean && owner == me;
        let mut this = Self { files, me, trust, clean, durable, owner, inherited, has_failed: false, left: usize::MAX };
        if trust != Trust::Exact {
            this.cut(this.files.size.get());
        }
        this
    }

    fn cut(&mut self, size: usize) {
        self.files.entries[size..].iter_mut().for_each(|entry| entry.set(Entry::default()));
    }

    fn step(&mut self, change: impl FnOnce(&mut Files)) -> Result<(), Crash> {
        self.left = self.left.checked_sub(1).ok_or(Crash)?;
        change(&mut self.files);
        Ok(())
    }

    fn is_pending(&self, at: usize) -> bool {
        self.inherited.as_ref().is_some_and(|range| range.contains(&(at as u64)))
    }

    fn verdict(&self, at: usize) -> Verdict {
        judge(self.trust, self.is_pending(at), self.files.entries[at].get(), sum(self.files.block(at)))
    }

    fn write_header(&mut self, state: State) -> Result<(), Crash> {
        self.step(|files| files.header.set(Some(Header { inode: 1, stripe: 0, state })))
    }

    fn begin_change(&mut self) -> Result<(), Crash> {
        if self.clean {
            self.owner = self.me;
            self.write_header(State::Dirty { owner: self.me, pending: None })?;
        }
        if self.clean || !self.durable {
            self.step(Files::sync_sums)?;
            (self.clean, self.durable) = (false, true);
        }
        Ok(())
    }

    /// `halves`: which of the block are new.
    fn write(&mut self, at: usize, halves: [Option<u16>; 2]) -> Result<(), Crash> {
        self.begin_change()?;
        let held = self.files.block(at);
        let keeps = halves.iter().zip(held).any(|(half, held)| half.is_none() && held != 0);
        let whole = halves.iter().all(Option::is_some);
        let mut new = held;
        halves.iter().zip(&mut new).for_each(|(half, new)| *new = half.unwrap_or(*new));
        let entry = self.files.entries[at].get();
        let before = if whole && !must_look(self.trust, self.is_pending(at), entry) {
            entry.now
        } else {
            assert!(!keeps || self.verdict(at) != Verdict::Corrupt, "nothing was flipped");
            sum(held)
        };
        self.step(|files| files.entries[at].set(Entry { now: sum(new), before }))?;
        self.step(|files| {
            let size = files.size.get().max(at + 1);
            (files.size.get()..at).for_each(|hole| files.blocks[hole].set([0; 2]));
            files.blocks[at].set(new);
            files.size.set(size);
        })
    }

    /// Its entry cannot be put right afterwards: it may be of the old or of the new.
    fn fail_to_write(&mut self, at: usize, value: u16) -> Result<(), Crash> {
        self.begin_change()?;
        let (held, entry) = (self.files.block(at), self.files.entries[at].get());
        let before = if must_look(self.trust, self.is_pending(at), entry) { sum(held) } else { entry.now };
        let new = [value, value];
        if value.is_multiple_of(2) {
            self.step(|files| files.entries[at].set(Entry { now: sum(new), before }))?;
        }
        let all = self
            .inherited
            .clone()
            .map_or(at as u64..at as u64 + 1, |old| old.start.min(at as u64)..old.end.max(at as u64 + 1));
        if self.trust == Trust::Exact {
            (self.trust, self.owner) = (Trust::Either, self.me.earlier());
        }
        self.inherited = Some(all.clone());
        self.write_header(State::Dirty { owner: self.owner, pending: Some(all) })
    }

    /// Zeros, block by block in any order.
    fn punch(&mut self, dice: &mut Dice, first: usize, end: usize) -> Result<(), Crash> {
        self.begin_change()?;
        let own = first as u64..end as u64;
        let all = self.inherited.clone().map_or(own.clone(), |old| old.start.min(own.start)..old.end.max(own.end));
        self.write_header(State::Dirty { owner: self.owner, pending: Some(all) })?;
        let mut order: Vec<usize> = (first..end).collect();
        while !order.is_empty() {
            let at = order.swap_remove(dice.below(order.len()));
            // The kernel may stop in the middle of one.
            let half = self.files.block(at)[1];
            self.step(|files| files.blocks[at].set([0, half]))?;
            self.step(|files| files.blocks[at].set([0; 2]))?;
        }
        for at in first..end {
            let sum = sum(self.files.block(at));
            self.step(|files| files.entries[at].set(Entry::settled(sum)))?;
        }
        self.write_header(State::Dirty { owner: self.owner, pending: self.inherited.clone() })
    }

    /// In blocks, or to the first half of the last.
    fn truncate(&mut self, size: usize, half: bool) -> Result<(), Crash> {
        self.begin_change()?;
        let shrinks = size < self.files.size.get();
        if half && size > 0 && size <= self.files.size.get() {
            let held = self.files.block(size - 1);
            assert!(self.verdict(size - 1) != Verdict::Corrupt, "nothing was flipped");
            let entry = Entry { now: sum([held[0], 0]), before: sum(held) };
            self.step(|files| files.entries[size - 1].set(entry))?;
            self.step(|files| {
                files.blocks[size - 1].set([held[0], 0]);
                files.size.set(size);
            })?;
        } else {
            self.step(|files| {
                (files.size.get()..size).for_each(|hole| files.blocks[hole].set([0; 2]));
                files.size.set(size);
            })?;
        }
        if shrinks {
            self.left = self.left.checked_sub(1).ok_or(Crash)?;
            self.cut(size);
        }
        Ok(())
    }

    fn go_over(&mut self) -> Result<(), Crash> {
        for at in 0..self.files.size.get() {
            assert!(self.verdict(at) != Verdict::Corrupt, "nothing was flipped");
            if self.trust != Trust::Exact {
                let sum = sum(self.files.block(at));
                self.step(|files| files.entries[at].set(Entry::settled(sum)))?;
            }
        }
        if self.trust != Trust::Exact {
            self.left = self.left.checked_sub(1).ok_or(Crash)?;
            self.cut(self.files.size.get());
            self.write_header(State::Dirty { owner: self.me, pending: None })?;
            (self.trust, self.owner, self.inherited) = (Trust::Exact, self.me, None);
        }
        Ok(())
    }

    fn clean(&mut self) -> Result<(), Crash> {
        if self.trust == Trust::Exact && !self.clean {
            self.step(Files::sync_all)?;
            let size = self.files.size.get() as u64;
            self.write_header(State::Clean { size })?;
            (self.clean, self.durable) = (true, false);
        }
        Ok(())
    }

    /// With it open, or closed and opened again.
    fn fail_to_clean(&mut self, dice: &mut Dice) -> Result<(), Crash> {
        if self.clean {
            return Ok(());
        }
        self.has_failed = true;
        self.step(|files| files.fail_to_sync(dice))?;
        if dice.below(2) == 0 {
            if self.trust == Trust::Exact {
                (self.trust, self.owner) = (Trust::Either, self.me.earlier());
            }
            self.inherited = Some(0..u64::MAX);
            self.write_header(State::Dirty { owner: self.owner, pending: self.inherited.clone() })?;
        } else {
            self.files.forget(dice);
            let again = Self::open(self.files.clone(), self.me.anew());
            *self = Self { left: self.left, has_failed: true, ..again };
        }
        Ok(())
    }

    fn anything(&mut self, dice: &mut Dice) -> Result<(), Crash> {
        let at = dice.below(BLOCKS);
        let value = 1 + dice.below(60_000) as u16;
        self.files.forget(dice);
        match dice.below(14) {
            13 => self.fail_to_clean(dice),
            12 if at < self.files.size.get() => self.fail_to_write(at, value),
            0..3 => self.write(at, [Some(value), Some(value / 3)]),
            3..5 => self.write(at, [Some(value), None]),
            5 => self.write(at, [None, Some(value)]),
            6 => {
                let end = self.files.size.get();
                let first = dice.below(end + 1);
                self.punch(dice, first, end)
            }
            7 => self.truncate(at, false),
            8 => self.truncate(at, true),
            9 => self.go_over(),
            10 => self.clean(),
            _ => {
                self.step(Files::sync_sums)?;
                self.step(|files| files.blocks.iter_mut().for_each(Cell::sync))
            }
        }
    }

    /// Nothing reads as corrupt, and what is flipped does, unless all is in doubt.
    fn look(&self, dice: &mut Dice, what: &str) {
        for at in 0..self.files.size.get() {
            assert_ne!(self.verdict(at), Verdict::Corrupt, "{what}: block {at}, {:?}", self.trust);
            let entry = self.files.entries[at].get();
            let mut block = self.files.block(at);
            block[dice.below(2)] ^= 1 << dice.below(16);
            let flipped = judge(self.trust, self.is_pending(at), entry, sum(block));
            let was_old = self.trust == Trust::Either && sum(block) == entry.before;
            if self.trust != Trust::Doubt && !self.is_pending(at) && !was_old {
                assert_eq!(flipped, Verdict::Corrupt, "{what}: flipped block {at}, {:?}, {entry:?}", self.trust);
            }
        }
        let beyond = &self.files.entries[self.files.size.get()..];
        assert!(self.trust != Trust::Exact || beyond.iter().all(|entry| entry.get() == Entry::default()), "{what}");
    }
}

fn new_object(me: Owner) -> Files {
    Files {
        blocks: vec![Cell::new(vec![[0; 2]]); BLOCKS],
        size: Cell::new(vec![0]),
        entries: vec![Cell::new(vec![Entry::default()]); BLOCKS],
        // Not on the disk until somebody forces it there.
        header: Cell::new(vec![
            None,
            Some(Header { inode: 1, stripe: 0, state: State::Dirty { owner: me, pending: None } }),
        ]),
    }
}

#[test]
fn no_crash_makes_anything_corrupt_and_no_flipped_bit_is_missed() {
    let (mut exact, mut either, mut doubt) = (0, 0, 0);
    for seed in 1..4000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut me = Owner { epoch: 1, run: 1 };
        let mut files = new_object(me);
        for life in 0..12 {
            let mut process = Process::open(files, me);
            match process.trust {
                Trust::Exact => exact += 1,
                Trust::Either => either += 1,
                Trust::Doubt => doubt += 1,
            }
            process.look(&mut dice, &format!("seed {seed}, life {life}, at its begin"));
            process.left = dice.below(60);
            while process.anything(&mut dice).is_ok() {
                process.look(&mut dice, &format!("seed {seed}, life {life}"));
            }
            files = process.files;
            me.run += 1;
            let loses_power = dice.below(3) == 0;
            if loses_power {
                files.lose_power(&mut dice);
            }
            if loses_power || process.has_failed {
                me.epoch += 1;
            }
        }
    }
    assert!(exact > 4000 && either > 4000 && doubt > 4000, "{exact} exact, {either} either, {doubt} in doubt");
}
