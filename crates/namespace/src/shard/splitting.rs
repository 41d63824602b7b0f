//! Directories that are split while they have entries, and are used: one batch of names after the other goes to the parts.
//!
//! Each batch is a transaction of the directory's shard with that of one part (`Operation::Shift`). How far it has come is in
//! the directory's own record, so a restart goes on where that stopped, and a batch that is tried twice is moved once. The
//! shell calls [`Shard::go_on_splitting`] again and again while [`Shard::is_splitting`]; it decides the pace.

use std::collections::BTreeMap;

use kv::Kv;
use types::cred::Conditions;
use types::id::{InodeId, TransactionId};
use types::parts::{PARTS_MIN, PartNumber};

use crate::error::{Error, Result};
use crate::schema::inode::{Inode, Role};
use crate::shard::Shard;
use crate::transaction::NOBODY;
use crate::transaction::plan::Operation;
use crate::view::Exactly;

/// A directory that splits by itself gets as many parts as there are shards, at most so many.
const PARTS_BY_ITSELF: usize = 16;
/// Pauses after a step that met locks or leases of others, and after one that was refused.
const BUSY_MS: u64 = 50;
const REFUSED_MS: u64 = 2000;
/// Longest pause after one that failed, as all may do for long while another shard's disk hangs.
const FAILED_MAX_MS: u64 = 120_000;
/// A directory that was found to be busy counts as busy for so long.
const BUSY_LASTS_MS: u64 = 5000;
/// How long others wait at most for the next attempt, which may be put off for want of space.
const RESERVED_MS: u64 = 500;

/// The directories that are being split, or are about to be.
#[derive(Default)]
pub(crate) struct Splitting(BTreeMap<InodeId, Progress>);

#[derive(Default)]
struct Progress {
    /// Not before.
    due_ms: u64,
    /// Its names change too often for one shard, or did so until shortly before then.
    busy_until_ms: u64,
    /// When the latest step began, and how many have failed.
    begun_ms: u64,
    failures: u32,
    /// The latest batch.
    latest: Option<TransactionId>,
    /// Names in it were locked: until then, or the next attempt, no more are. Where that is in vain, others have the one after
    /// it. 0: others may.
    reserved_until_ms: u64,
}

/// What comes next for a directory.
enum Next {
    After(u64),
    /// Nothing more.
    End,
}

impl Splitting {
    pub(crate) fn new(directories: impl IntoIterator<Item = InodeId>) -> Self {
        Self(directories.into_iter().map(|directory| (directory, Progress::default())).collect())
    }

    pub(crate) fn begin(&mut self, directory: InodeId) {
        self.0.entry(directory).or_default();
    }

    fn begin_busy(&mut self, directory: InodeId, now_ms: u64) {
        self.0.entry(directory).or_default().busy_until_ms = now_ms.saturating_add(BUSY_LASTS_MS);
    }

    /// No transaction more may lock names in it: with many on their way, there would always be some, and it never came to be
    /// split.
    pub(crate) fn reserves(&self, directory: InodeId, now_ms: u64) -> bool {
        !self.0.is_empty() && self.0.get(&directory).is_some_and(|progress| now_ms < progress.reserved_until_ms)
    }

    /// Nobody may believe anything of names in it for longer than an answer takes: they may be gone to a part.
    pub(crate) fn has(&self, directory: InodeId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&directory)
    }
}

impl Progress {
    /// How long others have the directory to themselves after a step that has just failed: longer than they had to put up with
    /// it, and the longer the more often a split has failed at its beginning.
    fn pause_ms(&mut self, is_whole: bool, now_ms: u64) -> u64 {
        let took_ms = now_ms.saturating_sub(self.begun_ms);
        let pause_ms = if is_whole { BUSY_MS << self.failures.min(16) } else { BUSY_MS };
        self.failures = self.failures.saturating_add(1);
        pause_ms.max(took_ms.saturating_mul(2)).min(FAILED_MAX_MS)
    }
}

impl<K: Kv> Shard<K> {
    /// Some directory is being split: [`Shard::go_on_splitting`] is to be called.
    #[must_use]
    pub fn is_splitting(&self) -> bool {
        let is_dividing = self.transactions.dividing.is_waiting();
        is_dividing || !self.splitting.0.is_empty() || !self.namespace.overgrown.is_empty()
    }

    /// At the beginning of each turn.
    pub(crate) fn split_what_is_busy(&mut self) {
        for directory in self.namespace.busy.advance(self.mono_ms) {
            let is_whole =
                self.namespace.inodes.peek(directory).flatten().is_some_and(|inode| inode.role() == Role::Whole);
            if is_whole && self.namespace.homes.are_several() {
                self.splitting.begin_busy(directory, self.mono_ms);
            }
        }
    }

    /// Begins what can be done next to split directories. Its changes belong to the turn and need a `commit`. Answers why some
    /// cannot be gone on with: that is tried again at a later call, and holds up no others.
    pub fn go_on_splitting(&mut self) -> Vec<Error> {
        let mut failed = Vec::new();
        for directory in std::mem::take(&mut self.namespace.overgrown) {
            self.splitting.begin(directory);
        }
        let directories: Vec<InodeId> = self.splitting.0.keys().copied().collect();
        for directory in directories {
            let next = self.step_of_split(directory);
            let Some(progress) = self.splitting.0.get_mut(&directory) else { continue };
            match next {
                Ok(Next::After(due_ms)) => progress.due_ms = due_ms,
                Ok(Next::End) => drop(self.splitting.0.remove(&directory)),
                Err(error) => {
                    // What is damaged stays so until somebody mends it.
                    let pause_ms = if error.is_unreadable() { FAILED_MAX_MS } else { REFUSED_MS };
                    progress.due_ms = self.mono_ms.saturating_add(pause_ms);
                    failed.push(error);
                }
            }
        }
        failed
    }

    fn step_of_split(&mut self, id: InodeId) -> Result<Next> {
        let exactly = Exactly { session: NOBODY, sequence: id.0, answered_below: id.0, given: Conditions::default() };
        let Some(&Progress { due_ms, busy_until_ms, latest, reserved_until_ms, .. }) = self.splitting.0.get(&id) else {
            return Ok(Next::End);
        };
        let (was_reserved, is_busy) = (reserved_until_ms > 0, self.mono_ms < busy_until_ms);
        match self.under_way(exactly) {
            Ok(()) if latest.is_some_and(|latest| self.transactions.is_decided(latest)) => {
                return Ok(Next::After(due_ms));
            }
            Ok(()) => {}
            Err(Error::Blocked(_)) => return Ok(Next::After(due_ms)),
            // By locks here, which are fewer by now.
            Err(Error::Again) if was_reserved => {}
            Err(Error::Refused(_)) => return Ok(Next::After(self.mono_ms.saturating_add(REFUSED_MS))),
            Err(_) => return self.step_has_failed(id),
        }
        let found = match self.namespace.find(id) {
            // That was told, and is looked at again in time.
            Err(_) if self.mono_ms < due_ms => return Ok(Next::After(due_ms)),
            found => found?.filter(|inode| inode.is_dir() && inode.nlink > 0),
        };
        let Some(inode) = found else { return Ok(Next::End) };
        let split_above = self.namespace.split_above;
        let is_large = split_above > 0 && inode.entries() > split_above;
        if self.mono_ms < due_ms && (is_large || is_busy || inode.role() != Role::Whole) {
            return Ok(Next::After(due_ms));
        }
        let begun = match inode.role() {
            Role::Splitting { count, cursor } => self.shift(exactly, id, &inode, (count, cursor)),
            Role::Whole if is_large || is_busy => {
                let count = self.namespace.homes.count_good().min(PARTS_BY_ITSELF) as u16;
                if count < PARTS_MIN {
                    return Ok(Next::End);
                }
                self.begin_split(exactly, id, count)
            }
            Role::Whole | Role::Split(_) | Role::Part(_) | Role::Filling { .. } => return Ok(Next::End),
        };
        let latest = self.transactions.of_change((NOBODY, id.0));
        if let Some(progress) = self.splitting.0.get_mut(&id) {
            (progress.latest, progress.begun_ms) = (latest, self.mono_ms);
            let is_in_the_way = latest.is_none() && matches!(begun, Err(Error::Blocked(_)));
            let reserves = is_in_the_way && !was_reserved;
            progress.reserved_until_ms = if reserves { self.mono_ms.saturating_add(RESERVED_MS) } else { 0 };
        }
        match begun {
            Err(Error::Blocked(_)) if latest.is_some() => Ok(Next::After(self.mono_ms)),
            Ok(()) | Err(Error::Blocked(_) | Error::Recalling | Error::Again) => {
                Ok(Next::After(self.mono_ms.saturating_add(BUSY_MS)))
            }
            // It may be less busy by then, or it is found to be busy again.
            Err(Error::Refused(_)) if inode.role() == Role::Whole && !is_large => Ok(Next::End),
            Err(Error::Refused(_)) => Ok(Next::After(self.mono_ms.saturating_add(REFUSED_MS))),
            Err(error) => Err(error),
        }
    }

    /// It met others at another shard, or got no answer there.
    fn step_has_failed(&mut self, id: InodeId) -> Result<Next> {
        let is_whole = self.namespace.find(id)?.is_some_and(|inode| inode.role() == Role::Whole);
        let now_ms = self.mono_ms;
        let pause_ms = self.splitting.0.get_mut(&id).map_or(BUSY_MS, |progress| progress.pause_ms(is_whole, now_ms));
        Ok(Next::After(now_ms.saturating_add(pause_ms)))
    }

    /// Begins to move the next names, never beyond the range of one part.
    fn shift(&mut self, exactly: Exactly, id: InodeId, inode: &Inode, (count, cursor): (u16, u64)) -> Result<()> {
        let number = PartNumber::of_hash(cursor, count);
        let parts = self.namespace.parts(id, inode)?;
        let Some(&part) = parts.get(usize::from(number.index)) else { return Ok(()) };
        let most = self.config.limits.split_batch;
        let moved = self.namespace.names_to_move(id, cursor, number.end(), most)?;
        // What makes a directory again looks for its name here.
        if self.transactions.may_be_lost(moved.entries.iter().map(|(_, edge)| edge.child)) {
            return Err(Error::Again);
        }
        self.start(exactly, Operation::Shift { directory: id, part, moved })
    }
}
