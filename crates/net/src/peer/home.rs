//! Brings who stays with one connection back to the rail that it began with, once that works again: until then, two share
//! what one of them carries. And finds out where the one that it uses is deaf.

use std::rc::Weak;
use std::time::Duration;

use wire::op::Ping;

use super::Inner;
use crate::connection::{Connection, To};
use crate::homing::{Asking, Homing};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// So long, at most, answers that are on their way are waited for. What has none by then is asked again: it may be
/// waiting for a lock.
const QUIET_MAX: Duration = Duration::from_millis(100);
const LOOK_IF_QUIET: Duration = Duration::from_millis(1);
/// Where nothing has come for so long, another rail is connected for the question whether that answers. Not sooner:
/// where the other side stands still, all who wait for it ask this, and in vain.
const MUTE_MAX: Duration = Duration::from_secs(4);
/// Between two such questions; each has so long for its answer.
const ASK_EVERY: Duration = Duration::from_millis(400);
/// So many over one connection: some answers may come late.
const ASK_MAX: u32 = 6;

pub(super) async fn go_home(weak: Weak<Inner>) {
    let (mut homing, mut asking) = (Homing::default(), Asking::default());
    loop {
        ring::next_look(LOOK).await;
        let Some(inner) = weak.upgrade() else { return };
        // Requests are spread over all rails now: to leave one would end what is under way there.
        if inner.kept.get() {
            inner.returns.set(false);
            return;
        }
        let (away, mute) = {
            let mut state = inner.state.borrow_mut();
            state.sweep();
            if state.takes_rest() && state.current().is_none() {
                // Who connects again begins at home.
                inner.returns.set(false);
                return;
            }
            state.pair_again(&inner.limits.interfaces);
            let mute = state.current().filter(|used| used.mute().is_some_and(|mute| mute >= MUTE_MAX));
            (state.away(), mute.filter(Connection::is_waited_for))
        };
        let nth = asking.is_due(ring::now(), mute.is_some());
        if let Some((used, nth)) = mute.as_ref().zip(nth) {
            if !inner.is_deaf_beside_another(used, nth).await {
                asking.asked(ring::now());
            } else if away.is_none() {
                homing.deaf();
            }
        }
        let is_due = homing.is_due(ring::now(), away.is_some());
        let Some((home, used)) = away.filter(|_| is_due) else { continue };
        let may_be_tried = inner.state.borrow().due(ring::now()).contains(&home);
        if may_be_tried && inner.connect(home).await.is_ok() {
            quiet(&used).await;
            inner.state.borrow_mut().leave(&used);
            homing.returned(ring::now());
        }
    }
}

impl Inner {
    /// Ends `used` where its rail is deaf: another one answers, the best beside it for `nth` 0.
    async fn is_deaf_beside_another(&self, used: &Connection, nth: usize) -> bool {
        let Some(beside) = self.state.borrow().beside(used, nth) else { return false };
        let (way, address) = self.way(beside);
        let Ok(other) = self.connect_over(&way, address).await else { return false };
        for _ in 0..ASK_MAX {
            if other.incarnation() != used.incarnation() || used.mute().is_none() || used.is_closed() {
                return false;
            }
            let asked = ring::now();
            match ring::timeout(ASK_EVERY, other.call(To::default(), &Ping {})).await {
                Ok(Ok(_)) if used.end_if_deaf(Some(asked)) => return true,
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return false,
                Err(_) => continue,
            }
            ring::sleep(ASK_EVERY).await;
        }
        false
    }
}

async fn quiet(connection: &Connection) {
    let end = ring::now() + QUIET_MAX;
    while connection.in_flight() > 0 && ring::now() < end {
        ring::sleep(LOOK_IF_QUIET).await;
    }
}
