//! Terms that clients were told, over restarts.
//!
//! A client goes by what the incarnation told it that it heard last. So where a setting is smaller than before, the larger one
//! is on record until all that was told with it is over: a start presumes leases, and waits for sessions, for as long as
//! any of those before may have promised.

use kv::Kv;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::meta;
use crate::shard::{Config, Shard};

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) lease_ms: u64,
    pub(super) expiry_ms: u64,
}

impl Terms {
    /// Of the settings.
    pub(super) fn of(config: &Config) -> Self {
        Self { lease_ms: config.lease_term_ms, expiry_ms: config.session_expiry_ms }
    }

    /// The longest that clients may go by. A store that was just made does not say.
    pub(super) fn on_record<K: Kv>(namespace: &Namespace<K>, config: &Config) -> Result<Self> {
        let present = Self::of(config);
        let lease_ms = namespace.number(meta::LEASE_TERM)?.unwrap_or(0).max(present.lease_ms);
        let expiry_ms = namespace.number(meta::SESSION_EXPIRY)?.unwrap_or(0).max(present.expiry_ms);
        Ok(Self { lease_ms, expiry_ms })
    }

    /// With the coming batch.
    pub(super) fn put<K: Kv>(self, namespace: &mut Namespace<K>) {
        namespace.cold.put(meta::LEASE_TERM, &meta::ser_number(self.lease_ms));
        namespace.cold.put(meta::SESSION_EXPIRY, &meta::ser_number(self.expiry_ms));
    }

    /// When those of the settings are all that is left, where they are shorter.
    pub(super) fn over_ms(self, config: &Config, mono_ms: u64) -> Option<u64> {
        let present = Self::of(config);
        let are_longer = self.lease_ms > present.lease_ms || self.expiry_ms > present.expiry_ms;
        are_longer.then(|| mono_ms.saturating_add(self.lease_ms.max(self.expiry_ms)))
    }
}

impl<K: Kv> Shard<K> {
    /// Where the commit fails, the next start waits longer than it had to.
    pub(super) fn note_terms(&mut self) {
        if self.terms_over_ms.is_some_and(|over_ms| self.mono_ms >= over_ms) {
            self.terms_over_ms = None;
            Terms::of(&self.config).put(&mut self.namespace);
        }
    }
}
