//! Keeps all rails of a peer connected, so that requests find them ready, until they are not used for long.

use std::rc::Weak;
use std::time::Duration;

use super::Inner;

/// Between two looks at what is missing.
const LOOK: Duration = Duration::from_millis(400);

pub(super) async fn keep(weak: Weak<Inner>) {
    loop {
        let Some(inner) = weak.upgrade() else { return };
        let due = {
            let mut state = inner.state.borrow_mut();
            state.end_deaf();
            state.sweep();
            if state.takes_rest() {
                // The next request has them kept again.
                inner.kept.set(false);
                return;
            }
            state.pair_again(&inner.limits.interfaces);
            state.due(ring::now())
        };
        // Side by side: one that does not answer takes its time.
        let attempts = due.into_iter().map(|rail| inner.connect(rail));
        ring::join_all(attempts).await;
        drop(inner);
        ring::next_look(LOOK).await;
    }
}
