//! Before a session that has gone silent loses what it holds, the storage services end all that it has asked of them: what
//! it wrote while it was stopped, or cut off, comes before what others are told from then on, or never.

use std::pin::pin;
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

/// So long, at most, each of them counts: whoever does not answer by then is little work, and would keep others waiting. Not
/// much shorter: until a connection is given up, all who wait for it take memory.
const PLACE_MAX: Duration = Duration::from_millis(500);

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
                let this = Rc::clone(&self);
                ring::spawn(async move {
                    this.fence(session).await;
                    this.core.fenced(session);
                });
            }
        }
    }

    async fn fence(&self, session: SessionId) {
        let lanes = self.places.take(|| self.storage.lanes()).await;
        let until = ring::now() + self.patience;
        ring::join_all(lanes.into_iter().map(|(lane, place)| self.fence_at(lane, session, until, place))).await;
    }

    async fn fence_at(&self, mut lane: Lane, session: SessionId, until: Instant, place: Option<Permit>) {
        let (mut pause, mut place) = (PAUSE_MIN, place);
        loop {
            let asked = holding(place.take(), self.storage.call_lane(&mut lane, &FenceSession { session })).await;
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

/// Gives the place back with the first answer, or when there is none for long.
async fn holding<T>(place: Option<Permit>, asking: impl Future<Output = T>) -> T {
    let mut asking = pin!(asking);
    if place.is_some()
        && let Ok(asked) = ring::timeout(PLACE_MAX, asking.as_mut()).await
    {
        return asked;
    }
    drop(place);
    asking.await
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
    fn a_lane_that_does_not_answer_gives_its_place_back() {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
            let places = Rc::new(Places::new(1));
            let mut first = places.take(|| vec![()]).await;
            let place = first.pop().and_then(|((), place)| place);
            ring::spawn(holding(place, std::future::pending::<()>()));
            let second = ring::timeout(PLACE_MAX * 20, places.take(|| vec![()])).await;
            assert!(second.is_ok_and(|second| second.len() == 1));
        });
    }

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
