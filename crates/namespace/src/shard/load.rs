//! A shard's sessions from its store, at its start.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kv::{Kept, Kv, Syncer};
use types::id::SessionId;

use crate::error::{Damage, Result};
use crate::leases::{Before, Leases};
use crate::locks::Locks;
use crate::namespace::{CountsRecord, Namespace};
use crate::schema::meta::{self, Counts};
use crate::schema::{orphan, session};
use crate::shard::ending::Ending;
use crate::shard::foresight::Foresight;
use crate::shard::holds::Holds;
use crate::shard::inline::Growing;
use crate::shard::replies::Replies;
use crate::shard::splitting::Splitting;
use crate::shard::terms::Terms;
use crate::shard::unwritten::Unwritten;
use crate::shard::{ABSENT, Config, Session, Shard, Stage, Turn};
use crate::transaction::Transactions;

/// Starts passed over where the store may have lost what it said of them.
const STARTS_DOUBTED: u64 = 1 << 10;
/// Incarnations that the clock may come to: three quarters of those that there is room for (see [`EPOCH_BITS`]), so that one
/// that is years ahead leaves enough.
const STARTS_BY_CLOCK_MAX: u64 = 3 << 22;
/// Epochs of intents in one incarnation: with ten thousand a second, enough for three years without a restart. More of
/// them would leave fewer incarnations, of which each loss of power takes [`STARTS_DOUBTED`].
const EPOCH_BITS: u32 = 40;
/// Recalls in one incarnation.
const RECALL_BITS: u32 = 40;
/// Standings of directories told in one incarnation.
const TOLD_BITS: u32 = 40;
/// Sessions born in one incarnation.
const BIRTH_BITS: u32 = 32;

/// Reads sessions, stored replies and orphans; counts the start. Commits and syncs.
pub(super) fn load<K: Kv>(mut namespace: Namespace<K>, config: Config, mono_ms: u64) -> Result<Shard<K>> {
    let kept = namespace.kv.kept();
    let incarnation = next_incarnation(&namespace, kept)?;
    namespace.cold.put(meta::INCARNATION, &meta::ser_number(incarnation));
    let birth = incarnation << BIRTH_BITS;
    let kept_since = match namespace.number(meta::KEPT_SINCE)? {
        Some(since) if kept == Kept::All => since,
        _ => birth,
    };
    namespace.cold.put(meta::KEPT_SINCE, &meta::ser_number(kept_since));
    let terms = Terms::on_record(&namespace, &config)?;
    let unknown = || Session {
        last_seen_ms: mono_ms,
        assured_until_ms: mono_ms.saturating_add(terms.expiry_ms),
        birth,
        stage: Stage::Known,
        has_told_locks: false,
        reclaims: true,
        closing: false,
        fencing: false,
        fenced: false,
        replies: Replies::default(),
    };
    let (mut sessions, counts) = read_sessions(&namespace.kv, unknown)?;
    namespace.learn_counts(counts);
    let mut holds = Holds::new(incarnation << EPOCH_BITS);
    read_orphans(&namespace.kv, &mut holds, &mut sessions, unknown)?;
    holds.committed();
    // Nobody is left whom anything else was told.
    let terms = if sessions.is_empty() { Terms::of(&config) } else { terms };
    terms.put(&mut namespace);
    let grace_until_ms = (!sessions.is_empty()).then(|| mono_ms.saturating_add(terms.expiry_ms));
    let locks = Locks::new(config.limits.locks, grace_until_ms.is_some());
    namespace.reserve_ids();
    namespace.commit(CountsRecord::IfChanged)?;
    // Before an id is given to anybody: see `reserve_ids`.
    namespace.kv.syncer().sync()?;
    let before = Before { sessions: sessions.keys().copied().collect(), term_ms: terms.lease_ms };
    let leases = Leases::new(config.lease_term_ms, config.limits.leased, before, incarnation << RECALL_BITS, mono_ms);
    let splitting = Splitting::new(namespace.being_split()?);
    let mut shard = Shard {
        splitting,
        growing: Growing::default(),
        ending: Ending::default(),
        unwritten: Unwritten::default(),
        terms_over_ms: terms.over_ms(&config, mono_ms),
        namespace,
        config,
        leases,
        sessions,
        holds,
        transactions: Transactions::default(),
        locks,
        birth,
        kept_since,
        told: incarnation << TOLD_BITS,
        mono_ms,
        grace_until_ms,
        has_late: false,
        turn: Turn::default(),
        foresight: Foresight::default(),
        key: Vec::new(),
        value: Vec::new(),
    };
    shard.load_transactions()?;
    Ok(shard)
}

/// None comes again where an older store was put back either: there are fewer starts than minutes.
fn next_incarnation<K: Kv>(namespace: &Namespace<K>, kept: Kept) -> Result<u64> {
    let starts = namespace.number(meta::INCARNATION)?.unwrap_or(0);
    let next = starts + if kept == Kept::Unknown { STARTS_DOUBTED } else { 1 };
    let most = (namespace.now.seconds_since_2020() / 60).saturating_mul(2).min(STARTS_BY_CLOCK_MAX);
    Ok(next.max((next + namespace.elapsed_s()?.div_ceil(60)).min(most)))
}

fn read_sessions<K: Kv>(kv: &K, known: impl Fn() -> Session + Copy) -> Result<(BTreeMap<SessionId, Session>, Counts)> {
    let mut sessions = BTreeMap::new();
    let mut counts = Counts::default();
    let mut damage = None;
    let mut take = |key: &[u8], value: &[u8]| -> std::result::Result<(), Damage> {
        let (id, slot) = session::deser_key(key)?;
        let session = sessions.entry(id).or_insert_with(known);
        if slot == session::SELF {
            session::deser_self(key, value)?;
        } else {
            let replies = session::deser_value(key, value)?;
            counts = counts.max(replies.counts);
            session.replies.load(slot, &replies)?;
        }
        Ok(())
    };
    kv.scan(&[session::PREFIX], &[session::PREFIX + 1], |key, value| match take(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(found) => {
            damage = Some(found);
            ControlFlow::Break(())
        }
    })?;
    if let Some(damage) = damage {
        return Err(damage.into());
    }
    for session in sessions.values_mut() {
        session.replies.loaded();
    }
    Ok((sessions, counts))
}

fn read_orphans<K: Kv>(
    kv: &K,
    holds: &mut Holds,
    sessions: &mut BTreeMap<SessionId, Session>,
    known: impl Fn() -> Session + Copy,
) -> Result<()> {
    let mut damage = None;
    kv.scan(&[orphan::PREFIX], &[orphan::PREFIX + 1], |key, value| {
        match orphan::deser_value(key, value).and_then(|()| orphan::deser_key(key)) {
            Ok((inode, session)) => {
                holds.open(session, inode);
                holds.orphan(inode);
                if session != ABSENT {
                    sessions.entry(session).or_insert_with(known);
                }
                ControlFlow::Continue(())
            }
            Err(found) => {
                damage = Some(found);
                ControlFlow::Break(())
            }
        }
    })?;
    damage.map_or(Ok(()), |damage| Err(damage.into()))
}
