//! What is known of each shard: whether it has this session, which incarnation it is of, what it has lost, and which
//! changes are under way there. All of it is behind one lock, for a few memory accesses: each change takes it at its
//! begin and its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use types::id::ShardId;
use wire::v1::meta::Exactly;
use wire::v1::session::Answered;

use crate::mutex::lock;
use crate::sequence::Window;
use crate::shared::Shared;

#[derive(Default)]
pub(crate) struct Shards(Mutex<BTreeMap<ShardId, Known>>);

/// What is known of one.
#[derive(Default)]
struct Known {
    window: Window,
    /// It was asked to open the session: it may have it, also where nobody has waited for the answer.
    asked: bool,
    incarnation: Incarnation,
    /// The latest incarnation that has answered.
    latest: Option<u64>,
    /// How often it has lost something that it had answered.
    losses: u64,
    /// When it was last found to have lost the session, with the answers to its changes.
    forgotten: Option<Instant>,
}

/// As last seen: a change means that the shard forgot what we hold open.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Incarnation {
    #[default]
    NeverSeen,
    /// It has lost the session: what is open has to be told again although it did not restart.
    Forgotten,
    Is(u64),
}

impl Shards {
    /// The shards that know this session, or have known it.
    pub(crate) fn seen(&self) -> Vec<ShardId> {
        self.those(|known| known.incarnation != Incarnation::NeverSeen)
    }

    pub(crate) fn asks_for_session(&self, shard: ShardId) {
        lock(&self.0).entry(shard).or_default().asked = true;
    }

    /// Shards that may have the session.
    pub(crate) fn asked(&self) -> Vec<ShardId> {
        self.those(|known| known.asked)
    }

    fn those(&self, are: impl Fn(&Known) -> bool) -> Vec<ShardId> {
        lock(&self.0).iter().filter(|(_, known)| are(known)).map(|(&shard, _)| shard).collect()
    }

    /// Looks at a shard of which something is known.
    fn get<T>(&self, shard: ShardId, look: impl FnOnce(&Known) -> T) -> Option<T> {
        lock(&self.0).get(&shard).map(look)
    }

    /// What is to be told to shards that keep many answers for one change that is not answered: see [`Window::answered`].
    pub(crate) fn answered(&self) -> Vec<(ShardId, Answered)> {
        let told = |(&shard, known): (&ShardId, &Known)| known.window.answered().map(|answered| (shard, answered));
        lock(&self.0).iter().filter_map(told).collect()
    }

    /// True where the shard was seen with another incarnation before.
    pub(crate) fn has_restarted(&self, shard: ShardId, incarnation: u64) -> bool {
        let known = self.get(shard, |known| known.incarnation);
        known.is_some_and(|known| known != Incarnation::NeverSeen && known != Incarnation::Is(incarnation))
    }

    pub(crate) fn saw_incarnation(&self, shard: ShardId, incarnation: u64) {
        let mut shards = lock(&self.0);
        let known = shards.entry(shard).or_default();
        known.incarnation = Incarnation::Is(incarnation);
        known.latest = known.latest.max(Some(incarnation));
    }

    /// The shard has lost the session. False where that was known.
    pub(crate) fn forget_incarnation(&self, shard: ShardId) -> bool {
        let mut shards = lock(&self.0);
        let known = shards.entry(shard).or_default();
        std::mem::replace(&mut known.incarnation, Incarnation::Forgotten) != Incarnation::Forgotten
    }

    /// The shard has lost what no fsync had covered of what it answered before it had the incarnation `kept_since`: notes that,
    /// where this client was answered so, and says it.
    pub(crate) fn lost(&self, shard: ShardId, kept_since: u64) -> bool {
        let mut shards = lock(&self.0);
        let answered = |known: &&mut Known| known.latest.is_some_and(|latest| latest < kept_since);
        let Some(known) = shards.get_mut(&shard).filter(answered) else { return false };
        known.losses += 1;
        true
    }

    /// How often the shard has lost something that it had answered.
    pub(crate) fn losses(&self, shard: ShardId) -> u64 {
        self.get(shard, |known| known.losses).unwrap_or(0)
    }

    /// The session that the shard has now is a new one to it.
    pub(crate) fn was_forgotten(&self, shard: ShardId, now: Instant) {
        lock(&self.0).entry(shard).or_default().forgotten = Some(now);
    }

    pub(crate) fn has_forgotten_since(&self, shard: ShardId, since: Instant) -> bool {
        self.get(shard, |known| known.forgotten).flatten().is_some_and(|last| last >= since)
    }

    fn change_window(&self, shard: ShardId, change: impl FnOnce(&mut Window)) {
        if let Some(known) = lock(&self.0).get_mut(&shard) {
            change(&mut known.window);
        }
    }
}

/// A change under way, with the number under which the shard does it once. Dropped when it was answered or given up.
pub(crate) struct NumberedChange {
    shared: Arc<Shared>,
    shard: ShardId,
    pub(crate) exactly: Exactly,
}

impl NumberedChange {
    pub(crate) fn begin(shared: &Arc<Shared>, shard: ShardId) -> Self {
        let exactly = lock(&shared.shards.0).entry(shard).or_default().window.begin();
        Self { shared: Arc::clone(shared), shard, exactly }
    }

    /// For somebody else who asks for the answer of the same.
    pub(crate) fn again(&self) -> Self {
        self.shared.shards.change_window(self.shard, |window| window.again(self.exactly.sequence));
        Self { shared: Arc::clone(&self.shared), shard: self.shard, exactly: self.exactly.clone() }
    }
}

impl Drop for NumberedChange {
    fn drop(&mut self) {
        self.shared.shards.change_window(self.shard, |window| window.end(self.exactly.sequence));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHARD: ShardId = ShardId(3);

    #[test]
    fn a_shard_has_restarted_that_was_seen_and_is_another_or_has_forgotten_the_session() {
        let shards = Shards::default();
        shards.asks_for_session(SHARD);
        assert!(!shards.has_restarted(SHARD, 1) && shards.seen().is_empty());
        shards.saw_incarnation(SHARD, 1);
        assert!(!shards.has_restarted(SHARD, 1) && shards.has_restarted(SHARD, 2));
        assert_eq!((shards.seen(), shards.asked()), (vec![SHARD], vec![SHARD]));
        assert!(shards.forget_incarnation(SHARD) && !shards.forget_incarnation(SHARD));
        assert!(shards.has_restarted(SHARD, 1) && shards.seen() == [SHARD]);
        shards.saw_incarnation(SHARD, 1);
        assert!(!shards.has_restarted(SHARD, 1) && shards.forget_incarnation(SHARD));
    }

    #[test]
    fn what_a_shard_lost_counts_where_it_had_answered_before() {
        let shards = Shards::default();
        shards.asks_for_session(SHARD);
        shards.forget_incarnation(SHARD);
        assert!(!shards.lost(SHARD, 9), "it has never answered");
        shards.saw_incarnation(SHARD, 5);
        shards.forget_incarnation(SHARD);
        assert!(!shards.lost(SHARD, 5) && shards.lost(SHARD, 6));
        // An answer from before comes late.
        shards.saw_incarnation(SHARD, 7);
        shards.saw_incarnation(SHARD, 5);
        assert!(!shards.lost(SHARD, 7) && shards.has_restarted(SHARD, 7));
        assert_eq!((shards.losses(SHARD), shards.losses(ShardId(4))), (1, 0));
    }

    #[test]
    fn a_session_was_forgotten_after_what_was_sent_before() {
        let (shards, now) = (Shards::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        assert!(!shards.has_forgotten_since(SHARD, now));
        shards.was_forgotten(SHARD, now);
        assert!(shards.has_forgotten_since(SHARD, now) && !shards.has_forgotten_since(SHARD, later));
    }
}
