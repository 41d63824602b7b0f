//! Brings who stays with one connection back to the rail that it began with, once that works again: until then, two share
//! what one of them carries.

use std::rc::Weak;
use std::time::Duration;

use super::Inner;
use crate::connection::Connection;
use crate::homing::Homing;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// So long, at most, answers that are on their way are waited for. What has none by then is asked again: it may be
/// waiting for a lock.
const QUIET_MAX: Duration = Duration::from_millis(100);
const LOOK_IF_QUIET: Duration = Duration::from_millis(1);

pub(super) async fn go_home(weak: Weak<Inner>) {
    let mut homing = Homing::default();
    loop {
        ring::next_look(LOOK).await;
        let Some(inner) = weak.upgrade() else { return };
        // Requests are spread over all rails now: to leave one would end what is under way there.
        if inner.kept.get() {
            inner.returns.set(false);
            return;
        }
        let away = {
            let mut state = inner.state.borrow_mut();
            state.sweep();
            if state.takes_rest() && state.current().is_none() {
                // Who connects again begins at home.
                inner.returns.set(false);
                return;
            }
            state.pair_again(&inner.limits.interfaces);
            state.away()
        };
        let is_due = homing.is_due(ring::now(), away.is_some());
        let Some((home, used)) = away.filter(|_| is_due) else { continue };
        let may_be_tried = inner.state.borrow().due().contains(&home);
        if may_be_tried && inner.connect(home).await.is_ok() {
            quiet(&used).await;
            inner.state.borrow_mut().leave(&used);
            homing.returned(ring::now());
        }
    }
}

async fn quiet(connection: &Connection) {
    let end = ring::now() + QUIET_MAX;
    while connection.in_flight() > 0 && ring::now() < end {
        ring::sleep(LOOK_IF_QUIET).await;
    }
}
