//! What the shard does in a turn without being asked.

use std::mem;
use std::time::{Duration, Instant};

use namespace::error::Error;
use namespace::shard::inline::Grown;
use namespace::transaction::{Message, Reply};
use namespace::view::Deletion;
use net::ConnectionId;
use types::id::{InodeId, SessionId, ShardId};

use super::{Core, State};

/// Without a tick, of which there are two a second.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// What the tasks of the thread leave for the next turn, which takes it all but what has to wait for the store.
#[derive(Default)]
pub(super) struct Inbox {
    /// Time has passed: sessions may have expired.
    pub(super) tick: bool,
    /// Directories that are being split are to be gone on with.
    pub(super) go_on_splitting: bool,
    /// Ends that come in pieces are to be gone on with.
    pub(super) go_on_ending: bool,
    /// Objects that are gone from their storage groups.
    pub(super) removed: Vec<Deletion>,
    /// What became of the moves of files' contents to objects.
    pub(super) grown: Vec<(InodeId, Grown)>,
    /// Sessions that cannot write objects any more.
    pub(super) fenced: Vec<SessionId>,
    /// What other shards answered, or that they did not.
    pub(super) replies: Vec<(ShardId, Message, Reply)>,
    /// Connections that ended, which requests that wait for transactions may have come on; other shards have no
    /// session.
    pub(super) lost: Vec<(ConnectionId, Option<SessionId>)>,
}

impl Core {
    /// Goes on with ends that come in pieces. False where there are none, or nothing can be written.
    pub(crate) fn go_on_ending(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.inbox.go_on_ending = !state.stopping && !self.store.is_failed() && state.shard.is_ending();
        if state.inbox.go_on_ending {
            self.work.notify_one();
        }
        state.inbox.go_on_ending
    }
}

impl State {
    pub(super) fn by_itself(&mut self) {
        if self.reopening {
            if self.stopping {
                self.dismiss_parked();
            }
            return;
        }
        if self.shard.store().is_failed() {
            // These are looked for again; what has grown waits for the store.
            self.inbox.removed.clear();
            (self.inbox.go_on_splitting, self.inbox.go_on_ending) = (false, false);
        } else {
            self.take_grown();
        }
        self.take_fenced();
        // Before all that may lock names.
        self.shard.go_on_dividing();
        for (connection, session) in mem::take(&mut self.inbox.lost) {
            self.abandon(connection, session);
        }
        if self.stopping {
            self.dismiss_parked();
        }
        if !self.inbox.removed.is_empty() {
            self.shard.deletions_done(&self.inbox.removed);
            self.inbox.removed.clear();
        }
        for (from, message, reply) in mem::take(&mut self.inbox.replies) {
            if let Err(error) = self.shard.replied(from, &message, reply) {
                tracing::error!(%error, "a transaction cannot go on yet");
            }
        }
        if mem::take(&mut self.inbox.go_on_splitting) {
            for error in self.shard.go_on_splitting() {
                tracing::error!(%error, "a directory cannot be split yet");
            }
        }
        if mem::take(&mut self.inbox.go_on_ending) {
            self.shard.go_on_ending().iter().for_each(tell_kept);
        }
        if mem::take(&mut self.inbox.tick) {
            self.tick();
        }
    }

    /// Files whose contents were moved to objects.
    fn take_grown(&mut self) {
        for (inode, grown) in mem::take(&mut self.inbox.grown) {
            if let Err(error) = self.shard.end_growth(inode, grown) {
                tracing::error!(%inode, %error, "a file cannot grow out of the metadata yet");
            }
        }
    }

    fn take_fenced(&mut self) {
        for session in mem::take(&mut self.inbox.fenced) {
            match self.shard.session_fenced(session) {
                Ok(true) => tell_end(session),
                Ok(false) if self.shard.store().is_failed() => {}
                Ok(false) => {
                    tracing::info!(%session, "a client was heard of whose writes had to be ended: it was silent, or late")
                }
                Err(error) => tracing::error!(%session, %error, "a session could not be ended"),
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let since = self.ticked.replace(now).map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        if since >= STOOD_STILL {
            // What clients have sent meanwhile is still in the sockets.
            tracing::warn!(seconds = since.as_secs_f64(), "this shard stood still: its sessions last longer by that");
            self.shard.stood_still(since.as_millis() as u64);
        }
        self.let_newcomers_in(now);
        let ticked = self.shard.tick();
        let (connections, shard) = (&mut self.connections, &self.shard);
        connections.retain(|session| shard.knows(session));
        ticked.expired.into_iter().for_each(tell_end);
        self.fencing.extend(ticked.to_fence);
        if ticked.grace_ended {
            tracing::info!("the time for clients to reclaim what they held is over");
        }
        ticked.failed.iter().for_each(tell_kept);
    }
}

fn tell_kept(error: &Error) {
    tracing::error!(%error, "what a session held could not be ended, or not all of it: it is tried again");
}

fn tell_end(session: SessionId) {
    tracing::warn!(%session, "a client was not heard of for too long, or left while it might still write: its session has ended");
}
