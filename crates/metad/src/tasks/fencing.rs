//! Before a session that has gone silent loses what it holds, the storage services end all that it has asked of them: what
//! it wrote while it was stopped, or cut off, comes before what others are told from then on, or never.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::sync::{Permit, Semaphore};
use tracing::{debug, warn};
use types::id::SessionId;
use wire::v1::session::FenceSession;

use crate::tasks::storage::{Lane, Storage};
use crate::turn::Core;

/// First and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Lanes that are asked at the same time, for all sessions together. Where there are thousands, each session is work for some
/// milliseconds, and the shard serves nobody meanwhile: many that end at once, with a rack, come one after the other.
const ASKED_MAX: usize = 16_384;

pub(crate) struct Fencing {
    core: Rc<Core>,
    storage: Rc<Storage>,
    /// How long a storage service that does not answer, and that mgmtd does not hold for offline, keeps a session alive.
    patience: Duration,
    places: Places,
}

impl Fencing {
    pub(crate) fn new(core: Rc<Core>, storage: Rc<Storage>, patience: Duration) -> Rc<Self> {
        Rc::new(Self { core, storage, patience, places: Places::new(ASKED_MAX) })
    }

    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.core.to_fence.notified().await;
            for session in self.core.take_fencing() {
                let (this, until) = (Rc::clone(&self), ring::now() + self.patience);
                ring::spawn(async move {
                    this.fence(session, until).await;
                    this.core.fenced(session);
                });
            }
        }
    }

    async fn fence(&self, session: SessionId, until: Instant) {
        let lanes = self.places.take(|| self.storage.lanes()).await;
        ring::join_all(lanes.into_iter().map(|(lane, place)| self.fence_at(lane, session, until, place))).await;
    }

    /// Gives its place back after the first attempt: a lane that does not answer keeps no other session waiting.
    async fn fence_at(&self, mut lane: Lane, session: SessionId, until: Instant, mut place: Option<Permit>) {
        let mut pause = PAUSE_MIN;
        loop {
            let asked = self.storage.call_lane(&mut lane, &FenceSession { session }).await;
            place.take();
            let Err(failure) = asked else { return };
            debug!(%session, node = %lane.node, %failure, "the writes of a silent client are not ended yet");
            // One that is not there has no connections either; but one that stands still may seem so.
            if self.storage.is_offline(lane.node) || ring::now() >= until {
                warn!(%session, node = %lane.node, %failure,
                    "a storage service does not say that it has ended the writes of a silent client: they may come late");
                return;
            }
            ring::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// For lanes that are asked. One session after the other takes what it needs: so none waits for what another waits for.
struct Places {
    turn: Rc<Semaphore>,
    free: Rc<Semaphore>,
    count: usize,
}

impl Places {
    fn new(count: usize) -> Self {
        Self { turn: Rc::new(Semaphore::new(1)), free: Rc::new(Semaphore::new(count)), count }
    }

    /// One for each of `lanes`, as far as there are any; each is free again by itself.
    async fn take<T>(&self, lanes: impl FnOnce() -> Vec<T>) -> Vec<(T, Option<Permit>)> {
        let _turn = self.turn.acquire(1).await;
        let (lanes, mut places) = (lanes(), Vec::new());
        while places.len() < lanes.len().min(self.count) {
            places.push(self.free.acquire(1).await);
        }
        let places = places.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        lanes.into_iter().zip(places).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_fenced_one_after_the_other_where_there_are_many_lanes() {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
            let places = Rc::new(Places::new(8));
            let take =
                |lanes: usize| ring::timeout(Duration::from_millis(20), places.take(move || (0..lanes).collect()));
            let mut first = take(5).await.expect("there are so many");
            assert!(take(5).await.is_err(), "of which it keeps none");
            drop(first.split_off(2));
            let second = take(5).await.expect("all but two of the first have answered");
            assert!(take(20).await.is_err());
            assert_eq!(second.len(), 5);
            drop((first, second));
            let all = take(20).await.expect("more than there are places");
            assert_eq!(all.iter().filter(|(_, place)| place.is_some()).count(), 8);
        });
    }
}
