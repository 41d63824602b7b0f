//! Sessions that a power cut may yet take away, with all that they were given since they came: the shard would not wait for
//! them then before it gives the same to others. So who opens one waits for the disk.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::{Duration, Instant};

use telemetry::seldom::Seldom;
use types::error::Errno;
use types::id::SessionId;

use super::{Answered, State};
use crate::answer::Answer;

/// A disk that does not end a sync for so long keeps nobody from reading.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two log lines about too many sessions: who is sent away comes again at once.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Newcomers {
    /// The commit that has the session's record.
    commits: BTreeMap<SessionId, u64>,
    /// That there is no room for one more.
    complaints: Seldom,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self { commits: BTreeMap::new(), complaints: Seldom::every(COMPLAIN_EVERY) }
    }
}

impl Newcomers {
    pub(super) fn came(&mut self, session: SessionId, commit: u64) {
        self.commits.insert(session, commit);
    }

    /// There were `sessions` already, as many as may be.
    pub(super) fn was_sent_away(&self, sessions: usize, now: Instant) {
        if let Some(left_out) = self.complaints.is_due(now) {
            tracing::warn!(
                sessions,
                left_out,
                "more clients than sessions_max, which may be raised: others wait until some have left or expired"
            );
        }
    }

    /// Of these, what up to `synced` was committed is on disk.
    pub(super) fn has(&self, session: SessionId, synced: u64) -> bool {
        self.commits.get(&session).is_some_and(|commit| *commit > synced)
    }

    /// Forgets those that are durable, and those that are over.
    fn retain(&mut self, synced: u64, is_there: impl Fn(SessionId) -> bool) {
        self.commits.retain(|session, commit| *commit > synced && is_there(*session));
    }
}

impl State {
    /// Those of whom the disk has said nothing for long are answered with this turn. To be called now and then.
    pub(super) fn let_newcomers_in(&mut self, now: Instant) {
        let shard = &self.shard;
        self.newcomers.retain(self.synced, |session| shard.knows(session));
        if self.newcomers.commits.is_empty() {
            return;
        }
        let is_late = |one: &Answered| {
            matches!(one.answer, Answer::OpenedAnew(_)) && now.saturating_duration_since(one.arrived) >= PATIENCE
        };
        let (late, others): (VecDeque<_>, VecDeque<_>) =
            mem::take(&mut self.syncing).into_iter().partition(|(_, one)| is_late(one));
        self.syncing = others;
        let let_in = |one: Answered| Answered { answer: one.answer.unsynced(Errno::EIO), ..one };
        self.answered.extend(late.into_iter().map(|(_, one)| let_in(one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_new_until_it_is_on_disk() {
        let [a, b] = [1, 2].map(SessionId);
        let mut newcomers = Newcomers::default();
        newcomers.came(a, 7);
        assert!(newcomers.has(a, 6) && !newcomers.has(a, 7) && !newcomers.has(b, 0));
        newcomers.came(b, 8);
        newcomers.retain(7, |_| true);
        assert!(!newcomers.has(a, 0) && newcomers.has(b, 7));
        newcomers.retain(7, |_| false);
        assert!(newcomers.commits.is_empty());
    }
}
