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

    /// What a write at `now` that is kept back is told as: by the clock of what is set of a draft afterwards, else at least as
    /// the time from which on it counts.
    pub(crate) fn time_of_write(&self, now: Timestamp) -> Timestamp {
        if self.draft.is_some() { now } else { now.max(self.counts_from()) }
    }

    /// From which time on a write counts that its object's host notes, whose clock ticks coarsely, and may be behind the
    /// shard's. 0 of a draft, where nobody else's time counts.
    pub(crate) fn counts_from(&self) -> Timestamp {
        let after = self.written_after.filter(|_| self.draft.is_none());
        after.map_or(Timestamp(0), |after| Timestamp(after.0.saturating_add(1)))
    }

    /// Whether what the shard has for its modification time is older than its last change: then a change of the objects that
    /// bears no time might be taken for one before that.
    pub(crate) fn was_changed_otherwise(&self) -> bool {
        self.written_after.is_some_and(|after| self.told_mtime < after)
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
    fn what_is_written_right_after_another_change_counts_as_later() {
        let mut file = test_client::file(InodeId(77));
        file.told_mtime = Timestamp(5_000);
        for (written_after, least) in
            [(None, 0), (Some(5_000), 5_001), (Some(6_000), 6_001), (Some(i64::MAX), i64::MAX)]
        {
            file.written_after = written_after.map(Timestamp);
            assert_eq!(file.counts_from(), Timestamp(least));
            assert_eq!(file.time_of_write(Timestamp(5_500)), Timestamp(least.max(5_500)));
            assert_eq!(file.was_changed_otherwise(), least > 5_001);
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
