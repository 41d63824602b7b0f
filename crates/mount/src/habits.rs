//! Which threads look at what they list.
//!
//! Attributes that come along with a listing save a request for each entry to who asks for them (`ls -l`, `du`, `rsync`), and
//! make listings twice as dear where nobody does (`find`, a shell's `*`). The kernel cannot tell at the
//! first page, and never asks again for what it has been told. So one entry of a thread's first listings goes without: who
//! wants its attributes looks it up by name. Who has looked up none after some listings gets names alone, until it
//! looks one up.
//!
//! The kernel ends a listing with a question for what comes after the last entry. Who has just been given that entry, and
//! been told by the server that it is the last, need not ask the server again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use types::id::InodeId;

/// Threads that are remembered, by their number modulo this.
const PLACES: usize = 64;
/// Who asks for all clients of an NFS server: threads of the kernel have no number here.
const THE_KERNEL: u32 = 0;
/// So many listings without a question afterwards tell that there will be none. A program may read some directories, one
/// within the other, before it asks.
const LISTINGS_MIN: u32 = 8;
/// A number of a thread that was quiet for longer may be another thread's by now.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);
/// How long the end of a listing is known: a program reads on at once.
const END_KNOWN_FOR: Duration = Duration::from_millis(100);
/// Listings with all attributes after a question: then it is tried again.
const TRUSTED: u32 = 64;

/// The attributes that a thread's listing is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attributes {
    All,
    /// Those of all entries but one that is not a directory.
    AllButOne,
    None,
}

/// Shared by the loops of a mount.
pub(crate) struct Habits {
    places: [Mutex<Habit>; PLACES],
}

#[derive(Clone, Copy, Default)]
struct Habit {
    thread: u32,
    last: Option<Instant>,
    /// Listings since it asked, or since it was first seen.
    listings: u32,
    asks: bool,
    end: Option<End>,
}

/// Nothing came after this entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    directory: InodeId,
    cookie: u64,
    at: Instant,
}

impl Habits {
    pub(crate) fn new() -> Self {
        Self { places: std::array::from_fn(|_| Mutex::default()) }
    }

    /// `thread` begins to list a directory.
    pub(crate) fn lists(&self, thread: u32, now: Instant) -> Attributes {
        if thread == THE_KERNEL {
            return Attributes::All;
        }
        self.with(thread, |habit| {
            if habit.thread != thread || habit.last.is_none_or(|last| now - last > FORGOTTEN_AFTER) {
                *habit = Habit { thread, ..Habit::default() };
            }
            // What comes from now on may have been made after that was told.
            (habit.last, habit.end) = (Some(now), None);
            habit.listings += 1;
            if habit.asks && habit.listings > TRUSTED {
                (habit.asks, habit.listings) = (false, 1);
            }
            match habit.listings {
                _ if habit.asks => Attributes::All,
                0..=LISTINGS_MIN => Attributes::AllButOne,
                _ => Attributes::None,
            }
        })
    }

    /// `thread` has looked up the name of something that is not a directory.
    pub(crate) fn asks(&self, thread: u32) {
        self.with(thread, |habit| {
            if habit.thread == thread {
                (habit.asks, habit.listings) = (true, 0);
            }
        });
    }

    /// `thread` is given the last entry of `directory`, behind which it would go on with `cookie`.
    pub(crate) fn ends(&self, thread: u32, directory: InodeId, cookie: u64, now: Instant) {
        self.with(thread, |habit| {
            if habit.thread == thread && thread != THE_KERNEL {
                habit.end = Some(End { directory, cookie, at: now });
            }
        });
    }

    /// Whether `thread`, which goes on with `cookie`, was told just now that nothing comes. It may be told so once.
    pub(crate) fn has_ended(&self, thread: u32, directory: InodeId, cookie: u64, now: Instant) -> bool {
        self.with(thread, |habit| {
            let end = if habit.thread == thread { habit.end.take() } else { None };
            end.is_some_and(|end| end.directory == directory && end.cookie == cookie && now - end.at < END_KNOWN_FOR)
        })
    }

    fn with<R>(&self, thread: u32, then: impl FnOnce(&mut Habit) -> R) -> R {
        // Whatever a panic has left is a habit.
        then(&mut self.places[thread as usize % PLACES].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listings(habits: &Habits, thread: u32, count: u32, now: Instant) -> Vec<Attributes> {
        (0..count).map(|_| habits.lists(thread, now)).collect()
    }

    #[test]
    fn who_never_asks_gets_names_alone() {
        let (habits, now) = (Habits::new(), Instant::now());
        assert!(listings(&habits, 7, LISTINGS_MIN, now).iter().all(|&given| given == Attributes::AllButOne));
        assert!(listings(&habits, 7, 1000, now).iter().all(|&given| given == Attributes::None));
        assert_eq!(habits.lists(7, now + FORGOTTEN_AFTER * 2), Attributes::AllButOne, "somebody else, maybe");
    }

    #[test]
    fn who_asks_gets_everything_and_is_tried_again_now_and_then() {
        let (habits, now) = (Habits::new(), Instant::now());
        assert_eq!(habits.lists(7, now), Attributes::AllButOne);
        habits.asks(7);
        assert!(listings(&habits, 7, TRUSTED, now).iter().all(|&given| given == Attributes::All));
        assert_eq!(habits.lists(7, now), Attributes::AllButOne);
        habits.asks(7);
        assert_eq!(habits.lists(7, now), Attributes::All);
    }

    #[test]
    fn of_the_kernel_nothing_is_learnt() {
        let (habits, now, directory) = (Habits::new(), Instant::now(), InodeId(20));
        assert!(listings(&habits, THE_KERNEL, 100, now).iter().all(|&given| given == Attributes::All));
        habits.ends(THE_KERNEL, directory, 5, now);
        assert!(!habits.has_ended(THE_KERNEL, directory, 5, now));
    }

    #[test]
    fn one_question_is_enough_after_none_was_expected() {
        let (habits, now) = (Habits::new(), Instant::now());
        listings(&habits, 7, LISTINGS_MIN + 1, now);
        habits.asks(7);
        assert_eq!(habits.lists(7, now), Attributes::All);
    }

    #[test]
    fn an_end_is_known_once_and_for_a_moment() {
        let (habits, now, directory) = (Habits::new(), Instant::now(), InodeId(20));
        let ask = |cookie, now| habits.has_ended(7, directory, cookie, now);
        habits.lists(7, now);
        assert!(!ask(5, now));
        habits.ends(7, directory, 5, now);
        assert!(ask(5, now));
        assert!(!ask(5, now), "who goes on after the end wants to see what has come");
        habits.ends(7, directory, 5, now);
        assert!(!ask(4, now), "it went back");
        habits.ends(7, directory, 5, now);
        assert!(!habits.has_ended(7, InodeId(21), 5, now));
        habits.ends(7, directory, 5, now);
        habits.lists(7, now);
        assert!(!ask(5, now), "a listing that has begun since");
        habits.ends(7, directory, 5, now);
        assert!(!ask(5, now + END_KNOWN_FOR));
        habits.ends(8, directory, 5, now);
        assert!(!habits.has_ended(8, directory, 5, now), "its listing was not seen to begin");
    }

    #[test]
    fn threads_do_not_answer_for_each_other() {
        let (habits, now) = (Habits::new(), Instant::now());
        let other = 7 + PLACES as u32;
        habits.lists(7, now);
        habits.asks(other);
        assert_eq!(habits.lists(7, now), Attributes::AllButOne);
        assert_eq!(habits.lists(other, now), Attributes::AllButOne);
        assert_eq!(habits.lists(7, now), Attributes::AllButOne, "it has lost its place");
    }
}
