//! Before a session that has gone silent loses what it holds, the storage services end all that it has asked of them: what
//! it wrote while it was stopped, or cut off, comes before what others are told from then on, or never.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use types::id::SessionId;
use wire::v1::session::FenceSession;

use crate::tasks::storage::{Lane, Storage};
use crate::turn::Core;

/// First and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Fencing {
    core: Rc<Core>,
    storage: Rc<Storage>,
    /// How long a storage service that does not answer, and that mgmtd does not hold for offline, keeps a session alive.
    patience: Duration,
}

impl Fencing {
    pub(crate) fn new(core: Rc<Core>, storage: Rc<Storage>, patience: Duration) -> Rc<Self> {
        Rc::new(Self { core, storage, patience })
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
        let until = ring::now() + self.patience;
        let lanes = self.storage.lanes().into_iter().map(|lane| self.fence_at(lane, session, until));
        ring::join_all(lanes).await;
    }

    async fn fence_at(&self, lane: Lane, session: SessionId, until: Instant) {
        let mut pause = PAUSE_MIN;
        loop {
            let Err(failure) = self.storage.call_lane(&lane, &FenceSession { session }).await else { return };
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
