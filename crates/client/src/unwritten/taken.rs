//! What is kept back and about to be cut off, where it could not be written before: it is out until the truncate is done, and
//! comes back where that fails.

use tracing::error;
use types::id::InodeId;

use super::Unwritten;
use super::runs::Runs;
use crate::router::Client;

/// What was taken out since it is about to be cut off.
#[derive(Default)]
pub(crate) struct Taken {
    runs: Runs,
    /// [`Unwritten::begun`] of that moment.
    begun: u64,
}

impl Unwritten {
    /// What was taken out does not come back.
    fn are_cut_off(&mut self) {
        self.is_cut = false;
    }
}

impl Client {
    /// Takes out what is kept back from `size` on, which is about to be cut off and could not be written.
    pub(crate) fn cut_unwritten(&self, inode: InodeId, size: u64) -> Taken {
        let total = &self.shared.metrics.unwritten;
        let taken = self.shared.with_file(inode, |file| {
            file.unwritten.is_cut = true;
            let runs = file.unwritten.change_waiting(total, |waiting| waiting.cut(size));
            Taken { runs, begun: file.unwritten.begun }
        });
        taken.unwrap_or_default()
    }

    /// The truncate is done for which something was taken out.
    pub(crate) fn forget_cut_off(&self, inode: InodeId) {
        self.shared.with_file(inode, |file| file.unwritten.are_cut_off());
    }

    /// It is not cut off: it is to be written as before. Unless others may have written there since: then it is lost.
    pub(crate) fn put_back_unwritten(&self, inode: InodeId, Taken { runs, begun }: &Taken) {
        let total = &self.shared.metrics.unwritten;
        let watch = self.shared.with_file(inode, |file| {
            // Newer than what was read from the objects meanwhile.
            file.streams.clear();
            let unwritten = &mut file.unwritten;
            unwritten.are_cut_off();
            if runs.is_empty() || unwritten.lost {
                return false;
            }
            if unwritten.begun != *begun {
                unwritten.lose();
                error!(%inode, bytes = runs.weight(), "what a truncate that failed was to cut off is lost with its lease");
                return false;
            }
            unwritten.change_waiting(total, |waiting| {
                let newer = std::mem::take(waiting);
                waiting.put_all(runs);
                waiting.put_all(&newer);
            });
            unwritten.kept += 1;
            !std::mem::replace(&mut unwritten.watched, true)
        });
        if watch == Some(true) {
            self.watch_unwritten(inode);
        }
    }
}
