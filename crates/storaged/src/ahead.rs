//! Bytes of objects that were read before anybody asked for them, in memory of our own: what readers find there need not
//! wait for the disk, and no page of the kernel's cache has to be found for it.
//!
//! It is never out of date. Whoever changes an object forgets the range *after* the change and before he is answered;
//! reads of that range wait meanwhile (`order.rs`), and what arrives from the disk for a forgotten piece goes nowhere.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use ring::buf::Buf;
use ring::sync::{Notify, Permit};
use telemetry::metrics::{Counter, Metrics};
use telemetry::names;

use crate::memory::Memory;

/// Bytes. Farthest that one reader is read ahead of.
const WINDOW_MAX: usize = 2 << 20;
/// One reader gets at most this part of the memory that is left.
const PART: usize = 4;
/// What nobody has come for in this time is given up.
const KEEP: Duration = Duration::from_secs(10);

/// What all objects of a target in a lane have in common: the memory and its bound.
pub(crate) struct Ahead {
    memory: Memory,
    /// Those that may have something.
    pieces: RefCell<Vec<Weak<Pieces>>>,
    is_sweeping: Cell<bool>,
    fetched: Counter,
    used: Counter,
}

impl Ahead {
    pub(crate) fn new(memory: Memory, metrics: &Metrics) -> Rc<Self> {
        Rc::new(Self {
            memory,
            pieces: RefCell::default(),
            is_sweeping: Cell::new(false),
            fetched: metrics.counter(&names::READ_AHEAD_BYTES, &[]),
            used: metrics.counter(&names::READ_AHEAD_USED_BYTES, &[]),
        })
    }

    /// How far a reader may be read ahead of now, in bytes.
    pub(crate) fn window_max(&self) -> u64 {
        (self.memory.available() / PART).min(WINDOW_MAX) as u64
    }

    /// Whoever gets the piece has to fetch its bytes. `None` where there is no memory, or a part of it is there already.
    pub(crate) fn expect(self: &Rc<Self>, pieces: &Rc<Pieces>, range: Range<u64>) -> Option<Rc<Piece>> {
        let len = usize::try_from(range.end - range.start).ok()?;
        if pieces.overlaps(&range) || self.memory.available() < len {
            return None;
        }
        let memory = self.memory.try_acquire(len)?;
        let piece = Rc::new(Piece {
            range,
            born: ring::now(),
            state: RefCell::default(),
            arrived: Notify::new(),
            memory: RefCell::new(Some(memory)),
        });
        pieces.list.borrow_mut().push_back(Rc::clone(&piece));
        self.fetched.inc_by(len as u64);
        if !pieces.is_watched.replace(true) {
            self.pieces.borrow_mut().push(Rc::downgrade(pieces));
        }
        if !self.is_sweeping.replace(true) {
            let this = Rc::clone(self);
            ring::spawn(async move { this.sweep().await });
        }
        Some(piece)
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.get()
    }

    /// All memory that is free.
    #[cfg(test)]
    pub(crate) fn take_all(&self) -> Vec<Permit> {
        self.memory.take_all()
    }

    /// Gives up what nobody comes for, until nothing is left.
    async fn sweep(&self) {
        while !self.pieces.borrow().is_empty() {
            ring::sleep(KEEP / 2).await;
            let now = ring::now();
            self.pieces.borrow_mut().retain(|pieces| pieces.upgrade().is_some_and(|pieces| pieces.sweep(now)));
        }
        self.is_sweeping.set(false);
    }

    /// The bytes of `range` from the pieces of [`Pieces::take`], in `room` where that is long enough. `Err` where they did
    /// not come, with memory to go on with.
    pub(crate) async fn gather(
        &self,
        taken: &[Rc<Piece>],
        range: Range<u64>,
        room: Option<Buf>,
    ) -> Result<Buf, Option<Buf>> {
        let len = (range.end - range.start) as usize;
        for piece in taken {
            piece.wait().await;
        }
        let room = room.filter(|room| room.len() >= len);
        let bytes = match (taken, room) {
            ([only], None) if only.range == range => only.give_away().ok_or(None)?,
            (_, room) => {
                let mut into = room.unwrap_or_else(|| Buf::with_whole_pages(len));
                for piece in taken {
                    let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
                    let place = (part.start - range.start) as usize..(part.end - range.start) as usize;
                    if !piece.copy(part, &mut into[place]) {
                        return Err(Some(into));
                    }
                }
                into.truncate(len);
                into
            }
        };
        self.used.inc_by(len as u64);
        Ok(bytes)
    }
}

/// What is there, or on its way, of one object. Pieces do not overlap.
#[derive(Default)]
pub(crate) struct Pieces {
    list: RefCell<VecDeque<Rc<Piece>>>,
    is_watched: Cell<bool>,
}

impl Pieces {
    /// The pieces that have all of `range` between them, in order; `None` where there is a gap. In both cases pieces that
    /// end with it or in it are no longer here: a reader that goes on does not come back.
    pub(crate) fn take(&self, range: &Range<u64>) -> Option<Vec<Rc<Piece>>> {
        let mut list = self.list.borrow_mut();
        let mut taken: Vec<Rc<Piece>> = list.iter().filter(|piece| overlap(&piece.range, range)).cloned().collect();
        list.retain(|piece| !overlap(&piece.range, range) || piece.range.end > range.end);
        taken.sort_unstable_by_key(|piece| piece.range.start);
        let mut at = range.start;
        for piece in &taken {
            if piece.range.start > at {
                return None;
            }
            at = piece.range.end;
        }
        (at >= range.end).then_some(taken)
    }

    /// The range was changed.
    pub(crate) fn forget(&self, range: &Range<u64>) {
        self.list.borrow_mut().retain(|piece| !overlap(&piece.range, range));
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.list.borrow().iter().any(|piece| overlap(&piece.range, range))
    }

    /// Whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut list = self.list.borrow_mut();
        list.retain(|piece| now.saturating_duration_since(piece.born) < KEEP);
        self.is_watched.set(!list.is_empty());
        !list.is_empty()
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A range of an object.
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    born: Instant,
    state: RefCell<State>,
    arrived: Notify,
    memory: RefCell<Option<Permit>>,
}

#[derive(Default)]
enum State {
    #[default]
    Coming,
    Here(Buf),
    /// It did not come, or somebody has it.
    Gone,
}

impl Piece {
    /// Nobody waits for it any more, nor will: only who fetches it still knows it.
    pub(crate) fn is_forgotten(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }

    /// `None`: they could not be had.
    pub(crate) fn arrive(&self, bytes: Option<Buf>) {
        self.state.replace(bytes.map_or(State::Gone, State::Here));
        self.arrived.notify_all();
    }

    async fn wait(&self) {
        while matches!(*self.state.borrow(), State::Coming) {
            self.arrived.notified().await;
        }
    }

    fn give_away(&self) -> Option<Buf> {
        match self.state.replace(State::Gone) {
            State::Here(bytes) => {
                // From here on it counts among the reads in flight.
                self.memory.take();
                Some(bytes)
            }
            State::Coming | State::Gone => None,
        }
    }

    /// False where they are not there.
    fn copy(&self, range: Range<u64>, into: &mut [u8]) -> bool {
        let state = self.state.borrow();
        let State::Here(bytes) = &*state else { return false };
        let (from, to) = ((range.start - self.range.start) as usize, (range.end - self.range.start) as usize);
        into.copy_from_slice(&bytes[from..to]);
        true
    }
}
