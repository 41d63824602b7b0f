//! Times of an open file that are set at the shard, here or by others, beside what this client knows of them and the shard does
//! not.
//!
//! Until the shard has answered, who looks here sees the times of the writes and reads before, as ever. But a settling that
//! begins meanwhile does not tell of these: where the time that is set is the one that the shard knew, the write's would
//! be put over it.

use types::attr::{Attr, SetAttr};
use types::time::Timestamp;
use wire::v1::meta::TimeChange;

use crate::file::File;

/// As much as clocks of hosts may differ, and more than they tick by, in nanoseconds.
const CLOCKS_DIFFER: i64 = 1_000_000_000;

/// Times over which others are being set: the last write's and the last read's.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outdated {
    mtime: Option<Timestamp>,
    read_at: Option<Timestamp>,
}

impl Outdated {
    pub(crate) fn is_write(&self, at: Timestamp) -> bool {
        self.mtime == Some(at)
    }

    pub(crate) fn is_read(&self, at: Timestamp) -> bool {
        self.read_at == Some(at)
    }
}

impl File {
    /// The shard is about to be asked for `change`.
    pub(crate) fn times_are_set(&mut self, change: &SetAttr) {
        self.outdated = Outdated { mtime: change.mtime.and(self.mtime), read_at: change.atime.and(self.read_at) };
    }

    /// It has answered: what was written and read before does not count, but what came since.
    pub(crate) fn times_were_set(&mut self, change: &SetAttr) {
        let outdated = self.outdated;
        self.mtime.take_if(|at| change.mtime.is_some() && outdated.is_write(*at));
        self.read_at.take_if(|at| change.atime.is_some() && outdated.is_read(*at));
    }

    /// That is over. Where it failed, all is as before.
    pub(crate) fn times_are_set_no_more(&mut self) {
        self.outdated = Outdated::default();
    }

    /// The shard told these attributes: takes its times over, and puts the last read over them. Where somebody else has
    /// changed a time since it was told last, that goes: over the reads, and over writes from before. It may have been
    /// set to what it was.
    pub(crate) fn meets(&mut self, attr: &mut Attr, written_after: Option<Timestamp>) {
        if attr.mtime != self.told_mtime || written_after > self.written_after {
            self.told_mtime = attr.mtime;
            if written_after > self.written_after {
                (self.written_after, self.set_at) = (written_after, written_after);
            }
            self.mtime = self.mtime.filter(|&written| written > written_after.unwrap_or(attr.ctime));
        }
        if attr.atime != self.atime {
            let is_own = self.telling_read == Some(attr.atime);
            self.atime = attr.atime;
            self.read_at.take_if(|at| !is_own || *at == attr.atime);
        }
        self.changed = self.changed.max(attr.mtime).max(attr.ctime);
        if let Some(at) = self.read_at {
            attr.atime = at;
        }
    }

    /// The time that a write now bears to its objects; 0: that of their hosts. What an object says counts only if it is
    /// later than `written_after`, and its host's clock ticks coarsely, and may be behind the shard's.
    pub(crate) fn time_to_bear(&self, now: impl FnOnce() -> Timestamp) -> Timestamp {
        if self.draft.is_some() {
            // By the clock of what is set of a draft afterwards.
            return now();
        }
        // Else the shard has a time from that very moment.
        let Some(after) = self.written_after.filter(|&after| self.told_mtime < after) else { return Timestamp(0) };
        let now = now();
        if now.0 < after.0.saturating_add(CLOCKS_DIFFER) {
            now.max(Timestamp(after.0.saturating_add(1)))
        } else {
            Timestamp(0)
        }
    }

    /// For the shard, at the close.
    pub(crate) fn read_time(&self) -> Option<TimeChange> {
        let at = self.read_at.filter(|&at| !self.outdated.is_read(at))?;
        Some(TimeChange { at, before: self.atime })
    }

    /// For the shard, where this client knows best.
    pub(crate) fn write_time(&self) -> Option<TimeChange> {
        let at = self.mtime.filter(|&at| !self.outdated.is_write(at))?;
        Some(TimeChange { at, before: self.told_mtime })
    }
}

#[cfg(test)]
mod tests {
    use types::attr::SetTime;
    use types::id::InodeId;
    use types::time::AccessTimes;

    use super::*;
    use crate::test_client;

    fn change() -> SetAttr {
        let at = Some(SetTime::At(Timestamp(3)));
        SetAttr { mtime: at, atime: at, ..SetAttr::default() }
    }

    /// Written and read, and nobody was told of it.
    fn used_file() -> File {
        let mut file = test_client::file(InodeId(77));
        file.wrote(0, 1, Timestamp(100));
        file.accessed(Timestamp(200), AccessTimes::Strictatime);
        file
    }

    fn untold(file: &File) -> (Option<Timestamp>, Option<Timestamp>) {
        (file.write_time().map(|change| change.at), file.read_time().map(|change| change.at))
    }

    #[test]
    fn times_that_are_being_set_are_seen_as_before_and_not_told() {
        let mut file = used_file();
        file.times_are_set(&change());
        assert_eq!((file.mtime, file.read_at), (Some(Timestamp(100)), Some(Timestamp(200))));
        assert_eq!(untold(&file), (None, None));
        file.times_are_set_no_more();
        assert_eq!(untold(&file), (Some(Timestamp(100)), Some(Timestamp(200))), "it failed");
        file.times_are_set(&change());
        file.times_were_set(&SetAttr::default());
        assert!(file.mtime.is_some() && file.read_at.is_some(), "something else was set");
        file.times_were_set(&change());
        assert_eq!((file.mtime, file.read_at), (None, None));
    }

    #[test]
    fn what_is_written_right_after_another_change_bears_a_later_time() {
        let mut file = test_client::file(InodeId(77));
        let (told, soon, later) = (Timestamp(5_000), Timestamp(7_000), Timestamp(CLOCKS_DIFFER + 5_000));
        file.told_mtime = told;
        for (written_after, now, time) in [
            (None, soon, Timestamp(0)),
            (Some(told), soon, Timestamp(0)),
            (Some(Timestamp(6_000)), soon, soon),
            (Some(Timestamp(6_000)), Timestamp(100), Timestamp(6_001)),
            (Some(Timestamp(6_000)), later, later),
            (Some(Timestamp(6_000)), Timestamp(later.0 + 1_000), Timestamp(0)),
            (Some(Timestamp(i64::MAX - 1)), soon, Timestamp(i64::MAX)),
        ] {
            file.written_after = written_after;
            assert_eq!(file.time_to_bear(|| now), time, "{written_after:?} {now:?}");
        }
    }

    #[test]
    fn what_is_written_while_times_are_set_counts() {
        let mut file = used_file();
        let change = SetAttr { atime: None, ..change() };
        file.times_are_set(&change);
        file.wrote(0, 1, Timestamp(300));
        assert_eq!(untold(&file), (Some(Timestamp(300)), Some(Timestamp(200))));
        file.times_were_set(&change);
        assert_eq!(untold(&file), (Some(Timestamp(300)), Some(Timestamp(200))), "the access time was not set");
    }
}
