//! Reading ahead for who reads a file in long pieces, one after the other: what follows is asked for while what was read is
//! on its way to the program, so that disk, network and program work at the same time. Only under a lease that tells of every
//! change ([`crate::contents`]), by the thread of the mount that reads, and at one place of each file. ([`crate::window`] is
//! for short pieces.)

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use ring::buf::Slice;
use ring::sync::Notify;
use rustc_hash::FxHashMap;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::contents::Content;
use crate::data::{Piece, assemble};
use crate::metrics::Bytes;
use crate::retry::Ladder;
use crate::router::{Client, until_ending};
use crate::window;

/// So many reads that follow each other make a reader.
const FOLLOWING: u32 = 2;
/// Bytes that are asked for ahead of one at first; twice as many with each read that finds what it wants...
const FIRST: u64 = 1 << 20;
/// ...up to this.
const FARTHEST: u64 = 4 << 20;
/// What is asked for at once is as long as what is read, within these bounds, bytes.
const RUN_MIN: u64 = 512 << 10;
const RUN_MAX: u64 = 1 << 20;
/// What nobody has come for after so long is given up.
const KEEP: Duration = Duration::from_secs(2);

/// A part of a file, asked for ahead of its reader.
#[derive(Clone, Debug)]
struct Run<T> {
    begin: u64,
    end: u64,
    what: T,
}

/// Who reads a file on.
#[derive(Debug)]
struct Reader<T> {
    /// Of the [`Content`] that is read.
    number: u64,
    /// Where the next read begins if it follows, and how many have followed each other.
    next: u64,
    following: u32,
    farthest: u64,
    /// Each begins where the last one ends.
    runs: VecDeque<Run<T>>,
    read_at: Instant,
}

impl<T: Clone> Reader<T> {
    fn new(number: u64, next: u64, read_at: Instant) -> Self {
        Self { number, next, following: 0, farthest: FIRST, runs: VecDeque::new(), read_at }
    }

    /// `[offset, end)` of the content `number` is being read. Answers the runs that cover it, or none.
    fn read(&mut self, number: u64, offset: u64, end: u64, now: Instant) -> Vec<Run<T>> {
        if (self.number, self.next) == (number, offset) {
            self.following = self.following.saturating_add(1);
        } else {
            *self = Self::new(number, end, now);
        }
        (self.next, self.read_at) = (end, now);
        self.runs.retain(|run| run.end > offset);
        let begins = self.runs.front().is_some_and(|run| run.begin <= offset);
        if !begins || self.runs.back().is_none_or(|run| run.end < end) {
            self.runs.clear();
            return Vec::new();
        }
        self.farthest = (2 * self.farthest).min(FARTHEST);
        self.runs.iter().take_while(|run| run.begin < end).cloned().collect()
    }

    /// What to ask for next of a file of `size` bytes that is read in pieces of `len`.
    fn wants(&self, len: u64, size: u64) -> Option<Range<u64>> {
        let begin = self.runs.back().map_or(self.next, |run| run.end);
        let wants = self.following >= FOLLOWING && begin < size && begin < self.next.saturating_add(self.farthest);
        wants.then(|| begin..begin.saturating_add(len.clamp(RUN_MIN, RUN_MAX)).min(size))
    }
}

/// What was asked for, and comes.
struct Fetch {
    outcome: RefCell<Option<Outcome>>,
    done: Notify,
    len: usize,
    /// Of all files and threads.
    total: Bytes,
}

#[derive(Clone)]
struct Outcome {
    /// `None`: an error, which is the reader's to find.
    parts: Option<Vec<Slice>>,
    /// No object had less than was asked for.
    is_full: bool,
}

impl Fetch {
    fn new(len: usize, total: &Bytes) -> Self {
        total.change(0, len);
        Self { outcome: RefCell::default(), done: Notify::new(), len, total: total.clone() }
    }

    async fn outcome(&self) -> Outcome {
        loop {
            if let Some(outcome) = &*self.outcome.borrow() {
                return outcome.clone();
            }
            self.done.notified().await;
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.total.change(self.len, 0);
    }
}

/// One thread's readers.
#[derive(Default)]
pub(crate) struct Readers {
    of: RefCell<FxHashMap<InodeId, Reader<Rc<Fetch>>>>,
    /// Somebody looks after what nobody comes for.
    tidied: Cell<bool>,
}

impl Readers {
    pub(crate) fn forget(&self, inode: InodeId) {
        self.of.borrow_mut().remove(&inode);
    }

    /// Forgets those who have not read for long. False where there are none any more.
    fn tidy(&self, now: Instant) -> bool {
        let mut readers = self.of.borrow_mut();
        readers.retain(|_, reader| now.saturating_duration_since(reader.read_at) < KEEP);
        !readers.is_empty()
    }
}

async fn tidy(client: Weak<Client>) {
    loop {
        ring::sleep(KEEP).await;
        let Some(client) = client.upgrade() else { return };
        if !client.readers.tidy(ring::now()) {
            client.readers.tidied.set(false);
            return;
        }
    }
}

impl Client {
    /// `[offset, end)` of what the lease tells of, where it was asked for before; and asks for what follows. `None`: the
    /// servers are to be asked for it.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn read_ahead(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        content: &Content,
        (offset, end): (u64, u64),
    ) -> Result<Option<Vec<Slice>>, Errno> {
        if end - offset <= window::READ_MAX {
            return Ok(None);
        }
        let runs = self.find_runs(inode, content, (offset, end));
        let mut found = Vec::new();
        for run in runs {
            let ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
            let outcome = until_ending(caller, &ladder, std::pin::pin!(run.what.outcome())).await?;
            let Some(Outcome { parts: Some(parts), is_full }) = outcome else { return Ok(None) };
            // A hole, unless the lease has ended: then it may have been cut.
            if !is_full && !self.still_knows(inode, content) {
                return Ok(None);
            }
            found.extend(cut(&parts, run.begin, offset..end));
        }
        Ok((!found.is_empty()).then_some(found))
    }

    fn find_runs(&self, inode: InodeId, content: &Content, (offset, end): (u64, u64)) -> Vec<Run<Rc<Fetch>>> {
        let now = ring::now();
        let mut readers = self.readers.of.borrow_mut();
        let reader = readers.entry(inode).or_insert_with(|| Reader::new(content.number, offset, now));
        let runs = reader.read(content.number, offset, end, now);
        let total = &self.shared.metrics.ahead;
        while let Some(wanted) = reader.wants(end - offset, content.size)
            && total.get() < self.shared.config.data_cache
        {
            let what = Rc::new(Fetch::new((wanted.end - wanted.start) as usize, total));
            reader.runs.push_back(Run { begin: wanted.start, end: wanted.end, what: Rc::clone(&what) });
            self.fetch(inode, wanted, content.size, what);
        }
        if !self.readers.tidied.replace(true)
            && let Some(client) = self.itself()
        {
            ring::spawn(tidy(Rc::downgrade(&client)));
        }
        runs
    }

    /// Begins when the caller waits for something.
    fn fetch(&self, inode: InodeId, range: Range<u64>, size: u64, fetch: Rc<Fetch>) {
        let Some(client) = self.itself() else { return };
        ring::spawn(async move {
            let caller = Caller::patient(Credentials::default());
            let layout = client.shared.with_file(inode, |file| file.layout.clone());
            let pieces = match &layout {
                Some(layout) => client.read_pieces(&caller, inode, layout, range.start, range.end).await.ok(),
                None => None,
            };
            let is_full = pieces.as_ref().is_some_and(|pieces| pieces.iter().all(Piece::is_full));
            let parts = pieces.map(|pieces| assemble(pieces, range.start, size));
            *fetch.outcome.borrow_mut() = Some(Outcome { parts, is_full });
            fetch.done.notify_all();
        });
    }
}

/// Of `parts`, which lie one behind the other from `begin` on, those bytes that are in `range`.
fn cut(parts: &[Slice], begin: u64, range: Range<u64>) -> impl Iterator<Item = Slice> {
    let mut next = begin;
    parts.iter().filter_map(move |part| {
        let at = next;
        next += part.len() as u64;
        let (from, to) = (range.start.max(at), range.end.min(next));
        (from < to).then(|| part.slice((from - at) as usize..(to - at) as usize))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: u64 = 1 << 20;

    /// Asks for all that the reader wants.
    fn ask(reader: &mut Reader<()>, len: u64, size: u64) {
        while let Some(range) = reader.wants(len, size) {
            reader.runs.push_back(Run { begin: range.start, end: range.end, what: () });
        }
    }

    fn ends(runs: &[Run<()>]) -> Vec<(u64, u64)> {
        runs.iter().map(|run| (run.begin / LEN, run.end / LEN)).collect()
    }

    #[test]
    fn who_reads_on_finds_more_and_more() {
        let now = Instant::now();
        let mut reader = Reader::new(1, 0, now);
        let mut asked = Vec::new();
        for at in 0..6 {
            let found = reader.read(1, at * LEN, (at + 1) * LEN, now);
            assert_eq!(found.len(), usize::from(at > 1), "at {at}");
            ask(&mut reader, LEN, 100 * LEN);
            asked.push(reader.runs.back().map_or(0, |run| run.end / LEN));
        }
        assert_eq!(asked, [0, 3, 5, 8, 9, 10]);
        assert!(reader.read(1, 50 * LEN, 51 * LEN, now).is_empty(), "elsewhere");
        assert!(reader.runs.is_empty() && reader.wants(LEN, 100 * LEN).is_none());
    }

    #[test]
    fn what_was_asked_of_another_content_is_worth_nothing() {
        let now = Instant::now();
        let mut reader = Reader::new(1, 0, now);
        for at in 0..3 {
            reader.read(1, at * LEN, (at + 1) * LEN, now);
            ask(&mut reader, LEN, 100 * LEN);
        }
        assert!(reader.read(2, 3 * LEN, 4 * LEN, now).is_empty());
        assert!(reader.runs.is_empty());
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end() {
        let now = Instant::now();
        let (mut reader, size) = (Reader::new(1, 0, now), 3 * LEN + 77);
        for at in 0..3 {
            reader.read(1, at * LEN, (at + 1) * LEN, now);
            ask(&mut reader, LEN, size);
        }
        assert_eq!(reader.runs.back().map(|run| (run.begin, run.end)), Some((3 * LEN, size)));
        assert_eq!(reader.read(1, 3 * LEN, size, now).len(), 1);
    }

    #[test]
    fn reads_of_other_lengths_find_the_runs_that_they_touch() {
        let now = Instant::now();
        let mut reader = Reader::new(1, 0, now);
        let step = LEN * 3 / 4;
        let mut found = Vec::new();
        for at in 0..5 {
            found.push(ends(&reader.read(1, at * step, (at + 1) * step, now)).len());
            ask(&mut reader, step, 100 * LEN);
        }
        assert_eq!(found, [0, 0, 1, 1, 1]);
        assert_eq!(reader.read(1, 5 * step, 5 * step + LEN, now).len(), 2);
    }

    #[test]
    fn bytes_that_are_kept_are_counted_until_nobody_has_them() {
        let total = Bytes::default();
        let fetch = Rc::new(Fetch::new(1000, &total));
        let other = Rc::clone(&fetch);
        drop(fetch);
        assert_eq!(total.get(), 1000);
        drop(other);
        assert_eq!(total.get(), 0);
    }

    #[test]
    fn readers_that_are_gone_are_forgotten_in_time() {
        let (readers, now) = (Readers::default(), Instant::now());
        readers.of.borrow_mut().insert(InodeId(1), Reader::new(1, 0, now));
        assert!(readers.tidy(now + KEEP / 2));
        assert!(!readers.tidy(now + KEEP));
    }

    proptest! {
        #[test]
        fn a_cut_has_the_bytes_of_its_range(lens in prop::collection::vec(1usize..20, 1..6), at in 0u64..60, len in 1u64..40) {
            let begin = 1000;
            let bytes: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|byte| byte as u8).collect();
            let mut rest = &bytes[..];
            let parts: Vec<Slice> = lens.iter().map(|&len| {
                let (front, back) = rest.split_at(len);
                rest = back;
                Slice::from_vec(front.to_vec())
            }).collect();
            let found: Vec<u8> =
                cut(&parts, begin, begin + at..begin + at + len).flat_map(|part| part.to_vec()).collect();
            let range = (at as usize).min(bytes.len())..((at + len) as usize).min(bytes.len());
            prop_assert_eq!(&found[..], &bytes[range]);
        }
    }
}
