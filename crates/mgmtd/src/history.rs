//! The last maps, so that who knows one of them is told only what has changed since: after a restart, as a rule, nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use control::View;
use types::id::Epoch;

/// More than change while all come back after a restart; large maps take a megabyte each.
const KEPT: usize = 16;

/// Shared by the owner, who adds to it, and those who answer.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<VecDeque<View>>>);

impl History {
    /// Before anybody is told of `view`.
    pub(crate) fn add(&self, view: View) {
        // Panics elsewhere leave it whole.
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.push_back(view);
        if views.len() > KEPT {
            views.pop_front();
        }
    }

    /// The map that somebody knows; `None` also of one that another store made under the same epoch.
    pub(crate) fn find(&self, epoch: Epoch, check: u64) -> Option<View> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = views.iter().rev().find(|view| view.map.epoch == epoch).cloned();
        drop(views);
        view.filter(|view| view.check() == check)
    }
}

#[cfg(test)]
mod tests {
    use cluster::map::ClusterMap;

    use super::*;

    #[test]
    fn the_last_maps_are_known_by_epoch_and_check() {
        let view =
            |epoch| View::new(ClusterMap { epoch: Epoch(epoch), ..ClusterMap::empty("c".into()) }, Arc::default());
        let history = History::default();
        for epoch in 1..=KEPT as u64 + 1 {
            history.add(view(epoch));
        }
        let check = view(2).check();
        assert_eq!(history.find(Epoch(2), check), Some(view(2)));
        assert_eq!(history.find(Epoch(2), check + 1), None, "another map under that epoch");
        assert_eq!(history.find(Epoch(1), view(1).check()), None, "too long ago");
    }
}
