//! Looks after connections that say nothing.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ring::op::{self, TcpSigns};
use ring::shared::Memory;
use tracing::{info, warn};
use wire::op::Ping;

use super::{Inner, Payload, To};
use crate::flow::Flow;
use crate::health::{Health, LOOK_BUSY, LOOK_IDLE, Signs, Verdict};
use crate::pending::{Held, Waiter};
use crate::sharing;

/// Between two looks whether there are other rails by now.
const LOOK_ALONE: Duration = Duration::from_secs(1);

/// Where there are several rails: ends the connection as soon as its rail is seen to be cut, so that others take over.
pub(super) async fn keep(weak: Weak<Inner>) {
    let mut health = Health::default();
    let mut pause = LOOK_BUSY;
    let mut heard = ring::now();
    loop {
        ring::next_look(pause).await;
        let Some(inner) = weak.upgrade() else { return };
        if inner.closed.borrow().is_some() {
            return;
        }
        if inner.pulse.heard.get() > heard {
            heard = inner.pulse.heard.get();
            // Others may have given theirs up late, when it was mended, or found their service gone.
            inner.rail.works();
        }
        if !inner.several.get() {
            pause = LOOK_ALONE;
            continue;
        }
        let Some(signs) = op::tcp_signs(&inner.socket) else { return };
        let TcpSigns { unacknowledged, since_acknowledged, round_trip, variance, .. } = signs;
        inner.rail.measured(round_trip);
        let (now, waiting) = (ring::now(), inner.pending.borrow().len() > 0);
        let quiet = now.saturating_duration_since(inner.pulse.heard.get());
        let signs = Signs { waiting, quiet, unacknowledged, since_acknowledged, round_trip, variance };
        match health.look(now, &signs) {
            Verdict::Fine => {}
            Verdict::Ask => inner.ping(),
            Verdict::Dead => {
                let reason = format!("nothing acknowledged for {} ms", since_acknowledged.as_millis());
                if inner.close(&reason) {
                    inner.rail.failed();
                    info!(peer = %inner.address, reason, "a rail is cut: its connection is given up");
                }
                return;
            }
        }
        pause = if waiting { LOOK_BUSY } else { LOOK_IDLE };
    }
}

/// Asks an idle connection whether it lives, and ends one that says nothing.
pub(super) async fn watch(weak: Weak<Inner>) {
    let Some(limits) = weak.upgrade().map(|inner| inner.limits.clone()) else { return };
    let (period, mut flow) = (limits.silence / 4, Flow::new());
    loop {
        let before = ring::now();
        ring::sleep(period).await;
        let Some(inner) = weak.upgrade() else { return };
        if inner.closed.borrow().is_some() {
            return;
        }
        let now = ring::now();
        let silent = now.saturating_duration_since(inner.pulse.heard.get());
        let still = flow.still(now, op::tcp_signs(&inner.socket).as_ref());
        // Where this thread stood still, what came meanwhile is still in the socket.
        let stood_still = now.saturating_duration_since(before) >= 2 * period;
        if silent.min(still) >= limits.silence && !stood_still {
            let reason = format!("nothing heard for {} ms", silent.as_millis());
            if inner.close(&reason) {
                warn!(peer = %inner.address, reason, "connection given up");
            }
            return;
        }
        if silent >= period {
            inner.ping();
        }
        if let Some(memory) = inner.lending.to_replace() {
            ring::spawn(offer(inner, memory));
        }
    }
}

/// Offers memory to the other side; until that has answered, payloads go over the socket.
pub(super) async fn offer(inner: Rc<Inner>, memory: Arc<Memory>) {
    if inner.check_open().is_err() {
        return;
    }
    let answer =
        inner.post_and_wait(To::default(), &sharing::offer(&memory), Payload::default(), Held::default()).await;
    inner.lending.answered(&memory, answer.is_ok());
}

impl Inner {
    /// Without permits: it is one, and it must go when nothing else does. The reply goes to nobody.
    fn ping(&self) {
        let _ = self.post(To::default(), &Ping {}, Payload::default(), Held::default(), Waiter::Nobody);
    }
}
