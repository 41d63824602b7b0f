//! Looks after connections that say nothing.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::op::{self, TcpSigns};
use ring::shared::Memory;
use tracing::{debug, info, warn};
use wire::op::Ping;

use super::{Connection, Inner, Locality, Payload, To};
use crate::flow::Flow;
use crate::health::{Health, LOOK_BUSY, LOOK_IDLE, Signs, Verdict};
use crate::hearing;
use crate::pending::{Held, Waiter};
use crate::rails::Lived;
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
        inner.listen(&signs);
        let (now, waiting) = (ring::now(), inner.pending.borrow().len() > 0);
        let quiet = now.saturating_duration_since(inner.pulse.heard.get());
        let signs = Signs { waiting, quiet, unacknowledged, since_acknowledged, round_trip, variance };
        match health.look(now, &signs) {
            Verdict::Fine => {}
            Verdict::Ask => drop(inner.ping()),
            Verdict::Dead => {
                let reason = format!("nothing acknowledged for {} ms", since_acknowledged.as_millis());
                if inner.close_for_its_rail(&reason, false) == Some(true) {
                    info!(peer = %inner.address, reason, "a rail is cut: its connections are given up");
                }
                return;
            }
        }
        pause = if waiting { LOOK_BUSY } else { LOOK_IDLE };
    }
}

/// Since when nobody has asked anything.
struct Disuse {
    asked: u64,
    since: Instant,
}

impl Disuse {
    fn new(now: Instant) -> Self {
        Self { asked: 0, since: now }
    }

    /// For how long nobody has, and nothing was waited for. `asked`: how many requests there have been.
    fn lasts(&mut self, now: Instant, asked: u64, is_waiting: bool) -> Duration {
        if is_waiting || asked != self.asked {
            (self.asked, self.since) = (asked, now);
        }
        now.saturating_duration_since(self.since)
    }
}

/// Asks an idle connection whether it lives, and ends one that says nothing, or that nobody uses.
pub(super) async fn watch(weak: Weak<Inner>) {
    let Some(limits) = weak.upgrade().map(|inner| inner.limits.clone()) else { return };
    let (period, mut flow) = (limits.silence.min(limits.unused) / 4, Flow::new());
    let mut disuse = Disuse::new(ring::now());
    loop {
        let before = ring::now();
        ring::sleep(period).await;
        let Some(inner) = weak.upgrade() else { return };
        if inner.closed.borrow().is_some() {
            return;
        }
        let (now, heard) = (ring::now(), inner.pulse.heard.get());
        if heard > before && inner.locality == Locality::SameHost {
            // As `keep` says it of all others.
            inner.rail.works();
        }
        let silent = now.saturating_duration_since(heard);
        let still = flow.still(now, op::tcp_signs(&inner.socket).as_ref());
        // Where this thread stood still, what came meanwhile is still in the socket.
        let stood_still = now.saturating_duration_since(before) >= 2 * period;
        if silent.min(still) >= limits.silence && !stood_still {
            let reason = format!("nothing heard for {} ms", silent.as_millis());
            if inner.close_for_its_rail(&reason, false).is_some() {
                warn!(peer = %inner.address, reason, "connection given up");
            }
            return;
        }
        // Whoever has it in hand asks before this task runs again, or waits for an answer.
        let unused = disuse.lasts(now, inner.asked(), inner.pending.borrow().len() > 0);
        if unused >= limits.unused && !inner.kept.get() {
            inner.unused.set(true);
            inner.close("nobody uses it");
            debug!(peer = %inner.address, "a connection that nobody uses is closed");
            let let_go = inner.on_unused.take();
            return let_go.into_iter().for_each(|let_go| let_go());
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

impl Connection {
    /// Where it ended through a fault of its rail.
    pub(crate) fn lived(&self) -> Option<Lived> {
        self.inner.lived.get()
    }

    /// For how long it owes an answer and nothing has come.
    pub(crate) fn mute(&self) -> Option<Duration> {
        self.inner.hearing.get().mute(ring::now())
    }

    /// Somebody waits for an answer.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.inner.pending.borrow().is_waited_for()
    }

    /// Asks for a sign of life, where none is asked for yet.
    pub(crate) fn ask(&self) {
        let inner = &self.inner;
        let is_open = |(id, _)| inner.pending.borrow().has(id);
        if !inner.question.get().is_some_and(is_open) {
            inner.question.set(inner.ping().map(|id| (id, ring::now())));
        }
    }

    /// When it was asked for the last time, if that has its answer.
    pub(crate) fn answered(&self) -> Option<Instant> {
        let (id, asked) = self.inner.question.get()?;
        (!self.is_closed() && !self.inner.pending.borrow().has(id)).then_some(asked)
    }

    /// Ends it where its rail is deaf, as [`Hearing::is_deaf`] says of `elsewhere`.
    ///
    /// [`Hearing::is_deaf`]: crate::hearing::Hearing::is_deaf
    pub(crate) fn end_if_deaf(&self, elsewhere: Option<Instant>) -> bool {
        let inner = &self.inner;
        let mut hearing = inner.hearing.get();
        let is_deaf = hearing.is_deaf(ring::now(), elsewhere);
        inner.hearing.set(hearing);
        if is_deaf {
            let reason = "nothing comes over its rail, and answers over another one";
            if inner.close_for_its_rail(reason, true) == Some(true) {
                info!(peer = %inner.address, reason, "a rail is deaf: its connections are given up");
            }
        }
        is_deaf
    }
}

impl Inner {
    /// Ends the connection through a fault of its rail, which is deaf or has another one. Whether the rail was healthy until
    /// now; `None` where the connection had ended before.
    pub(super) fn close_for_its_rail(&self, reason: &str, was_deaf: bool) -> Option<bool> {
        self.end_lived(reason, was_deaf).then(|| self.rail.failed())
    }

    /// Ends it since the other side has, while nobody waited for anything, as where its service stops: whether its rail works
    /// is for the next one to find out who needs it. `None` where the connection had ended before.
    pub(super) fn close_as_left(&self, reason: &str) -> Option<()> {
        self.end_lived(reason, false).then(|| self.rail.lost())
    }

    /// Ends it, and notes what it has done. False where the connection had ended before.
    fn end_lived(&self, reason: &str, was_deaf: bool) -> bool {
        // To end it is heard, too.
        let worked = self.pulse.heard.get().saturating_duration_since(self.begun);
        let signs = op::tcp_signs(&self.socket);
        if !self.close(reason) {
            return false;
        }
        self.lived.set(signs.map(|TcpSigns { acknowledged, received, .. }| Lived {
            worked,
            carried: acknowledged + received,
            received,
            was_deaf,
        }));
        true
    }

    /// How many requests somebody has made.
    fn asked(&self) -> u64 {
        self.pending.borrow().count() - self.pings.get()
    }

    /// Without permits: it is one, and it must go when nothing else does. The reply goes to nobody.
    fn ping(&self) -> Option<u64> {
        let id = self.post(To::default(), &Ping {}, Payload::default(), Held::default(), Waiter::Nobody).ok()?;
        self.pings.set(self.pings.get() + 1);
        self.ping.set(id);
        Some(id)
    }

    /// Whether answers come back.
    fn listen(&self, signs: &TcpSigns) {
        let &TcpSigns { unacknowledged, received, round_trip, variance, .. } = signs;
        let asked = self.pending.borrow().has(self.ping.get());
        // However much waits for answers: the other side has room for more than we ask at once.
        let arrived = !unacknowledged && self.outbox.is_empty();
        let mut hearing = self.hearing.get();
        hearing.look(ring::now(), &hearing::Signs { asked, arrived, received, round_trip, variance });
        self.hearing.set(hearing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_used_while_it_is_asked_or_answers() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut disuse = Disuse::new(begun);
        let looks = [(1, 0, false), (2, 1, true), (9, 1, true), (10, 1, false), (11, 2, false), (15, 2, false)];
        let lasts = looks.map(|(at, asked, is_waiting)| disuse.lasts(after(at), asked, is_waiting).as_secs());
        assert_eq!(lasts, [1, 0, 0, 1, 0, 4]);
    }
}
