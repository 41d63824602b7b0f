//! Waits for locks that end because they would be for ever: what [`chase`](super::chase) decides on is asked for here.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tracing::debug;
use types::cred::Credentials;
use types::error::Errno;
use types::id::ShardId;
use types::time::Pauses;
use wire::v1::lock::{Lock, LockWaits, Process};
use wire::v1::session::Empty;

use crate::caller::Caller;
use crate::locks::Ended;
use crate::locks::chase::{Chase, Cycle};
use crate::router::{Client, Destination};

/// From the begin of a wait to the first look for a cycle; each further one comes twice as late, since who closes a cycle
/// later looks by itself...
const LOOK_FIRST: Duration = Duration::from_millis(100);
/// ...but one may be closed by a thread of a process that waits with another, too.
const LOOK_AT_LAST: Duration = Duration::from_secs(10);
/// Until then another one in the cycle was to break it.
const OTHERS_PATIENCE: Duration = Duration::from_secs(2);

impl Client {
    /// Asks for a lock until the shard has decided, or the wait is found to be one for ever: `EDEADLK`.
    pub(super) async fn unless_in_a_cycle(
        &self,
        caller: &Caller<'_>,
        shard: ShardId,
        request: &Lock,
    ) -> Result<Empty, Ended> {
        let is_in_a_cycle = Cell::new(false);
        let interrupted = || is_in_a_cycle.get() || caller.is_interrupted();
        let caller = caller.interrupted_by(&interrupted);
        let mut asking = pin!(self.ask_for_lock(&caller, shard, request.number, request));
        let mut looking = pin!(self.look_for_cycles(request.owner));
        let answer = std::future::poll_fn(|cx| {
            let answer = asking.as_mut().poll(cx);
            if answer.is_pending() && !is_in_a_cycle.get() && looking.as_mut().poll(cx).is_ready() {
                is_in_a_cycle.set(true);
            }
            answer
        });
        match answer.await {
            Err(Ended::Refused(Errno::EINTR)) if is_in_a_cycle.get() => Err(Ended::Refused(Errno::EDEADLK)),
            Err(Ended::Unknown(Errno::EINTR)) if is_in_a_cycle.get() => Err(Ended::Unknown(Errno::EDEADLK)),
            answer => answer,
        }
    }

    /// Ends when the waits of `owner` are in a cycle that it has to break.
    async fn look_for_cycles(&self, owner: u64) {
        let process = Process { session: self.shared.session, owner };
        let mut pauses = Pauses::new(LOOK_FIRST, LOOK_AT_LAST);
        loop {
            ring::sleep(pauses.take()).await;
            if let Some(cycle) = self.find_cycle(&process).await {
                if cycle.is_broken_by(&process) {
                    return;
                }
                ring::sleep(OTHERS_PATIENCE).await;
                if self.round(&process).await.is_some_and(|later| cycle.is_in(&later)) {
                    return;
                }
            }
        }
    }

    async fn find_cycle(&self, process: &Process) -> Option<Cycle> {
        let cycle = self.round(process).await?.cycle()?;
        let later = self.round(process).await?;
        cycle.is_in(&later).then_some(cycle)
    }

    /// `None` where a shard did not answer: its waits may be those that matter.
    async fn round(&self, process: &Process) -> Option<Chase> {
        let caller = Caller::patient(Credentials::default());
        let mut chase = Chase::new(process);
        loop {
            let processes = chase.ask();
            if processes.is_empty() {
                return Some(chase);
            }
            let request = LockWaits { processes };
            let shards: Vec<ShardId> = self.shared.map().shards.keys().copied().collect();
            let answers =
                shards.iter().map(async |&shard| self.call(&caller, Destination::Shard(shard), &request).await);
            for answer in ring::join_all(answers).await {
                match answer {
                    Ok(reply) => chase.told(reply.waits),
                    Err(errno) => {
                        debug!("could not look for deadlocks: {errno}");
                        return None;
                    }
                }
            }
        }
    }
}
