//! What goes on when commits are on disk.

use std::time::Instant;

use kv::KvError;
use namespace::error::{Error, Result};
use telemetry::metrics::level;
use types::id::InodeId;

use super::{Core, State};
use crate::syncer::Synced;

impl Core {
    /// The store is closed until `store_reopened`, or for good: requests are answered with `Busy`.
    pub(crate) fn store_closed(&self) {
        self.state.borrow_mut().reopening = true;
    }

    /// The store was opened again: what it had committed is on disk now.
    pub(crate) fn store_reopened(&self) {
        let mut state = self.state.borrow_mut();
        state.reopening = false;
        state.synced = state.commits;
        (state.sync_failed, state.failure) = (None, None);
        state.complained = None;
        // Also what there was to remove before this life of the shard.
        self.deletions_floor.lower_to(InodeId(0));
        self.removable.notify_one();
        self.go_on_with_synced(&mut state);
    }

    /// The store is not what the shard believes: nothing more is answered, and its thread ends.
    pub(crate) fn give_up(&self, error: KvError) {
        self.state.borrow_mut().fault = Some(error);
        self.given_up.notify_one();
    }

    pub(crate) fn why_given_up(&self) -> Option<KvError> {
        self.state.borrow().fault.clone()
    }

    /// No power cut brings the file back whose objects are to be removed.
    pub(crate) fn is_gone_for_good(&self, inode: InodeId) -> bool {
        let state = self.state.borrow();
        state.synced > 0 && !state.buried.has(inode)
    }

    /// Takes up what waited for the disk.
    fn go_on_with_synced(&self, state: &mut State) {
        while let Some(outgoing) = state.held.pop(state.synced) {
            self.fail_points.leaves(&outgoing.message);
            state.outgoing.push(outgoing);
            self.to_send.notify_one();
        }
        while let Some(inode) = state.marked.pop(state.synced) {
            state.growing.push(inode);
            self.to_grow.notify_one();
        }
        if state.buried.synced(state.synced) {
            self.removable.notify_one();
        }
    }

    /// A sync has ended: answers those who waited for it.
    pub(crate) fn synced(&self, synced: &Synced) {
        let mut state = self.state.borrow_mut();
        let failure = match &synced.result {
            Err(error) if self.store.is_failed() => {
                let errno = namespace::error::store_errno(error);
                state.sync_failed = Some(errno);
                state.failure = Some(errno);
                // They are made again in time.
                state.held.clear();
                Some(errno)
            }
            // Or it failed before the store was opened again, which has made durable what was committed.
            Ok(()) | Err(_) => {
                if state.synced == 0 {
                    // What there was to remove before this life of the shard.
                    self.removable.notify_one();
                }
                state.synced = state.synced.max(synced.upto);
                self.go_on_with_synced(&mut state);
                None
            }
        };
        let now = Instant::now();
        // After a failure nobody's wait can end well.
        while let Some((commit, _)) = state.syncing.front()
            && (*commit <= synced.upto || failure.is_some())
        {
            let Some((_, mut one)) = state.syncing.pop_front() else { break };
            if let Some(errno) = failure {
                one.answer = one.answer.unsynced(errno);
            }
            self.send(one, now);
        }
        self.metrics.waiting_for_sync.set(level(state.syncing.len()));
    }
}

/// What cannot be read only because the store is closed is to be asked for again.
pub(super) fn none_while<T>(reopening: bool, found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(Error::Store(_)) if reopening => Ok(None),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use types::error::Errno;

    use super::*;

    #[test]
    fn nobody_is_told_of_an_error_that_a_closed_store_gives() {
        let closed = || Err::<Option<()>, _>(Error::Store(KvError::Io("closed".into())));
        assert_eq!((none_while(true, closed()), none_while(false, closed())), (Ok(None), closed()));
        let stale = Err::<Option<()>, _>(Error::Refused(Errno::ESTALE));
        assert_eq!(none_while(true, stale.clone()), stale);
    }
}
